//! The spiller of [`Versions`]: a task that writes frozen tables to runs, and merges runs.
//!
//! Each run is larger than all newer ones together, else they are merged: so there are few, and together they have at most about
//! twice as many entries as are seen. What no snapshot sees is left out whenever a run is written.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_rt::JoinHandle;

use super::{
    Versions,
    run::{Run, RunCursor, RunWriter},
};
use crate::error::{Error, Result};

/// How long a task waits at a time, for the spiller or for work.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Spiller {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// The numbers of the snapshots that may see versions which are written.
struct Seers(Vec<u64>);

impl Seers {
    /// Whether one sees a version that was written by the commit `since` and overwritten by `until`.
    fn sees(&self, since: u64, until: u64) -> bool {
        let next = self.0.partition_point(|snapshot| *snapshot < since);
        self.0.get(next).is_some_and(|snapshot| *snapshot < until)
    }
}

/// Why a run was not written.
enum Unwritten {
    Stopped,
    Failed(Error),
}

impl From<Error> for Unwritten {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Spiller {
    pub fn start(versions: &Arc<Versions>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tantalum_rt::spawn("tantalum-version-spiller", {
            let (versions, stop) = (Arc::downgrade(versions), Arc::clone(&stop));
            move || run(&versions, &stop)
        });
        Self { stop, task }
    }

    /// Stops the task and waits for its end.
    pub fn stop(self, versions: &Versions) {
        self.stop.store(true, Ordering::Release);
        versions.announce_change();
        if self.task.join().is_err() {
            tantalum_rt::tracing::error!("the task that spills old row versions panicked");
        }
    }
}

fn run(versions: &Weak<Versions>, stop: &AtomicBool) {
    while let Some(versions) = versions.upgrade() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        if versions.spill_frozen(stop) {
            continue;
        }
        let (lock, signal) = &versions.changed;
        let mut guard = lock.lock();
        if versions.kept.read().frozen.is_none() && !stop.load(Ordering::Acquire) {
            signal.wait_for(&mut guard, WAIT_TIMEOUT);
        }
    }
}

impl Versions {
    /// Writes the frozen table to a run and makes room for the next; false if there is none.
    fn spill_frozen(&self, stop: &AtomicBool) -> bool {
        let Some(frozen) = self.kept.read().frozen.clone() else { return false };
        let seers = self.seers();
        let written = self.write_run(stop, |writer| {
            let mut previous = None;
            for (table, key, version) in frozen.iter() {
                let since = previous.filter(|(other, at, _)| (*other, *at) == (table, key)).map_or(0, |(_, _, by)| by);
                previous = Some((table, key, version.overwritten_by));
                if seers.sees(since, version.overwritten_by) {
                    check_running(stop)?;
                    writer.push(table, key, version.overwritten_by, version.value.as_ref())?;
                }
            }
            Ok(())
        });
        match written {
            Ok(run) => {
                tantalum_rt::tracing::debug!(versions = frozen.versions(), run = ?run, "old row versions were spilled");
                self.replace_frozen(&frozen, run);
                if let Err(Unwritten::Failed(error)) = self.merge_runs(stop) {
                    tantalum_rt::tracing::warn!(%error, "old row versions on scratch pages could not be merged; they take more room");
                }
                true
            }
            Err(Unwritten::Stopped) => false,
            Err(Unwritten::Failed(error)) => {
                // Without the oldest snapshot less has to be written; without any, nothing.
                self.give_up_oldest(&error);
                true
            }
        }
    }

    fn write_run(
        &self,
        stop: &AtomicBool,
        fill: impl FnOnce(&mut RunWriter) -> Result<(), Unwritten>,
    ) -> Result<Option<Run>, Unwritten> {
        check_running(stop)?;
        let mut writer = RunWriter::new(&self.space, self.next_run.fetch_add(1, Ordering::Relaxed));
        fill(&mut writer)?;
        Ok(writer.finish()?)
    }

    /// The snapshots there are. Later ones see nothing of what is frozen by now.
    fn seers(&self) -> Seers {
        Seers(self.snapshots.read().alive.iter().map(|snapshot| snapshot.number).collect())
    }

    /// A run takes the place of the frozen table, unless that has gone together with the last snapshot.
    fn replace_frozen(&self, frozen: &Arc<super::VersionTable>, run: Option<Run>) {
        let snapshots = self.snapshots.read();
        let mut kept = self.kept.write();
        let mut unseen = run.map(Arc::new);
        if kept.frozen.as_ref().is_some_and(|present| Arc::ptr_eq(present, frozen)) {
            kept.frozen = None;
            let is_seen = |run: &Arc<Run>| snapshots.oldest().is_some_and(|oldest| oldest < run.newest_overwrite());
            kept.runs.extend(unseen.take_if(|run| is_seen(run)));
        }
        drop(kept);
        drop(snapshots);
        self.announce_change();
        drop(unseen);
    }

    /// Merges runs until each is larger than all newer ones together.
    fn merge_runs(&self, stop: &AtomicBool) -> Result<(), Unwritten> {
        loop {
            let runs = self.kept.read().runs.clone();
            let mut newer = 0;
            let mut from = None;
            for (index, run) in runs.iter().enumerate().rev() {
                if newer > 0 && run.pages() <= newer {
                    from = Some(index);
                }
                newer += run.pages();
            }
            let Some(from) = from else { return Ok(()) };
            let parts = &runs[from..];
            let seers = self.seers();
            let merged = self.write_run(stop, |writer| merge(parts, &seers, writer, stop))?;
            let mut kept = self.kept.write();
            // Snapshots that have ended may have taken some of them along.
            let place = kept.runs.iter().position(|run| parts.iter().any(|part| Arc::ptr_eq(run, part)));
            let mut unseen = merged.map(Arc::new);
            if let Some(place) = place {
                kept.runs.retain(|run| !parts.iter().any(|part| Arc::ptr_eq(run, part)));
                if let Some(merged) = unseen.take() {
                    kept.runs.insert(place, merged);
                }
            }
            drop(kept);
            drop((runs, unseen));
        }
    }
}

/// Writes the entries of several runs, oldest first, in their order, those that a snapshot sees.
fn merge(runs: &[Arc<Run>], seers: &Seers, writer: &mut RunWriter, stop: &AtomicBool) -> Result<(), Unwritten> {
    let mut cursors: Vec<RunCursor<'_>> = runs.iter().map(|run| run.entries_in_order()).collect();
    let mut previous = None;
    loop {
        check_running(stop)?;
        let mut first: Option<(usize, super::run::EntryKey)> = None;
        for (index, cursor) in cursors.iter_mut().enumerate() {
            if let Some(entry) = cursor.peek()?
                && first.as_ref().is_none_or(|(_, least)| entry < least)
            {
                first = Some((index, entry.clone()));
            }
        }
        let Some((index, entry)) = first else { return Ok(()) };
        let since = match &previous {
            Some((table, key, by)) if (*table, key) == (entry.table, &entry.key) => *by,
            _ => 0,
        };
        if seers.sees(since, entry.overwritten_by) {
            let value = cursors[index].take_value()?;
            writer.push(entry.table, &entry.key, entry.overwritten_by, value.as_ref())?;
        } else {
            cursors[index].skip_value()?;
        }
        previous = Some((entry.table, entry.key, entry.overwritten_by));
    }
}

fn check_running(stop: &AtomicBool) -> Result<(), Unwritten> {
    if stop.load(Ordering::Acquire) { Err(Unwritten::Stopped) } else { Ok(()) }
}
