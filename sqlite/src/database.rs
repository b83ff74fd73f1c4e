//! A SQLite database that connections have open, and its row in the catalog.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tantalum::{Db, Table};

use crate::{
    failure::{Failure, Result},
    fragments::{CHANGE_COUNTER, key_of},
    pointer::Id,
    store::Store,
    write_lock::{ConnectionId, WriteLock},
};

/// The version of a row in the catalog.
const ROW_VERSION: u8 = 1;

/// What all connections of one SQLite database share.
pub(crate) struct Database {
    pub table: Table,
    pub fragment_bytes: usize,
    /// The change counter in its header when the Tantalum database was opened.
    pub counter_at_opening: u32,
    pub write_lock: WriteLock,
    next_connection: AtomicU64,
    pub store: Store,
}

/// What the catalog says of a SQLite database.
struct Row {
    fragment_bytes: u32,
    /// The inode of its pointer file.
    inode: u64,
    /// The path that it was created with, to recognize it by.
    path: String,
}

impl Row {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![ROW_VERSION];
        bytes.extend(self.fragment_bytes.to_le_bytes());
        bytes.extend(self.inode.to_le_bytes());
        bytes.extend(self.path.as_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || {
            Failure::cannot_open("its row in the table \"sqlite\" is damaged, or of a later version; restore a backup")
        };
        let (version, rest) = bytes.split_first().ok_or_else(damaged)?;
        let (fragment_bytes, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (inode, path) = rest.split_first_chunk().ok_or_else(damaged)?;
        let fragment_bytes = u32::from_le_bytes(*fragment_bytes);
        if *version != ROW_VERSION || ![512, 1024].contains(&fragment_bytes) {
            return Err(damaged());
        }
        Ok(Self { fragment_bytes, inode: u64::from_le_bytes(*inode), path: String::from_utf8_lossy(path).into_owned() })
    }
}

impl Database {
    /// Makes a SQLite database, whose pointer file has this inode and is to have this path.
    pub fn create(store: Store, id: Id, inode: u64, path: &[u8]) -> Result<Arc<Self>> {
        let row = Row {
            fragment_bytes: fragment_bytes(store.db())?,
            inode,
            path: String::from_utf8_lossy(path).into_owned(),
        };
        store.db().insert(store.catalog(), id.to_be_bytes(), row.to_bytes())?;
        Self::shared(store, id, &row)
    }

    /// Opens a SQLite database. It must know the pointer file by its inode, if the pointer file does not take the place of that which it knows.
    pub fn open(store: Store, id: Id, inode: u64, adopts: bool) -> Result<Arc<Self>> {
        let Some(row) = store.db().get(store.catalog(), id.to_be_bytes())? else {
            let directory = store.directory().display();
            return Err(Failure::cannot_open(format!(
                "{directory} does not have this database; restore both from one backup"
            )));
        };
        let mut row = Row::of_bytes(&row)?;
        if row.inode != inode {
            if !adopts {
                return Err(Failure::cannot_open(format!(
                    "it is a copy of the file that leads to this database, first {}; open that one, or add adopt=1 to the URI if this \
                     file is to take its place",
                    row.path
                )));
            }
            row.inode = inode;
            store.db().put(store.catalog(), id.to_be_bytes(), row.to_bytes())?;
        }
        Self::shared(store, id, &row)
    }

    /// The database that connections share, opened by the first.
    fn shared(store: Store, id: Id, row: &Row) -> Result<Arc<Self>> {
        let mut databases = store.databases().lock();
        if let Some(database) = databases.get(&id).and_then(std::sync::Weak::upgrade) {
            return Ok(database);
        }
        let table = store.db().table(&format!("sqlite/{id:032x}"))?;
        let counter_at_opening = store.counter_at_opening(id, || change_counter(store.db(), &table))?;
        let database = Arc::new(Self {
            table,
            counter_at_opening,
            fragment_bytes: row.fragment_bytes as usize,
            write_lock: WriteLock::default(),
            next_connection: AtomicU64::new(0),
            store: store.clone(),
        });
        databases.retain(|_, database| database.strong_count() > 0);
        databases.insert(id, Arc::downgrade(&database));
        Ok(database)
    }

    /// A number for a connection, none other of this database has it.
    pub fn new_connection(&self) -> ConnectionId {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }
}

/// How many bytes of a SQLite database a row has, in a Tantalum database with pages of this size: so many of them fill a page, and none
/// goes to a value tree, whose rows are logged whole (decision 102).
fn fragment_bytes(db: &Db) -> Result<u32> {
    Ok(match db.stats()?.page_bytes {
        4096 => 512,
        _ => 1024,
    })
}

/// The change counter in the header of a SQLite database; 0 if it is empty.
fn change_counter(db: &Db, table: &Table) -> Result<u32> {
    let first = db.get(table, key_of(0))?;
    let from = CHANGE_COUNTER as usize;
    // A row ends behind the last byte that is not zero.
    let bytes = std::array::from_fn(|at| first.as_deref().and_then(|row| row.get(from + at)).copied().unwrap_or(0));
    Ok(u32::from_be_bytes(bytes))
}
