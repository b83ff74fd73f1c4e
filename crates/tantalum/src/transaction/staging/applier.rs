//! The applier: the task that moves the rows of committed staging tables to their tables, frees those that are done with, and then
//! [large values](super::super::large_values) that no row has.
//!
//! It takes the rows of the transaction that committed first, in key order, a group at a time, and frees each table before it goes on.
//! Commits wait for it when it falls behind. What fails is tried again after a pause that grows; meanwhile the rows are read where they
//! are. Closing stops it between two groups, and opening goes on.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{Condvar, Instant, JoinHandle, Mutex, may_wait};

use super::{
    StagingTree,
    change_buffer::ChangeBuffers,
    move_rows::{Moving, Step},
};
use crate::{
    error::{self, ErrorKind, Result},
    table::Table,
    transaction::{
        Manager,
        large_values::{Reaped, Reaper},
    },
};

/// With so many committed tables to move, further commits wait.
const MOST_TABLES: usize = 16;
/// How often a task that waits for the applier looks whether the database has stopped.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The most rows of a group.
const MOST_ROWS: usize = 512;
/// How long the applier waits at a time.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it looks whether a reader has let go of a staging table.
const READER_PAUSE: Duration = Duration::from_millis(10);
/// Its pauses after failures.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

/// The applier of a database, and what it has to do.
#[derive(Debug, Default)]
pub(in crate::transaction) struct Applier {
    work: Mutex<Work>,
    /// Signalled when there is more work, and to stop.
    changed: Condvar,
    /// Signalled when pages were freed, or will not be for a while.
    freed: Condvar,
    /// Staging tables and dead values whose pages were freed.
    freed_count: AtomicU64,
    stop: AtomicBool,
    /// It drops its handle on the manager, which may be the last.
    is_letting_go: AtomicBool,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Work {
    moving: Vec<Job<Moving>>,
    dropping: Vec<Job<Arc<StagingTree>>>,
    /// The applier has taken one of them out, and works on it.
    is_busy: bool,
    /// Dead values whose pages were freed.
    reaped: u64,
    /// How many of them are to be, for the last of those that wait.
    awaited: u64,
    /// The last step was for a staging table: it is the reaper's turn.
    is_reapers_turn: bool,
    /// How often all that could be tried was done, or had failed.
    stops: u64,
}

/// Something to do, perhaps later.
#[derive(Debug)]
struct Job<T> {
    what: T,
    not_before: Option<Instant>,
    pause: Duration,
}

impl<T> Job<T> {
    fn new(what: T) -> Self {
        Self { what, not_before: None, pause: PAUSES.0 }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }

    fn failed(&mut self) {
        self.not_before = Some(tantalum_rt::now() + self.pause);
        self.pause = (2 * self.pause).min(PAUSES.1);
    }

    fn succeeded(&mut self) {
        (self.not_before, self.pause) = (None, PAUSES.0);
    }
}

impl Manager {
    /// Has rows that are committed moved, and staging tables freed. The first time this starts the applier, which ends with the
    /// database.
    pub(in crate::transaction) fn apply_staged(
        self: &Arc<Self>,
        committed: Vec<(Table, Arc<StagingTree>)>,
        dropped: Vec<Arc<StagingTree>>,
    ) {
        if committed.is_empty() && dropped.is_empty() {
            return;
        }
        if !committed.is_empty() {
            self.flush_change_buffers();
        }
        self.give_work(committed.into_iter().map(|(table, staged)| (table, vec![staged])), dropped);
    }

    /// Has the rows of sealed change buffers moved, those of one table together.
    pub(super) fn move_buffered(&self, sealed: impl Iterator<Item = (Table, Vec<Arc<StagingTree>>)>) {
        self.give_work(sealed, Vec::new());
    }

    fn give_work(&self, moving: impl Iterator<Item = (Table, Vec<Arc<StagingTree>>)>, dropped: Vec<Arc<StagingTree>>) {
        // A database that is being closed leaves it to the next open.
        let Ok(_operation) = self.core().operations.begin() else { return };
        let applier = &self.applier;
        {
            let mut work = applier.work.lock();
            let rows = self.group_rows().min(MOST_ROWS);
            work.moving.extend(moving.map(|(table, staged)| Job::new(Moving::new(table, staged, rows))));
            work.sort();
            work.dropping.extend(dropped.into_iter().map(Job::new));
            applier.changed.notify_all();
        }
        self.start_applier();
    }

