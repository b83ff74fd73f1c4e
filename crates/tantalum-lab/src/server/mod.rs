//! The server of FlashLogging's experiments (section 5): TPC-C with 20 warehouses in memory, its log on emulated devices, in
//! virtual time.
//!
//! The database is loaded once ([`image`]); each run ([`cell`]) goes on from a copy, with a new log, in a simulation of its
//! own; several run side by side ([`sweep`]). Every run is the same for the same seed.

mod cell;
mod image;
mod log_alone;
mod log_mutex;
mod on_drive;
mod paced;
mod plain;
mod resident;
mod rows;
mod setup;
mod stored;
mod suited;
mod sweep;
mod tap;
mod traced;

pub use cell::{CLIENTS, CPU_PER_CALL, Cell, HARDWARE_THREADS, Run};
pub use image::Loaded;
pub use log_alone::{Killed, Reached, Requesters, Scanned};
pub use on_drive::{
    Databases, DriveRun, LoadedStore, Scaled, Setup, Store, StoreRun, Updates, Way, Written, WrittenRun, WrittenServer,
};
pub use paced::{Paced, PacedRun, Stuck};
pub use rows::{LOG_DEVICE, Operation, Rows, RowsRun, Through};
pub use setup::{LogSetup, Writer};
pub use stored::{DeviceWork, StoreCost, Stored};
pub use suited::{Suited, SuitedServer};
pub use sweep::{Server, Size};
pub use tap::Sizes;
pub use traced::{Traced, TracedServer};
