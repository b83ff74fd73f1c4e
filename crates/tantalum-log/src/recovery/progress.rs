//! One task for each device, and one that watches them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tantalum_rt::{JoinHandle, Parker, Unparker, spawn};

use crate::Result;

/// How far [`Log::open`](crate::Log::open) is.
///
/// ```
/// use tantalum_log::{RecoveryPhase, RecoveryProgress};
/// let progress = RecoveryProgress { phase: RecoveryPhase::Scan, done_bytes: 512, total_bytes: 2048 };
/// assert_eq!(progress.percent(), 25);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// What is being done.
    pub phase: RecoveryPhase,
    /// Bytes read in this phase.
    pub done_bytes: u64,
    /// Bytes to read in this phase, an estimate from above.
    pub total_bytes: u64,
}

impl RecoveryProgress {
    /// How much of the phase is done, 0 to 100.
    pub fn percent(&self) -> u64 {
        (self.done_bytes.saturating_mul(100)).checked_div(self.total_bytes).unwrap_or(100).min(100)
    }
}

/// What [`Log::open`](crate::Log::open) is doing.
///
/// ```
/// assert_ne!(tantalum_log::RecoveryPhase::Locate, tantalum_log::RecoveryPhase::Scan);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// Reading the archive behind the checkpoint.
    Archive,
    /// Reading section headers to find where the checkpoint lies.
    Locate,
    /// Reading the log behind the checkpoint.
    Scan,
}

/// Bytes read so far by all tasks.
pub(crate) struct Progress {
    done_bytes: AtomicU64,
    running: AtomicUsize,
    watcher: Unparker,
}

impl Progress {
    /// Progress that is not reported.
    pub(crate) fn unwatched() -> Arc<Progress> {
        let watcher = Parker::new().unparker();
        Arc::new(Progress { done_bytes: AtomicU64::new(0), running: AtomicUsize::new(0), watcher })
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.watcher.unpark();
    }
}

/// Runs `work` for every item in a task of its own, reports their progress from this task, and returns their results
/// in order.
pub(crate) fn in_parallel<I, T>(
    items: &[I],
    phase: RecoveryPhase,
    total_bytes: u64,
    report: &mut dyn FnMut(RecoveryProgress),
    work: impl Fn(&I, &Arc<Progress>) -> Result<T> + Send + Sync + 'static,
) -> Vec<Result<T>>
where
    I: Clone + Send + 'static,
    T: Send + 'static,
{
    let parker = Parker::new();
    let progress = Arc::new(Progress {
        done_bytes: AtomicU64::new(0),
        running: AtomicUsize::new(items.len()),
        watcher: parker.unparker(),
    });
    let work = Arc::new(work);
    let start = |(n, item): (usize, &I)| {
        let (item, work, progress) = (item.clone(), Arc::clone(&work), Arc::clone(&progress));
        spawn(format!("log-recovery-{n}"), move || {
            // Counted down also if the work panics: the watcher must go on to join, and meet the panic there.
            let _running = Running(&progress);
            work(&item, &progress)
        })
    };
    let tasks: Vec<_> = items.iter().enumerate().map(start).collect();
    loop {
        let running = progress.running.load(Ordering::Acquire);
        let done_bytes = progress.done_bytes.load(Ordering::Relaxed).min(total_bytes);
        report(RecoveryProgress { phase, done_bytes, total_bytes });
        if running == 0 {
            break;
        }
        parker.park();
    }
    tasks.into_iter().map(JoinHandle::join_or_panic).collect()
}

struct Running<'a>(&'a Progress);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.watcher.unpark();
    }
}
