//! A connection's open database, as SQLite's calls of its file meet it: in this process, or in the one that has the Tantalum database
//! open. When that ends, the connection goes on between two transactions: this process opens the Tantalum database itself, or finds the
//! one that does.

use std::{
    ffi::{OsStr, c_int},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use libsqlite3_sys as ffi;
use tantalum::{Error, ErrorKind};
use tantalum_rt::{Instant, now, random_seed, sleep};

use crate::{
    client::{Client, Epoch, Owner, Trouble},
    database::Database,
    failure::{Failure, Result},
    journal::OpenPath,
    main_file::MainFile,
    options::Options,
    pointer::{Found, Id, NewPointer, find, has_moved, parent},
    protocol::{HowToOpen, Open, Step},
    store::Store,
    super_journal::SuperJournal,
};

/// The directory, beside a new SQLite database, of the Tantalum database that it goes to by default.
const DEFAULT_DIRECTORY: &str = "tantalum-sqlite";

/// How long a process may take that opens the Tantalum database, or closes it, before others give up.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// What is to be opened.
pub(crate) struct Opening<'a> {
    pub path: &'a Path,
    pub options: Options,
    pub may_create: bool,
    pub must_be_new: bool,
    /// The pointer file is a copy that takes the place of the one that the catalog knows.
    pub adopts: bool,
}

impl Opening<'_> {
    /// Opens the SQLite database, or creates it.
    pub fn open(self) -> Result<DatabaseFile> {
        let place = self.path.display().to_string();
        let deadline = now() + PATIENCE;
        loop {
            match find(self.path)? {
                Found::Pointer(_) if self.must_be_new => {
                    return Err(Failure::cannot_open(format!("{place}: it exists already")));
                }
                Found::Pointer(pointer) => {
                    let how = HowToOpen::Existing { adopts: self.adopts };
                    let home = Home {
                        id: pointer.id,
                        inode: pointer.inode,
                        directory: pointer.directory,
                        options: self.options,
                    };
                    let opened = home.open(how, self.path).map_err(|failure| failure.context(place))?;
                    return Ok(DatabaseFile::new(opened, home, self.path, pointer.is_writable));
                }
                Found::Nothing if !self.may_create => {
                    return Err(Failure::cannot_open(format!("{place}: there is no such file")));
                }
                Found::Nothing => {
                    let created = self.create().map_err(|failure| Failure { code: ffi::SQLITE_CANTOPEN, ..failure })?;
                    if let Some((opened, home)) = created {
                        return Ok(DatabaseFile::new(opened, home, self.path, true));
                    }
                    if now() >= deadline {
                        let what = "processes that begin to create it end before it is there";
                        return Err(Failure::cannot_open(format!("{place}: {what}")));
                    }
                }
            }
        }
    }

    /// Creates the database; `None` if another connection has given the path to one meanwhile, or the process has ended that was to
    /// have it.
    fn create(&self) -> Result<Option<(Side, Home)>> {
        let beside = parent(self.path).join(DEFAULT_DIRECTORY);
        let directory = self.options.directory.as_deref().unwrap_or(&beside);
        let owner = TantalumDatabase::open(directory, &self.options, true)?;
        let id = Id::from(random_seed()) << 64 | Id::from(random_seed());
        let directory = std::fs::canonicalize(directory)?;
        let pointer = NewPointer::write(self.path, id, &directory)?;
        let home = Home { id, inode: pointer.inode, directory, options: self.options.clone() };
        let opened = match home.open_in(owner, HowToOpen::Create, self.path) {
            Ok(opened) => opened,
            Err(Trouble::Lost) => return Ok(None),
            Err(Trouble::Failed(failure)) => return Err(failure),
        };
        // Last: a crash before leaves an empty database that nothing names.
        Ok(pointer.name(self.path)?.then_some((opened, home)))
    }
}

/// A Tantalum database that is open, in this process or in another.
enum TantalumDatabase {
    Here(Store),
    Elsewhere(Owner),
}

impl TantalumDatabase {
    fn open(directory: &Path, options: &Options, create: bool) -> Result<Self> {
        let deadline = now() + PATIENCE;
        loop {
            if let Some(store) = Store::find(directory) {
                return Ok(Self::Here(store));
            }
            // Asked before the directory's lock, which says less and takes longer.
            if let Some(owner) = Owner::connect(directory)? {
                return Ok(Self::Elsewhere(owner));
            }
            match Store::open(directory, options, create) {
                Ok(store) => return Ok(Self::Here(store)),
                Err(error) if error.kind() == ErrorKind::InUse => wait(deadline, &error)?,
                Err(error) => return Err(Failure { code: ffi::SQLITE_CANTOPEN, ..error.into() }),
            }
        }
    }
}

/// Waits a moment for the process that is opening a Tantalum database, or closing it.
fn wait(deadline: Instant, in_use: &Error) -> Result<()> {
    if now() >= deadline {
        let remedy = "the program that has it open serves no other one: it does not use it by the VFS, or hangs";
        return Err(Failure::cannot_open(format!("{in_use}; {remedy}")));
    }
    sleep(PAUSE);
    Ok(())
}

/// Where a SQLite database is found.
struct Home {
    id: Id,
    /// Of its pointer file.
    inode: u64,
    directory: PathBuf,
    options: Options,
}

impl Home {
    fn open(&self, how: HowToOpen, path: &Path) -> Result<Side> {
        let deadline = now() + PATIENCE;
        loop {
            let owner = TantalumDatabase::open(&self.directory, &self.options, false)?;
            match self.open_in(owner, how, path) {
                Err(Trouble::Lost) if now() < deadline => {}
                Err(Trouble::Lost) => {
                    return Err(Failure::cannot_open(
                        "processes that have the database open end before they serve others",
                    ));
                }
                Err(Trouble::Failed(failure)) => return Err(failure),
                Ok(side) => return Ok(side),
            }
        }
    }

