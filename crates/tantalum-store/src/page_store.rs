//! Where pages live when they are not in memory.
//!
//! A [`PageStore`] promises that a page it has stored is found whole again, whenever the power fails, and that a page
//! that is not whole is reported, never returned as if it were.

use std::fmt::Debug;

use tantalum_device::PendingWrite;

use crate::{
    Error, ErrorKind, InPageStats, LogStructuredStats, PageBatch, PageChanges, PageId, Result, SegmentInspection,
    Session, UnitInspection,
};

/// How far [`PageStore::pack`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PackProgress {
    /// Blocks of the store that were moved.
    pub moved_blocks: u64,
    /// Blocks that are to be moved, as the store is now: what is stored meanwhile makes them more or fewer.
    pub left_blocks: u64,
}

/// Stores and loads pages. All methods may be called by several tasks at once, but no page may be in two batches that
/// are stored at the same time.
pub trait PageStore: Send + Sync + Debug {
    /// The data file or device, for messages.
    fn name(&self) -> &str;

    /// The size of a page in bytes.
    fn page_size(&self) -> usize;

    /// The number of pages that there is room for.
    fn capacity_pages(&self) -> u64;

    /// Reads a page into `page`, which is a page long.
    ///
    /// # Errors
    /// When the device cannot read. Damage is no error here; redo may be able to mend it.
    fn load(&self, id: PageId, page: &mut [u8]) -> Result<Load>;

    /// Reads pages that follow each other, the first of them `first`, into `pages`, which has room for as many whole ones.
    /// Returns what each is.
    ///
    /// # Errors
    /// When the device cannot read one of them.
    fn load_run(&self, first: PageId, pages: &mut [u8]) -> Result<Vec<Load>> {
        let pages = pages.chunks_exact_mut(self.page_size());
        (first.0..).zip(pages).map(|(id, page)| self.load(PageId(id), page)).collect()
    }

    /// Reads pages anywhere, each into memory of its own that is a page long: at the same time where store and device can. Returns what
    /// each is.
    ///
    /// # Errors
    /// When the device cannot read one of them.
    fn load_many(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<Vec<Load>> {
        pages.iter_mut().map(|(id, page)| self.load(*id, page)).collect()
    }

    /// Writes pages. When it returns, all are durable; when it fails, or the power does, each page is as before or as
    /// in the batch, or damaged if the batch [may tear](PageBatch::may_tear).
    ///
    /// Where the store [keeps the changes](Logging::CommitStatus), these are scratch pages only, for which it has room since
    /// [`take_scratch`](Self::take_scratch); after a crash they were never stored.
    ///
    /// # Errors
    /// When a device cannot write. The batch may be stored again.
    fn store(&self, batch: &PageBatch) -> Result<()>;

    /// Begins to write pages that no tree names, and that redo does not need: a power cut may tear them. They are durable when what is
    /// returned was waited for, and then [`flush`](Self::flush) has returned. Until then, no other task stores them. Not called where
    /// the store [keeps the changes](Logging::CommitStatus).
    ///
    /// # Errors
    /// When a device cannot write; the pages then hold anything.
    fn write_unnamed(&self, batch: &PageBatch) -> Result<WritesUnderWay> {
        self.store(batch)?;
        Ok(WritesUnderWay::default())
    }

    /// Makes durable what [`write_unnamed`](Self::write_unnamed) has written.
    ///
    /// # Errors
    /// When a device cannot: it is unknown then what became of the writes.
    fn flush(&self) -> Result<()> {
        // Each write was durable by itself.
        Ok(())
    }

    /// Scratch pages are taken and freed in groups of so many pages, which begin at multiples of that.
    fn scratch_group_pages(&self) -> u64 {
        1
    }

    /// Makes room for a group of scratch pages, all of them free and none of them reserved. False if these pages cannot be scratch
    /// pages now.
    fn take_scratch(&self, first: PageId) -> bool {
        let _any_free_page_can = first;
        true
    }

    /// The pages of a group hold nothing that is needed any more.
    fn free_scratch(&self, first: PageId) {
        let _its_place_stays = first;
    }

    /// How many batches it stores at the same time; more wait.
    fn max_batches(&self) -> usize {
        usize::MAX
    }

    /// Whether the log keeps the changes of pages or the store. It does not change.
    fn logging(&self) -> Logging {
        Logging::Redo
    }

    /// Writes changes of pages, in ascending order of the pages, where [`logging`](Self::logging) asks for them. When it
    /// returns, all are durable; when it fails, or the power does, each group's changes of each page are there or not.
    /// One task at a time calls this.
    ///
    /// # Errors
    /// When a device cannot write. The changes may be stored again.
    fn store_changes(&self, changes: &[(PageId, PageChanges)]) -> Result<()> {
        unreachable!("a store whose pages are written gets no changes, and was given those of {} pages", changes.len())
    }

    /// Tells a store that keeps changes what became of them, before anything is read. Returns the first session whose statuses
    /// it needs.
    ///
    /// # Errors
    /// When a device cannot read or write.
    fn begin_session(&self, session: Session) -> Result<u64> {
        unreachable!("a store whose pages are written needs no session, and was given {session:?}")
    }

    /// The bytes that changes can have, each with its [overhead](PageChanges::OVERHEAD_BYTES), which the store is given before
    /// it hears that any of them are committed, where it keeps them.
    fn max_active_bytes(&self) -> usize {
        usize::MAX
    }

    /// Makes room for more pages; they read as [`Load::NeverWritten`].
    ///
    /// # Errors
    /// [`StoreFull`](crate::ErrorKind::StoreFull): the room that there is goes on working.
    fn grow(&self) -> Result<()>;

    /// As [`grow`](Self::grow), by about so many bytes, which are about to be written.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    fn grow_to_fill(&self, bytes: u64) -> Result<()> {
        let _as_much_as_ever = bytes;
        self.grow()
    }

