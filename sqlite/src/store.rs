//! The Tantalum databases that this process has open: each once, however many connections use it, from the first to the last.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak},
};

use tantalum::{Db, Error, ErrorKind, Result, Table};
use tantalum_rt::Mutex;

use crate::{
    api::log,
    database::Database,
    failure::{self, Failure},
    options::Options,
    pointer::Id,
    process,
    server::Server,
};

/// The table with a row for each SQLite database.
const CATALOG: &str = "sqlite";

/// Open ones, by the real path of their directory. Locked while one is opened or closed, so that neither meets the other.
static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Opened>>>> = Mutex::new(None);

/// A row of the catalog beside those of SQLite databases: how often the Tantalum database has been opened by the VFS.
const OPENINGS: &str = "openings";

/// A Tantalum database that is open.
struct Opened {
    /// What serves other processes. Dropped before the database is closed, so while no other process can open it.
    server: OnceLock<Server>,
    db: Db,
    opening: u64,
    /// The change counters that SQLite databases had when it was opened.
    counters: Mutex<HashMap<Id, u32>>,
    catalog: Table,
    directory: PathBuf,
    /// A child that was forked has none of the engine's threads.
    process: u32,
    /// SQLite databases that connections have open.
    databases: Mutex<HashMap<Id, Weak<Database>>>,
}

/// Keeps a Tantalum database open. The last one closes it.
pub(crate) struct Store {
    opened: Option<Arc<Opened>>,
}

impl Store {
    /// The Tantalum database in a directory, if this process has it open.
    pub fn find(directory: &Path) -> Option<Self> {
        Self::find_in(OPEN.lock().get_or_insert_default(), directory)
    }

    fn find_in(open: &mut HashMap<PathBuf, Weak<Opened>>, directory: &Path) -> Option<Self> {
        let real = fs::canonicalize(directory).ok()?;
        let opened = open.get(&real)?.upgrade()?;
        if opened.process == process::current() {
            return Some(Self { opened: Some(opened) });
        }
        // It belongs to the parent of this child, which serves it as any other process; the child must not close it.
        std::mem::forget(opened);
        open.remove(&real);
        None
    }

    /// Opens the Tantalum database in a directory, or creates it if that is asked for.
    pub fn open(directory: &Path, options: &Options, create: bool) -> Result<Self> {
        let mut open = OPEN.lock();
        let open = open.get_or_insert_default();
        if let Some(store) = Self::find_in(open, directory) {
            return Ok(store);
        }
        let mut builder = Db::builder().create_if_missing(create);
        for (name, value) in &options.settings {
            builder = builder.set(name, value)?;
        }
        let db = builder.open(directory)?;
        let opening = db.increment(&db.table(CATALOG)?, OPENINGS, 1)? as u64;
        let store = Self::add(open, db, real_path(directory)?, opening)?;
        store.serve_others();
        Ok(store)
    }

    /// Lets other processes use it. If they cannot, this one uses it alone, and they are told that it is in use.
    fn serve_others(&self) {
        if tantalum_rt::is_simulated() {
            return;
        }
        let opened = self.opened();
        match Server::start(&opened.directory, self.downgrade()) {
            Ok(server) => assert!(opened.server.set(server).is_ok(), "it is served once"),
            Err(error) => {
                let what = "other processes cannot use the SQLite databases";
                log(&Failure::io(format!("{}: {what}: {error}", opened.directory.display())));
            }
        }
    }

    /// The Tantalum database that a program has opened itself, for pointer files that lead to this directory.
    pub fn of(db: Db, directory: &Path) -> Result<Self> {
        let mut open = OPEN.lock();
        let open = open.get_or_insert_default();
        let directory = real_path(directory)?;
        if open.get(&directory).is_some_and(|opened| opened.strong_count() > 0) {
            let what =
                format!("connections use another Tantalum database for {}; close them before", directory.display());
            return Err(Error::new(ErrorKind::InUse, what));
        }
        Self::add(open, db, directory, 0)
    }

    fn add(open: &mut HashMap<PathBuf, Weak<Opened>>, db: Db, directory: PathBuf, opening: u64) -> Result<Self> {
        let catalog = db.table(CATALOG)?;
        let opened = Arc::new(Opened {
            server: OnceLock::new(),
            db,
            opening,
            counters: Mutex::default(),
            catalog,
            directory: directory.clone(),
            process: process::current(),
            databases: Mutex::default(),
        });
        open.insert(directory, Arc::downgrade(&opened));
        Ok(Self { opened: Some(opened) })
    }

    /// All that are open.
    pub fn all() -> Vec<Self> {
        let open = OPEN.lock();
        let opened = open.iter().flat_map(HashMap::values).filter_map(Weak::upgrade);
        let (ours, of_parent): (Vec<_>, Vec<_>) = opened.partition(|opened| opened.process == process::current());
        of_parent.into_iter().for_each(std::mem::forget);
        ours.into_iter().map(|opened| Self { opened: Some(opened) }).collect()
    }

