//! Ctrl-C, or a request to end, while a benchmark runs.
//!
//! While clients are measured, the first one ends the run early, and what was measured is printed. At any other time, and the second
//! time, the program ends at once, without the directory that it made for this run.

use std::{
    path::PathBuf,
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::error::{Error, Result};

/// The exit code of a program that was interrupted, as shells have it.
pub const EXIT_CODE: u8 = 130;

static IS_MEASURING: AtomicBool = AtomicBool::new(false);
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
static DIRECTORY_OF_THIS_RUN: OnceLock<PathBuf> = OnceLock::new();

/// Takes the signals from now on.
pub fn handle() -> Result<()> {
    ctrlc::set_handler(|| {
        if IS_MEASURING.load(Ordering::SeqCst) && !IS_REQUESTED.swap(true, Ordering::SeqCst) {
            eprintln!("\ninterrupted: the run ends early; again, to end at once");
            return;
        }
        if let Some(directory) = DIRECTORY_OF_THIS_RUN.get() {
            // The database in it may add files meanwhile.
            let is_gone = (0..100).any(|_| std::fs::remove_dir_all(directory).is_ok() || !directory.exists());
            if !is_gone {
                eprintln!("cannot remove {}; remove it by hand", directory.display());
            }
        }
        eprintln!("\ninterrupted");
        process::exit(i32::from(EXIT_CODE));
    })
    .map_err(|error| Error::Other(format!("cannot take signals: {error}")))
}

/// A directory that goes if the program is interrupted.
pub fn remove_directory(directory: PathBuf) {
    // A benchmark makes one.
    let _ = DIRECTORY_OF_THIS_RUN.set(directory);
}

/// Whether the run is to end early.
pub fn is_requested() -> bool {
    IS_REQUESTED.load(Ordering::SeqCst)
}

/// While it lives, an interruption ends the run only.
pub struct Measuring(());

impl Measuring {
    pub fn begin() -> Self {
        IS_MEASURING.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        IS_MEASURING.store(false, Ordering::SeqCst);
    }
}
