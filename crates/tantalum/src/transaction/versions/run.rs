//! Sorted runs: old versions of rows on scratch pages, by table, key and commit.
//!
//! A run is a stream of entries that fills the pages' bodies behind a head; an entry may lie across pages. A page's head has the
//! run's number, the page's place in the run, and where the first entry that begins in it does. In memory stay the pages'
//! numbers, as extents, and the first entries of some pages, at most [`FENCES_MAX`], between which a search reads pages.

use std::{cmp::Ordering, fmt, ops::RangeInclusive};

use tantalum_device::AlignedBuffer;
use tantalum_store::{Load, PageBatch, PageId, TableId, page::header};

use super::super::{
    Content, Value,
    key_range::{Cut, Interval},
};
use crate::{
    error::{self, Result},
    space::Space,
    tree::{REFERENCE_BYTES, Reference},
};

/// Behind a page's header: the run's number, the page's place in it, where the first entry begins that does so in this page.
const HEAD_BYTES: usize = header::HEADER_BYTES + 16;
/// An entry's table, commit, and lengths of key and value.
const ENTRY_HEAD_BYTES: usize = 4 + 8 + 2 + 4;
const NO_VALUE: u32 = u32::MAX;
/// In the place of the value's length: a reference to a large value follows.
const REFERENCE: u32 = u32::MAX - 1;
const NO_ENTRY: u16 = u16::MAX;
const FENCES_MAX: usize = 1024;
/// Pages that a merge reads at once.
const READ_AHEAD_PAGES: usize = 32;

/// What entries are sorted by: table, key, and the commit that overwrote the version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryKey {
    pub table: TableId,
    pub key: Vec<u8>,
    pub overwritten_by: u64,
}

impl EntryKey {
    fn compare(&self, other: &Target<'_>) -> Ordering {
        (self.table, &self.key[..], self.overwritten_by).cmp(&(other.table, other.key, other.overwritten_by))
    }
}

/// Where a search begins.
#[derive(Clone, Copy)]
struct Target<'a> {
    table: TableId,
    key: &'a [u8],
    overwritten_by: u64,
}

/// The first entry that begins in a page.
#[derive(Debug)]
struct Fence {
    first: EntryKey,
    page: u32,
    /// Where it begins, in the run's stream.
    at: u64,
}

/// Old versions on scratch pages, which are given back when it is dropped.
pub struct Run {
    number: u64,
    space: Space,
    /// Where the pages are: of each extent the place of its first page in the run, and that page.
    extents: Vec<(u32, PageId)>,
    pages: u32,
    /// Pages that were taken and are not used, the next one last.
    spare: Vec<PageId>,
    /// Bytes of the stream.
    bytes: u64,
    entries: u64,
    newest_overwrite: u64,
    fences: Vec<Fence>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("number", &self.number).field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let used = (0..self.pages).map(|place| page_at(&self.extents, place));
        let pages: Vec<PageId> = used.chain(self.spare.drain(..)).collect();
        self.space.free_scratch(&pages);
    }
}

fn page_at(extents: &[(u32, PageId)], place: u32) -> PageId {
    let extent = extents.partition_point(|(first, _)| *first <= place) - 1;
    let (first, page) = extents[extent];
    PageId(page.0 + u64::from(place - first))
}

impl Run {
    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The newest commit that overwrote one of the versions: a snapshot that is not older sees none of them.
    pub fn newest_overwrite(&self) -> u64 {
        self.newest_overwrite
    }

