//! Devices that behave, and fail, like devices: for measuring and for searching crashes, on either clock.
//!
//! A [`Model`] is firmware and mechanics: it says when each operation finishes, and what is on the medium if the power
//! fails now. [`EmulatedDevice`] puts a model behind [`tantalum_device::Device`]. Behaviour emerges from structure
//! (flash pages and blocks, translation layers, caches, mechanics), not from tables of results, and everything is
//! deterministic: the same calls at the same times give the same answers.

mod block_mapped;
mod block_ssd;
mod cloud;
mod contents;
pub mod disk;
mod emulated_device;
pub mod faults;
pub mod ftl {
    //! Flash translation layers: how logical sectors find their place on flash that is erased in blocks.

    pub mod hybrid;
    pub(crate) mod page_mapped;
}
mod file_backed;
mod link;
mod model;
mod nand;
mod profile;
mod spec;
pub mod ssd;
mod usb;
mod writeback;

pub use block_mapped::BlockMappedParameters;
pub use block_ssd::BlockSsdParameters;
pub use cloud::CloudParameters;
pub use contents::Contents;
pub use emulated_device::EmulatedDevice;
pub use ftl::page_mapped::{Collection, PageMapping};
pub use model::{Counters, MediaError, Model, Nanos, Outcome, Shape, Ticket};
pub use nand::{Geometry, Timing, Wear};
pub use profile::{Kind, Profile, RawFlash, SolidStateDrive};
pub use spec::EmulatedSpec;
pub use tantalum_device::{Error, ErrorKind, Result};
pub use usb::UsbParameters;