    fn open_in(&self, owner: TantalumDatabase, how: HowToOpen, path: &Path) -> std::result::Result<Side, Trouble> {
        let path = path.as_os_str().as_bytes();
        match (owner, how) {
            (TantalumDatabase::Elsewhere(owner), how) => {
                let open = Open { id: self.id, inode: self.inode, how, path };
                Ok(Side::Elsewhere(Box::new(owner.open(&open)?)))
            }
            (TantalumDatabase::Here(store), HowToOpen::Create) => {
                Ok(Side::here(MainFile::new(Database::create(store, self.id, self.inode, path)?)))
            }
            (TantalumDatabase::Here(store), HowToOpen::Existing { adopts }) => {
                Ok(Side::here(MainFile::new(Database::open(store, self.id, self.inode, adopts)?)))
            }
        }
    }
}

/// Where the calls of a connection are carried out.
enum Side {
    Here(Box<MainFile>),
    Elsewhere(Box<Client>),
}

impl Side {
    fn here(main: MainFile) -> Self {
        Self::Here(Box::new(main))
    }

    /// How its process found the database.
    fn epoch(&self) -> Epoch {
        match self {
            Self::Here(main) => main.epoch(),
            Self::Elsewhere(client) => client.epoch(),
        }
    }
}

/// A connection's open database.
pub(crate) struct DatabaseFile {
    side: Side,
    home: Home,
    path: OpenPath,
    is_exclusive: bool,
    is_writable: bool,
}

impl DatabaseFile {
    fn new(side: Side, home: Home, path: &Path, is_writable: bool) -> Self {
        let path = OpenPath::new(path.as_os_str().as_bytes());
        Self { side, home, path, is_exclusive: false, is_writable }
    }

    /// Whether the process may write the pointer file.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Reads bytes, and returns how many of them the database has.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.attempt(|side| match side {
            Side::Here(main) => Ok(main.read(offset, bytes)?),
            Side::Elsewhere(client) => client.read(offset, bytes),
        })
    }

    /// Size in bytes.
    pub fn size(&mut self) -> Result<u64> {
        self.attempt(|side| match side {
            Side::Here(main) => Ok(main.size()?),
            Side::Elsewhere(client) => client.size(),
        })
    }

    /// Whether a connection has the write lock.
    pub fn is_reserved(&mut self) -> Result<bool> {
        self.attempt(|side| match side {
            Side::Here(main) => Ok(main.is_reserved()),
            Side::Elsewhere(client) => client.is_reserved(),
        })
    }

    pub fn run(&mut self, step: Step<'_>) -> Result<()> {
        self.attempt(|side| match side {
            Side::Here(main) => Ok(main.run(step)?),
            Side::Elsewhere(client) => client.run(step),
        })?;
        if let Step::SetExclusive(is_exclusive) = step {
            self.is_exclusive = is_exclusive;
        }
        Ok(())
    }

    /// `SQLITE_FCNTL_SYNC`: the transaction is written, and commits next. One over several databases names its super-journal.
    pub fn end_of_writes(&mut self, super_journal: Option<&[u8]>) -> Result<()> {
        let Some(name) = super_journal else { return self.run(Step::EndOfWrites) };
        let Some(found) = SuperJournal::named(name) else {
            return Err(Failure::io(
                "a transaction cannot change a main database outside of Tantalum beside an attached one in Tantalum; open the other way round",
            ));
        };
        self.attempt(|side| match side {
            Side::Here(main) => Ok(main.end_of_writes(Some(&found))?),
            Side::Elsewhere(client) => client.hand_over(&found),
        })
    }

    /// `SQLITE_FCNTL_HAS_MOVED`.
    pub fn has_moved(&self) -> bool {
        has_moved(Path::new(OsStr::from_bytes(self.path.as_bytes())), self.home.inode)
    }

    /// The lock that SQLite has.
    pub fn lock_state(&self) -> c_int {
        match &self.side {
            Side::Here(main) => main.lock_state(),
            Side::Elsewhere(client) => client.lock_state(),
        }
    }

    /// Makes a call. If the other process has ended and SQLite has no lock, it is made again where the database is then.
    fn attempt<T>(&mut self, mut call: impl FnMut(&mut Side) -> std::result::Result<T, Trouble>) -> Result<T> {
        let is_between_transactions = self.lock_state() == ffi::SQLITE_LOCK_NONE;
        let deadline = now() + PATIENCE;
        let called = loop {
            match call(&mut self.side) {
                Err(Trouble::Lost) if is_between_transactions && now() < deadline => self.find_again()?,
                called => break called,
            }
        };
        called.map_err(|trouble| match trouble {
            Trouble::Failed(failure) => failure,
            Trouble::Lost => Failure::io(
                "the process that had the database open has ended; roll back and begin again: what was being committed may be there or not",
            ),
        })
    }

    /// Opens the database again, which the other process has left.
    fn find_again(&mut self) -> Result<()> {
        let found = self
            .home
            .open(HowToOpen::Existing { adopts: false }, Path::new(OsStr::from_bytes(self.path.as_bytes())))?;
        if let Side::Elsewhere(client) = &self.side
            && !client.has_seen_only(found.epoch())
        {
            return Err(Failure::io(
                "the process that had the database open ended before what this connection has read was durable; close it and open another one",
            ));
        }
        self.side = found;
        if self.is_exclusive {
            self.run(Step::SetExclusive(true))?;
        }
        Ok(())
    }
}