    /// The oldest version of a key that was overwritten since the beginning of `overwritten_by`, if one of those commits did. No latch
    /// may be held.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn find(
        &self,
        table: TableId,
        key: &[u8],
        overwritten_by: &RangeInclusive<u64>,
    ) -> Result<Option<Option<Content>>> {
        let mut cursor = self.seek(Target { table, key, overwritten_by: *overwritten_by.start() })?;
        let is_found = |entry: &EntryKey| {
            entry.table == table && entry.key == key && overwritten_by.contains(&entry.overwritten_by)
        };
        let found = cursor.peek()?.is_some_and(is_found);
        if found { Ok(Some(cursor.take_value()?)) } else { Ok(None) }
    }

    /// As [`find`](Self::find), for all keys of an interval, which are shown in their order.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_range(
        &self,
        table: TableId,
        interval: &Interval,
        overwritten_by: &RangeInclusive<u64>,
        visit: &mut dyn FnMut(Value, Option<Content>),
    ) -> Result<()> {
        let lower: &[u8] = match &interval.lower {
            Cut::Min => &[],
            Cut::At(key, _) => key,
            Cut::Max => return Ok(()),
        };
        let mut cursor = self.seek(Target { table, key: lower, overwritten_by: 0 })?;
        let mut last: Option<Vec<u8>> = None;
        while let Some(entry) = cursor.peek()? {
            if entry.table != table || !interval.upper.is_after(&entry.key) {
                break;
            }
            let is_wanted = overwritten_by.contains(&entry.overwritten_by)
                && interval.contains(&entry.key)
                && last.as_ref().is_none_or(|last| *last != entry.key);
            if is_wanted {
                let key = entry.key.clone();
                visit(Value::from(&key[..]), cursor.take_value()?);
                last = Some(key);
            } else {
                cursor.skip_value()?;
            }
        }
        Ok(())
    }

    /// All entries in their order, read around the buffer pool, many pages at once.
    pub fn entries_in_order(&self) -> RunCursor<'_> {
        RunCursor::new(self, 0, true)
    }

    /// At the first entry at or after the target.
    fn seek(&self, target: Target<'_>) -> Result<RunCursor<'_>> {
        let after = self.fences.partition_point(|fence| fence.first.compare(&target) != Ordering::Greater);
        let Some(below) = after.checked_sub(1) else { return Ok(RunCursor::new(self, 0, false)) };
        let (mut low, mut at) = (self.fences[below].page, self.fences[below].at);
        let mut high = self.fences.get(after).map_or(self.pages, |fence| fence.page);
        let mut cursor = RunCursor::new(self, at, false);
        // The entry at `at`, which begins in page `low`, is at or before the target; those from page `high` on are after it.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match cursor.first_entry_from(middle, high)? {
                Some((page, begins)) => {
                    cursor.move_to(begins);
                    let entry = cursor.peek()?.expect("an entry begins there");
                    match entry.compare(&target) {
                        Ordering::Greater => high = middle,
                        _ => (low, at) = (page, begins),
                    }
                }
                None => high = middle,
            }
        }
        cursor.move_to(at);
        while let Some(entry) = cursor.peek()? {
            if entry.compare(&target) != Ordering::Less {
                break;
            }
            cursor.skip_value()?;
        }
        Ok(cursor)
    }

    fn page_data_bytes(&self) -> usize {
        self.space.pool().page_size() - HEAD_BYTES
    }

    /// Whether a page, read, is that of a place in this run.
    fn check(&self, page: &[u8], id: PageId, place: u32) -> Result<()> {
        let head = &page[header::HEADER_BYTES..];
        let is_ours = head[..8] == self.number.to_le_bytes() && head[8..12] == place.to_le_bytes();
        if is_ours {
            return Ok(());
        }
        Err(error::corrupt(
            self.space.pool().store().name(),
            id,
            id.0.saturating_mul(page.len() as u64),
            format!("it is not page {place} of the old row versions that were written there"),
        ))
    }
}

/// A place in a run's stream of entries.
pub struct RunCursor<'r> {
    run: &'r Run,
    at: u64,
    /// The entry that begins at `at`, if it was read.
    head: Option<(EntryKey, u32)>,
    /// Pages that were read: the place of the first, and their bytes.
    first: u32,
    pages: AlignedBuffer,
    count: u32,
    /// Whether it reads around the pool.
    is_sweep: bool,
}

impl<'r> RunCursor<'r> {
    fn new(run: &'r Run, at: u64, is_sweep: bool) -> Self {
        let room = if is_sweep { READ_AHEAD_PAGES } else { 1 };
        let pages = AlignedBuffer::zeroed(run.space.pool().page_size() * room);
        Self { run, at, head: None, first: 0, pages, count: 0, is_sweep }
    }

