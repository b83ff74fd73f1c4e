//! Commits that come when they come: a log under a load that does not depend on how fast it is.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tantalum_device::{Device, StallingDevice};
#[cfg(test)]
use tantalum_log::HidingStats;
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_rt::{Random, Scheduling, Simulation, sleep, spawn};

use super::{
    LogSetup,
    log::Built,
    log_alone::{LOG_ID, end_tasks_of},
};
use crate::{error::Result, micro::Latency};

/// Clients that commit a small record at random times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paced {
    /// The log.
    pub log: LogSetup,
    /// Clients; each waits for its commit before it makes the next.
    pub clients: usize,
    /// Commits a second, of all together.
    pub per_second: f64,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Virtual time of the run.
    pub time: Duration,
    /// When the first device stands still.
    pub stuck: Option<Stuck>,
    /// When the last device is taken out of the log, and a new one of its kind put in its place.
    pub replaced: Option<Duration>,
    /// After how long a device that does not answer is set aside.
    pub hang_timeout: Duration,
    /// For the times of the commits.
    pub seed: u64,
}

/// A time in which a device answers nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stuck {
    /// Since the begin of the run.
    pub from: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

/// What came of paced commits.
#[derive(Debug, Clone)]
pub(crate) struct PacedRun {
    /// From the time at which a commit was due to its acknowledgement, of all.
    pub latency: Latency,
    /// The slowest of the commits that were due while the device stood still, in milliseconds, by when they were due:
    /// within the first 50 ms of it, and later. Zero without such a device.
    pub slowest_while_stuck_ms: [f64; 2],
    /// What hiding did.
    #[cfg(test)]
    pub hiding: HidingStats,
    /// From when on and until when a device was replaced, in milliseconds since the begin.
    pub replaced_ms: Option<[f64; 2]>,
    /// Acknowledged records at or past the checkpoint that were not found when the log was opened again without having
    /// been closed.
    pub lost: usize,
}

/// A commit, in nanoseconds since the begin.
struct Commit {
    number: u64,
    end: Lsn,
    due: u64,
    took: u64,
}

/// Within this time after a device has stopped, the log has noticed: many times what a write usually takes.
const NOTICED: Duration = Duration::from_millis(50);

impl Paced {
    /// Runs it in a simulation, on a new log.
    pub fn run(self) -> Result<PacedRun> {
        Simulation::new(self.seed).scheduling(Scheduling::InOrder).run(move || self.measure()).expect_finished()
    }

    fn measure(self) -> Result<PacedRun> {
        let Built { mut devices, archive } = self.log.build()?;
        let options = LogOptions { hang_timeout: self.hang_timeout, ..self.log.options(archive.as_ref()) };
        if let (Some(Stuck { from, lasts }), Some(first)) = (self.stuck, devices.first_mut()) {
            *first = Arc::new(StallingDevice::new(Arc::clone(first), lasts, from + lasts));
        }
        Log::create(LOG_ID, devices.clone(), self.log.options_at_creation(archive.as_ref()))?;
        let log = Log::open(devices.clone(), options.clone(), &mut |_| ())?.finish()?;
        let started = tantalum_rt::now();
        let owner = {
            let log = log.clone();
            spawn("owner", move || -> Result<()> {
                while log.wait_for_pressure(Duration::MAX / 4) {
                    log.set_checkpoint(log.durable_lsn())?;
                }
                Ok(())
            })
        };
        let client = |number: usize| {
            let log = log.clone();
            spawn(format!("client {number}"), move || self.commit(&log, number as u64, started))
        };
        let clients: Vec<_> = (0..self.clients).map(client).collect();
        let replaced_ms = match self.replaced {
            None => None,
            Some(after) => {
                sleep(after);
                let from = started.elapsed();
                self.replace_last(&log, &mut devices)?;
                Some([from, started.elapsed()].map(|at| at.as_secs_f64() * 1e3))
            }
        };
        let mut commits = Vec::new();
        for client in clients {
            commits.extend(client.join().expect("a panic ends the simulation")?);
        }
        log.end_pressure_waits();
        owner.join().expect("a panic ends the simulation")?;
        #[cfg(test)]
        let hiding = log.stats().hiding;
        let checkpoint = log.checkpoint_lsn();
        // Dropped without being closed, it stops as in a crash.
        drop(log);
        // What lies before the checkpoint its owner has stored.
        let needed = commits.iter().filter(|commit| commit.end > checkpoint);
        let mut missing: HashSet<u64> = needed.map(|commit| commit.number).collect();
        let mut recovery = Log::open(devices, options, &mut |_| ())?;
        while let Some(record) = recovery.next_record()? {
            let number = record.bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            number.map(|number| missing.remove(&number));
        }
        end_tasks_of(recovery);
        Ok(PacedRun {
            latency: latency(commits.iter()),
            slowest_while_stuck_ms: self.slowest_while_stuck_ms(&commits),
            #[cfg(test)]
            hiding,
            replaced_ms,
            lost: missing.len(),
        })
    }

