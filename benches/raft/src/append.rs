//! The workload `append`: workers drive their groups as a raft store's do, and every append counts when it is durable.
//!
//! Each worker has the same number of groups, and gives each a ready of a few entries in turn. A group gets its next ready when its last
//! one is durable. Now and then the worker compacts a group, so that its log stays bounded.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::meter::{Meter, Used};
use crate::store::{Ready, Session, Store};

/// How a worker waits for its groups' appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Drive {
    /// One group's ready is appended and synced, then the next group's.
    Each,
    /// A ready of each of the worker's groups is appended, and they are synced together: raft-engine gets them as one batch, as from
    /// TiKV's store writer.
    Batched,
    /// All groups have a ready under way, and get the next one by a callback when it is durable. tantalum-raft only.
    Async,
}

impl Drive {
    /// In options, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Drive::Each => "each",
            Drive::Batched => "batched",
            Drive::Async => "async",
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Append {
    /// Groups, numbered from 1.
    pub groups: u64,
    /// Workers, at most.
    pub threads: u64,
    /// How they wait.
    pub drive: Drive,
    /// Entries of a ready.
    pub ready_entries: u64,
    /// Entries of a group that compaction leaves.
    pub keep: u64,
    /// A group is compacted when it has so many entries more.
    pub compact_every: u64,
    /// Seconds that count, after a fifth of that for warming up.
    pub seconds: f64,
}

/// What was counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Time that counts.
    pub seconds: f64,
    /// Entries that became durable, or were read, in that time.
    pub entries: u64,
    /// Latency of an append of a ready until it is durable, or of a read, in microseconds: median, 99th and 99.9th percentile.
    pub latency_us: Option<[f64; 3]>,
    /// What it cost.
    pub used: Used,
}

/// A group of a worker.
struct Driven {
    id: u64,
    first: u64,
    next: u64,
}

/// When measurements count.
#[derive(Clone, Copy)]
pub struct Window {
    from: Instant,
    until: Instant,
}

impl Window {
    /// From a fifth of `seconds` on, for `seconds`.
    pub fn of(seconds: f64) -> Window {
        const WARM_UP: f64 = 0.2;
        let from = Instant::now() + Duration::from_secs_f64(seconds * WARM_UP);
        Window { from, until: from + Duration::from_secs_f64(seconds) }
    }

    /// Waits for it to pass, and gives what was used in it.
    fn measure(&self, meter: &Meter) -> Result<(f64, Used)> {
        thread::sleep(self.from.saturating_duration_since(Instant::now()));
        let (began, before) = (Instant::now(), meter.read()?);
        thread::sleep(self.until.saturating_duration_since(Instant::now()));
        let used = meter.read()?.since(&before);
        Ok((began.elapsed().as_secs_f64(), used))
    }
}

/// Latencies that are longer count as this.
const MAX_LATENCY_NS: u64 = 600_000_000_000;

/// What a worker has measured within the window.
pub struct Tally {
    window: Window,
    latency_ns: Histogram<u64>,
    entries: u64,
}

impl Tally {
    /// Nothing yet.
    pub fn new(window: Window) -> Tally {
        let latency_ns = Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("the bounds are possible");
        Tally { window, latency_ns, entries: 0 }
    }

    /// Counts an operation that is one of `times` alike.
    pub fn add(&mut self, begun: Instant, ended: Instant, entries: u64, times: u64) {
        if ended >= self.window.from && ended < self.window.until {
            self.latency_ns.saturating_record_n(ended.duration_since(begun).as_nanos() as u64, times);
            self.entries += entries * times;
        }
    }

    /// Whether the window has ended.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.window.until
    }

    fn merge(mut self, other: Tally) -> Tally {
        self.latency_ns.add(other.latency_ns).expect("the histograms have the same bounds");
        self.entries += other.entries;
        self
    }

    /// In microseconds.
    fn latency_us(&self) -> Option<[f64; 3]> {
        let at = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        (!self.latency_ns.is_empty()).then(|| [at(0.5), at(0.99), at(0.999)])
    }
}

/// Runs workers until the window is over, and counts what they do within it.
///
/// # Errors
/// The first of the workers', or of the system.
pub fn run_workers<W>(store: &dyn Store, window: Window, meter: &Meter, workers: Vec<W>) -> Result<Counted>
where
    W: FnOnce(&mut dyn Session, &mut Tally) -> Result<()> + Send,
{
    thread::scope(|scope| {
        let run = |work: W| {
            move || {
                let mut tally = Tally::new(window);
                work(&mut *store.session(), &mut tally).map(|()| tally)
            }
        };
        let workers: Vec<_> = workers.into_iter().map(|work| scope.spawn(run(work))).collect();
        let measured = window.measure(meter);
        let tallies = workers.into_iter().map(|worker| {
            worker.join().unwrap_or_else(|_| Err(Error::Other("a worker panicked; its message is above".to_owned())))
        });
        let tally = tallies.collect::<Result<Vec<_>>>()?.into_iter().reduce(Tally::merge);
        let (tally, (seconds, used)) = (tally.unwrap_or_else(|| Tally::new(window)), measured?);
        Ok(Counted { seconds, entries: tally.entries, latency_us: tally.latency_us(), used })
    })
}

