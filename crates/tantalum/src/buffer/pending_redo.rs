//! Redo that is still to be done: for each page, the changes that the log has and the stored page may lack. They are applied when the
//! page is read from the store, which is when a task first needs it; a checkpoint first applies what is left.
//!
//! Invariants:
//! - A page is handed out only when its changes are applied: it is not in memory before (one that is gets them at once), and [`Shared::fill`] applies them under the
//!   frame's exclusive latch. Only a page that is about to be formatted anew needs none of them.
//! - A page's changes are forgotten when they are applied and the frame is marked dirty, or when the page is seen to have them.
//! - No checkpoint begins while there are some, so redo after a further crash finds all of them again.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_log::Lsn;
use tantalum_rt::{Mutex, collections::HashMap, spawn};
use tantalum_store::{
    PageId,
    page::{change, header, record::Changes},
};

use super::{BufferPool, pinning::Source, pool::Shared};
use crate::error::{self, Result};

/// The most tasks that apply changes at a time: most of the time one waits for a page to be read.
const APPLIERS: usize = 8;
/// Frames for each of them at least: it holds one, and needs others to make room for the next.
const FRAMES_FOR_EACH: usize = 4;
/// How long the applying task waits for a page that another task has just allocated.
const ALLOCATED_PAUSE: Duration = Duration::from_millis(1);

/// The changes that are not applied yet, by page.
#[derive(Debug, Default)]
pub(super) struct PendingRedo {
    /// How many pages have some. Asked before the lock is taken.
    pages: AtomicU64,
    state: Mutex<State>,
    changed: AtomicU64,
    skipped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Of each page with changes, the last of its links.
    last: HashMap<PageId, u32>,
    log: Arc<RedoIndex>,
}

/// The changes that the log has, chained by page.
#[derive(Debug, Default)]
pub struct RedoIndex {
    /// Memory that the changes lie in.
    pieces: Vec<Box<[u8]>>,
    bytes: usize,
    links: Vec<Link>,
    last: HashMap<PageId, u32>,
    /// No page was changed at or past it.
    end: Lsn,
}

/// What one record changes in one page.
#[derive(Debug)]
struct Link {
    /// The place of the one before of the same page, plus 1; 0 if there is none.
    before: u32,
    piece: u32,
    /// Where in the piece the changes are.
    from: u32,
    to: u32,
    /// Of the record.
    start: Lsn,
    end: Lsn,
}

impl RedoIndex {
    /// No changes, of a log that ends at `end`.
    pub fn new(end: Lsn) -> Self {
        Self { end, ..Self::default() }
    }

    /// Adds what a record changes in a page: `changes` of the piece that is to be [added](Self::add_piece) next.
    pub fn add(&mut self, page: PageId, changes: Range<usize>, record: Range<Lsn>) {
        let place = |at: usize| u32::try_from(at).expect("recovery applies what it has before it is so much");
        let link = place(self.links.len() + 1);
        let before = self.last.insert(page, link).unwrap_or_default();
        let (piece, from, to) = (place(self.pieces.len()), place(changes.start), place(changes.end));
        self.links.push(Link { before, piece, from, to, start: record.start, end: record.end });
    }

    /// Adds the memory that the changes of the last records lie in.
    pub fn add_piece(&mut self, piece: Box<[u8]>) {
        self.bytes += piece.len();
        self.pieces.push(piece);
    }

    /// Bytes of memory, roughly.
    pub fn memory_bytes(&self) -> usize {
        self.bytes + self.links.len() * size_of::<Link>()
    }

    fn changes(&self, link: &Link) -> Changes<'_> {
        Changes::checked(&self.pieces[link.piece as usize][link.from as usize..link.to as usize])
    }
}

/// The changes of one page.
pub(super) struct PageRedo {
    log: Arc<RedoIndex>,
    /// Places of the links, in the order of the log.
    links: Vec<u32>,
}

impl PageRedo {
    /// Whether the changes make the page anew, whatever is stored of it.
    pub fn rebuilds(&self) -> bool {
        let first = &self.log.links[self.links[0] as usize];
        self.log.changes(first).next().is_some_and(|first| first.rebuilds())
    }

    /// Where the log ends that the changes are of.
    pub fn end(&self) -> Lsn {
        self.log.end
    }

    /// Applies what the page lacks. Returns where the first record starts of which it lacked something, and how many there were.
    pub fn apply(&self, page: &mut [u8]) -> Result<Option<(Lsn, u64)>> {
        let mut first = None;
        for link in self.links.iter().map(|link| &self.log.links[*link as usize]) {
            if redo_page(page, link.start..link.end, self.log.changes(link))? {
                let (_, count) = first.get_or_insert((link.start, 0));
                *count += 1;
            }
        }
        Ok(first)
    }
}

/// Applies what a record changes in a page, unless it has that already: then false.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) when the page cannot take one of the changes.
pub fn redo_page(page: &mut [u8], record: Range<Lsn>, changes: Changes<'_>) -> Result<bool> {
    if header::lsn(page) >= record.end {
        return Ok(false);
    }
    let id = header::page_id(page);
    for change in changes {
        change::apply(page, &change).map_err(|error| {
            error::corrupt_record(record.start, format!("page {id} cannot take one of its changes: {error}"))
        })?;
    }
    header::set_lsn(page, record.end);
    Ok(true)
}