    /// Puts a new drive in the place of the last.
    fn replace_last(&self, log: &Log, devices: &mut Vec<Arc<dyn Device>>) -> Result<()> {
        let partitions = self.log.partitions as usize;
        let at = devices.len() - partitions;
        let old: Vec<u32> = (at as u32..devices.len() as u32).collect();
        let new = self.log.drive(self.log.drives)?;
        log.replace_devices(&old, &new)?;
        devices.splice(at.., new);
        Ok(())
    }

    /// One client, until the time is over.
    fn commit(self, log: &Log, client: u64, started: tantalum_rt::Instant) -> Result<Vec<Commit>> {
        let mut random = Random::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client));
        let mean_ns = 1e9 * self.clients as f64 / self.per_second;
        let (mut commits, mut due, mut record) = (Vec::new(), 0.0, vec![0; self.record_bytes.max(size_of::<u64>())]);
        loop {
            // Exponentially distributed, as are the gaps between events that know nothing of each other.
            due -= mean_ns * (1.0 - random.f64()).ln();
            if due >= self.time.as_nanos() as f64 {
                return Ok(commits);
            }
            let number = client << 32 | commits.len() as u64;
            record[..size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
            let due = due as u64;
            sleep(Duration::from_nanos(due).saturating_sub(started.elapsed()));
            let end = log.append(&[&record])?.end;
            log.flush(end)?;
            commits.push(Commit { number, end, due, took: (started.elapsed().as_nanos() as u64).saturating_sub(due) });
        }
    }

    fn slowest_while_stuck_ms(&self, commits: &[Commit]) -> [f64; 2] {
        let Some(Stuck { from, lasts }) = self.stuck else { return [0.0; 2] };
        let slowest = |from: Duration, to: Duration| {
            let within = |commit: &&Commit| (from.as_nanos()..to.as_nanos()).contains(&u128::from(commit.due));
            latency(commits.iter().filter(within)).max_ns as f64 / 1e6
        };
        [slowest(from, from + NOTICED), slowest(from + NOTICED, from + lasts)]
    }
}

fn latency<'a>(commits: impl Iterator<Item = &'a Commit>) -> Latency {
    let mut times: Vec<u64> = commits.map(|commit| commit.took).collect();
    times.sort_unstable();
    Latency::of_sorted(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_stands_still_is_seen_only_by_commits_that_are_not_hedged() {
        let run = |drives, hiding| {
            let stuck = Some(Stuck { from: Duration::from_secs(1), lasts: Duration::from_secs(2) });
            let (clients, per_second, record_bytes) = (4, 100.0, 200);
            let log = LogSetup::ours("cloud-volume", drives).with_hiding(hiding);
            let time = Duration::from_secs(4);
            let (replaced, hang_timeout) =
                (drives.gt(&1).then_some(Duration::from_secs(2)), Duration::from_millis(500));
            let paced = Paced { log, clients, per_second, record_bytes, time, stuck, replaced, hang_timeout, seed: 5 };
            paced.run().unwrap()
        };
        let alone = run(1, tantalum::LogHiding::On);
        let hedged = run(2, tantalum::LogHiding::On);
        assert!(alone.slowest_while_stuck_ms[0] > 1500.0, "{alone:?}");
        assert!(hedged.slowest_while_stuck_ms[0] < 600.0 && hedged.hiding.won > 0, "{hedged:?}");
        assert_eq!((alone.lost, hedged.lost), (0, 0));
        // The other device goes, and a new one comes, while this one stands still.
        assert!(alone.replaced_ms.is_none());
        assert!(hedged.replaced_ms.is_some_and(|[from, to]| from >= 2000.0 && to < 3000.0), "{hedged:?}");
        assert!(alone.latency.count > 300 && hedged.latency.count > 300, "{alone:?} {hedged:?}");
    }
}
