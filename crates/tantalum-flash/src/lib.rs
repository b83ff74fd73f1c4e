//! Devices that behave, and fail, like devices: for measuring and for searching crashes, on either clock.
//!
//! A [`Model`] is firmware and mechanics: it says when each operation finishes, and what is on the medium if the power
//! fails now. [`EmulatedDevice`] puts a model behind [`tantalum_device::Device`]. Behaviour emerges from structure
//! (flash pages and blocks, translation layers, caches, mechanics), not from tables of results, and everything is
//! deterministic: the same calls at the same times give the same answers.

pub mod block_mapped;
pub mod block_ssd;
pub mod cloud;
mod contents;
mod device;
pub mod disk;
pub mod durassd;
mod error;
pub mod faults;
pub mod ftl;
mod in_file;
mod link;
mod medium;
mod model;
pub mod nand;
mod parts;
mod profile;
mod ranges;
mod spec;
pub mod ssd;
pub mod usb;
mod writeback;

pub use contents::{Contents, PIECE_BYTES, Piece};
pub use device::EmulatedDevice;
pub use error::{Error, Result};
pub use model::{Counters, MediaError, Model, Nanos, Outcome, Shape, Ticket};
pub use profile::{Kind, Profile, RawFlash, SolidStateDrive};
pub use spec::EmulatedSpec;
