//! The program `tantalum`: looks after databases, measures them, and searches for crashes that they do not survive.
//!
//! Thin: it parses the command line, calls the crates below, and prints. Results go to standard output, progress to
//! standard error. An error is one line on standard error, with exit code 1; a command line that cannot be understood
//! has exit code 2.

mod bench;
mod crash;
mod db;
mod device;
mod emulator;
mod error;
mod interrupt;
mod lab;
mod log;
mod probe;
mod progress;
mod shell;
mod time;
mod top;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

use crate::error::{Error, Out, Result};

/// The program, as a shell calls it.
const NAME: &str = "tantalum";

/// Tantalum: an embeddable transactional storage engine for flash.
#[derive(Parser)]
#[command(name = NAME, version, about, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read and write a database, check it, copy it.
    #[command(subcommand)]
    Db(db::Command),
    /// Run commands on a database, one a line: from the terminal, or a script from standard input.
    ///
    /// A script ends with the first command that fails, and exit code 1.
    Shell(shell::Arguments),
    /// Watch what an open database does: commits, log devices, pages in memory, once a second.
    Top(top::Arguments),
    /// Look at the devices of a log, add, remove and replace them.
    #[command(subcommand)]
    Log(log::Command),
    /// Look at a storage device, or measure it; real and emulated ones.
    #[command(subcommand)]
    Device(device::Command),
    /// Measure a storage device and say how a database should be set up on it.
    Probe(Box<probe::Arguments>),
    /// Repeat the papers' experiments on emulated devices.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Run a benchmark.
    Bench(Box<bench::Arguments>),
    /// Search for power cuts that a database does not survive.
    ///
    /// Each seed is a database on simulated devices, with clients that read and write at random. Its power is cut
    /// again and again, during recovery too; what recovery finds is checked against what the clients were told.
    Crash(crash::Arguments),
    /// Print a script that completes the arguments of this program in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command.
    Man {
        /// The directory that they are written to, which is made if it is missing.
        dir: PathBuf,
    },
    /// Runs seeds for `tantalum crash` and reports each as a line.
    #[command(hide = true)]
    CrashWorker(crash::WorkerArguments),
}

fn main() -> ExitCode {
    // A reader that goes away must end the program as an error of `write`, not as a panic: Rust ignores SIGPIPE, and
    // all output here goes through `error::Out`, which knows that error.
    let arguments = Arguments::parse();
    // Under the crash search torn pages and failing devices are what is wanted, not worth a warning.
    trace_to_stderr(if matches!(arguments.command, Command::CrashWorker(_)) { "off" } else { "warn" });
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do when even that cannot be written.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {}\n", error.one_line()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The engine's events go to standard error; `RUST_LOG` asks for more or less than `default`.
fn trace_to_stderr(default: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Db(command) => db::run(command),
        Command::Shell(arguments) => shell::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Log(command) => log::run(command),
        Command::Device(command) => device::run(command),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Lab(command) => lab::run(command),
        Command::Bench(arguments) => bench::run(*arguments),
        Command::Crash(arguments) => crash::run(&arguments),
        Command::CrashWorker(arguments) => crash::work(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
            Out::new().bytes(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => {
            let pages = std::fs::create_dir_all(&dir);
            let pages = pages.and_then(|()| clap_mangen::generate_to(Arguments::command(), &dir));
            pages.map_err(|error| Error::file("write manual pages to", &dir, error))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