    /// Whether [`shrink`](Self::shrink) may be called: the store can give space back, if its device can.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) says why it cannot.
    fn gives_space_back(&self) -> Result<()> {
        let what =
            format!("{}: this page store gives no space back; copy the database with a backup instead", self.name());
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// Gives back the room for all but so many pages, as far as it is not used. The others are free and hold nothing that is needed, no
    /// redo names them, and no task stores one. Not called while the store grows, nor by two tasks. Returns how many bytes of the
    /// room that stays take no space on disk now.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when the device cannot: it keeps its size. When a device fails, it may have given
    /// room back or not.
    fn shrink(&self, pages: u64) -> Result<u64> {
        unreachable!("a store that gives no space back is not asked to, and was asked to keep {pages} pages")
    }

    /// Makes so many pages take no more room than they need, so that [`shrink`](Self::shrink) can give back what lies behind. Pages are
    /// loaded and stored meanwhile, and the store may grow. `go_on` is told before each piece of work how far it is, with nothing
    /// locked, and its error ends it. Returns whether anything was done.
    ///
    /// # Errors
    /// When a device cannot read or write, and those of `go_on`: some of the work is done then.
    fn pack(&self, pages: u64, go_on: &mut dyn FnMut(PackProgress) -> Result<()>) -> Result<bool> {
        let _pages_lie_where_their_number_says = (pages, go_on);
        Ok(false)
    }

    /// Mends what a power cut has torn, before anything is read. Returns the number of pages put back.
    ///
    /// # Errors
    /// When a device cannot read or write.
    fn recover(&self) -> Result<u64>;

    /// The last sessions that the devices of the store bear, by the devices' names, beside what the superblock says.
    ///
    /// # Errors
    /// When a device cannot read.
    fn sessions(&self) -> Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    /// Notes a session of the log, durably, where [`sessions`](Self::sessions) finds it until the next is noted: when everything
    /// is mended, before anything is stored.
    ///
    /// # Errors
    /// When a device cannot write.
    fn stamp(&self, session: u64) -> Result<()> {
        let _the_superblock_says_it = session;
        Ok(())
    }

    /// Told once, when everything is stored and nothing more will be: the database is closed in order.
    fn close(&self) {}

    /// Checks what the store keeps beside pages, and tells `found` what is wrong. Pages are loaded and stored meanwhile.
    ///
    /// # Errors
    /// When a device cannot read.
    fn check(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        let _nothing_beside_pages = found;
        Ok(())
    }

    /// Shows an erase unit; `None` if the store has none.
    ///
    /// # Errors
    /// When there is no such unit, or the device cannot read.
    fn inspect_unit(&self, unit: u32) -> Result<Option<UnitInspection>> {
        let _there_are_none = unit;
        Ok(None)
    }

    /// Shows a segment; `None` if the store has none.
    ///
    /// # Errors
    /// When there is no such segment, or the device cannot read.
    fn inspect_segment(&self, segment: u32) -> Result<Option<SegmentInspection>> {
        let _there_are_none = segment;
        Ok(None)
    }

    /// What the store has done since it was opened.
    fn stats(&self) -> StoreStats;
}

/// Writes that a store has begun. Dropping it does not end them: [`wait`](Self::wait) before the pages are stored again.
#[derive(Default)]
pub struct WritesUnderWay {
    pending: Vec<Box<dyn PendingWrite>>,
    first_error: Option<Error>,
}

impl WritesUnderWay {
    /// Adds a write that was submitted, or could not be.
    pub fn add(&mut self, submitted: Result<Box<dyn PendingWrite>>) {
        match submitted {
            Ok(write) => self.pending.push(write),
            Err(error) => _ = self.first_error.get_or_insert(error),
        }
    }