    fn move_to(&mut self, at: u64) {
        (self.at, self.head) = (at, None);
    }

    /// The next entry; its value is not read yet.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn peek(&mut self) -> Result<Option<&EntryKey>> {
        if self.head.is_none() {
            if self.at == self.run.bytes {
                return Ok(None);
            }
            let mut head = [0; ENTRY_HEAD_BYTES];
            self.read(self.at, &mut head)?;
            let (table, rest) = head.split_first_chunk().expect("the head is long enough");
            let (overwritten_by, rest) = rest.split_first_chunk().expect("the head is long enough");
            let (key_len, value_len) = rest.split_first_chunk().expect("the head is long enough");
            let mut key = vec![0; usize::from(u16::from_le_bytes(*key_len))];
            self.read(self.at + ENTRY_HEAD_BYTES as u64, &mut key)?;
            let table = TableId(u32::from_le_bytes(*table));
            let key = EntryKey { table, key, overwritten_by: u64::from_le_bytes(*overwritten_by) };
            self.head = Some((key, u32::from_le_bytes(value_len.try_into().expect("the head is long enough"))));
        }
        Ok(self.head.as_ref().map(|(key, _)| key))
    }

    /// The value of the entry that [`peek`](Self::peek) showed; the next one follows.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn take_value(&mut self) -> Result<Option<Content>> {
        let (key, value_len) = self.head.as_ref().expect("an entry was looked at");
        let (begins, value_len) = (self.at + (ENTRY_HEAD_BYTES + key.key.len()) as u64, *value_len);
        let value = match value_len {
            NO_VALUE => None,
            REFERENCE => {
                let mut bytes = [0; REFERENCE_BYTES];
                self.read(begins, &mut bytes)?;
                Some(Content::Large(Reference::decode(&bytes).expect("it was written as one")))
            }
            len => {
                let mut value = vec![0; len as usize];
                self.read(begins, &mut value)?;
                Some(Value::from(value).into())
            }
        };
        self.skip_value()?;
        Ok(value)
    }

    /// The next entry follows.
    ///
    /// # Errors
    /// Does not fail at present.
    pub fn skip_value(&mut self) -> Result<()> {
        let (key, value_len) = self.head.take().expect("an entry was looked at");
        let value_len = match value_len {
            NO_VALUE => 0,
            REFERENCE => REFERENCE_BYTES as u64,
            len => u64::from(len),
        };
        self.at += (ENTRY_HEAD_BYTES + key.key.len()) as u64 + value_len;
        Ok(())
    }

    /// The first entry that begins in one of the pages `from..to`: its page, and where it begins.
    fn first_entry_from(&mut self, from: u32, to: u32) -> Result<Option<(u32, u64)>> {
        let data = self.run.page_data_bytes() as u64;
        for place in from..to {
            let page = self.page(place)?;
            let begins = u16::from_le_bytes([page[HEAD_BYTES - 4], page[HEAD_BYTES - 3]]);
            if begins != NO_ENTRY {
                return Ok(Some((place, u64::from(place) * data + u64::from(begins))));
            }
        }
        Ok(None)
    }

    fn read(&mut self, mut at: u64, mut into: &mut [u8]) -> Result<()> {
        let data = self.run.page_data_bytes();
        while !into.is_empty() {
            let (place, offset) = ((at / data as u64) as u32, (at % data as u64) as usize);
            let page = self.page(place)?;
            let len = into.len().min(data - offset);
            into[..len].copy_from_slice(&page[HEAD_BYTES + offset..][..len]);
            into = &mut into[len..];
            at += len as u64;
        }
        Ok(())
    }

    fn page(&mut self, place: u32) -> Result<&[u8]> {
        let page_size = self.run.space.pool().page_size();
        if !(self.first..self.first + self.count).contains(&place) {
            self.count = 0;
            self.count = if self.is_sweep { self.sweep(place)? } else { self.fetch(place)? };
            self.first = place;
        }
        let at = (place - self.first) as usize * page_size;
        Ok(&self.pages[at..at + page_size])
    }

    /// Reads a page through the pool.
    fn fetch(&mut self, place: u32) -> Result<u32> {
        let id = page_at(&self.run.extents, place);
        self.pages.copy_from_slice(&self.run.space.pool().read(id)?);
        self.run.check(&self.pages, id, place)?;
        Ok(1)
    }

    /// Reads pages that lie behind each other from the store.
    fn sweep(&mut self, place: u32) -> Result<u32> {
        let (run, page_size) = (self.run, self.run.space.pool().page_size());
        let first = page_at(&run.extents, place);
        let most = (READ_AHEAD_PAGES as u32).min(run.pages - place);
        let count = (1..most).find(|n| page_at(&run.extents, place + n).0 != first.0 + u64::from(*n)).unwrap_or(most);
        let store = run.space.pool().store();
        let loaded = store.load_run(first, &mut self.pages[..count as usize * page_size])?;
        for (index, load) in loaded.into_iter().enumerate() {
            let id = PageId(first.0 + index as u64);
            match load {
                Load::Page => run.check(&self.pages[index * page_size..][..page_size], id, place + index as u32)?,
                Load::NeverWritten | Load::Damaged(_) => run.check(&vec![0; page_size], id, place + index as u32)?,
            }
        }
        Ok(count)
    }
}

