//! Goes through the phases of a probe and keeps to its plan.

use std::{sync::Arc, time::Duration};

use tantalum_device::{Device, ObservedDevice};
use tantalum_rt::{Instant, now};

use super::{
    budget::{Allowance, Budget, Phase, PhaseBudget},
    found::{Claims, EraseUnit, Found, OpenUnits},
    meter::Meter,
    plan::Plan,
};
use crate::error::{Error, Result};

/// What a probe is at.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// What is measured.
    pub doing: &'static str,
    /// Since the begin.
    pub elapsed: Duration,
    /// What it takes in all, at most.
    pub at_most: Duration,
}

/// What measurements share.
pub(super) struct Prober<'a> {
    /// The device, as a trait object for jobs.
    pub(super) device: Arc<dyn Device>,
    meter: Arc<Meter>,
    pub(super) plan: &'a Plan,
    budget: Budget,
    started: Instant,
    phase: Phase,
    progress: &'a dyn Fn(Stage),
    /// Bytes a second in large requests, once that is known: what takes too long is not begun.
    pub(super) speed: Option<f64>,
    pub(super) left_out: Vec<String>,
}

/// Measures `device` as `plan` says, and waits for the end. What the plan's range holds is lost, unless the plan is
/// [read-only](Plan::read_only). Raw flash, and a device with zones, are only read: what they are good at follows from what they are.
///
/// Inside a simulation the result depends on nothing but the device's state and the plan.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_lab::probe::{self, Effort, Plan};
///
/// let found = tantalum_rt::Simulation::new(1).run(|| {
///     let device: Arc<dyn Device> = MemoryDevice::new("memory", 8 << 20);
///     let plan = Plan { operations: 20, ..Plan::new(Effort::Quick, 0..8 << 20) };
///     probe::probe(&device, &plan, &|_| ()).expect("memory does not fail")
/// });
/// let found = found.expect_finished();
/// assert!(found.written_bytes <= 64 << 20);
/// assert_eq!(found.erase_unit.bytes, None);
/// ```
///
/// # Errors
/// [`Error::Job`] if the range is not the device's; the first error of the device.
pub fn probe(device: &Arc<dyn Device>, plan: &Plan, progress: &dyn Fn(Stage)) -> Result<Found> {
    check(device, plan)?;
    let claims = Claims::of(&**device);
    let is_raw_flash = claims.erase_block_bytes > 0;
    let has_zones = claims.zone_bytes > 0;
    let plan = &if is_raw_flash || has_zones { plan.clone().read_only() } else { plan.clone() };
    let meter = Arc::new(Meter::new(device.name(), plan.write_bytes));
    let mut prober = Prober {
        device: Arc::new(ObservedDevice::new(Arc::clone(device), meter.clone())),
        meter,
        plan,
        budget: Budget::new(plan.time),
        started: now(),
        phase: Phase::Fill,
        progress,
        speed: None,
        left_out: Vec::new(),
    };
    if is_raw_flash {
        prober
            .left_out
            .push("everything that writes: raw flash must be erased first (measure it with device bench)".into());
    } else if has_zones {
        prober.left_out.push(
            "everything that writes: zones are written in order, and not at random places as a probe does".into(),
        );
    } else if !plan.writes() {
        prober.left_out.push("everything that writes: nothing may be written".into());
    }
    let (fill, cache, steady) = (prober.fill()?, prober.cache()?, prober.settle()?);
    let stores = prober.stores()?;
    let (sizes, responses) = (prober.sizes()?, prober.responses()?);
    let durable = prober.begin_durable()?;
    let mut found = Found {
        range: plan.range.clone(),
        written_bytes: 0,
        seconds: 0.0,
        fill_bytes_per_second: fill,
        cache,
        steady,
        sizes,
        responses,
        durable: prober.durable(&durable)?,
        ways: prober.ways(&durable)?,
        two_streams: prober.two_streams(&durable)?,
        erase_unit: EraseUnit { bytes: None, why: String::new(), aligns: Vec::new() },
        open_units: OpenUnits { limit: None, why: String::new(), rates: Vec::new() },
        tasks: Vec::new(),
        stores,
        left_out: Vec::new(),
        claims,
    };
    (found.erase_unit, found.open_units) = prober.units(&found.claims)?;
    found.tasks = prober.tasks()?;
    found.left_out = std::mem::take(&mut prober.left_out);
    found.written_bytes = prober.meter.written_bytes();
    found.seconds = (now() - prober.started).as_secs_f64();
    assert!(found.written_bytes <= plan.write_bytes, "the meter lets nothing more pass");
    Ok(found)
}

fn check(device: &Arc<dyn Device>, plan: &Plan) -> Result<()> {
    let block = u64::from(device.capabilities().logical_block);
    let (range, capacity) = (&plan.range, device.capacity_bytes());
    let why = if range.start >= range.end || range.end > capacity {
        format!("it has bytes 0 to {capacity}")
    } else if !range.start.is_multiple_of(block) || !range.end.is_multiple_of(block) {
        format!("its blocks have {block} bytes")
    } else {
        return Ok(());
    };
    let job = format!("probe of bytes {} to {}", range.start, range.end);
    Err(Error::Job { job, device: device.name().to_owned(), why })
}

impl Prober<'_> {
    /// Begins a phase.
    pub(super) fn begin(&mut self, phase: Phase) -> PhaseBudget {
        self.phase = phase;
        self.show();
        self.budget.begin(phase, self.meter.left_bytes())
    }

    /// Tells how far it is.
    pub(super) fn show(&self) {
        let (elapsed, at_most) = (self.started.elapsed(), self.plan.time);
        (self.progress)(Stage { doing: self.phase.name(), elapsed, at_most });
    }

    /// For the next of `count` measurements of a phase.
    pub(super) fn next(&self, phase: &PhaseBudget, count: usize) -> Allowance {
        phase.next(count, self.meter.left_bytes())
    }

    /// Whether so many bytes can be written in order within the time, as far as that is known.
    pub(super) fn has_time_for(&self, bytes: u64, allowance: Allowance) -> bool {
        self.speed.is_none_or(|speed| bytes as f64 <= speed * allowance.time.as_secs_f64())
    }

    /// The smallest request that is measured as a page or as what a commit writes.
    pub(super) fn small_bytes(&self) -> u32 {
        self.device.capabilities().logical_block.max(4096)
    }

    /// The same measurement is not said twice to be left out.
    pub(super) fn leave_out(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }
}
