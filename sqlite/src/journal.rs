//! The rollback journal of a connection. SQLite writes it and reads it back to undo statements and transactions, but nothing needs it after
//! a crash: the database has nothing that is not committed. So it is in memory, beyond some size in a file without a name, and goes
//! with the connection. No other connection sees it: journals are known by the paths of the databases that are open.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt};

use tantalum_rt::Mutex;

use crate::{failure::Result, super_journal::Mention};

/// What is longer is kept in a file.
const MOST_BYTES_IN_MEMORY: u64 = 16 << 20;

/// A journal.
#[derive(Default)]
pub(crate) struct Journal {
    content: Content,
    /// It ends with the name of a super-journal.
    mention: Option<Mention>,
}

/// The bytes of a journal.
enum Content {
    InMemory(Vec<u8>),
    InFile(File),
}

impl Default for Content {
    fn default() -> Self {
        Self::InMemory(Vec::new())
    }
}

impl Journal {
    /// Length in bytes.
    pub fn size(&self) -> Result<u64> {
        self.content.size()
    }

    /// Reads bytes, and returns how many there were.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.content.read(offset, bytes)
    }

    /// Writes bytes; a gap before them is filled with zeros.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(mention) = Mention::of(bytes) {
            self.mention = Some(mention);
        }
        self.content.write(offset, bytes)
    }

    /// Makes it so long. One that ends is in memory again.
    pub fn set_size(&mut self, size: u64) -> Result<()> {
        // SQLite truncates to nothing, in all modes, a journal that mentions a super-journal.
        if size == 0 {
            self.mention = None;
        }
        self.content.set_size(size)
    }
}

impl Content {
    fn size(&self) -> Result<u64> {
        match self {
            Self::InMemory(content) => Ok(content.len() as u64),
            Self::InFile(file) => Ok(file.metadata()?.len()),
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        match self {
            Self::InMemory(content) => {
                let rest = content.get(offset as usize..).unwrap_or_default();
                let read = rest.len().min(bytes.len());
                bytes[..read].copy_from_slice(&rest[..read]);
                Ok(read)
            }
            Self::InFile(file) => {
                let mut read = 0;
                while read < bytes.len() {
                    match file.read_at(&mut bytes[read..], offset + read as u64)? {
                        0 => break,
                        more => read += more,
                    }
                }
                Ok(read)
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        if let Self::InMemory(content) = self
            && end > MOST_BYTES_IN_MEMORY
        {
            let file = tempfile::tempfile()?;
            file.write_all_at(content, 0)?;
            *self = Self::InFile(file);
        }
        match self {
            Self::InMemory(content) => {
                content.resize(content.len().max(end as usize), 0);
                content[offset as usize..end as usize].copy_from_slice(bytes);
            }
            Self::InFile(file) => file.write_all_at(bytes, offset)?,
        }
        Ok(())
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        match self {
            _ if size == 0 => *self = Self::default(),
            Self::InMemory(content) => content.resize(size as usize, 0),
            Self::InFile(file) => file.set_len(size)?,
        }
        Ok(())
    }
}

/// How many connections have each path open.
static OPEN_PATHS: Mutex<Option<HashMap<Vec<u8>, usize>>> = Mutex::new(None);

/// Notes, as long as it lives, that a connection has a path open.
pub(crate) struct OpenPath(Vec<u8>);

impl OpenPath {
    pub fn new(path: &[u8]) -> Self {
        *OPEN_PATHS.lock().get_or_insert_default().entry(path.to_vec()).or_default() += 1;
        Self(path.to_vec())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for OpenPath {
    fn drop(&mut self) {
        if let Some(open) = OPEN_PATHS.lock().as_mut()
            && let Some(count) = open.get_mut(&self.0)
        {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.0);
            }
        }
    }
}

/// Whether it is the path of the rollback journal or the write-ahead log of a database that is open.
pub(crate) fn is_journal_of_open(path: &[u8]) -> bool {
    let database = path.strip_suffix(b"-journal").or_else(|| path.strip_suffix(b"-wal"));
    database.is_some_and(|database| OPEN_PATHS.lock().as_ref().is_some_and(|open| open.contains_key(database)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_what_was_written_in_memory_and_beyond() {
        let mut journal = Journal::default();
        journal.write(4, b"four").unwrap();
        let step = MOST_BYTES_IN_MEMORY - 2;
        for is_in_memory in [true, false] {
            assert_eq!(matches!(journal.content, Content::InMemory(_)), is_in_memory);
            let mut bytes = [7; 12];
            assert_eq!(journal.read(0, &mut bytes[..8]).unwrap(), 8);
            assert_eq!(&bytes[..8], b"\0\0\0\0four");
            journal.write(step, b"across").unwrap();
            assert_eq!(journal.size().unwrap(), step + 6);
            assert_eq!(journal.read(step, &mut bytes).unwrap(), 6);
            assert_eq!(&bytes[..6], b"across");
        }
        journal.set_size(2).unwrap();
        assert_eq!(journal.read(0, &mut [0; 9]).unwrap(), 2);
        journal.set_size(0).unwrap();
        assert!(matches!(&journal.content, Content::InMemory(content) if content.is_empty()));
        assert_eq!(journal.read(5, &mut [0; 9]).unwrap(), 0);
    }
}
