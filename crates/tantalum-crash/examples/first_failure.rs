//! Runs seeds until one fails, in one process: `cargo run --profile test -p tantalum-crash --example first_failure -- 0..100`.
//!
//! Exits with 1 if a seed failed, and says which. `tantalum crash` does more: it uses all cores, and survives seeds that
//! hang or end the process.
//!
//! The process grows by about 15 MB a seed: a simulation that ends at a power cut leaks what its tasks held, since their
//! destructors must not run. 100 seeds take 1.5 GB, so more than 500 are refused. `tantalum crash` ends each of its
//! processes after 25 seeds.

use std::process::ExitCode;

use tantalum_crash::{Options, Report, Scope, search};

/// Seeds that one process runs at most.
const SEEDS_MAX: u64 = 500;

fn main() -> Result<ExitCode, String> {
    let usage = || "give the seeds: FIRST..END, END excluded".to_owned();
    let seeds = std::env::args().nth(1).ok_or_else(usage)?;
    let (first, end) = seeds.split_once("..").ok_or_else(usage)?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?} is no seed: {error}"));
    let (first, end) = (number(first)?, number(end)?);
    let count = end.saturating_sub(first);
    if count > SEEDS_MAX {
        return Err(format!(
            "{seeds} are {count} seeds, and this process would grow by about 15 MB with each: at most {SEEDS_MAX} are \
             run here. Use `tantalum crash --seeds {seeds}`, which runs them in processes of 25 seeds"
        ));
    }
    let scope = Scope::new(Options::default()).map_err(|error| error.to_string())?;
    let mut total = Report::default();
    for seed in first..end {
        match search(seed, &scope) {
            Ok(report) => total.add(&report),
            Err(failure) => {
                println!("{failure}");
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    println!("{} seeds passed, {} schedules", total.seeds, total.schedules);
    Ok(ExitCode::SUCCESS)
}
