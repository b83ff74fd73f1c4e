//! Which pages are in use, and room for more.
//!
//! The data file is cut into extents of N pages, N being the bits in the body of a page. Page `e * N + 2` is the space
//! map of extent `e`: a bit for each page of the extent, set while the page is in use. Map pages are changed like all
//! pages, in the change group that uses or frees the page, so a page is never lost and never used twice.
//!
//! What is kept beside the maps is a hint where to look first, and which free pages are lent as [`scratch`] pages; and, while a check
//! compares the maps with what refers to pages, which pages were allocated or freed since that began ([`Space::watch`]).

mod growth;
mod page_writer;
mod scratch;
mod shrink;
mod unnamed;

use std::sync::Arc;

use tantalum_device::AlignedBuffer;
use tantalum_rt::Mutex;
use tantalum_store::{Change, Load, PageId, PageKind, PageSet, PageStore, TableId, page::header};

pub use self::{growth::Grower, shrink::Shrunk, unnamed::UnnamedPages};
use self::{growth::Growth, scratch::Scratch};
use crate::{
    buffer::{BufferPool, ChangeGroup, PageWriteGuard, PinnedPage, Reservation},
    error::{self, GroupError, GroupResult, Lack, Result},
};

/// Where the map stands in its extent. The first extent's pages 0 and 1 hold the superblock.
const MAP_IN_EXTENT: u64 = 2;

/// What is wanted free beyond the pages of rows that are to be inserted: this part of them, for pages that are not full, ...
const SPARE_PART: u64 = 8;
/// ... and so many.
const SPARE_PAGES: u64 = 16;

/// The owner of map pages.
const NO_TABLE: TableId = TableId(0);
/// The page that the catalog's tree hangs on: the first page that a fresh space gives out.
pub(crate) const CATALOG_ROOT: PageId = PageId(3);

/// Gives out pages and takes them back. Clones are handles to the same space.
#[derive(Clone, Debug)]
pub struct Space {
    pool: BufferPool,
    beside: Arc<Mutex<Beside>>,
    growth: Arc<Growth>,
    /// The free pages that are lent as scratch pages.
    scratch: Arc<Mutex<Scratch>>,
}

/// What is kept beside the maps.
#[derive(Debug, Default)]
struct Beside {
    /// For each extent, no free page lies before this one (counted within the extent), as far as groups that have been
    /// appended go.
    first_free: Vec<u64>,
    /// While there is a [`SpaceWatch`], the pages that groups allocate or free, or have planned to.
    changed: Option<PageSet>,
    /// The store is a new one: its first map may be blank.
    is_new: bool,
}

impl Beside {
    fn note(&mut self, id: PageId) {
        if let Some(changed) = &mut self.changed {
            changed.insert(id);
        }
    }
}

/// Which pages were in use at some moment, and which were allocated or freed since: all others are as they were, from that moment
/// until the watch ends.
pub(crate) struct SpaceWatch<'s> {
    space: &'s Space,
    /// The pages that were in use.
    pub allocated: PageSet,
}

impl SpaceWatch<'_> {
    /// The pages that may have been allocated or freed until now.
    pub fn changed(&self) -> PageSet {
        self.space.beside.lock().changed.clone().expect("it is watched")
    }
}

impl Drop for SpaceWatch<'_> {
    fn drop(&mut self) {
        self.space.beside.lock().changed = None;
    }
}

impl Space {
    /// The space of a pool's store.
    pub fn new(pool: &BufferPool) -> Self {
        Self { pool: pool.clone(), beside: Arc::default(), growth: Arc::default(), scratch: Arc::default() }
    }

    /// The number of pages in an extent.
    fn extent_pages(&self) -> u64 {
        8 * (self.pool.page_size() - header::HEADER_BYTES) as u64
    }

    /// The map that says whether a page is in use.
    pub fn map_for(&self, page: PageId) -> PageId {
        self.map_of(page.0 / self.extent_pages())
    }

    fn map_of(&self, extent: u64) -> PageId {
        PageId(extent * self.extent_pages() + MAP_IN_EXTENT)
    }

    /// The number of extents that have a map page, or have room for one.
    fn extents(&self) -> u64 {
        let capacity = self.pool.store().capacity_pages();
        capacity.saturating_sub(MAP_IN_EXTENT).div_ceil(self.extent_pages())
    }

    /// The pages of an extent that there is room for.
    fn extent_limit(&self, extent: u64) -> u64 {
        self.pages_within(extent, self.pool.store().capacity_pages())
    }