impl PendingRedo {
    /// The changes that are to be applied to a page.
    pub fn of(&self, id: PageId) -> Option<PageRedo> {
        if self.pages.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (log, last) = {
            let state = self.state.lock();
            (Arc::clone(&state.log), *state.last.get(&id)?)
        };
        let next = |link: &u32| log.links[*link as usize].before.checked_sub(1);
        let mut links: Vec<u32> = std::iter::successors(Some(last - 1), next).collect();
        links.reverse();
        Some(PageRedo { log, links })
    }

    /// Whether a page has changes that are not applied.
    pub fn awaits(&self, id: PageId) -> bool {
        self.pages.load(Ordering::Acquire) > 0 && self.state.lock().last.contains_key(&id)
    }

    /// The changes of a page are applied, and it is dirty if it lacked some.
    pub fn applied(&self, id: PageId, redo: &PageRedo, changed: u64) {
        self.changed.fetch_add(changed, Ordering::Relaxed);
        self.skipped.fetch_add(redo.links.len() as u64 - changed, Ordering::Relaxed);
        self.forget(id);
    }

    fn forget(&self, id: PageId) {
        let mut state = self.state.lock();
        assert!(state.last.remove(&id).is_some(), "one task at a time applies a page's changes");
        if state.last.is_empty() {
            *state = State::default();
        }
        self.pages.fetch_sub(1, Ordering::AcqRel);
    }
}

impl BufferPool {
    /// Has these changes applied to pages when they are read, and to those in memory at once. Called during recovery, when all changes
    /// before are applied.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when a page in memory cannot take a change.
    pub fn await_redo(&self, mut log: RedoIndex) -> Result<()> {
        let (shared, pending) = (&*self.shared, &self.shared.pending);
        assert!(shared.log.get().is_none(), "nothing but redo uses pages");
        if log.last.is_empty() {
            return Ok(());
        }
        let mut pages: Vec<PageId> = log.last.keys().copied().collect();
        pages.sort_unstable();
        {
            let mut state = pending.state.lock();
            assert!(state.last.is_empty(), "changes are applied in the order of the log");
            pending.pages.store(pages.len() as u64, Ordering::Release);
            *state = State { last: std::mem::take(&mut log.last), log: Arc::new(log) };
        }
        for id in pages {
            // Earlier changes of the log have brought it there.
            if let Some(page) = self.pin_in_memory(id)
                && let Some(redo) = pending.of(id)
            {
                let mut page = page.write();
                let applied = redo.apply(page.bytes_mut())?;
                if let Some((first, _)) = applied {
                    page.state().mark_dirty(first);
                }
                pending.applied(id, &redo, applied.map_or(0, |(_, count)| count));
            }
        }
        Ok(())
    }

    /// How many pages have changes of the log that are not applied yet; and how many were applied, or were there, counted once per
    /// record and page.
    pub fn redo_counts(&self) -> (u64, u64, u64) {
        let pending = &self.shared.pending;
        let [pages, changed, skipped] =
            [&pending.pages, &pending.changed, &pending.skipped].map(|count| count.load(Ordering::Relaxed));
        (pages, changed, skipped)
    }

    /// Applies all changes that await their pages. No latch may be held.
    ///
    /// # Errors
    /// When a page cannot be read, or it or a change is damaged: that of the first such page, when all others have their changes.
    pub fn finish_redo(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.pending.pages.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut pages: Vec<PageId> = shared.pending.state.lock().last.keys().copied().collect();
        pages.sort_unstable();
        let appliers = APPLIERS.min(shared.frames.len() / FRAMES_FOR_EACH).max(1);
        let start = |(number, part): (usize, &[PageId])| {
            let (shared, part) = (Arc::clone(shared), part.to_vec());
            spawn(format!("redo-{number}"), move || {
                let finished = part.into_iter().map(|page| shared.finish_page(page));
                finished.fold(Ok(()), Result::and)
            })
        };
        let tasks: Vec<_> = pages.chunks(pages.len().div_ceil(appliers).max(1)).enumerate().map(start).collect();
        tasks.into_iter().map(tantalum_rt::JoinHandle::join_or_panic).fold(Ok(()), Result::and)
    }
}

impl Shared {
    /// Applies the changes that await a page.
    fn finish_page(&self, id: PageId) -> Result<()> {
        while self.pending.awaits(id) {
            let page = self.pin(id, Source::StoreOrBlank { rebuilt: false })?;
            if !self.pending.awaits(id) {
                break;
            }
            // It is in memory without them: allocated since, it is formatted anew, or is about to be, or that was given up.
            let lsn = header::lsn(&page.read());
            let end = self.pending.state.lock().log.end;
            if lsn > end {
                // No other task does: the page is in memory, so it is not read.
                self.pending.forget(id);
                break;
            }
            drop(page);
            if !self.drop_clean(id) {
                tantalum_rt::sleep(ALLOCATED_PAUSE);
            }
        }
        Ok(())
    }
}
