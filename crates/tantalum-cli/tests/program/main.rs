//! The program: what it prints, writes and refuses, and how it ends.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod bad_input;
mod changes;
mod commands;
mod common;
mod compact;
mod documents;
mod emulated;
mod io_trace;
mod json_reference;
mod kill_nine;
mod large_values;
mod log_devices;
mod operations;
mod probe;
mod reading;
mod restore;
mod rows;
mod salvage;
mod shell;
mod top;