/// Writes a run. Dropped before [`finish`](Self::finish), it gives its pages back.
pub struct RunWriter {
    run: Run,
    batch: PageBatch,
    /// The page that is being filled, and the bytes of its data that are; `None` before the first.
    page: AlignedBuffer,
    used: Option<usize>,
    /// Every so many pages have a fence.
    stride: u32,
}

impl RunWriter {
    /// Begins the run with a number that no other run of the space has.
    pub fn new(space: &Space, number: u64) -> Self {
        let page_size = space.pool().page_size();
        let run = Run {
            number,
            space: space.clone(),
            extents: Vec::new(),
            pages: 0,
            spare: Vec::new(),
            bytes: 0,
            entries: 0,
            newest_overwrite: 0,
            fences: Vec::new(),
        };
        let (batch, page) = (PageBatch::new(page_size), AlignedBuffer::zeroed(page_size));
        Self { run, batch, page, used: None, stride: 1 }
    }

    /// Adds an entry, which comes after all that were added.
    ///
    /// # Errors
    /// [`StoreFull`](crate::ErrorKind::StoreFull), and what a device reports.
    pub fn push(&mut self, table: TableId, key: &[u8], overwritten_by: u64, value: Option<&Content>) -> Result<()> {
        let used = self.room_in_page()?;
        let begins = &mut self.page[HEAD_BYTES - 4..HEAD_BYTES - 2];
        if *begins == NO_ENTRY.to_le_bytes() {
            begins.copy_from_slice(&(used as u16).to_le_bytes());
            let page = self.run.pages - 1;
            if page.is_multiple_of(self.stride) {
                let first = EntryKey { table, key: key.to_vec(), overwritten_by };
                self.add_fence(Fence { first, page, at: self.run.bytes });
            }
        }
        let mut head = [0; ENTRY_HEAD_BYTES];
        head[..4].copy_from_slice(&table.0.to_le_bytes());
        head[4..12].copy_from_slice(&overwritten_by.to_le_bytes());
        head[12..14].copy_from_slice(&u16::try_from(key.len()).expect("keys are short").to_le_bytes());
        let (value_len, reference);
        let value = match value {
            None => {
                value_len = NO_VALUE;
                &[][..]
            }
            Some(Content::Bytes(value)) => {
                value_len = u32::try_from(value.len()).expect("values are limited");
                &value[..]
            }
            Some(Content::Large(large)) => {
                value_len = REFERENCE;
                reference = large.encode();
                &reference
            }
        };
        head[14..].copy_from_slice(&value_len.to_le_bytes());
        self.write(&head)?;
        self.write(key)?;
        self.write(value)?;
        self.run.entries += 1;
        self.run.newest_overwrite = self.run.newest_overwrite.max(overwritten_by);
        Ok(())
    }

