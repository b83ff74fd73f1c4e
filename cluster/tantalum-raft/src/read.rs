//! Reading entries back: from memory, or from the log's devices.
//!
//! No lock is held while a device is read. What lies at a position never changes, so what is read is what the group had when the
//! positions were looked up. Meanwhile an entry can have been rewritten, and its old place overwritten: then it is looked up again.

use std::ops::Range;
use std::sync::Arc;

use tantalum_log::{Error, ErrorKind, Lsn, Record, Result};

use crate::log::Shared;
use crate::record::{Decoded, ENTRY_HEAD_BYTES, EntryHead, corrupt, decode};
use crate::state::Place;
use crate::{Entry, Group};

/// Readers that are kept for the next use: a task that follows a group goes on with one that is near.
const KEPT_READERS: usize = 16;

/// An entry that was looked up: where it lies, and itself if it is in memory.
struct Found {
    index: u64,
    place: Place,
    cached: Option<Arc<[u8]>>,
}

impl Group {
    /// The entries of these indexes that there are, from the first on as many as have `max_bytes` bytes together, and at least one if
    /// there is one. All are of one moment.
    ///
    /// Those that were appended lately are in memory; the others are read from the log's devices, which blocks.
    ///
    /// # Errors
    /// A device's own error if no other device has what it fails to read, [`Corrupt`](ErrorKind::Corrupt),
    /// [`NotFound`](ErrorKind::NotFound) if the group was removed.
    pub fn entries(&self, indexes: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>> {
        loop {
            let found = self.look_up(&indexes, max_bytes)?;
            match self.read_found(&found) {
                Ok(entries) => return Ok(entries),
                // It is not there any more, or lies elsewhere now.
                Err((index, start, _))
                    if self.cell.state.lock().place(index).map(|place| place.start) != Some(start) => {}
                Err((_, _, error)) => return Err(error),
            }
        }
    }

    /// As [`entries`](Self::entries), if all of them are in memory.
    #[cfg(feature = "openraft")]
    pub(crate) fn entries_in_memory(&self, indexes: Range<u64>, max_bytes: usize) -> Result<Option<Vec<Entry>>> {
        let found = self.look_up(&indexes, max_bytes)?;
        let entry = |found: Found| Some(Entry { index: found.index, term: found.place.term, bytes: found.cached? });
        Ok(found.into_iter().map(entry).collect())
    }

    /// Where the entries lie, and those that are in memory.
    fn look_up(&self, indexes: &Range<u64>, max_bytes: usize) -> Result<Vec<Found>> {
        let state = self.cell.state.lock();
        self.check_there(&state)?;
        let all = state.indexes();
        let indexes = indexes.start.max(all.start)..indexes.end.min(all.end);
        let (mut found, mut bytes) = (Vec::new(), 0usize);
        for index in indexes {
            let place = state.place(index).expect("each entry has a place");
            bytes = bytes.saturating_add(place.bytes as usize);
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(Found { index, place, cached: state.cached(index).cloned() });
        }
        Ok(found)
    }

    /// Reads what is not in memory. An error comes with the entry that it is about, and where that was looked for.
    fn read_found(&self, found: &[Found]) -> std::result::Result<Vec<Entry>, (u64, Lsn, Error)> {
        let entry = |Found { index, place, cached }: &Found| {
            let bytes = match cached {
                Some(bytes) => Ok(Arc::clone(bytes)),
                None => self.log.shared().read_entry(self.cell.id, *index, place),
            };
            let bytes = bytes.map_err(|error| (*index, place.start, error))?;
            Ok(Entry { index: *index, term: place.term, bytes })
        };
        found.iter().map(entry).collect()
    }
}

impl Shared {
    /// Reads an entry from the devices.
    pub(crate) fn read_entry(&self, group: u64, index: u64, place: &Place) -> Result<Arc<[u8]>> {
        // It was rewritten a moment ago: what was only appended is in memory.
        self.log.flush(Lsn::new(place.start.get() + place.record_bytes()))?;
        let record = self.read_record(place.start)?;
        match decode(&record.bytes, place.start)? {
            Decoded::Entry(head, bytes)
                if head == (EntryHead { group, index, term: place.term, is_moved: head.is_moved })
                    && bytes.len() == place.bytes as usize =>
            {
                Ok(record.bytes[ENTRY_HEAD_BYTES..].into())
            }
            _ => {
                Err(corrupt(place.start, &format!("it is not entry {index} of group {group}, which was written there")))
            }
        }
    }

    /// The durable record that starts at `start`.
    fn read_record(&self, start: Lsn) -> Result<Record> {
        let near = {
            let mut readers = self.readers.lock();
            let before = readers.iter().enumerate().filter(|(_, reader)| reader.position() <= start);
            let nearest = before.max_by_key(|(_, reader)| reader.position()).map(|(at, _)| at);
            nearest.map(|at| readers.remove(at))
        };
        let mut reader = match near {
            Some(mut reader) => {
                reader.seek(start)?;
                reader
            }
            None => self.log.reader(start)?,
        };
        let record = reader.next_record()?;
        let mut readers = self.readers.lock();
        if readers.len() == KEPT_READERS {
            readers.remove(0);
        }
        readers.push(reader);
        drop(readers);
        record
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("the raft log has no durable record at LSN {start}")))
    }
}