    /// Waits until all have ended, also after an error.
    ///
    /// # Errors
    /// That of the first that failed.
    pub fn wait(&mut self) -> Result<()> {
        for mut write in self.pending.drain(..) {
            if let Some(Err(error)) = write.wait(None) {
                self.first_error.get_or_insert(error);
            }
        }
        self.first_error.take().map_or(Ok(()), Err)
    }
}

impl Debug for WritesUnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritesUnderWay").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// Where the changes of pages are kept until they are in the stored pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logging {
    /// The log. Pages are stored whole, each after its changes are durable in the log; a crash is followed by redo.
    Redo,
    /// The store. The log holds only which change groups are committed, each after its changes are durable in the
    /// store; nothing follows a crash.
    CommitStatus,
}

/// What [`PageStore::load`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// The page, whole.
    Page,
    /// A page that was never stored.
    NeverWritten,
    /// Something else, and what is wrong with it.
    Damaged(String),
}

/// How a page torn by a power cut is made whole again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Protection {
    /// Pages are written to a double-write area first.
    DoubleWrite,
    /// The log holds an image of each page from before its first change after a checkpoint.
    FullPageImages,
    /// The device never tears a page.
    Device,
    /// The store never writes over a page.
    Store,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::DoubleWrite, Self::FullPageImages, Self::Device, Self::Store];

    /// Its name, as it is serialized.
    pub fn name(self) -> &'static str {
        match self {
            Self::DoubleWrite => "double-write",
            Self::FullPageImages => "full-page-images",
            Self::Device => "device",
            Self::Store => "store",
        }
    }
}

tantalum_device::named_field!(Protection);

tantalum_rt::statistics! {
    /// Counters of a page store.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct StoreStats {
        counted by Counters {
            /// Pages read.
            pages_loaded,
            /// Pages written for the engine, wherever to.
            pages_stored,
            /// Batches in which they were written.
            batches,
            /// Pages written to the double-write area.
            pages_double_written,
        }
        total {
            /// What in-page logging did; null with another store.
            in_page: Option<InPageStats>,
            /// What the log-structured store did; null with another store.
            log_structured: Option<LogStructuredStats>,
        }
        now {
            /// Bytes that the store has room for.
            capacity_bytes: u64,
        }
    }
}
