//! Flash without a translation layer: what else a device hides. Pages are read and programmed, whole or in parts, blocks
//! are erased, and planes do so at the same time.
//!
//! The rules of flash are kept: programs go to erased pages, in order within a block; what has to be erased or programmed
//! before is, and is not measured.

use std::{ops::Range, sync::Arc};

use serde::Serialize;
use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_flash::RawFlash;
use tantalum_rt::{Random, now, spawn};

use super::{
    measured::{Kind, Measured, Sample},
    run::timed,
    suite::{Benchmark, bytes},
};
use crate::error::{Error, Result};

/// How a raw flash device is divided. A plane is a contiguous range of bytes, a block one of a plane. Sizes are in
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FlashLayout {
    /// The smallest program.
    pub sector_bytes: u32,
    /// Of a page's data.
    pub page_bytes: u32,
    /// Of a block's data.
    pub block_bytes: u32,
    /// Of a plane's data.
    pub plane_bytes: u64,
    /// Planes, which work at the same time.
    pub planes: u32,
}

impl FlashLayout {
    /// How an emulated chip of so many bytes is divided.
    pub fn of(flash: &RawFlash, capacity_bytes: u64) -> Self {
        let geometry = &flash.geometry;
        Self {
            sector_bytes: flash.sector_bytes,
            page_bytes: geometry.page_bytes,
            block_bytes: geometry.page_bytes * geometry.pages_per_block,
            plane_bytes: capacity_bytes / u64::from(geometry.planes()),
            planes: geometry.planes(),
        }
    }
}

/// What is done to flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlashOperation {
    /// Pages, or a part of one, are read in order.
    Read,
    /// The same, anywhere.
    RandomRead,
    /// Erased pages, or a part of one, are programmed in order.
    Program,
    /// A block is erased.
    Erase,
}

/// What a micro benchmark does to raw flash. Two equal jobs on equal devices do the same.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_flash::{EmulatedDevice, Profile};
/// use tantalum_lab::micro::{FlashJob, FlashLayout, FlashOperation, run_flash};
///
/// let layout = FlashLayout { sector_bytes: 512, page_bytes: 2048, block_bytes: 128 << 10, plane_bytes: 4 << 20, planes: 2 };
/// let job = FlashJob { layout, operation: FlashOperation::Erase, request_bytes: 128 << 10, planes: 1, operations: 10, seed: 42 };
/// let erase = tantalum_rt::Simulation::new(1).run(move || {
///     let chip = Profile::named("nand-k9wag08u1a").expect("it comes with the crate").with_capacity(8 << 20).build().expect("it is possible");
///     let device: Arc<dyn tantalum_device::Device> = EmulatedDevice::new("chip", chip);
///     run_flash(&device, &job).expect("blocks can be erased").summary()
/// });
/// assert_eq!(erase.expect_finished().latency.mean_ns, 1.5e6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FlashJob {
    /// How the device is divided.
    pub layout: FlashLayout,
    /// What.
    pub operation: FlashOperation,
    /// Bytes of each: of a read or a program at least a sector and at most a block, of an erase a block.
    pub request_bytes: u32,
    /// Planes that work at the same time, each with its own task.
    pub planes: u32,
    /// In all. A plane does no more than fit it.
    pub operations: u64,
    /// For addresses.
    pub seed: u64,
}

/// How long, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FlashPlan {
    /// How the device is divided.
    pub layout: FlashLayout,
    /// Of a job of requests up to a page; of larger ones a tenth.
    pub operations: u64,
    /// For addresses.
    pub seed: u64,
}

impl FlashPlan {
    fn job(&self, operation: FlashOperation, request_bytes: u32) -> FlashJob {
        let is_large = request_bytes > self.layout.page_bytes;
        let operations = if is_large { self.operations.div_ceil(10) } else { self.operations };
        FlashJob { layout: self.layout, operation, request_bytes, planes: 1, operations, seed: self.seed }
    }

    fn by_size(&self, name: &'static str, what: &'static str, operation: FlashOperation) -> Benchmark {
        let FlashLayout { sector_bytes, block_bytes, .. } = self.layout;
        let sizes = (0..).map(|shift| sector_bytes << shift).take_while(|&size| size < block_bytes);
        let sizes = sizes.chain([block_bytes]);
        let jobs = sizes.map(|size| (bytes(size), self.job(operation, size).into())).collect();
        Benchmark { name, what, varies: "request", jobs }
    }

