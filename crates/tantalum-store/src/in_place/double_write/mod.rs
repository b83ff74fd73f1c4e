//! The double-write area: the batches that are being put in place, once more, so that a page torn there is found here.
//!
//! The area has slots, each for a group of batches that came at the same time ([`gathering`]). Invariants:
//!
//! - From the first write of a batch in place until all of it is durable there, a slot holds the batch, durably. So at every
//!   instant each page is whole in its place or in the area. Batches that [may tear](PageBatch::may_tear) stay out of it,
//!   and none of their pages was ever in it.
//! - No page is in two batches at a time that are not in place.
//! - Slots are used again in the order of their groups, each once its group and all before it are in place. So of all the copies
//!   of a page in the area, the one with the highest number is the page as it was stored last, unless none of them counts.
//!   (Without the second half: a group stays while one of its batches is late; another of its pages may have been stored again
//!   meanwhile, by a group that is in place, and what was its copy be overwritten. The late group's would be an old one.)
//!
//! A new slot of an area that grew is free, and older than all others.
//!
//! One write holds a header block and the pages. A torn slot is harmless: nothing of its group was written in place yet.

mod area_header;
mod gathering;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tantalum_device::{AlignedBuffer, Device, Durability, SharedFlushes};
use tantalum_rt::{Condvar, Mutex};

pub use self::area_header::{AmongOthers, Header};
use self::{area_header::HEADER_BYTES, gathering::Gathering};
use crate::{ErrorKind, PageBatch, PageId, Result, error, page::header as page_header};

/// The double-write area of a database.
#[derive(Debug)]
pub struct DoubleWrite {
    device: Arc<dyn Device>,
    page_size: usize,
    database_id: u128,
    /// How many slots it may have.
    count: u32,
    /// The present session, which all headers bear; 0 before it is noted.
    session: AtomicU64,
    gathering: Gathering<tantalum_device::Result<Option<Guard>>>,
    slots: Mutex<Slots>,
    changed: Condvar,
}

/// Which slots hold batches that may not be in place.
#[derive(Debug, Default)]
struct Slots {
    /// Whether what was in the area before is known.
    is_surveyed: bool,
    next_sequence: u64,
    /// The slots that the area's file reaches. The others are there once it has grown.
    made: u32,
    /// The other slots, after the numbers of the groups that they hold.
    free: BTreeSet<(u64, u32)>,
    /// The groups of which some batches are not, or may not be, in place, and how many.
    under_way: BTreeMap<u64, usize>,
    /// Batches that failed to be put in place. Their pages may be torn, and the area is the only way to mend them, so it keeps
    /// them until they are in place.
    unfinished: Vec<(Guard, PageBatch)>,
    /// A task tries one of those again.
    is_finishing: bool,
}

impl Slots {
    /// The slot to use next, if it can be used again.
    fn take_oldest(&mut self) -> Option<(u64, u32)> {
        let (held, _) = self.free.first()?;
        let is_oldest = self.under_way.first_key_value().is_none_or(|(under_way, _)| held < under_way);
        is_oldest.then(|| self.free.pop_first()).flatten()
    }
}

/// A batch's right to the slot that holds it, with others.
#[derive(Clone, Debug)]
pub struct Guard {
    slot: u32,
    sequence: u64,
}

/// What a slot holds: copies that may themselves be torn, or be from another batch.
#[derive(Debug)]
pub struct Copies {
    header: Header,
    pages: AlignedBuffer,
}

impl Copies {
    /// The pages that are whole and of the slot's batch.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, &[u8])> {
        let pages = self.pages.chunks_exact(self.header.page_size as usize);
        let checksums = self.header.among_others.as_ref().map(|others| &*others.checksums);
        self.header.ids.iter().copied().zip(pages).enumerate().filter_map(move |(at, (id, page))| {
            let is_of_batch = checksums.is_none_or(|checksums| checksums[at] == page_header::checksum(page));
            (is_of_batch && page_header::verify(page, id).is_ok()).then_some((id, page))
        })
    }
}

