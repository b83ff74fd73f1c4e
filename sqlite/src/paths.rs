//! Paths of the SQLite databases that connections have open: their journals are known by these.

use std::collections::HashMap;

use tantalum_rt::Mutex;

/// How many connections have each path open.
static OPEN: Mutex<Option<HashMap<Vec<u8>, usize>>> = Mutex::new(None);

/// Notes, as long as it lives, that a connection has a path open.
pub(crate) struct OpenPath(Vec<u8>);

impl OpenPath {
    pub fn new(path: &[u8]) -> Self {
        *OPEN.lock().get_or_insert_default().entry(path.to_vec()).or_default() += 1;
        Self(path.to_vec())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for OpenPath {
    fn drop(&mut self) {
        if let Some(open) = OPEN.lock().as_mut()
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
    database.is_some_and(|database| OPEN.lock().as_ref().is_some_and(|open| open.contains_key(database)))
}