    /// The run; `None` if nothing was added.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<Option<Run>> {
        if self.run.entries == 0 {
            return Ok(None);
        }
        self.end_page()?;
        self.write_batch()?;
        // Pages are given back in whole groups. These are in descending order.
        let group = self.run.space.pool().store().scratch_group_pages();
        let spare = &mut self.run.spare;
        let in_whole_groups = spare.iter().rposition(|page| page.0.is_multiple_of(group)).map_or(0, |at| at + 1);
        self.run.space.free_scratch(&spare[..in_whole_groups]);
        spare.drain(..in_whole_groups);
        Ok(Some(self.run))
    }

    fn add_fence(&mut self, fence: Fence) {
        let fences = &mut self.run.fences;
        fences.push(fence);
        if fences.len() > FENCES_MAX {
            self.stride *= 2;
            let mut is_kept = false;
            fences.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let used = self.room_in_page()?;
            let len = bytes.len().min(self.run.page_data_bytes() - used);
            self.page[HEAD_BYTES + used..][..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            self.used = Some(used + len);
            self.run.bytes += len as u64;
        }
        Ok(())
    }

    /// Where the data goes on in a page with room, a new one if it must be.
    fn room_in_page(&mut self) -> Result<usize> {
        match self.used {
            Some(used) if used < self.run.page_data_bytes() => return Ok(used),
            Some(_) => self.end_page()?,
            None => {}
        }
        if self.run.spare.is_empty() {
            self.run.spare = self.run.space.take_scratch(PageBatch::MAX_PAGES)?;
            self.run.spare.reverse();
        }
        let id = self.run.spare.pop().expect("at least one page was taken");
        let place = self.run.pages;
        header::clear(&mut self.page, id);
        let head = &mut self.page[header::HEADER_BYTES..HEAD_BYTES];
        head[..8].copy_from_slice(&self.run.number.to_le_bytes());
        head[8..12].copy_from_slice(&place.to_le_bytes());
        head[12..14].copy_from_slice(&NO_ENTRY.to_le_bytes());
        let follows = place > 0 && page_at(&self.run.extents, place - 1).0 + 1 == id.0;
        if !follows {
            self.run.extents.push((place, id));
        }
        self.run.pages += 1;
        self.used = Some(0);
        Ok(0)
    }

    fn end_page(&mut self) -> Result<()> {
        let id = header::page_id(&self.page);
        if self.batch.is_full() || self.batch.ids().last().is_some_and(|last| *last >= id) {
            self.write_batch()?;
        }
        self.batch.push(id, &self.page);
        Ok(())
    }

    fn write_batch(&mut self) -> Result<()> {
        self.run.space.write_scratch(&mut self.batch)?;
        self.batch.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::versions::tests::database;

    /// Whatever has come into the place of a page is not taken for entries.
    #[test]
    fn a_page_of_another_run_is_noticed() {
        let db = database(crate::StoreKind::InPlace);
        let mut writer = RunWriter::new(db.space(), 1);
        let value = Content::from(Value::from(&b"value"[..]));
        writer.push(TableId(2), b"key", 5, Some(&value)).expect("there is room");
        let run = writer.finish().expect("there is room").expect("there is an entry");
        assert_eq!(run.find(TableId(2), b"key", &(5..=u64::MAX)).expect("it is there"), Some(Some(value.clone())));
        assert_eq!(run.find(TableId(2), b"key", &(6..=u64::MAX)).expect("it can be read"), None);
        let mut page = vec![0; db.space().pool().page_size()];
        let id = page_at(&run.extents, 0);
        header::clear(&mut page, id);
        page[header::HEADER_BYTES] = 2;
        let mut batch = PageBatch::new(page.len());
        batch.push(id, &page);
        db.space().write_scratch(&mut batch).expect("there is room");
        let error = run.find(TableId(2), b"key", &(5..=u64::MAX)).expect_err("it is another run's page");
        assert!(error.to_string().contains("old row versions"), "{error}");
        assert!(run.entries_in_order().peek().is_err());
    }
}