    /// The pages of an extent that may be taken.
    fn usable_limit(&self, extent: u64) -> u64 {
        self.pages_within(extent, self.usable_pages())
    }

    fn pages_within(&self, extent: u64, pages: u64) -> u64 {
        pages.saturating_sub(extent * self.extent_pages()).min(self.extent_pages())
    }

    /// The pages of the store, but for those that are about to be given back.
    fn usable_pages(&self) -> u64 {
        self.growth.usable(self.pool.store().capacity_pages())
    }

    /// Takes a free page for `owner` and plans, in the group, that it is in use. Add it with
    /// [`ChangeGroup::add_new`] and format it in the same group. The first page ever given out is page 3.
    ///
    /// Waits for a map page's latch, so the caller waits for no other latch afterwards but those of fresh pages.
    ///
    /// # Errors
    /// [`Lack::FreePage`] when no map in memory has a free page: drop the group, let [`supply`](Self::supply) find one, and start
    /// over.
    pub fn allocate(&self, group: &mut ChangeGroup, owner: TableId) -> GroupResult<PageId> {
        let capacity = self.usable_pages();
        let extents = self.extents();
        // Maps are latched in ascending order; those before the last one that the group holds are only tried.
        let held = group.ids().filter(|id| self.is_map(*id)).map(|id| id.0 / self.extent_pages()).max();
        let start = held.unwrap_or(0);
        for extent in (start..extents).chain(0..start) {
            if self.first_free(extent) >= self.usable_limit(extent) {
                continue;
            }
            let Some(index) = self.latch_map(group, extent, extent >= start)? else { continue };
            if let Some(page) = self.take_bit(group, index, extent)? {
                tantalum_rt::tracing::trace!(page = page.0, owner = owner.0, "page allocated");
                self.growth.taken(page.0, capacity);
                return Ok(page);
            }
            // There may be more full maps than frames.
            group.let_go_if_unchanged(index);
        }
        Err(Lack::FreePage { capacity }.into())
    }

    /// Brings the map of an extent into memory. No latch may be held.
    ///
    /// # Errors
    /// As [`check_blank_map`](Self::check_blank_map), and what the devices report.
    fn pin_map(&self, extent: u64) -> Result<PinnedPage> {
        let page = self.pool.pin_or_blank(self.map_of(extent))?;
        let is_blank = header::kind(&page.read())? == PageKind::Free;
        if is_blank {
            self.check_blank_map(extent)?;
        }
        Ok(page)
    }

    /// Looks whether a map may be blank: the first one is in a new store only. No latch may be held. Another map that was lost cannot be told
    /// from one whose pages were never used.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the device has lost the map.
    fn check_blank_map(&self, extent: u64) -> Result<()> {
        if extent > 0 || self.beside.lock().is_new {
            return Ok(());
        }
        let store = self.pool.store();
        let mut page = AlignedBuffer::zeroed(store.page_size());
        if matches!(store.load(CATALOG_ROOT, &mut page)?, Load::Page) {
            let map = self.map_of(extent);
            let what = "this space map was never written, though the catalog's root was, so the device has lost writes";
            return Err(error::corrupt("the data file", map, map.0 * page.len() as u64, what));
        }
        self.beside.lock().is_new = true;
        Ok(())
    }