/// Runs the workload.
///
/// # Errors
/// Of the log or the system.
pub fn run(store: &dyn Store, append: Append, meter: &Meter) -> Result<Counted> {
    let threads = append.threads.min(append.groups);
    fill(store, &append)?;
    let driven = |id| {
        let (first, last) = store.bounds(id).unwrap_or((1, 0));
        Driven { id, first, next: last + 1 }
    };
    let workers = (0..threads).map(|worker| {
        let groups: Vec<_> = (1..=append.groups).filter(|id| id % threads == worker).map(driven).collect();
        move |session: &mut dyn Session, tally: &mut Tally| match append.drive {
            Drive::Each => drive_in_turn(append, groups, 1, session, tally),
            Drive::Batched => drive_in_turn(append, groups, usize::MAX, session, tally),
            Drive::Async => drive_async(append, groups, session, tally),
        }
    });
    let workers = workers.collect();
    run_workers(store, Window::of(append.seconds), meter, workers)
}

/// Gives groups the entries that compaction leaves, and some more, so that they are compacted from the beginning, and not all at once.
fn fill(store: &dyn Store, append: &Append) -> Result<()> {
    const READY_ENTRIES: u64 = 100;
    let mut session = store.session();
    for group in 1..=append.groups {
        let have = store.bounds(group).map_or(0, |(_, last)| last);
        let wanted = append.keep + group * 37 % append.compact_every;
        for first in (have + 1..=wanted).step_by(READY_ENTRIES as usize) {
            session.append(&[Ready { group, first, entries: READY_ENTRIES.min(wanted + 1 - first) }])?;
        }
    }
    Ok(())
}

impl Driven {
    /// The next ready.
    fn ready(&mut self, append: &Append) -> Ready {
        let first = self.next;
        self.next += append.ready_entries;
        Ready { group: self.id, first, entries: append.ready_entries }
    }

    fn compact(&mut self, append: &Append, session: &mut dyn Session) -> Result<()> {
        if self.next - self.first >= append.keep + append.compact_every {
            self.first = self.next - append.keep;
            session.compact(self.id, self.first)?;
        }
        Ok(())
    }
}

fn drive_in_turn(
    append: Append,
    mut groups: Vec<Driven>,
    together: usize,
    session: &mut dyn Session,
    tally: &mut Tally,
) -> Result<()> {
    let mut readies = Vec::new();
    loop {
        for groups in groups.chunks_mut(together.min(append.groups as usize)) {
            readies.clear();
            readies.extend(groups.iter_mut().map(|group| group.ready(&append)));
            let begun = Instant::now();
            session.append(&readies)?;
            let ended = Instant::now();
            tally.add(begun, ended, append.ready_entries, readies.len() as u64);
            if tally.is_over(ended) {
                return Ok(());
            }
            for group in groups {
                group.compact(&append, session)?;
            }
        }
    }
}

/// Which group's ready is durable, since when, and when it was begun.
type Done = (usize, Instant, Instant, Result<()>);

fn drive_async(append: Append, mut groups: Vec<Driven>, session: &mut dyn Session, tally: &mut Tally) -> Result<()> {
    let (done, dones): (Sender<Done>, Receiver<Done>) = mpsc::channel();
    let start = |at: usize, group: &mut Driven, session: &mut dyn Session| {
        let (done, begun) = (done.clone(), Instant::now());
        // If a worker failed, nothing receives any more.
        let call = move |outcome| drop(done.send((at, begun, Instant::now(), outcome)));
        session.append_async(group.ready(&append), Box::new(call))
    };
    for (at, group) in groups.iter_mut().enumerate() {
        start(at, group, session)?;
    }
    let mut under_way = groups.len();
    while under_way > 0 {
        let (at, begun, ended, outcome) = dones.recv().expect("a sender is kept");
        outcome?;
        tally.add(begun, ended, append.ready_entries, 1);
        if tally.is_over(ended) {
            under_way -= 1;
            continue;
        }
        groups[at].compact(&append, session)?;
        start(at, &mut groups[at], session)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Kind, Setup};

    #[test]
    fn groups_grow_and_stay_bounded_however_they_are_driven() {
        let cases = [
            (Kind::RaftEngine, Drive::Each),
            (Kind::RaftEngine, Drive::Batched),
            (Kind::TantalumRaft, Drive::Each),
            (Kind::TantalumRaft, Drive::Batched),
            (Kind::TantalumRaft, Drive::Async),
        ];
        for (kind, drive) in cases {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().to_owned();
            let setup = Setup { directory: path, log_bytes: 64 << 20, partitions: 1, entry_bytes: 64 };
            let store = kind.open(&setup).expect("open");
            let append =
                Append { groups: 5, threads: 2, drive, ready_entries: 3, keep: 10, compact_every: 6, seconds: 0.2 };
            let meter = Meter::of(directory.path()).expect("a meter");
            let counted = run(&*store, append, &meter).expect("it runs");
            let [p50_us, _, p999_us] = counted.latency_us.expect("appends were counted");
            assert!(
                counted.entries > 0 && p50_us > 1.0 && p999_us < 1e6,
                "{} {}: {counted:?}",
                kind.name(),
                drive.name()
            );
            let mut session = store.session();
            for group in 1..=5 {
                let (first, last) = store.bounds(group).expect("each group has entries");
                assert!(last - first < 10 + 6 + 3, "{} {}: {first}..={last}", kind.name(), drive.name());
                session.read(group, first, last - first + 1).expect("what was appended");
            }
        }
    }
}
