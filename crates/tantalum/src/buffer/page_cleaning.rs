//! Who makes room in the pool, as settings name it.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde::{Deserialize, Serialize};
use tantalum_rt::Mutex;

/// Who writes dirty pages to make room in the buffer pool.
///
/// ```
/// use tantalum::PageCleaning;
/// assert_eq!(PageCleaning::default(), PageCleaning::Ahead);
/// assert_eq!("on-demand".parse(), Ok(PageCleaning::OnDemand));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageCleaning {
    /// A task that keeps so many frames free that a page that is read rarely waits for one that is written.
    #[default]
    Ahead,
    /// Whoever reads a page writes the one that makes room for it, as the server of "Durable Write Cache in Flash Memory SSD"
    /// did (section 2, Figure 1). For comparisons.
    OnDemand,
}

impl PageCleaning {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ahead, Self::OnDemand];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::OnDemand => "on-demand",
        }
    }
}

impl fmt::Display for PageCleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PageCleaning {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|cleaning| cleaning.name() == name);
        found.ok_or_else(|| format!("page cleaning cannot be {name:?}; it is ahead or on-demand"))
    }
}

/// Those who clean on demand: one at a time, for itself and some of the others, as several who each write one page share the
/// flushes that follow.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Held by the one whose turn it is.
    pub turn: Mutex<()>,
    waiting: AtomicUsize,
}

impl Turns {
    /// So many pages are written at the same time: as many as there are places for single pages in InnoDB's double-write
    /// buffer.
    pub const TOGETHER: usize = 8;

    /// One more waits, until what is returned is dropped.
    pub fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }
}

/// One who waits, or has the turn.
pub(super) struct Waiting<'a>(&'a Turns);

impl Waiting<'_> {
    /// How many do.
    pub fn count(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