impl DoubleWrite {
    /// The most slots of an area: as many as InnoDB's has for single pages.
    pub const MAX_SLOTS: u32 = 8;
    /// An area at the end of a device takes at most one in so many bytes of it, if one slot takes less.
    const PART_OF_DEVICE: u64 = 32;
    /// An area that grows takes one in so many bytes of the data.
    const PART_OF_DATA: u64 = 8;

    fn slot_bytes(page_size: usize) -> u64 {
        (HEADER_BYTES + PageBatch::MAX_PAGES * page_size) as u64
    }

    /// The bytes that an area of so many slots needs.
    pub fn area_bytes(page_size: usize, slots: u32) -> u64 {
        u64::from(slots) * Self::slot_bytes(page_size)
    }

    /// How many slots an area of so many bytes has when it is made; at least 1, for which it may have no room.
    pub fn slots_in(area_bytes: u64, page_size: usize) -> u32 {
        let slots = (area_bytes / Self::slot_bytes(page_size)).clamp(1, Self::MAX_SLOTS.into());
        u32::try_from(slots).expect("there are few")
    }

    /// How many slots the area has that is made at the end of a device of so many bytes.
    pub fn slots_at_end(device_bytes: u64, page_size: usize) -> u32 {
        Self::slots_in(device_bytes / Self::PART_OF_DEVICE, page_size)
    }

    /// The area of up to so many slots on `device`: those that it does not reach are there once it has [grown](Self::grow).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when the device is too small for one.
    pub fn open(device: Arc<dyn Device>, page_size: usize, database_id: u128, slots: u32) -> Result<Self> {
        let needed = Self::area_bytes(page_size, 1);
        if device.capacity_bytes() < needed {
            let what = format!("a double-write area needs {needed} bytes, here are {}", device.capacity_bytes());
            return Err(error::protection(device.name(), what));
        }
        let made = Self::slots_in(device.capacity_bytes(), page_size).min(slots);
        Ok(Self {
            device,
            page_size,
            database_id,
            count: slots,
            session: AtomicU64::new(0),
            gathering: Gathering::default(),
            slots: Mutex::new(Slots { made, ..Slots::default() }),
            changed: Condvar::new(),
        })
    }

    /// The device's name.
    pub(crate) fn name(&self) -> &str {
        self.device.name()
    }

    /// Lets the area grow with the data, which has `data_bytes`: more batches can be under way then. One task at a time calls this.
    ///
    /// # Errors
    /// When the device cannot grow: the area is as good as before.
    pub(crate) fn grow(&self, data_bytes: u64) -> Result<()> {
        let wanted = Self::slots_in(data_bytes / Self::PART_OF_DATA, self.page_size).min(self.count);
        let made = self.slots.lock().made;
        if wanted <= made {
            return Ok(());
        }
        self.device.grow(Self::area_bytes(self.page_size, wanted))?;
        let mut slots = self.slots.lock();
        slots.made = wanted;
        if slots.is_surveyed {
            slots.free.extend((made..wanted).map(|slot| (0, slot)));
        }
        drop(slots);
        self.changed.notify_all();
        Ok(())
    }