    /// There is something to do for the reaper, in the applier's task.
    pub(in crate::transaction) fn wake_applier(&self) {
        // A database that is being closed leaves it to the next open.
        let Ok(_operation) = self.core().operations.begin() else { return };
        {
            let _work = self.applier.work.lock();
            self.applier.changed.notify_all();
        }
        self.start_applier();
    }

    /// Starts the applier if it does not run. An operation is under way.
    fn start_applier(&self) {
        let mut task = self.applier.task.lock();
        if task.is_none() {
            let manager = self.me.clone();
            let (applier, reaper) = (Arc::clone(&self.applier), Arc::clone(&self.reaper));
            let buffers = Arc::clone(&self.buffers);
            *task = Some(tantalum_rt::spawn("tantalum-applier", move || run(&manager, &applier, &reaper, &buffers)));
            self.core().keep(StopApplier(Arc::clone(&self.applier)));
        }
    }

    /// Does what is due. Returns whether anything was. Pages are freed before more rows are moved, which may need them, and the reaper has
    /// every other turn.
    fn apply_step(&self) -> Result<bool> {
        self.core().check_open()?;
        let applier = &self.applier;
        if std::mem::take(&mut applier.work.lock().is_reapers_turn) && self.reaper.is_due() && self.reap() {
            return Ok(true);
        }
        if let Some(job) = applier.take_dropping() {
            self.drop_table(job);
        } else if let Some(job) = applier.take_moving() {
            self.move_rows(job);
        } else {
            return Ok(self.flush_resting_change_buffers() || self.reap());
        }
        Ok(true)
    }

    fn move_rows(&self, mut job: Job<Moving>) {
        let step = job.what.step(self);
        let applier = &self.applier;
        let mut work = applier.work.lock();
        (work.is_busy, work.is_reapers_turn) = (false, true);
        match step {
            Ok(Step::Moved) => {
                job.succeeded();
                work.moving.push(job);
                work.sort();
            }
            Ok(Step::Retired) => {}
            Ok(Step::Done) => {
                let Moving { table, sources, moved, .. } = job.what;
                let are_buffers = sources.iter().all(|source| source.is_change_buffer());
                work.dropping.extend(sources.into_iter().map(Job::new));
                drop(work);
                if are_buffers {
                    self.learn_gain(&table, moved);
                }
                // What the transaction had written and replaced itself.
                self.look_for_dead_values(&table);
            }
            Err(error) => {
                let table = job.what.table.name();
                tantalum_rt::tracing::warn!(table, %error, "rows of a large transaction could not be moved to their table; they are read where they are");
                job.failed();
                applier.freed.notify_all();
                work.moving.push(job);
                work.sort();
            }
        }
    }

    fn drop_table(&self, mut job: Job<StagingTree>) {
        let applier = &self.applier;
        let may_go_on = || if applier.stop.load(Ordering::Acquire) { Err(error::closed()) } else { Ok(()) };
        let dropped = self.core().catalog.drop_staging(job.what.id(), &may_go_on);
        let mut work = applier.work.lock();
        (work.is_busy, work.is_reapers_turn) = (false, true);
        match dropped {
            Ok(_) => {
                applier.note_freed(1);
            }
            Err(error) => {
                if error.kind() != ErrorKind::Closed {
                    tantalum_rt::tracing::warn!(%error, "pages of a large transaction could not be freed");
                }
                job.failed();
                applier.freed.notify_all();
                let Job { what, not_before, pause } = job;
                work.dropping.push(Job { what: Arc::new(what), not_before, pause });
            }
        }
    }

    /// Waits while the rows of many transactions are still to be moved: each table takes room on the device, and is looked into by every
    /// read of its target. Not for long if nothing can be moved, or the database is being closed. No latch may be held.
    pub(in crate::transaction) fn wait_for_moved_rows(&self) {
        may_wait("staging tables");
        let applier = &self.applier;
        let mut work = applier.work.lock();
        let stops = work.stops;
        while work.moving.len() >= MOST_TABLES
            && work.stops == stops
            && work.is_under_way()
            && !self.has_applier_ended()
        {
            applier.freed.wait_for(&mut work, LOOK_PAUSE);
        }
    }

