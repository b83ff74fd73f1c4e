//! The lab through its public interface: micro benchmarks, the probe, power cuts by hand, and the report.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod chromium;
mod micro;
mod power_cut;
mod probe;
mod report;
