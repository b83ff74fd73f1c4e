//! The task that cleans in the background, and checkpoints the map.
//!
//! It works the faster the less room there is: all the time when new pages have nearly none left, and at the low-water mark half
//! of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{JoinHandle, Parker, Unparker, now};

use super::Shared;
use crate::Result;

/// How long the task rests after a failure, or when it can do nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// The running task. Dropping it stops it.
#[derive(Debug)]
pub struct CleanerTask {
    stop: Arc<AtomicBool>,
    unparker: Unparker,
    task: Option<JoinHandle<()>>,
}

/// What there is to do.
enum Work {
    Nothing,
    Clean,
    Checkpoint,
}

impl CleanerTask {
    /// Starts it, for a store that has none.
    pub fn start(shared: &Arc<Shared>) -> Self {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let stop = Arc::new(AtomicBool::new(false));
        assert!(shared.kick.set(unparker.clone()).is_ok(), "a store has one cleaner");
        let task = tantalum_rt::spawn("tantalum-segment-cleaner", {
            let (shared, stop) = (Arc::clone(shared), Arc::clone(&stop));
            move || {
                let mut is_cleaning = false;
                while !stop.load(Ordering::Acquire) {
                    match shared.work(&mut is_cleaning) {
                        Ok(None) => parker.park(),
                        Ok(Some(pause)) if pause.is_zero() => tantalum_rt::yield_now(),
                        Ok(Some(pause)) => _ = parker.park_timeout(pause),
                        Err(error) => {
                            tracing::error!(%error, "cleaning failed; it will be tried again");
                            // Whoever waits for room has to see what is the matter.
                            shared.announce_room();
                            parker.park_timeout(PAUSE);
                        }
                    }
                }
            }
        });
        Self { stop, unparker, task: Some(task) }
    }
}

impl Drop for CleanerTask {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.unparker.unpark();
        if self.task.take().is_some_and(|task| task.join().is_err()) {
            tracing::error!("the segment cleaner panicked");
        }
    }
}

impl Shared {
    /// Does a piece of work. Returns how long to rest; `None` until there is something to do.
    fn work(&self, is_cleaning: &mut bool) -> Result<Option<Duration>> {
        let maintenance = self.maintenance.lock();
        if self.must_begin() {
            // Whoever stores next begins the streams; nothing can be moved before.
            return Ok(Some(PAUSE));
        }
        let started = now();
        self.free_segments();
        match self.next_work(is_cleaning) {
            Work::Nothing => return Ok(None),
            Work::Checkpoint => self.checkpoint()?,
            Work::Clean if self.clean_some()? > 0 => {}
            // Nothing more can be emptied before more is settled.
            Work::Clean => {
                let (stored_before, freed_before) = self.table.read().progress();
                self.checkpoint()?;
                let has_cleaned = self.clean_some()? > 0;
                let mut table = self.table.write();
                let (stored, freed) = table.progress();
                let is_stuck = !has_cleaned && freed == freed_before;
                // What was stored meanwhile may be worth a checkpoint of its own.
                if is_stuck && self.is_urgent(&table) && stored == stored_before {
                    table.note_exhausted();
                    drop(table);
                    self.announce_room();
                    return Ok(Some(PAUSE));
                }
                if is_stuck && !self.is_urgent(&table) {
                    return Ok(Some(PAUSE));
                }
            }
        }
        drop(maintenance);
        Ok(Some(self.rest_after(started.elapsed())))
    }

    fn next_work(&self, is_cleaning: &mut bool) -> Work {
        let table = self.table.read();
        let (room, empty) = (self.room(&table), table.segments.empty());
        if room < self.low_water(&table) {
            *is_cleaning = true;
        }
        if *is_cleaning {
            let settling = u64::from(empty) * u64::from(self.layout.segment_blocks());
            if room >= self.high_water(&table) {
                *is_cleaning = false;
            } else if room + settling >= self.high_water(&table) || (self.is_urgent(&table) && empty > 1) {
                return Work::Checkpoint;
            } else {
                return Work::Clean;
            }
        }
        if self.is_checkpoint_due(&table) { Work::Checkpoint } else { Work::Nothing }
    }

    /// How long to rest after work that took so long.
    fn rest_after(&self, worked: Duration) -> Duration {
        worked.mul_f64(self.rest_share(&self.table.read()))
    }
}
