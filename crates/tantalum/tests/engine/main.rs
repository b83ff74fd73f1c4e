//! The engine through its public interface: on real files, and on memory devices in simulation.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod api;
mod bulk_load;
mod change_buffer;
mod change_feed;
mod checking;
mod closing;
mod compact;
mod compact_beside;
mod concurrent;
mod control;
mod creation;
mod damage;
mod devices;
mod durable_cache;
mod errors;
mod expiring;
mod files;
mod growth;
mod in_page_logging;
mod large;
mod large_values;
mod log_devices;
mod log_structured;
mod metrics;
mod observer;
mod page_faults;
mod poison;
mod read_only;
mod restore;
mod sessions;
mod shrinking;
mod small_log;
mod small_pool;
mod snapshots;
mod space;
mod staged_rows;
mod support;
mod tickets;
mod transact;
mod typed;
mod wrapping;
mod zones;
