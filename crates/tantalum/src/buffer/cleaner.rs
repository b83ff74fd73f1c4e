//! Whether frames are freed ahead of need or on demand, and the tasks that do so ahead of need, so that a miss does not wait for a
//! write: as many as there may be batches under way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{JoinHandle, Parker, Unparker};
use tantalum_store::PageBatch;

use super::BufferPool;

/// How long the cleaner rests after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Whether dirty pages are written ahead of need or on demand, to free frames of the buffer pool.
///
/// ```
/// use tantalum::PageCleaning;
/// assert_eq!(PageCleaning::default(), PageCleaning::Ahead);
/// assert_eq!("on-demand".parse(), Ok(PageCleaning::OnDemand));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PageCleaning {
    /// A task that keeps so many frames free that a page that is read rarely waits for one that is written.
    #[default]
    Ahead,
    /// A task that reads a page writes the one that makes room for it, as the server of "Durable Write Cache in Flash Memory SSD"
    /// did (section 2, Figure 1). For comparisons.
    OnDemand,
}

impl PageCleaning {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ahead, Self::OnDemand];

    /// How many batches of pages are under way at a time, if the settings do not say.
    pub(crate) const fn default_batches(self) -> usize {
        match self {
            // So many keep a drive busy while one waits for a flush, and others are being filled.
            Self::Ahead => 4,
            // Of one page each: InnoDB, whose threads do this for themselves, has no limit but that of its double-write buffer.
            Self::OnDemand => Self::MOST_BATCHES,
        }
    }

    /// The most batches that settings can ask for.
    pub(crate) const MOST_BATCHES: usize = 128;

    /// The pages of a batch that makes room in a pool of so many frames, where so many batches may be under way: all of them
    /// together have at most a quarter of the frames.
    pub(super) fn batch_pages(self, frames: usize, batches: usize) -> usize {
        match self {
            Self::Ahead => (frames / 4 / batches).clamp(1, PageBatch::MAX_PAGES),
            Self::OnDemand => 1,
        }
    }

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::OnDemand => "on-demand",
        }
    }
}

tantalum_device::named_field!(PageCleaning);

/// The running cleaner. Dropping it stops it; the pool goes on without, only slower.
#[derive(Debug)]
pub struct Cleaner {
    stop: Arc<AtomicBool>,
    tasks: Vec<(Unparker, JoinHandle<()>)>,
}

impl Cleaner {
    /// Starts the cleaner of a pool that has none.
    pub fn start(pool: &BufferPool) -> Self {
        pool.shared.free_list.expect_cleaners();
        let stop = Arc::new(AtomicBool::new(false));
        let task = |number| {
            let (parker, pool, stop) = (Parker::new(), pool.clone(), Arc::clone(&stop));
            let unparker = parker.unparker();
            let task = move || clean(&pool, number, &parker, &stop);
            (unparker, tantalum_rt::spawn(format!("tantalum-cleaner-{number}"), task))
        };
        let tasks = (0..pool.shared.free_list.most_batches()).map(task).collect();
        Self { stop, tasks }
    }
}

fn clean(pool: &BufferPool, number: usize, parker: &Parker, stop: &AtomicBool) {
    let (free_list, unparker) = (&pool.shared.free_list, parker.unparker());
    while !stop.load(Ordering::Acquire) {
        match pool.shared.refill_reserve() {
            Ok(is_done) if free_list.rest(number, is_done, &unparker) => parker.park(),
            Ok(_) => {}
            // It was traced and counted where it happened.
            Err(_) => drop(parker.park_timeout(PAUSE_AFTER_FAILURE)),
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.tasks.iter().for_each(|(unparker, _)| unparker.unpark());
        for (_, task) in self.tasks.drain(..) {
            if task.join().is_err() {
                tantalum_rt::tracing::error!("a page cleaner panicked");
            }
        }
    }
}