    fn by_planes(&self, name: &'static str, what: &'static str, operation: FlashOperation, size: u32) -> Benchmark {
        let counts = (0..).map(|shift| 1 << shift).take_while(|&planes| planes < self.layout.planes);
        let counts = counts.chain([self.layout.planes]);
        let job = |planes| FlashJob { planes, ..self.job(operation, size) };
        let jobs = counts.map(|planes| (planes.to_string(), job(planes).into())).collect();
        Benchmark { name, what, varies: "planes", jobs }
    }
}

/// What raw flash is put through.
pub fn flash_benchmarks(plan: &FlashPlan) -> Vec<Benchmark> {
    use FlashOperation::{Erase, Program, RandomRead, Read};
    let FlashLayout { sector_bytes, page_bytes, block_bytes, .. } = plan.layout;
    let one = |what: &str, operation, size| (format!("{what}, {}", bytes(size)), plan.job(operation, size).into());
    vec![
        Benchmark {
            name: "operations",
            what: "what the chip is asked for, one at a time, on one plane",
            varies: "operation",
            jobs: vec![
                one("read a sector", RandomRead, sector_bytes),
                one("read a page", RandomRead, page_bytes),
                one("program a part of a page", Program, sector_bytes),
                one("program a page", Program, page_bytes),
                one("program a block, page by page", Program, block_bytes),
                one("erase a block", Erase, block_bytes),
            ],
        },
        plan.by_size("sequential-read", "reads one after the other", Read),
        plan.by_size("random-read", "reads anywhere", RandomRead),
        plan.by_size("program", "erased pages programmed one after the other, the smaller ones in parts", Program),
        plan.by_planes("planes-read", "pages read anywhere, by planes at once", RandomRead, page_bytes),
        plan.by_planes("planes-program", "pages programmed in order, by planes at once", Program, page_bytes),
        plan.by_planes("planes-erase", "blocks erased, by planes at once", Erase, block_bytes),
    ]
}

/// Runs `job` on a raw flash device and waits for its end. What the device held is lost.
///
/// # Errors
/// [`Error::Job`] if the layout is not the device's, or the job does not fit it; the first error of the device.
pub fn run_flash(device: &Arc<dyn Device>, job: &FlashJob) -> Result<Measured> {
    check(device, job)?;
    let layout = &job.layout;
    let each = (job.operations / u64::from(job.planes)).max(1).min(layout.plane_bytes / u64::from(job.request_bytes));
    let planes: Vec<Plane> = (0..job.planes)
        .map(|number| Plane { device: Arc::clone(device), job: *job, number, operations: each })
        .collect();
    planes.iter().try_for_each(Plane::prepare)?;
    let started = now();
    let tasks: Vec<_> =
        planes.into_iter().map(|plane| spawn(format!("plane-{}", plane.number), move || plane.measure())).collect();
    let mut samples = Vec::new();
    for task in tasks {
        samples.extend(task.join().expect("a task of a job does not panic")?);
    }
    let elapsed_ns = (now() - started).as_nanos() as u64;
    Ok(Measured { samples, elapsed_ns, request_bytes: job.request_bytes })
}

fn check(device: &Arc<dyn Device>, job: &FlashJob) -> Result<()> {
    let layout = &job.layout;
    let sizes = match job.operation {
        FlashOperation::Erase => layout.block_bytes..=layout.block_bytes,
        _ => layout.sector_bytes..=layout.block_bytes,
    };
    let divides = |small: u64, large: u64| small > 0 && large.is_multiple_of(small);
    let is_divided = divides(layout.sector_bytes.into(), layout.page_bytes.into())
        && divides(layout.page_bytes.into(), layout.block_bytes.into())
        && divides(layout.block_bytes.into(), layout.plane_bytes)
        && layout.plane_bytes * u64::from(layout.planes) == device.capacity_bytes()
        && layout.sector_bytes == device.capabilities().logical_block;
    // A request does not begin in one page and end in the middle of another.
    let fits = divides(job.request_bytes.into(), layout.block_bytes.into())
        && divides(layout.sector_bytes.into(), job.request_bytes.into());
    let why = if !is_divided {
        format!("the device is not divided as {layout:?} says; give it its own layout")
    } else if !sizes.contains(&job.request_bytes) || !fits {
        format!("its requests of {} bytes are no part of a block; {sizes:?} can be", job.request_bytes)
    } else if !(1..=layout.planes).contains(&job.planes) {
        format!("it wants {} planes of {}", job.planes, layout.planes)
    } else {
        return Ok(());
    };
    Err(Error::Job { job: format!("{job:?}"), device: device.name().to_owned(), why })
}

/// A plane and what is done to it.
struct Plane {
    device: Arc<dyn Device>,
    job: FlashJob,
    number: u32,
    operations: u64,
}