    fn opened(&self) -> &Arc<Opened> {
        self.opened.as_ref().expect("it is there until it is dropped")
    }

    pub fn db(&self) -> &Db {
        &self.opened().db
    }

    /// How often it has been opened by the VFS; 0 of one that a program has opened itself.
    pub fn opening(&self) -> u64 {
        self.opened().opening
    }

    /// The change counter that a SQLite database had when this one was opened: as `now` says, if no connection has used it since.
    pub fn counter_at_opening(&self, id: Id, now: impl FnOnce() -> failure::Result<u32>) -> failure::Result<u32> {
        let mut counters = self.opened().counters.lock();
        if let Some(counter) = counters.get(&id) {
            return Ok(*counter);
        }
        let counter = now()?;
        counters.insert(id, counter);
        Ok(counter)
    }

    /// A handle that does not keep it open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(self.opened()))
    }

    pub fn catalog(&self) -> &Table {
        &self.opened().catalog
    }

    pub fn directory(&self) -> &Path {
        &self.opened().directory
    }

    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.opened(), other.opened())
    }

    /// The SQLite databases of it that connections have open.
    pub fn databases(&self) -> &Mutex<HashMap<Id, Weak<Database>>> {
        &self.opened().databases
    }
}

/// Does not keep it open.
pub(crate) struct WeakStore(Weak<Opened>);

impl WeakStore {
    /// Unless it is closed.
    pub fn upgrade(&self) -> Option<Store> {
        Some(Store { opened: Some(self.0.upgrade()?) })
    }
}

/// The path by which an open one is known.
fn real_path(directory: &Path) -> Result<PathBuf> {
    let failure = |error| Error::new(ErrorKind::Io, format!("{}: {error}", directory.display()));
    fs::canonicalize(directory).map_err(failure)
}

impl Clone for Store {
    fn clone(&self) -> Self {
        Self { opened: Some(Arc::clone(self.opened())) }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let mut open = OPEN.lock();
        if let Some(opened) = self.opened.take().and_then(Arc::into_inner)
            && let Some(open) = open.as_mut()
        {
            open.remove(&opened.directory);
            // Closes it, with the lock held.
            drop(opened);
        }
    }
}

/// A Tantalum database with SQLite databases, kept open: connections that come and go need not open it again, and the program reaches the
/// engine, for backups and statistics. Cheap to clone, and usable from all threads. When the last handle and the last connection are gone,
/// the database is closed; so let go of the `Db` before, else the directory stays locked.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// tantalum_sqlite::register(tantalum_sqlite::Options::new())?;
/// let engine = tantalum_sqlite::Engine::open(dir.path().join("tantalum-sqlite"), &tantalum_sqlite::Options::new())?;
///
/// let app = format!("file:{}?vfs=tantalum", dir.path().join("app.db").display());
/// rusqlite::Connection::open(app)?.execute_batch("CREATE TABLE users (name TEXT)")?;
/// assert!(engine.db().stats()?.transactions.commits > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    store: Store,
}

impl Engine {
    /// Opens the Tantalum database in a directory, or creates it. If a connection or another `Engine` has it open, it is that one.
    ///
    /// # Errors
    /// As [`tantalum::Builder::open`].
    pub fn open(directory: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Ok(Self { store: Store::open(directory.as_ref(), options, true)? })
    }

    /// Has connections use a Tantalum database that the program has opened itself: with tables of its own beside the SQLite databases, say,
    /// or on devices that are not files. They find it where their pointer files lead to `directory`, which must exist; by default that is
    /// `tantalum-sqlite` beside them.
    ///
    /// ```
    /// use tantalum_device::MemoryDevice;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// tantalum_sqlite::register(tantalum_sqlite::Options::new())?;
    /// let devices = tantalum::Devices {
    ///     data: MemoryDevice::new("data", 4 << 20),
    ///     double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
    ///     log: vec![MemoryDevice::new("log", 4 << 20)],
    /// };
    /// let db = tantalum::Db::builder().open_on(devices)?;
    /// std::fs::create_dir(dir.join("tantalum-sqlite"))?;
    /// let engine = tantalum_sqlite::Engine::of(db, dir.join("tantalum-sqlite"))?;
    ///
    /// let connection = rusqlite::Connection::open(format!("file:{}?vfs=tantalum", dir.join("app.db").display()))?;
    /// connection.execute_batch("CREATE TABLE users (name TEXT)")?; // is in memory
    /// assert!(engine.db().tables()?.len() > 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InUse`](ErrorKind::InUse) while connections use another database for this directory; [`Io`](ErrorKind::Io) if there is no such
    /// directory; whatever keeps a table from being created.
    pub fn of(db: Db, directory: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { store: Store::of(db, directory.as_ref())? })
    }

    /// The engine. What SQLite databases are made of there is theirs: reading it is harmless, writing it damages them.
    pub fn db(&self) -> &Db {
        self.store.db()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("directory", &self.store.directory()).finish_non_exhaustive()
    }
}
