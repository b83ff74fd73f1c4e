//! A database to look at or to write to: opened here, or asked in the process that has it open.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use tantalum::{
    Builder, Db, ErrorKind, FeedPosition,
    control::{self, ChangeSelection, Client, Command, FedChange, RowSelection, TableSize, TableWrite, Written},
};

use super::builder;
use crate::error::{Error, Result};

/// Takes a row of a table, its key and its value, which it reads in pieces; `None` when a table begins.
pub type TakeRow<'a> = &'a mut dyn FnMut(&str, Option<(&[u8], &mut dyn Read)>) -> Result<()>;

/// Takes changes, and the position behind them where a transaction ends.
pub type TakeChanges<'a> = &'a mut dyn FnMut(Vec<FedChange>, Option<FeedPosition>) -> Result<()>;

pub enum Source {
    /// If it was opened for reading, nothing of it changes, also if it was not closed.
    Here(Db),
    There(Remote),
}

/// Where rows are read from and written to: a database, or a transaction in it.
pub trait RowAccess {
    /// The names of the tables, in order.
    fn table_names(&self) -> Result<Vec<String>>;

    /// Reads rows, as of one moment, and gives them to `take`. Large values are not in memory as a whole.
    fn rows(&self, selection: RowSelection, take: TakeRow<'_>) -> Result<()>;

    /// Counts rows.
    fn count(&self, selection: RowSelection) -> Result<u64>;

    /// Writes to a table, all or nothing.
    fn write(&self, write: TableWrite) -> Result<Written>;

    /// Writes a row, in a table that is created if there is none. A large value is not in memory as a whole.
    fn put(&self, table: &str, key: &[u8], value: &mut dyn Read) -> Result<()>;
}

/// A database that another process has open. Each request has a connection of its own, so none is idle for long.
#[derive(Clone)]
pub struct Remote {
    dir: PathBuf,
    /// The number of the process.
    pub process: u64,
}

impl Remote {
    /// The process that has the database in `dir` open.
    ///
    /// # Errors
    /// Why no process answers; and inside, why one that does cannot be asked.
    pub fn find(dir: &Path) -> tantalum::Result<Result<Self>> {
        let mut client = Client::connect(dir)?;
        Ok(client.call(&Command::Status, &mut |_| {}).map_err(Error::from).map(|status| {
            let process = status["process"].as_u64().unwrap_or_default();
            Self { dir: dir.into(), process }
        }))
    }

    fn client(&self) -> Result<Client> {
        Client::connect(&self.dir).map_err(|error| {
            Error::Other(format!("process {} does not have the database open any more: {error}", self.process))
        })
    }

    /// Has a row written, in a table that is created if there is none.
    pub fn put(&self, table: &str, key: &[u8], value: &mut dyn Read) -> Result<()> {
        Ok(self.client()?.put(table, key, value)?)
    }

    /// What the database answers to a command.
    pub fn call(&self, command: &Command) -> Result<serde_json::Value> {
        Ok(self.client()?.call(command, &mut |_| {})?)
    }
}

impl Source {
    /// Finds the process that has the database in `dir` open, and says which; or else opens it for reading.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::open_with(builder(false).read_only(true), dir)
    }

    /// As [`open`](Self::open), for reading and writing.
    pub fn open_writable(dir: &Path) -> Result<Self> {
        Self::open_with(builder(false), dir)
    }

    /// As [`open`](Self::open); what is opened here is opened with these settings.
    pub fn open_with(builder: Builder, dir: &Path) -> Result<Self> {
        let unreachable = match Remote::find(dir) {
            Ok(remote) => {
                let remote = remote?;
                eprintln!("{} is open in process {}, which is asked", dir.display(), remote.process);
                return Ok(Self::There(remote));
            }
            Err(unreachable) => unreachable,
        };
        open_unless_asked(builder, dir, &unreachable).map(Self::Here)
    }

    /// The tables with their sizes; `counted` hears how many rows were counted, if they are counted here.
    pub fn tables(&self, counted: &mut dyn FnMut(u64)) -> Result<Vec<TableSize>> {
        match self {
            Self::Here(db) => Ok(control::table_sizes(db, counted)?),
            Self::There(remote) => of_json(remote.call(&Command::Tables)?),
        }
    }

    /// Settings and counters, as JSON.
    pub fn stats(&self) -> Result<serde_json::Value> {
        match self {
            Self::Here(db) => to_json(&db.stats()?),
            Self::There(remote) => remote.call(&Command::Stats),
        }
    }

    /// Reads the change feed.
    pub fn changes(&self, selection: ChangeSelection, take: TakeChanges<'_>) -> Result<()> {
        stopping(|failed| {
            let mut sink = |changes, position| take(changes, position).map_err(|error| failed.stop(error));
            match self {
                Self::Here(db) => Ok(selection.read(db, &mut sink)?),
                Self::There(remote) => Ok(remote.client()?.changes(selection, &mut sink)?),
            }
        })
    }