    /// Attempts a change group, and whenever it lacks something gets that and attempts it again. No latch may be held.
    ///
    /// # Errors
    /// Of the attempt, or as [`supply`](Self::supply).
    pub fn supplied<T>(&self, mut attempt: impl FnMut(&Arc<Reservation>) -> GroupResult<T>) -> Result<T> {
        let reservation = Reservation::new(&self.pool);
        loop {
            match attempt(&reservation) {
                Ok(done) => return Ok(done),
                Err(GroupError::Lacks(lack)) => self.supply(&reservation, lack)?,
                Err(GroupError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Gets what a change group lacked, for the next one. No latch may be held.
    ///
    /// # Errors
    /// [`StoreFull`](crate::ErrorKind::StoreFull) when the data file is full and cannot grow; what keeps the log from making
    /// space, and the devices from reading.
    pub fn supply(&self, reservation: &Reservation, lack: Lack) -> Result<()> {
        match lack {
            Lack::LogSpace(needed) => reservation.get_log_space(needed),
            Lack::LogSize(record) => reservation.wait_for_larger_log(record),
            Lack::Latch(page) => {
                reservation.wait_for_latch(page);
                Ok(())
            }
            Lack::Page(page) if self.is_map(page) => {
                reservation.keep(self.pin_map(page.0 / self.extent_pages())?);
                Ok(())
            }
            Lack::Page(page) => {
                // What named it is looked at again, and may not any more: then it may be free, or never stored.
                reservation.keep(self.pool.pin_or_blank(page)?);
                Ok(())
            }
            Lack::Map(map) => self.find_free_page(map.0 / self.extent_pages(), reservation),
            Lack::Frames(frames) => reservation.get_frames(frames),
            // The next attempt finds it before it latches anything.
            Lack::Chain { .. } => Ok(()),
            Lack::FreePage { capacity } => self.growth.grow_beyond(&**self.pool.store(), capacity),
        }
    }

    /// Lets the store grow until so many pages are free, and some more. No latch may be held.
    ///
    /// # Errors
    /// [`StoreFull`](crate::ErrorKind::StoreFull) when it cannot.
    pub fn ensure_free(&self, pages: u64) -> Result<()> {
        let wanted = pages + pages / SPARE_PART + SPARE_PAGES;
        loop {
            let capacity = self.pool.store().capacity_pages();
            let mut used = self.extents();
            self.for_each_allocated(&mut |_| used += 1)?;
            if capacity.saturating_sub(used + MAP_IN_EXTENT) >= wanted {
                return Ok(());
            }
            self.growth.grow_beyond(&**self.pool.store(), capacity)?;
        }
    }

    /// Keeps the first map from this extent on in memory that has a free page, if one has. Those before it are known to be full then.
    fn find_free_page(&self, from: u64, reservation: &Reservation) -> Result<()> {
        for extent in from..self.extents() {
            let (from, limit) = (self.first_free(extent), self.usable_limit(extent));
            if from >= limit {
                continue;
            }
            let page = self.pin_map(extent)?;
            let map = page.read();
            let first_free = match header::kind(&map)? {
                PageKind::SpaceMap => first_clear_bit(from, limit, |byte| header::body(&map)[byte]),
                // No page of the extent was ever used.
                _ => from,
            };
            if first_free < limit {
                // Perhaps all that are free are lent as scratch pages; the group sees that, and goes on to the next map.
                drop(map);
                reservation.keep(page);
                return Ok(());
            }
            // Under the latch, which a task that frees a page needs.
            self.set_first_free(extent, limit, None);
        }
        Ok(())
    }

    /// Plans, in the group, that a page is free.
    ///
    /// To free several pages, or to free and allocate, in one group: free first, in ascending order.
    ///
    /// # Errors
    /// [`Lack::Latch`] when another order would have to wait for a latch: drop the group and start over.
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the page is not in use.
    pub fn free(&self, group: &mut ChangeGroup, id: PageId) -> GroupResult<()> {
        let (extent, bit) = (id.0 / self.extent_pages(), id.0 % self.extent_pages());
        let ascends = group.ids().filter(|id| self.is_map(*id)).all(|map| map <= self.map_of(extent));
        let latched = self.latch_map(group, extent, ascends).map_err(|error| match error {
            // This one, whether it has a free page or not.
            GroupError::Lacks(Lack::Map(map)) => Lack::Page(map).into(),
            error => error,
        });
        let Some(index) = latched? else { return Err(Lack::Latch(self.map_of(extent)).into()) };
        let map = group.planned(index);
        if self.is_reserved(id) || !bit_is_set(map, bit) {
            let what = format!("page {id} is to be freed, but is not in use according to this space map");
            return Err(error::corrupt_page(map, what).into());
        }
        self.write_bit(group, index, bit, false)?;
        let mut beside = self.beside.lock();
        beside.note(id);
        if let Some(hint) = beside.first_free.get_mut(extent as usize) {
            *hint = bit.min(*hint);
        }
        Ok(())
    }

    /// Whether a page is in use, by a table or by the space itself.
    ///
    /// # Errors
    /// When the map cannot be read.
    #[cfg(test)]
    pub fn is_allocated(&self, id: PageId) -> Result<bool> {
        if self.is_reserved(id) {
            return Ok(true);
        }
        let extent = id.0 / self.extent_pages();
        if extent >= self.extents() {
            return Ok(false);
        }
        let map = self.pool.pin_or_blank(self.map_of(extent))?.read();
        Ok(bit_is_set(&map, id.0 % self.extent_pages()))
    }

    /// Begins to watch which pages are allocated and freed. One watch at a time; it costs allocating and freeing next to
    /// nothing.
    ///
    /// # Errors
    /// As [`for_each_allocated`](Self::for_each_allocated).
    pub(crate) fn watch(&self) -> Result<SpaceWatch<'_>> {
        let before = self.beside.lock().changed.replace(PageSet::default());
        assert!(before.is_none(), "one task at a time watches");
        let mut watch = SpaceWatch { space: self, allocated: PageSet::default() };
        // Each map is latched once from here on: a task that planned a change of it before, which was not noted, has then made it, so that
        // it is seen here, or has given it up.
        let mut allocated = PageSet::default();
        self.for_each_allocated(&mut |page| _ = allocated.insert(page))?;
        watch.allocated = allocated;
        Ok(watch)
    }

    /// Calls `visit` with every page that a table uses, in ascending order. Pages that are allocated or freed meanwhile
    /// may be seen or not.
    ///
    /// # Errors
    /// When a map cannot be read, is no map, or has a page in use that the file does not have.
    pub fn for_each_allocated(&self, visit: &mut dyn FnMut(PageId)) -> Result<()> {
        for extent in 0..self.extents() {
            let map = self.pool.pin_or_blank(self.map_of(extent))?.read().to_vec();
            match header::kind(&map)? {
                PageKind::SpaceMap => {}
                // No page of the extent was ever used.
                PageKind::Free => continue,
                _ => return Err(error::corrupt_page(&map, "a space map was expected here")),
            }
            for bit in set_bits(header::body(&map)).take_while(|bit| *bit < self.extent_pages()) {
                let id = PageId(extent * self.extent_pages() + bit);
                if bit >= self.extent_limit(extent) {
                    return Err(error::corrupt_page(&map, format!("page {id} is in use beyond the file's end")));
                }
                if !self.is_reserved(id) {
                    visit(id);
                }
            }
        }
        Ok(())
    }

    /// Whether a page belongs to no table, ever: the superblock and the maps.
    pub fn is_reserved(&self, id: PageId) -> bool {
        id.0 < MAP_IN_EXTENT || self.is_map(id)
    }

    fn is_map(&self, id: PageId) -> bool {
        id.0 % self.extent_pages() == MAP_IN_EXTENT
    }

    fn first_free(&self, extent: u64) -> u64 {
        self.beside.lock().first_free.get(extent as usize).copied().unwrap_or(0)
    }

    /// Adds the map of an extent to the group, formatted if it is new; `None` if it is busy and must not be waited for.
    ///
    /// # Errors
    /// [`Lack::Map`] when it is not in memory.
    fn latch_map(&self, group: &mut ChangeGroup, extent: u64, may_wait: bool) -> GroupResult<Option<usize>> {
        let id = self.map_of(extent);
        if let Some(index) = group.find(id) {
            return Ok(Some(index));
        }
        let map = self.pool.pin_in_memory(id).ok_or(Lack::Map(id))?;
        let guard: Option<PageWriteGuard> = if may_wait { Some(map.write()) } else { map.try_write() };
        let Some(guard) = guard else { return Ok(None) };
        match header::kind(&guard)? {
            PageKind::SpaceMap => Ok(Some(group.add(guard))),
            // It is not looked for under a latch whether the map was lost.
            PageKind::Free if extent == 0 && !self.beside.lock().is_new => Err(Lack::Map(id).into()),
            PageKind::Free => {
                let index = group.add(guard);
                let format = Change::Format { kind: PageKind::SpaceMap, level: 0, owner: NO_TABLE };
                group.change(index, format)?;
                let reserved = if extent == 0 { 0b111 } else { 1 << MAP_IN_EXTENT };
                group.change(index, Change::WriteBytes { offset: 0, bytes: &[reserved] })?;
                Ok(Some(index))
            }
            _ => Err(error::corrupt_page(&guard, "a space map was expected here").into()),
        }
    }

    /// Plans that the first free page of an extent is in use. Not one that the same group frees: its latch is held. Nor a scratch
    /// page.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the group has the page for another reason: it would wait for its own latch.
    fn take_bit(&self, group: &mut ChangeGroup, index: usize, extent: u64) -> Result<Option<PageId>> {
        let limit = self.usable_limit(extent);
        let from = self.first_free(extent);
        let (before, planned) = (header::body(group.page(index)), header::body(group.planned(index)));
        // The group may yet be dropped or appended: what is free in either case bounds the hint.
        let first_free = first_clear_bit(from, limit, |byte| before[byte] & planned[byte]);
        let first_usable = {
            let scratch = self.scratch.lock();
            let lent = scratch.bits(extent);
            first_clear_bit(first_free, limit, |byte| before[byte] | planned[byte] | lent.map_or(0, |lent| lent[byte]))
        };
        let id = (first_usable < limit).then(|| PageId(extent * self.extent_pages() + first_usable));
        self.set_first_free(extent, first_free, id);
        if let Some(id) = id {
            if group.find(id).is_some() {
                let what =
                    format!("page {id} is in use, but free according to this space map: the device has lost writes");
                return Err(error::corrupt_page(group.page(index), what));
            }
            self.write_bit(group, index, first_usable, true)?;
        }
        Ok(id)
    }

    /// Notes where the first free page of an extent is, and which is about to be allocated.
    fn set_first_free(&self, extent: u64, bit: u64, allocated: Option<PageId>) {
        let mut beside = self.beside.lock();
        allocated.into_iter().for_each(|id| beside.note(id));
        let (hints, extent) = (&mut beside.first_free, extent as usize);
        if hints.len() <= extent {
            hints.resize(extent + 1, 0);
        }
        hints[extent] = bit;
    }

    fn write_bit(&self, group: &mut ChangeGroup, index: usize, bit: u64, value: bool) -> Result<()> {
        let at = (bit / 8) as usize;
        let mask = 1 << (bit % 8);
        let old = header::body(group.planned(index))[at];
        let byte = if value { old | mask } else { old & !mask };
        let offset = u16::try_from(at).expect("a page's body is shorter than 16 KiB");
        group.change(index, Change::WriteBytes { offset, bytes: &[byte] })
    }
}

/// Refuses a store that has become shorter than it was: a stored map says that a page beyond its end is in use, for which it had grown
/// before. What cannot be read, or is damaged, is not judged here.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt).
pub fn check_not_truncated(store: &dyn PageStore) -> Result<()> {
    let (capacity, mut map) = (store.capacity_pages(), AlignedBuffer::zeroed(store.page_size()));
    let extent_pages = 8 * (map.len() - header::HEADER_BYTES) as u64;
    for id in (MAP_IN_EXTENT..capacity).step_by(extent_pages as usize).map(PageId) {
        let is_map = matches!(store.load(id, &mut map), Ok(Load::Page)) && header::kind(&map)? == PageKind::SpaceMap;
        let before = id.0 - MAP_IN_EXTENT;
        if is_map && let Some(bit) = (capacity.saturating_sub(before)..extent_pages).find(|bit| bit_is_set(&map, *bit))
        {
            return Err(error::corrupt(
                store.name(),
                id,
                id.0 * map.len() as u64,
                format!(
                    "page {} is in use beyond the end of the file, which has {capacity} pages; perhaps it was truncated",
                    before + bit
                ),
            ));
        }
    }
    Ok(())
}

fn bit_is_set(map: &[u8], bit: u64) -> bool {
    header::body(map)[(bit / 8) as usize] & (1 << (bit % 8)) != 0
}

/// The bits that are set, in ascending order.
fn set_bits(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().copied().chain([last]).map(u64::from_le_bytes);
    (0..).step_by(64).zip(words).flat_map(|(first, mut word)| {
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros();
            word &= word.wrapping_sub(1);
            (bit < u64::BITS).then_some(first + u64::from(bit))
        })
    })
}

/// The first bit in `from..limit` that is not set in the bytes that `byte_at` gives; `limit` if all are.
fn first_clear_bit(from: u64, limit: u64, byte_at: impl Fn(usize) -> u8) -> u64 {
    let mut bit = from;
    while bit < limit {
        let set = u64::from((byte_at((bit / 8) as usize) >> (bit % 8)).trailing_ones());
        bit += set;
        // Zeros are shifted in, so a byte whose rest is all set counts exactly up to the next one.
        if set == 0 || !bit.is_multiple_of(8) {
            break;
        }
    }
    bit.min(limit)
}

#[cfg(test)]
mod tests {
    use super::set_bits;

    #[test]
    fn set_bits_are_found_in_order() {
        assert_eq!(set_bits(&[]).count(), 0);
        assert_eq!(set_bits(&[0; 19]).count(), 0);
        assert!(set_bits(&[0xff; 19]).eq(0..152));
        let mut bytes = [0; 19];
        let bits = [0, 7, 8, 63, 64, 127, 128, 151];
        for bit in bits {
            bytes[bit / 8] |= 1 << (bit % 8);
        }
        assert!(set_bits(&bytes).eq(bits.map(|bit| bit as u64)));
    }
}
