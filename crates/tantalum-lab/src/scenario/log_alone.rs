//! The log without a database: requesters that only append and flush (Figure 14), and a recovery's scan (Figure 16).

use std::{sync::Arc, time::Duration};

use tantalum_log::{HidingStats, Log};
use tantalum_rt::{Random, Scheduling, Simulation, spawn};

use super::{FlushSizes, LogSetup, log::Built};
use crate::error::Result;

/// What a request adds to a record: its header, and the record's frame.
const AROUND_RECORD_BYTES: usize = 100;

/// Requesters that each append one record and wait until it is durable, again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requesters {
    /// The log.
    pub log: LogSetup,
    /// How many there are.
    pub count: usize,
    /// Bytes of a request that holds one record.
    pub request_bytes: usize,
    /// From when a record is durable until its requester runs again.
    pub waking: Duration,
    /// Virtual time of the run.
    pub time: Duration,
    /// For what the simulation leaves open.
    pub seed: u64,
}

/// What requesters reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    /// Bytes a second: requests times their size, as if each had one record.
    pub bytes_per_second: f64,
    /// What hiding did.
    pub hiding: HidingStats,
}

impl Requesters {
    /// Runs them in a simulation, on a new log.
    pub fn run(self) -> Result<Reached> {
        Simulation::new(self.seed).scheduling(Scheduling::InOrder).run(move || self.measure()).expect_finished()
    }

    fn measure(self) -> Result<Reached> {
        let log = new_log(&self.log, &self.log.build()?)?;
        let Self { waking, time, .. } = self;
        let record_bytes = self.request_bytes.saturating_sub(AROUND_RECORD_BYTES);
        let started = tantalum_rt::now();
        let requester = |number| {
            let log = log.clone();
            spawn(format!("requester {number}"), move || -> Result<u64> {
                let (record, mut requests) = (vec![number as u8; record_bytes], 0);
                while started.elapsed() < time {
                    log.flush(log.append(&[&record])?.end)?;
                    requests += 1;
                    if !waking.is_zero() {
                        tantalum_rt::sleep(waking);
                    }
                }
                Ok(requests)
            })
        };
        let requesters: Vec<_> = (0..self.count).map(requester).collect();
        let counts = requesters.into_iter().map(|task| task.join().expect("a panic ends the simulation"));
        let requests: u64 = counts.collect::<Result<Vec<_>>>()?.into_iter().sum();
        let bytes_per_second = (requests * self.request_bytes as u64) as f64 / started.elapsed().as_secs_f64();
        let hiding = log.stats().hiding;
        log.close()?;
        Ok(Reached { bytes_per_second, hiding })
    }
}

/// A log that a server left behind when it was killed.
#[derive(Debug, Clone)]
pub(crate) struct Killed {
    /// The log.
    pub log: LogSetup,
    /// The server's flushes: how many of each size.
    pub flushes: FlushSizes,
    /// Bytes of records in it.
    pub log_bytes: u64,
    /// For the order of the flushes.
    pub seed: u64,
}

/// A recovery's scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanned {
    /// Bytes of records.
    pub log_bytes: u64,
    /// Virtual seconds.
    pub seconds: f64,
}

impl Killed {
    /// Writes the log as the server would have, ends without a word, and opens it again.
    pub fn scan(self) -> Result<Scanned> {
        let (setup, seed) = (self.log, self.seed);
        let (built, end) = self.written()?;
        scan(setup, built, end, seed)
    }

    /// The devices as the server left them, and when.
    fn written(self) -> Result<(Built, Duration)> {
        let simulation = Simulation::new(self.seed).scheduling(Scheduling::InOrder);
        simulation.run(move || self.write()).expect_finished()
    }

    /// As many requesters as devices, so that each flush is one request.
    fn write(self) -> Result<(Built, Duration)> {
        let built = self.log.build()?;
        let log = new_log(&self.log, &built)?;
        let (flushes, log_bytes) = (Arc::new(self.flushes), self.log_bytes);
        let requester = |number: usize| {
            let (log, flushes, mut random) =
                (log.clone(), Arc::clone(&flushes), Random::with_seed(self.seed + number as u64));
            spawn(format!("requester {number}"), move || -> Result<()> {
                let count: u64 = flushes.values().sum();
                while log.end_lsn().get() < log_bytes {
                    let mut pick = random.u64(0..count);
                    let drawn = flushes.iter().find(|(_, n)| {
                        pick < **n || {
                            pick -= **n;
                            false
                        }
                    });
                    let bytes = drawn.map_or(0, |(bytes, _)| *bytes as usize).saturating_sub(AROUND_RECORD_BYTES);
                    log.flush(log.append(&[&vec![1; bytes]])?.end)?;
                }
                Ok(())
            })
        };
        let requesters: Vec<_> = (0..built.devices.len()).map(requester).collect();
        for task in requesters {
            task.join().expect("a panic ends the simulation")?;
        }
        let end = Duration::from_nanos(tantalum_rt::now().as_nanos());
        // Dropped without being closed, it stops as in a crash.
        end_tasks_of(log);
        Ok((built, end))
    }
}

/// Opens a log at this time.
fn scan(setup: LogSetup, built: Built, at: Duration, seed: u64) -> Result<Scanned> {
    let open = move || -> Result<Scanned> {
        let started = tantalum_rt::now();
        let Built { devices, archive } = built;
        let recovery = Log::open(devices, setup.options(archive.as_ref()), &mut |_| ())?;
        let seconds = started.elapsed().as_secs_f64();
        let log_bytes = recovery.end_lsn().bytes_since(recovery.checkpoint_lsn());
        end_tasks_of(recovery);
        Ok(Scanned { log_bytes, seconds })
    };
    Simulation::new(seed).scheduling(Scheduling::InOrder).start_at(at).run(open).expect_finished()
}

/// Drops a log, or what opens one, and lets the tasks that it had come to their ends. A simulation that ends before them leaks
/// what they hold: devices, with all that is on them.
pub(super) fn end_tasks_of<T>(log: T) {
    drop(log);
    tantalum_rt::sleep(Duration::from_secs(1));
}

fn new_log(setup: &LogSetup, built: &Built) -> Result<Log> {
    let (devices, archive) = (&built.devices, built.archive.as_ref());
    Log::create(LOG_ID, devices.clone(), setup.options_at_creation(archive))?;
    Ok(Log::open(devices.clone(), setup.options(archive), &mut |_| ())?.finish()?)
}

/// Of all logs without a database.
pub(super) const LOG_ID: u128 = 0x7a4e_7a4c;

#[cfg(test)]
mod tests {
    use tantalum_device::Device;

    use super::*;

    #[test]
    fn a_scanned_log_leaves_nothing_in_memory() {
        let (log, seed) = (LogSetup::paper("usb-c", 2).with_hiding(tantalum::LogHiding::On).with_archive(), 1);
        let killed = Killed { log, flushes: FlushSizes::from([(4096, 1)]), log_bytes: 4_000_000, seed };
        let (built, end) = killed.written().unwrap();
        let devices: Vec<_> = built.devices.iter().chain(&built.archive).cloned().collect();
        let holders = |devices: &[Arc<dyn Device>]| devices.iter().map(Arc::strong_count).collect::<Vec<_>>();
        assert_eq!(holders(&devices), [2; 3], "these, and those that were built");
        scan(log, built, end, seed).unwrap();
        assert_eq!(holders(&devices), [1; 3]);
    }
}