    /// The tables with a change feed, and where each was started.
    pub fn feeds(&self) -> Result<Vec<(String, FeedPosition)>> {
        match self {
            Self::Here(db) => Ok(db.change_feeds()?),
            Self::There(remote) => {
                let feeds: Vec<(String, String)> = of_json(remote.call(&Command::Feeds)?)?;
                feeds.into_iter().map(|(table, start)| Ok((table, start.parse()?))).collect()
            }
        }
    }

    /// Starts the change feed of a table, and returns the position at which it begins.
    pub fn start_feed(&self, table: &str) -> Result<FeedPosition> {
        match self {
            Self::Here(db) => Ok(db.start_change_feed(&db.open_table(table)?)?),
            Self::There(remote) => {
                let text: String = of_json(remote.call(&Command::StartFeed { table: table.into() })?)?;
                Ok(text.parse()?)
            }
        }
    }

    /// Ends the change feed of a table.
    pub fn end_feed(&self, table: &str) -> Result<()> {
        match self {
            Self::Here(db) => Ok(db.end_change_feed(&db.open_table(table)?)?),
            Self::There(remote) => remote.call(&Command::EndFeed { table: table.into() }).map(drop),
        }
    }

    /// Checks everything: a [`CheckReport`](tantalum::CheckReport) as JSON.
    pub fn check(&self) -> Result<serde_json::Value> {
        match self {
            Self::Here(db) => to_json(&db.check()?),
            Self::There(remote) => remote.call(&Command::Check),
        }
    }

    /// Copies all rows into a new database.
    pub fn back_up(&self, to: &Path) -> Result<()> {
        match self {
            Self::Here(db) => Ok(db.backup(to)?),
            Self::There(remote) => {
                let path = super::absolute(to)?;
                remote.call(&Command::Backup { path })?;
                Ok(())
            }
        }
    }

    /// Ends the reading and writing.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Here(db) => Ok(db.close()?),
            Self::There(_) => Ok(()),
        }
    }
}

impl RowAccess for Source {
    fn table_names(&self) -> Result<Vec<String>> {
        match self {
            Self::Here(db) => Ok(db.tables()?),
            Self::There(remote) => of_json(remote.call(&Command::TableNames)?),
        }
    }

    fn rows(&self, selection: RowSelection, take: TakeRow<'_>) -> Result<()> {
        stopping(|failed| {
            let mut sink =
                |table: &str, row: Option<(&[u8], &mut dyn Read)>| take(table, row).map_err(|error| failed.stop(error));
            match self {
                Self::Here(db) => Ok(selection.read(db, &mut sink)?),
                Self::There(remote) => Ok(remote.client()?.rows(selection, &mut sink)?),
            }
        })
    }

    fn count(&self, selection: RowSelection) -> Result<u64> {
        match self {
            Self::Here(db) => Ok(selection.count(db)?),
            Self::There(remote) => of_json(remote.call(&Command::Count { selection })?),
        }
    }

    fn write(&self, write: TableWrite) -> Result<Written> {
        match self {
            Self::Here(db) => Ok(write.apply(db)?),
            Self::There(remote) => of_json(remote.call(&Command::Write { write })?),
        }
    }

    fn put(&self, table: &str, key: &[u8], value: &mut dyn Read) -> Result<()> {
        match self {
            Self::Here(db) => {
                let table = db.table(table)?;
                let mut transaction = db.begin()?;
                transaction.put_from(&table, key, value)?;
                transaction.commit()?;
                Ok(())
            }
            Self::There(remote) => remote.put(table, key, value),
        }
    }
}

/// Keeps the error with which the program stops the engine's reading.
#[derive(Default)]
pub struct Failed(Option<Error>);

impl Failed {
    /// The engine's error that ends the reading.
    pub fn stop(&mut self, error: Error) -> tantalum::Error {
        let stop = tantalum::Error::new(ErrorKind::Application, error.to_string());
        self.0 = Some(error);
        stop
    }
}

/// Runs a reading that the program may stop; its error is the program's then.
pub fn stopping<T>(read: impl FnOnce(&mut Failed) -> Result<T>) -> Result<T> {
    let mut failed = Failed::default();
    let read = read(&mut failed);
    failed.0.map_or(read, Err)
}

/// Opens a database; `unreachable` is why no process that has it open could be asked.
pub fn open_unless_asked(builder: Builder, dir: &Path, unreachable: &tantalum::Error) -> Result<Db> {
    match builder.open(dir) {
        Err(error) if error.kind() == ErrorKind::InUse && is_in(dir, &error) => Err(Error::Other(format!(
            "{error}, or have it open the database with `control_socket = true` (Builder::control_socket, or tantalum.toml): without that, it \
             cannot be asked ({unreachable})"
        ))),
        opened => Ok(opened?),
    }
}

/// Whether the error is about a file of the database in `dir`, and not about a device.
fn is_in(dir: &Path, error: &tantalum::Error) -> bool {
    error.about().is_some_and(|file| Path::new(file).parent() == Some(dir))
}

fn to_json(value: &impl serde::Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|error| Error::Other(error.to_string()))
}

pub fn of_json<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    serde_json::from_value(value)
        .map_err(|error| Error::Other(format!("the database's answer is not understood: {error}")))
}
