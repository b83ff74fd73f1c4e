//! The papers' experiments that run here, each by the id of what was published.
//!
//! An experiment takes the numbers that it compares with from [`published`](crate::published). It runs on emulated devices in
//! virtual time, so that the same seed finds the same on every machine.

mod bed;
mod choice;
mod cores;
mod durassd;
mod early_lock_release;
mod file_systems;
mod flash_logging;
mod in_page_logging;
mod log_structured;
mod protections;
mod registry;
mod space_use;
mod today;
mod transactions;

pub use registry::{Experiment, all, find};

use crate::finding::Findings;

/// What all experiments are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Decides addresses and chance in the models.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 42 }
    }
}

/// What an experiment is: settings, and whom to tell what is measured now.
type Run = fn(Settings, &dyn Fn(&str)) -> crate::Result<Findings>;