    /// Lets the area shrink with the data, which has `data_bytes`, unless the slots beyond are in use or its size is fixed. One task at a time calls this
    /// or [`grow`](Self::grow).
    ///
    /// # Errors
    /// When the device cannot write or shrink: the area goes on without what it should have given back.
    pub(crate) fn shrink(&self, data_bytes: u64) -> Result<()> {
        let wanted = Self::slots_in(data_bytes / Self::PART_OF_DATA, self.page_size).min(self.count);
        let given_back = |(_, slot): &(u64, u32)| *slot >= wanted;
        let mut slots = self.slots.lock();
        let surplus = slots.made.saturating_sub(wanted) as usize;
        if surplus == 0 || slots.free.iter().filter(|slot| given_back(slot)).count() < surplus {
            return Ok(());
        }
        slots.free.retain(|slot| !given_back(slot));
        slots.made = wanted;
        drop(slots);
        // The newest header, which says what is in place and which session it is, must be in a slot that stays.
        match self.guard_all(&[])? {
            Some(guard) => self.release(guard),
            // A batch failed to be put in place, and may be the only one that holds its pages.
            None => return Ok(()),
        }
        match self.device.shrink(Self::area_bytes(self.page_size, wanted)) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let mut slots = self.slots.lock();
                let given_back = wanted..slots.made + surplus as u32;
                slots.made = given_back.end;
                slots.free.extend(given_back.map(|slot| (0, slot)));
                drop(slots);
                self.changed.notify_all();
                Ok(())
            }
            shrunk => shrunk,
        }
    }

    /// The newest session that is noted in the area; `None` if none is.
    ///
    /// # Errors
    /// When the device cannot read.
    pub(crate) fn session(&self) -> Result<Option<u64>> {
        let headers = self.survey(&mut self.slots.lock())?;
        Ok(headers.into_values().filter_map(|(_, header)| header.session).max())
    }

    /// Notes a session, durably, in the place of the oldest copies. All that the area holds must be in place.
    ///
    /// # Errors
    /// When the device cannot read or write.
    pub(crate) fn stamp(&self, session: u64) -> Result<()> {
        self.session.store(session, Ordering::Relaxed);
        let guard = self.guard_all(&[])?.expect("a slot is free before anything is stored");
        self.release(guard);
        Ok(())
    }

    fn offset(&self, slot: u32) -> u64 {
        u64::from(slot) * Self::slot_bytes(self.page_size)
    }

    /// Writes a batch to a slot, durably, with others that come at the same time. Waits while all are taken; `None` when a batch
    /// must be [finished](Self::finish) first.
    ///
    /// # Errors
    /// When the device cannot read or write.
    ///
    /// # Panics
    /// When a page of the batch is in another one that is not in place.
    pub(crate) fn guard(&self, batch: &PageBatch) -> Result<Option<Guard>> {
        self.gathering.write(batch, |batches| self.guard_all(batches))
    }

    /// Writes batches to one slot. Each of them has the guard.
    fn guard_all(&self, batches: &[PageBatch]) -> tantalum_device::Result<Option<Guard>> {
        // What belongs to no batch is released all the same.
        let Some((guard, before, in_place_before)) = self.claim(batches.len().max(1))? else { return Ok(None) };
        let mut pages: Vec<(PageId, &[u8])> = batches.iter().flat_map(PageBatch::pages).collect();
        pages.sort_unstable_by_key(|(id, _)| *id);
        assert!(pages.is_sorted_by(|(a, _), (b, _)| a < b), "a page is in one batch at a time");
        let among_others = (self.count > 1).then(|| AmongOthers {
            in_place_before,
            checksums: pages.iter().map(|(_, page)| page_header::checksum(page)).collect(),
        });
        let header = Header {
            database_id: self.database_id,
            sequence: guard.sequence,
            page_size: self.page_size as u32,
            ids: pages.iter().map(|(id, _)| *id).collect(),
            among_others,
            session: Some(self.session.load(Ordering::Relaxed)).filter(|session| *session != 0),
        };
        let header = header.encode();
        let buffers: Vec<&[u8]> = [&*header].into_iter().chain(pages.iter().map(|(_, page)| *page)).collect();
        match self.write(self.offset(guard.slot), &buffers) {
            Ok(()) => Ok(Some(guard)),
            Err(error) => {
                let mut slots = self.slots.lock();
                slots.under_way.remove(&guard.sequence);
                // It may still hold what it held.
                slots.free.insert((before, guard.slot));
                drop(slots);
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    /// A batch of the slot is in place, durably. When all are, it can be used again.
    pub(crate) fn release(&self, guard: Guard) {
        let mut slots = self.slots.lock();
        let left = slots.under_way.get_mut(&guard.sequence).expect("a batch is under way until it is released");
        *left -= 1;
        if *left > 0 {
            return;
        }
        slots.under_way.remove(&guard.sequence);
        slots.free.insert((guard.sequence, guard.slot));
        drop(slots);
        self.changed.notify_all();
    }

    /// Keeps a batch that is not in place, or not all of it.
    pub(crate) fn keep(&self, guard: Guard, batch: PageBatch) {
        self.slots.lock().unfinished.push((guard, batch));
        self.changed.notify_all();
    }

    /// Puts batches in place that failed to be. When it returns well, none is left of those that failed before the call.
    ///
    /// # Errors
    /// The first of `put_in_place`; the area keeps the batch.
    pub(crate) fn finish(&self, put_in_place: impl Fn(&PageBatch) -> Result<()>) -> Result<()> {
        let mut slots = self.slots.lock();
        loop {
            if slots.is_finishing {
                self.changed.wait(&mut slots);
                continue;
            }
            let Some((guard, batch)) = slots.unfinished.pop() else { return Ok(()) };
            slots.is_finishing = true;
            drop(slots);
            let result = put_in_place(&batch);
            match result {
                Ok(()) => self.release(guard),
                Err(_) => self.keep(guard, batch),
            }
            slots = self.slots.lock();
            slots.is_finishing = false;
            self.changed.notify_all();
            result?;
        }
    }

    /// Lets the area hold nothing, durably.
    ///
    /// # Errors
    /// When the device cannot write.
    pub fn clear(&self) -> Result<()> {
        let blank = AlignedBuffer::zeroed(HEADER_BYTES);
        let made = self.slots.lock().made;
        (0..made).try_for_each(|slot| self.write(self.offset(slot), &[&blank]))
    }

    /// What the area holds of this database that may not be in place, the newest first.
    ///
    /// # Errors
    /// When the device cannot read.
    pub(crate) fn read(&self) -> Result<Vec<Copies>> {
        let headers = self.survey(&mut self.slots.lock())?;
        let in_place_before = headers.values().next_back().map_or(0, |(_, newest)| match &newest.among_others {
            Some(others) => others.in_place_before,
            None => newest.sequence,
        });
        let open = headers.into_values().rev().take_while(|(_, header)| header.sequence >= in_place_before);
        let copies = open.map(|(slot, header)| {
            let mut pages = AlignedBuffer::zeroed(header.ids.len() * self.page_size);
            if !header.ids.is_empty() {
                self.device.read(self.offset(slot) + HEADER_BYTES as u64, &mut pages)?;
            }
            Ok(Copies { header, pages })
        });
        copies.collect()
    }

    /// Finds out what is in the slots: the headers of this database by their numbers.
    fn survey(&self, slots: &mut Slots) -> tantalum_device::Result<BTreeMap<u64, (u32, Header)>> {
        let (mut headers, mut free) = (BTreeMap::new(), BTreeSet::new());
        let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
        for slot in 0..slots.made {
            self.device.read(self.offset(slot), &mut block)?;
            let is_ours =
                |header: &Header| header.database_id == self.database_id && header.page_size as usize == self.page_size;
            match Header::decode(&block).filter(is_ours) {
                Some(header) => {
                    free.insert((header.sequence, slot));
                    headers.insert(header.sequence, (slot, header));
                }
                None => _ = free.insert((0, slot)),
            }
        }
        if !slots.is_surveyed {
            slots.next_sequence = headers.keys().next_back().map_or(1, |newest| newest.saturating_add(1));
            slots.free = free;
            slots.is_surveyed = true;
        }
        Ok(headers)
    }

    /// Takes a slot for so many batches. Says which group the slot held before, and before which group all are in place.
    fn claim(&self, batches: usize) -> tantalum_device::Result<Option<(Guard, u64, u64)>> {
        let mut slots = self.slots.lock();
        if !slots.is_surveyed {
            self.survey(&mut slots)?;
        }
        loop {
            if let Some((before, slot)) = slots.take_oldest() {
                let sequence = slots.next_sequence;
                slots.next_sequence += 1;
                slots.under_way.insert(sequence, batches);
                let (in_place_before, _) = slots.under_way.first_key_value().expect("one was just added");
                return Ok(Some((Guard { slot, sequence }, before, *in_place_before)));
            }
            if !slots.unfinished.is_empty() || slots.is_finishing {
                return Ok(None);
            }
            self.changed.wait(&mut slots);
        }
    }

    fn write(&self, offset: u64, buffers: &[&[u8]]) -> tantalum_device::Result<()> {
        if self.device.capabilities().fua == Some(false) {
            // It would flush for each of them; flushes that are asked for at the same time can be one.
            let flush = SharedFlushes::announce(&*self.device);
            self.device.write(offset, buffers, Durability::Cached)?;
            return flush.wait();
        }
        self.device.write(offset, buffers, Durability::Durable)
    }
}
