//! Micro benchmarks of one device: the loads of the papers' device studies, measured one request at a time.
//!
//! A [`Job`] says what to do, [`run`] does it on any [`Device`](tantalum_device::Device), and [`Measured`] keeps every
//! single response time. Time is `tantalum_rt`'s: inside a simulation it is virtual, and the same seed on the same
//! device gives the same response times to the nanosecond. [`suite`] holds the jobs that a device is usually put
//! through.
//!
//! ```
//! use std::sync::Arc;
//! use tantalum_device::{Device, MemoryDevice};
//! use tantalum_lab::micro::{self, Job, Pattern};
//!
//! let device: Arc<dyn Device> = MemoryDevice::new("memory", 1 << 20);
//! let job = Job { pattern: Pattern::Random, ..Job::writes(4096, 100, 0..1 << 20) };
//! let measured = micro::run(&device, &job, &|_| ())?;
//! assert_eq!(measured.summary().operations, 100);
//! # Ok::<(), tantalum_lab::Error>(())
//! ```

mod address;
mod fsync;
mod job;
mod measured;
mod outliers;
mod raw;
mod results;
mod run;
mod splitting;
pub mod suite;

pub(crate) use fsync::Journal;
pub use job::{Data, Flushing, Fsync, Job, Pattern};
pub use measured::{Kind, Latency, Measured, Sample, Summary};
pub use outliers::Outliers;
pub use raw::{FlashJob, FlashLayout, FlashOperation, FlashPlan, flash_benchmarks, run_flash};
pub use results::{Results, Row, execute};
pub use run::{fill, run};
pub use splitting::{Together, run_together};
pub use suite::{Benchmark, Load, Plan, Suite};