    /// Deletes large values that no row has, as far as there are any. Returns whether there was anything to do.
    fn reap(&self) -> bool {
        let applier = &self.applier;
        applier.work.lock().is_busy = true;
        let reaped = self.reap_step();
        let mut work = applier.work.lock();
        work.is_busy = false;
        match reaped {
            Reaped::Some => {}
            Reaped::Values(gone) => {
                work.reaped += gone as u64;
                applier.note_freed(gone as u64);
            }
            Reaped::Failed => applier.note_stop(&mut work),
            // While it rests there may be a value that it can delete afterwards.
            Reaped::Nothing if self.reaper.has_work() => {}
            Reaped::Nothing => applier.note_stop(&mut work),
        }
        reaped != Reaped::Nothing
    }

    /// If many dead values wait to be deleted, waits until so many have gone: else transactions would leave more than the reaper deletes.
    /// No latch may be held.
    pub(in crate::transaction) fn wait_for_reaper(&self, values: u64) {
        if !self.reaper.is_behind() {
            return;
        }
        may_wait("dead values");
        let applier = &self.applier;
        let mut work = applier.work.lock();
        // Behind the tasks that wait already: one deletion is for one of them.
        let (until, stops) = (work.awaited.max(work.reaped) + values, work.stops);
        work.awaited = until;
        while self.reaper.is_behind() && work.reaped < until && work.stops == stops && !self.has_applier_ended() {
            applier.freed.wait_for(&mut work, LOOK_PAUSE);
        }
        if !self.reaper.is_behind() {
            work.awaited = work.reaped;
        }
    }

    /// Whether the applier does nothing more: it ends when it finds the database closed or poisoned, also if a task begins to wait for
    /// it later.
    fn has_applier_ended(&self) -> bool {
        self.applier.stop.load(Ordering::Acquire) || self.core().check_open().is_err()
    }

    /// How often pages of staging tables or dead values were freed: to be asked before pages are needed.
    pub(in crate::transaction) fn times_freed(&self) -> u64 {
        self.applier.freed_count.load(Ordering::Acquire)
    }

    /// Waits until the pages of a staging table, or of a dead value, are freed, if none were since the [count](Self::times_freed) was
    /// asked. False if none will be for a while. No latch may be held, and the applier may not need a lock that the caller has.
    pub(in crate::transaction) fn wait_for_freed_pages(&self, since: u64) -> bool {
        may_wait("pages of staging tables");
        let applier = &self.applier;
        let mut work = applier.work.lock();
        let stops = work.stops;
        while self.times_freed() == since && work.stops == stops {
            if !(work.is_under_way() || self.reaper.has_work()) || self.has_applier_ended() {
                return false;
            }
            applier.freed.wait_for(&mut work, LOOK_PAUSE);
        }
        self.times_freed() > since
    }
}

impl Manager {
    /// Waits until what is committed now is where it belongs: staged rows in their tables, and the pages of staging tables and of dead
    /// values freed, as far as they can be. `report` is told how many were freed, and how many there are with those. Returns soon when
    /// the database is closed. No latch may be held.
    pub fn settle(&self, report: &mut dyn FnMut(u64, u64)) {
        self.flush_change_buffers();
        let jobs = {
            let work = self.applier.work.lock();
            let moving = work.moving.iter().map(|job| job.what.sources.len()).sum::<usize>();
            // One that is being moved may be several.
            let busy = if work.is_busy { MOST_TABLES } else { 0 };
            (moving + work.dropping.len() + busy) as u64 + self.reaper.waiting()
        };
        // A table is freed after its rows were moved, and other transactions may come to be first.
        let begin = self.times_freed();
        let (mut freed, until) = (begin, begin + 2 * jobs);
        while freed < until {
            let left = self.applier.tables() + self.reaper.waiting();
            report(freed - begin, freed - begin + left);
            if !self.wait_for_freed_pages(freed) {
                break;
            }
            freed = self.times_freed();
        }
    }
}

impl Work {
    /// Whether something is being done, or can be tried now.
    fn is_under_way(&self) -> bool {
        let now = tantalum_rt::now();
        self.is_busy || self.is_due() || self.dropping.iter().any(|job| job.is_due(now))
    }

    /// In the order of the commits.
    fn sort(&mut self) {
        self.moving.sort_by_key(|job| job.what.position());
    }

