//! SQLite on the VFS, through its own interface.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod concurrency;
mod directory;
mod failing_device;
mod files;
mod modes;
mod same_as_stock;
mod sizes;
mod status;
