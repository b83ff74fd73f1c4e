//! A SQLite database that connections of this process have open, and its row in the catalog.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use libsqlite3_sys as ffi;
use tantalum::{Db, ErrorKind, Table};
use tantalum_rt::random_seed;

use crate::{
    failure::{Failure, Result},
    options::Options,
    pointer::{Found, Id, NewPointer, find, parent},
    store::Store,
    write_lock::{ConnectionId, WriteLock},
};

/// The directory, beside a new SQLite database, of the Tantalum database that it goes to by default.
const DEFAULT_DIRECTORY: &str = "tantalum-sqlite";

/// The version of a row in the catalog.
const ROW_VERSION: u8 = 1;

/// What all connections of one SQLite database share.
pub(crate) struct Database {
    pub table: Table,
    pub fragment_bytes: usize,
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

/// What is to be opened.
pub(crate) struct Opening<'a> {
    pub path: &'a Path,
    pub options: Options,
    pub may_create: bool,
    pub must_be_new: bool,
    /// The pointer file is a copy that takes the place of the one that the catalog knows.
    pub adopts: bool,
}

/// A SQLite database, the inode of its pointer file, and whether the process may write that.
pub(crate) struct OpenDatabase {
    pub database: Arc<Database>,
    pub inode: u64,
    pub is_writable: bool,
}

impl Opening<'_> {
    /// Opens the SQLite database, or creates it.
    pub fn open(&self) -> Result<OpenDatabase> {
        let place = self.path.display();
        match find(self.path)? {
            Found::Pointer(_) if self.must_be_new => Err(Failure::cannot_open(format!("{place}: it exists already"))),
            Found::Pointer(pointer) => {
                let store = Store::open(&pointer.directory, &self.options, false).map_err(cannot_open)?;
                let row = self.row(&store, pointer.id, pointer.inode).map_err(|failure| failure.context(place))?;
                let database = Database::shared(store, pointer.id, &row)?;
                Ok(OpenDatabase { database, inode: pointer.inode, is_writable: pointer.is_writable })
            }
            Found::Nothing if !self.may_create => Err(Failure::cannot_open(format!("{place}: there is no such file"))),
            Found::Nothing => self.create().map_err(|failure| Failure { code: ffi::SQLITE_CANTOPEN, ..failure }),
        }
    }

    fn create(&self) -> Result<OpenDatabase> {
        let beside = parent(self.path).join(DEFAULT_DIRECTORY);
        let directory = self.options.directory.as_deref().unwrap_or(&beside);
        let store = Store::open(directory, &self.options, true)?;
        let id = Id::from(random_seed()) << 64 | Id::from(random_seed());
        let pointer = NewPointer::write(self.path, id, store.directory())?;
        let inode = pointer.inode;
        let row =
            Row { fragment_bytes: fragment_bytes(store.db())?, inode, path: self.path.to_string_lossy().into_owned() };
        store.db().insert(store.catalog(), id.to_be_bytes(), row.to_bytes())?;
        let database = Database::shared(store, id, &row)?;
        // Last: a crash before leaves an empty database that nothing names.
        pointer.name(self.path)?;
        Ok(OpenDatabase { database, inode, is_writable: true })
    }

    /// The row of a database, which must know the pointer file.
    fn row(&self, store: &Store, id: Id, inode: u64) -> Result<Row> {
        let Some(row) = store.db().get(store.catalog(), id.to_be_bytes())? else {
            let directory = store.directory().display();
            return Err(Failure::cannot_open(format!(
                "{directory} does not have this database; restore both from one backup"
            )));
        };
        let mut row = Row::of_bytes(&row)?;
        if row.inode != inode {
            if !self.adopts {
                return Err(Failure::cannot_open(format!(
                    "it is a copy of the file that leads to this database, first {}; open that one, or add adopt=1 to the URI if this \
                     file is to take its place",
                    row.path
                )));
            }
            row.inode = inode;
            store.db().put(store.catalog(), id.to_be_bytes(), row.to_bytes())?;
        }
        Ok(row)
    }
}

fn cannot_open(error: tantalum::Error) -> Failure {
    let remedy = if error.kind() == ErrorKind::InUse {
        "; one process at a time can use the SQLite databases of a Tantalum database"
    } else {
        ""
    };
    Failure::cannot_open(format!("{error}{remedy}"))
}

impl Database {
    /// The database that connections share, opened by the first.
    fn shared(store: Store, id: Id, row: &Row) -> Result<Arc<Self>> {
        let mut databases = store.databases().lock();
        if let Some(database) = databases.get(&id).and_then(std::sync::Weak::upgrade) {
            return Ok(database);
        }
        let table = store.db().table(&format!("sqlite/{id:032x}"))?;
        let database = Arc::new(Self {
            table,
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
