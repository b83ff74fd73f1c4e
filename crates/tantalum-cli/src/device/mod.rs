//! `tantalum device`: what a device says about itself, what follows from it, and how fast it is.

mod bench;
pub mod emulated;
pub mod overwrite;
pub mod place;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

#[derive(Subcommand)]
pub enum Command {
    /// List the devices that can be emulated.
    List {
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Show what was found out about a device and what follows from it, or the parameters of an emulated one.
    Show(show::Arguments),
    /// Measure a device by the micro benchmarks of the papers; an emulated one in virtual time.
    ///
    /// Reads and writes by size, sequential and random; mixed; the distribution of response times; single response times
    /// of back-to-back writes; two streams; writes per flush; threads; page sizes; overlapping writes. Of raw flash: reads,
    /// programs and erases, on one plane and on several.
    Bench(bench::Arguments),
}

/// Runs a `device` command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { json } => emulated::list(json),
        Command::Show(arguments) => show::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}
