//! `tantalum lab`: the papers' experiments, each beside its published numbers.

mod io_trace;
mod report;
pub mod run;
mod trace;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::Subcommand;
use tantalum_lab::published;
use tantalum_report::Table;

use crate::error::{Out, Result};

#[derive(Subcommand)]
pub enum Command {
    /// List what the papers publish, and what of it runs here; and what else is measured.
    List {
        /// Print JSON instead of text: all published numbers.
        #[arg(long)]
        json: bool,
    },
    /// Run experiments on emulated devices in virtual time, and show published and measured numbers side by side.
    Run(run::Arguments),
    /// Write a page that shows every experiment beside its published numbers, with a summary and plots.
    ///
    /// The page is one HTML file that needs nothing else. Without --from the experiments are run; with it their results are
    /// taken from files, and only those that are asked for and in none of the files are run.
    Report(report::Arguments),
    /// Show what in-page logging would make of the page changes and page writes of a run, by the simulator of "In-Page Logging"
    /// (SIGMOD 2007, section 4.2).
    ///
    /// For each size of the log region of an erase unit: merges, and the time of all writes by the paper's formulas, with log sectors
    /// (t_IPL: 200 us for a sector, 20 ms for a merge) and without (t_Conv: 20 ms for 90 % or half of the page writes).
    Trace(trace::Arguments),
    /// Show what the devices of a run were asked for: requests with their sizes and times, where they went, and what was written
    /// for a transaction, a change and a page ("Early Experience and Evaluation of File Systems on SSD", NAS 2010, Figures 12 to
    /// 15).
    IoTrace(io_trace::Arguments),
}

/// Runs a `lab` command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { json } => list(json)?,
        Command::Run(arguments) => run::run(&arguments)?,
        Command::Report(arguments) => report::run(&arguments)?,
        Command::Trace(arguments) => trace::run(&arguments)?,
        Command::IoTrace(arguments) => io_trace::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<()> {
    let listed = published::all().iter().chain(published::goals());
    if json {
        return Ok(tantalum_report::print_json(&listed.collect::<Vec<_>>())?);
    }
    let is_for_people = io::stdout().is_terminal();
    let shown = |text: &str, most| if is_for_people { shorten(text, most) } else { text.to_owned() };
    let mut table = Table::new(["id", "paper", "place", "what"]);
    for published in listed {
        table.row([
            &published.id,
            &published.paper().name,
            &shown(published.section(), 30),
            &shown(&published.what, 70),
        ]);
    }
    Out::new().line(table)
}

/// The first words.
fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text[..end].rsplit_once(' ').map_or(&text[..end], |(words, _)| words)),
    }
}
