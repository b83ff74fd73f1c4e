//! One run, in a process of its own: so peaks of memory and background threads of one log are not another's.
//!
//! The process is this program again, with a hidden subcommand. It reads what to do from its arguments as JSON, and writes what came of
//! it as JSON, the only line on its standard output.

use std::fs::File;
use std::process::{Command, Stdio};

use rustix::fs::syncfs;
use serde::{Deserialize, Serialize};

use crate::append::{self, Append, Counted};
use crate::error::{Error, Result};
use crate::meter::{Meter, peak_memory_bytes};
use crate::read;
use crate::store::{Kind, Setup};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "run-one";

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// With which log.
    pub kind: Kind,
    /// How it is opened.
    pub setup: Setup,
    /// The part of the comparison.
    pub task: Task,
}

/// The parts of a comparison that are a process each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Appends to groups.
    Append(Append),
    /// Makes a log with so many entries.
    Fill(u64),
    /// Opens it.
    Replay,
    /// Reads from it.
    Read {
        /// Readers.
        threads: u64,
        /// Seconds that count.
        seconds: f64,
    },
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What was counted.
    pub counted: Counted,
    /// The most memory that the process has had.
    pub peak_memory_bytes: u64,
}

/// Does it, and prints the outcome.
///
/// # Errors
/// Of the log or the system.
pub fn run(json: &str) -> Result<()> {
    let unreadable = |error| Error::Other(format!("{SUBCOMMAND} is for this program itself: {error}"));
    let Job { kind, setup, task } = serde_json::from_str(json).map_err(unreadable)?;
    let meter = Meter::of(&setup.directory)?;
    let counted = match task {
        Task::Append(append) => {
            let store = kind.open(&setup)?;
            // Files that were made just now are written before the measurement, not during it.
            let directory = &setup.directory;
            let synced = File::open(directory).and_then(|file| syncfs(&file).map_err(Into::into));
            synced.map_err(Error::file("sync", directory))?;
            let counted = append::run(&*store, append, &meter)?;
            store.close()?;
            counted
        }
        Task::Fill(entries) => {
            read::fill(&*kind.open(&setup)?, entries)?;
            Counted::default()
        }
        Task::Replay => read::replay(kind, &setup, &meter)?,
        Task::Read { threads, seconds } => read::read(kind, &setup, threads, seconds, &meter)?,
    };
    let outcome = Outcome { counted, peak_memory_bytes: peak_memory_bytes()? };
    println!("{}", serde_json::to_string(&outcome).map_err(|error| Error::Other(error.to_string()))?);
    Ok(())
}

impl Job {
    /// Runs it in a process of its own.
    ///
    /// # Errors
    /// If the process fails; its message went to standard error.
    pub fn start(&self) -> Result<Outcome> {
        let other = |error: &dyn std::fmt::Display| Error::Other(format!("a process of this program: {error}"));
        let json = serde_json::to_string(self).map_err(|error| other(&error))?;
        let program = std::env::current_exe().map_err(|error| other(&error))?;
        let run =
            Command::new(program).args([SUBCOMMAND, &json]).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let run = run.map_err(|error| other(&error))?;
        if !run.status.success() {
            return Err(Error::Other(format!("its process failed ({}); its message is above", run.status)));
        }
        serde_json::from_slice(&run.stdout).map_err(|error| other(&error))
    }
}
