//! A database to look at: opened here for reading only, or asked in the process that has it open.

use std::{io::Read, path::Path};

use tantalum::{
    Builder, Db, ErrorKind,
    control::{self, Client, Command, RowSelection, Rows, TableSize},
};

use super::builder;
use crate::error::{Error, Result};

/// Takes the row of a key, whose value it reads in pieces.
pub type TakeValue<'a> = &'a mut dyn FnMut(&str, Option<(&[u8], &mut dyn Read)>) -> Result<()>;

pub enum Source {
    /// Nothing of it changes, also if it was not closed.
    Here(Db),
    There(Client),
}

impl Source {
    /// Finds the process that has the database in `dir` open, and says which; or else opens it.
    pub fn open(dir: &Path) -> Result<Self> {
        let unreachable = match Client::connect(dir) {
            Ok(mut client) => {
                let process = client.call(&Command::Status, &mut |_| {})?["process"].take();
                eprintln!("{} is open in process {process}, which is asked", dir.display());
                return Ok(Self::There(client));
            }
            Err(unreachable) => unreachable,
        };
        open_unless_asked(builder(false).read_only(true), dir, &unreachable).map(Self::Here)
    }

    /// The tables with their sizes; `counted` hears how many rows were counted, if they are counted here.
    pub fn tables(&mut self, counted: &mut dyn FnMut(u64)) -> Result<Vec<TableSize>> {
        match self {
            Self::Here(db) => Ok(control::table_sizes(db, counted)?),
            Self::There(client) => of_json(client.call(&Command::Tables, &mut |_| {})?),
        }
    }

    /// Reads rows, as of one moment, and gives them to `take`, some of one table at a time.
    pub fn rows(&mut self, selection: RowSelection, take: &mut dyn FnMut(&str, Rows) -> Result<()>) -> Result<()> {
        let mut failure = None;
        let mut sink = |table: &str, rows| {
            take(table, rows).map_err(|error| {
                let stop = tantalum::Error::new(ErrorKind::Io, error.to_string());
                failure = Some(error);
                stop
            })
        };
        let read = match self {
            Self::Here(db) => selection.read(db, &mut sink),
            Self::There(client) => client.rows(selection, &mut sink),
        };
        match failure {
            Some(failure) => Err(failure),
            None => Ok(read?),
        }
    }

    /// Reads all rows of the named tables, or of all, as of one moment. `take` gets `None` when a table begins. Only where another process
    /// has the database open are large values in memory as a whole.
    pub fn values(&mut self, tables: &[String], take: TakeValue<'_>) -> Result<()> {
        let Self::Here(db) = self else {
            let (mut current, selection) = (None, RowSelection { tables: tables.to_vec(), ..RowSelection::default() });
            return self.rows(selection, &mut |table, rows| {
                if current.as_deref() != Some(table) {
                    take(table, None)?;
                    current = Some(table.to_owned());
                }
                rows.iter().try_for_each(|(key, value)| take(table, Some((key, &mut &value[..]))))
            });
        };
        let mut failure = None;
        let read = control::read_tables(db, tables, &mut |table, row| {
            take(table, row).map_err(|error| {
                let stop = tantalum::Error::new(ErrorKind::Io, error.to_string());
                failure = Some(error);
                stop
            })
        });
        match failure {
            Some(failure) => Err(failure),
            None => Ok(read?),
        }
    }

    /// Checks everything: a [`CheckReport`](tantalum::CheckReport) as JSON.
    pub fn check(&mut self) -> Result<serde_json::Value> {
        match self {
            Self::Here(db) => to_json(&db.check()?),
            Self::There(client) => Ok(client.call(&Command::Check, &mut |_| {})?),
        }
    }

    /// Copies all rows into a new database.
    pub fn back_up(&mut self, to: &Path) -> Result<()> {
        match self {
            Self::Here(db) => Ok(db.backup(to)?),
            Self::There(client) => {
                let path = super::absolute(to)?;
                client.call(&Command::Backup { path }, &mut |_| {})?;
                Ok(())
            }
        }
    }

    /// Ends the reading.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Here(db) => Ok(db.close()?),
            Self::There(_) => Ok(()),
        }
    }
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