    /// Whether rows can be moved that came since the last look.
    fn is_due(&self) -> bool {
        let (now, mut seen) = (tantalum_rt::now(), BTreeSet::new());
        self.moving.iter().any(|job| seen.insert(job.what.table.id()) && job.is_due(now))
    }

    /// How long there is nothing to do.
    fn pause(&self) -> Duration {
        let now = tantalum_rt::now();
        let moving = self.moving.iter().filter_map(|job| job.not_before);
        let times = moving.chain(self.dropping.iter().filter_map(|job| job.not_before));
        let next = times.map(|at| at.duration_since(now)).min().unwrap_or(WAIT_TIMEOUT);
        // Until a reader has let go of one.
        let is_waiting = self.dropping.iter().any(|job| job.is_due(now));
        if is_waiting { READER_PAUSE } else { next.clamp(Duration::from_millis(1), WAIT_TIMEOUT) }
    }
}

impl Applier {
    /// The pages of so many staging tables or dead values were freed. The caller has locked the work.
    fn note_freed(&self, count: u64) {
        self.freed_count.fetch_add(count, Ordering::Release);
        self.freed.notify_all();
    }

    /// Nothing is freed before some time has passed, or a reader goes.
    fn note_stop(&self, work: &mut Work) {
        work.stops += 1;
        self.freed.notify_all();
    }

    /// Takes out the first rows to be moved now: those of a table are moved in the order of commits.
    fn take_moving(&self) -> Option<Job<Moving>> {
        let mut work = self.work.lock();
        let (now, mut seen) = (tantalum_rt::now(), BTreeSet::new());
        let at = work.moving.iter().position(|job| seen.insert(job.what.table.id()) && job.is_due(now))?;
        work.is_busy = true;
        Some(work.moving.remove(at))
    }

    /// Takes out a staging table to be freed now, which no other task looks at.
    fn take_dropping(&self) -> Option<Job<StagingTree>> {
        let mut work = self.work.lock();
        let now = tantalum_rt::now();
        for at in 0..work.dropping.len() {
            if !work.dropping[at].is_due(now) {
                continue;
            }
            let Job { what, not_before, pause } = work.dropping.remove(at);
            match Arc::try_unwrap(what) {
                Ok(what) => {
                    work.is_busy = true;
                    return Some(Job { what, not_before, pause });
                }
                Err(what) => work.dropping.insert(at, Job { what, not_before, pause }),
            }
        }
        None
    }

    /// Staging tables whose rows are to be moved, or whose pages are to be freed.
    pub fn tables(&self) -> u64 {
        let work = self.work.lock();
        (work.moving.len() + work.dropping.len()) as u64 + u64::from(work.is_busy)
    }
}

fn run(manager: &Weak<Manager>, applier: &Applier, reaper: &Reaper, buffers: &ChangeBuffers) {
    while let Some(manager) = manager.upgrade() {
        if applier.stop.load(Ordering::Acquire) {
            break;
        }
        let did = manager.apply_step();
        applier.is_letting_go.store(true, Ordering::SeqCst);
        drop(manager);
        applier.is_letting_go.store(false, Ordering::SeqCst);
        match did {
            Ok(true) => continue,
            Ok(false) => {}
            // The database has stopped.
            Err(_) => {
                applier.note_stop(&mut applier.work.lock());
                break;
            }
        }
        let mut work = applier.work.lock();
        let mut pause = work.pause();
        if let Some(until) = reaper.rests_until() {
            pause = pause.min(until.duration_since(tantalum_rt::now())).max(Duration::from_millis(1));
        }
        if let Some(until) = buffers.look_after() {
            pause = pause.min(until);
        }
        if !applier.stop.load(Ordering::Acquire) && !work.is_due() && !reaper.is_due() {
            applier.changed.wait_for(&mut work, pause);
        }
    }
}

/// Stops the applier when it is dropped.
struct StopApplier(Arc<Applier>);

impl Drop for StopApplier {
    fn drop(&mut self) {
        let applier = &self.0;
        applier.stop.store(true, Ordering::SeqCst);
        {
            let _work = applier.work.lock();
            applier.changed.notify_all();
            applier.freed.notify_all();
        }
        let task = applier.task.lock().take();
        // If the applier itself drops the database, it does nothing more.
        if let Some(task) = task
            && !applier.is_letting_go.load(Ordering::SeqCst)
            && task.join().is_err()
        {
            tantalum_rt::tracing::error!("the task that moves the rows of large transactions panicked");
        }
    }
}
