//! What a connection has written and not committed: rows of a transaction, over the view that the connection has.

use tantalum::{Isolation, Transaction};

use crate::{
    database::Database,
    failure::Result,
    fragments::{CHANGE_COUNTER, FragmentSet, SIZE_KEY, check_end, key_of, parts},
    view::{View, copy_part},
};

/// Where the header of a SQLite database has the value of the change counter when the header's size was written.
const VERSION_VALID_FOR: u64 = 92;
/// Where it says that the database is in WAL mode, in either of two bytes.
const FORMAT_VERSIONS: u64 = 18;
const WAL_FORMAT: u8 = 2;
const ROLLBACK_FORMAT: u8 = 1;
const HEADER_BYTES: u64 = 100;

/// The writes of one connection. The write lock of the database is held as long as there are any, so their transaction never waits for a
/// key lock, and reading what was not written from the view is reading what is committed.
pub(crate) struct Writes {
    pub transaction: Transaction,
    pub written: FragmentSet,
    /// All fragments from here on were deleted before what was written of them.
    pub cut: u64,
    pub size: u64,
}

impl Writes {
    pub fn begin(database: &Database, view: &View) -> Result<Self> {
        let transaction = database.store.db().begin_with(Isolation::Serializable)?;
        Ok(Self { transaction, written: FragmentSet::default(), cut: u64::MAX, size: view.size() })
    }

    /// Reads bytes. Those beyond the size are zeros.
    pub fn read(&self, database: &Database, view: &View, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let is_written = |fragment| self.written.contains(fragment);
        let is_as_in_view = |fragment| fragment < self.cut && !is_written(fragment);
        let len = bytes.len();
        let parts = || parts(database.fragment_bytes, offset, len);
        let changed: Vec<_> = parts().filter(|part| !is_as_in_view(part.fragment)).collect();
        if changed.len() < parts().count() {
            view.read(database, offset, bytes)?;
        }
        for part in changed {
            let row = match is_written(part.fragment) {
                true => self.transaction.get(&database.table, key_of(part.fragment))?,
                false => None,
            };
            copy_part(database, row.as_deref(), part.begin, &mut bytes[part.bytes])?;
        }
        Ok(())
    }

    /// Writes bytes; fragments that stay as they are cost nothing.
    pub fn write(&mut self, database: &Database, view: &View, offset: u64, bytes: &[u8]) -> Result<()> {
        let fragment_bytes = database.fragment_bytes;
        let end = offset + bytes.len() as u64;
        check_end(fragment_bytes, end)?;
        let first = offset / fragment_bytes as u64;
        let begin = first * fragment_bytes as u64;
        let mut whole = vec![0; (end - begin).next_multiple_of(fragment_bytes as u64) as usize];
        self.read(database, view, begin, &mut whole)?;
        for (part, fragment) in parts(fragment_bytes, offset, bytes.len()).zip(whole.chunks_mut(fragment_bytes)) {
            let bytes = &bytes[part.bytes];
            let changed = &mut fragment[part.begin..part.begin + bytes.len()];
            if changed != bytes {
                changed.copy_from_slice(bytes);
                self.put(database, part.fragment, fragment)?;
            }
        }
        self.size = self.size.max(end);
        Ok(())
    }

    fn put(&mut self, database: &Database, fragment: u64, bytes: &[u8]) -> Result<()> {
        let key = key_of(fragment);
        // Before the row: if that fails, what is read of the fragment is what the transaction has.
        self.written.insert(fragment);
        match bytes.iter().rposition(|byte| *byte != 0) {
            Some(last) => self.transaction.put(&database.table, key, &bytes[..=last])?,
            None => self.transaction.blind_delete(&database.table, key)?,
        }
        Ok(())
    }

    /// Makes the database end at `size`: what is cut off reads as zeros should it grow again.
    pub fn set_size(&mut self, database: &Database, view: &View, size: u64) -> Result<()> {
        check_end(database.fragment_bytes, size)?;
        if size < self.size {
            let fragment_bytes = database.fragment_bytes as u64;
            let first = size.div_ceil(fragment_bytes);
            let kept = size % fragment_bytes;
            if kept > 0 {
                let rest = vec![0; (fragment_bytes - kept) as usize];
                let size = self.size;
                self.write(database, view, first * fragment_bytes - rest.len() as u64, &rest)?;
                self.size = size;
            }
            self.transaction.delete_range(&database.table, key_of(first).as_slice()..)?;
            self.written.truncate(first);
            self.cut = self.cut.min(first);
        }
        self.size = size;
        Ok(())
    }

    /// Does what must be done before the commit. Two things of the header matter to the VFS: that it does not ask for WAL, as the header of
    /// a database does that is copied from a WAL database, since the next connection could not open it; and that the change counter has
    /// grown, since that is how other connections know that their page cache is out of date. SQLite does not count under
    /// `locking_mode=EXCLUSIVE`, in which no other connection reads; here others do.
    pub fn prepare_commit(&mut self, database: &Database, view: &View) -> Result<()> {
        if self.written.len() > 0 && self.size >= HEADER_BYTES {
            self.correct_header(database, view)?;
        }
        if self.size != view.size() {
            self.transaction.put(&database.table, SIZE_KEY, self.size.to_le_bytes())?;
        }
        Ok(())
    }

    fn correct_header(&mut self, database: &Database, view: &View) -> Result<()> {
        let mut versions = [0; 2];
        self.read(database, view, FORMAT_VERSIONS, &mut versions)?;
        let asks_for_wal = versions.contains(&WAL_FORMAT);
        let [mut before, mut after, mut valid_for] = [[0; 4]; 3];
        self.read(database, view, CHANGE_COUNTER, &mut after)?;
        self.read(database, view, VERSION_VALID_FOR, &mut valid_for)?;
        let is_new = view.size() < HEADER_BYTES;
        if !is_new {
            view.read(database, CHANGE_COUNTER, &mut before)?;
        }
        let has_grown = is_new || u32::from_be_bytes(after).wrapping_sub(u32::from_be_bytes(before)).cast_signed() > 0;
        if has_grown && !asks_for_wal {
            return Ok(());
        }
        // More than this connection's cache has, so that it reads the corrected header again.
        let counter = u32::from_be_bytes(if has_grown { after } else { before }).wrapping_add(1).to_be_bytes();
        self.write(database, view, CHANGE_COUNTER, &counter)?;
        if valid_for == after {
            self.write(database, view, VERSION_VALID_FOR, &counter)?;
        }
        if asks_for_wal {
            self.write(database, view, FORMAT_VERSIONS, &[ROLLBACK_FORMAT; 2])?;
        }
        Ok(())
    }
}