impl Plane {
    fn range(&self) -> Range<u64> {
        let begin = u64::from(self.number) * self.job.layout.plane_bytes;
        let blocks = (self.operations * u64::from(self.job.request_bytes)).div_ceil(self.job.layout.block_bytes.into());
        begin..begin + blocks * u64::from(self.job.layout.block_bytes)
    }

    /// Erases what will be used; programs it, if it is to be read or erased.
    fn prepare(&self) -> Result<()> {
        let range = self.range();
        self.device.discard(range.start, range.end - range.start)?;
        if self.job.operation != FlashOperation::Program {
            let block = AlignedBuffer::zeroed(self.job.layout.block_bytes as usize);
            for offset in range.step_by(block.len()) {
                self.device.write(offset, &[&block], Durability::Durable)?;
            }
        }
        Ok(())
    }

    fn measure(&self) -> Result<Vec<Sample>> {
        let mut random = Random::with_seed(self.job.seed ^ u64::from(self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut buffer = AlignedBuffer::zeroed(self.job.request_bytes as usize);
        let (begin, bytes) = (self.range().start, u64::from(self.job.request_bytes));
        let mut samples = Vec::new();
        for number in 0..self.operations {
            let offset = begin + number * bytes;
            let (kind, nanoseconds) = match self.job.operation {
                FlashOperation::Read => (Kind::Read, timed(|| self.device.read(offset, &mut buffer))?),
                FlashOperation::RandomRead => {
                    let offset = begin + random.u64(..self.operations) * bytes;
                    (Kind::Read, timed(|| self.device.read(offset, &mut buffer))?)
                }
                FlashOperation::Program => {
                    (Kind::Write, timed(|| self.device.write(offset, &[&buffer], Durability::Durable))?)
                }
                FlashOperation::Erase => (Kind::Erase, timed(|| self.device.discard(offset, bytes))?),
            };
            samples.push(Sample { kind, stream: 0, nanoseconds });
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::{EmulatedDevice, Kind as DeviceKind, Profile};
    use tantalum_rt::Simulation;

    use super::super::{Results, execute};
    use super::*;

    fn results(operations: u64) -> Vec<Results> {
        let run = move || {
            let profile = Profile::named("nand-k9wag08u1a").unwrap().with_capacity(16 << 20);
            let DeviceKind::RawFlash(flash) = &profile.device else { panic!("{profile:?}") };
            let plan = FlashPlan { layout: FlashLayout::of(flash, profile.capacity_bytes), operations, seed: 1 };
            let device: Arc<dyn Device> = EmulatedDevice::new("chip", profile.build().unwrap());
            flash_benchmarks(&plan).iter().map(|benchmark| execute(&device, benchmark, &|_, _| ()).unwrap()).collect()
        };
        Simulation::new(1).run(run).expect_finished()
    }

    #[test]
    fn operations_take_what_the_data_sheet_says() {
        let results = results(100);
        let times: Vec<f64> = results[0].rows.iter().map(|row| row.summary.latency.mean_ns / 1e3).collect();
        // Array and bus: 25 ns a byte of data and spare area.
        let expected = [25.0 + 14.4, 25.0 + 52.8, 14.4 + 200.0, 52.8 + 200.0, 64.0 * 252.8, 1500.0];
        for (time, expected) in times.iter().zip(expected) {
            assert!((time - expected).abs() < 0.1, "{times:?}");
        }
    }

    #[test]
    fn planes_share_the_bus_but_not_the_array() {
        let results = results(400);
        let rate = |name: &str, row: usize| {
            results.iter().find(|results| results.name == name).unwrap().rows[row].summary.per_second
        };
        assert!((1.9..=2.0).contains(&(rate("planes-erase", 1) / rate("planes-erase", 0))));
        assert!((1.9..=2.0).contains(&(rate("planes-program", 1) / rate("planes-program", 0))));
        let reads = rate("planes-read", 1) / rate("planes-read", 0);
        assert!((1.3..1.5).contains(&reads), "the bus carries one page at a time: {reads}");
    }

    #[test]
    fn a_layout_that_is_not_the_devices_is_refused() {
        let device: Arc<dyn Device> = tantalum_device::MemoryDevice::new("memory", 1 << 20);
        let layout =
            FlashLayout { sector_bytes: 512, page_bytes: 2048, block_bytes: 8192, plane_bytes: 1 << 20, planes: 2 };
        let job =
            FlashJob { layout, operation: FlashOperation::Read, request_bytes: 512, planes: 1, operations: 1, seed: 1 };
        let error = run_flash(&device, &job).unwrap_err();
        assert!(matches!(error, Error::Job { .. }), "{error}");
    }
}
