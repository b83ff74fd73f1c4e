//! The probe: measures a device, says what it is good at, and how a database should be set up on it.
//!
//! A [`Plan`] bounds time and bytes written beforehand, [`probe`] keeps to it on any [`Device`](tantalum_device::Device), on either
//! clock, and [`Found`] is what was measured. [`Advice`] is made of that and of nothing else; [`page`] shows both.
//! docs/measure/probe.md explains every measurement and how advice follows from it.

mod advice;
mod budget;
mod cache;
mod concurrency;
mod config;
mod durable;
mod found;
mod measure;
mod meter;
mod page;
mod plan;
mod plots;
mod power;
pub mod power_cut;
mod prober;
mod sizes;
mod steady;
mod stores;
mod tables;
mod units;

pub use advice::{Advice, Recommendation, StoreCosts};
pub use config::{characteristics, settings};
pub use found::{
    Align, Cache, Claims, Durable, EraseUnit, Flushed, Found, Gap, OpenUnits, PageCost, Pattern, Responses, SizeRow,
    Steady, StoreTimes, Streams, Tasks, Throughput, TwoStreams, Ways,
};
pub use page::{page, statements};
pub use plan::{Effort, Plan};
pub use power::{PowerSafe, Verdict};
pub use prober::{Stage, probe};
pub use tables::tables;
