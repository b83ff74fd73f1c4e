//! The worker processes of the crash search, from both sides.
//!
//! A worker prints one line of JSON for each seed, in order. So when it ends early, the seed it died of is the one after
//! the last line.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tantalum_crash::{Failure, Options, Report, Scope, search};

use super::{Board, Seeds, WorkerArguments, other};
use crate::error::{Error, Result};

/// What a worker prints of each seed.
#[derive(Serialize, Deserialize)]
pub struct Line {
    pub result: std::result::Result<Report, Failure>,
    /// Processor time of the worker up to here.
    pub cpu: Duration,
}

/// The worker's side: runs its seeds.
pub fn work(arguments: &WorkerArguments) -> Result<ExitCode> {
    let options: Options = serde_json::from_str(&arguments.options).map_err(other)?;
    let scope = Scope::new(options).map_err(other)?;
    for seed in arguments.seeds.from..arguments.seeds.to {
        let line = Line { result: search(seed, &scope), cpu: processor_time("self") };
        let line = serde_json::to_string(&line).map_err(other)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Error::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a worker (its process's id, or `self`) has used of a processor; zero where the system does not say.
pub fn processor_time(process: &str) -> Duration {
    // A worker is one thread.
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// The other side: has workers run batches of seeds until none are left.
pub fn supervise(board: &Board, program: &Path, scope: &Scope) -> Result<()> {
    while let Some(mut seeds) = board.next_batch() {
        while seeds.from < seeds.to {
            seeds.from = run_worker(board, program, scope, seeds)?;
        }
    }
    Ok(())
}

/// Has one worker run `seeds`. Returns the first seed that it left to do.
fn run_worker(board: &Board, program: &Path, scope: &Scope, seeds: Seeds) -> Result<u64> {
    let options = serde_json::to_string(scope.options()).map_err(other)?;
    let mut command = Command::new(program);
    command.arg("crash-worker").arg("--seeds").arg(seeds.to_string()).arg("--options").arg(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Error::file("start a worker:", program, error))?;
    let output = child.stdout.take().expect("the output is piped");
    let (worker, child) = board.started(child);
    let (mut next, mut used) = (seeds.from, Duration::ZERO);
    for line in BufReader::new(output).lines() {
        let line = line.ok().and_then(|line| serde_json::from_str::<Line>(&line).ok());
        let Some(Line { result, cpu }) = line else {
            // A worker that prints anything else is not to be trusted. An error means that it has ended by itself.
            let _ = child.lock().kill();
            break;
        };
        used = cpu;
        board.seed_done(worker, result, used);
        next += 1;
    }
    board.used(used);
    let status = child.lock().wait().map_err(|error| Error::Other(format!("cannot wait for a worker: {error}")))?;
    let was_hung = board.ended(worker);
    if next < seeds.to {
        let what = if was_hung { "the seed hangs".to_owned() } else { format!("the worker process died: {status}") };
        board.seed_done(worker, Err(scope.failure(next, 0, what)), used);
        next += 1;
    }
    Ok(next)
}
