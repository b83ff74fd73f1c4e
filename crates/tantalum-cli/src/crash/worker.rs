//! The worker processes of the crash search, from both sides.
//!
//! A worker prints one line of JSON for each seed, in order. So when it ends early, the seed it died of is the one after
//! the last line.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use tantalum_crash::{Config, Failure, Protection, Report, search};

use super::{Board, Seeds, WorkerArguments};
use crate::error::{Error, Result};

/// The worker's side: runs its seeds.
pub fn work(arguments: &WorkerArguments) -> Result<ExitCode> {
    for seed in arguments.seeds.from..arguments.seeds.to {
        let only = &arguments.only;
        let is_wanted = only.is_empty() || only.contains(&Config::new(seed).protection);
        let result = if is_wanted { search(seed) } else { Ok(Report::default()) };
        let line = serde_json::to_string(&result).map_err(|error| Error::Other(error.to_string()))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Error::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The other side: has workers run batches of seeds until none are left.
pub fn supervise(board: &Board, program: &Path, only: &[Protection]) -> Result<()> {
    while let Some(mut seeds) = board.next_batch() {
        while seeds.from < seeds.to {
            seeds.from = run_worker(board, program, only, seeds)?;
        }
    }
    Ok(())
}

/// Has one worker run `seeds`. Returns the first seed that it left to do.
fn run_worker(board: &Board, program: &Path, only: &[Protection], seeds: Seeds) -> Result<u64> {
    let mut command = Command::new(program);
    command.arg("crash-worker").arg("--seeds").arg(seeds.to_string());
    for protection in only {
        command.arg("--only").arg(protection.name());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Error::file("start a worker:", program, error))?;
    let output = child.stdout.take().expect("the output is piped");
    let (worker, child) = board.started(child);
    let mut next = seeds.from;
    for line in BufReader::new(output).lines() {
        let result =
            line.ok().and_then(|line| serde_json::from_str::<std::result::Result<Report, Failure>>(&line).ok());
        let Some(result) = result else {
            // A worker that prints anything else is not to be trusted. An error means that it has ended by itself.
            let _ = child.lock().kill();
            break;
        };
        board.seed_done(worker, result);
        next += 1;
    }
    let status = child.lock().wait().map_err(|error| Error::Other(format!("cannot wait for a worker: {error}")))?;
    let was_hung = board.ended(worker);
    if next < seeds.to {
        let what = if was_hung { "the seed hangs".to_owned() } else { format!("the worker process died: {status}") };
        let configuration = Config::new(next).to_string();
        board.seed_done(worker, Err(Failure { seed: next, configuration, round: 0, what }));
        next += 1;
    }
    Ok(next)
}
