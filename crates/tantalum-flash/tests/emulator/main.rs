//! The emulated drives through their public interface.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod device;
mod edited;
mod faults;
mod flashlogging;
mod in_file;
mod power;
mod power_cuts;
mod published;
mod wear;
