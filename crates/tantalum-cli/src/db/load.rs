//! `tantalum db load`.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    process::ExitCode,
};

use tantalum::{Builder, BulkLoad, Db, ErrorKind, StoreKind, Table, Ticket, Transaction};
use tantalum_report::{Progress, Unit, units};

use super::{
    builder,
    format::{Line, Reader},
};
use crate::error::{Error, Out, Result};

/// Bytes of keys and values in one transaction, where a dump is merged; a larger row has one of its own, and is read and written in
/// pieces.
const TRANSACTION_BYTES: usize = 64 << 10;
/// Commits that may be under way.
const COMMITS_IN_FLIGHT: usize = 16;

/// Where a dump is loaded.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The database's directory.
    pub dir: &'a Path,
    /// How pages are stored if it is created.
    pub page_store: Option<StoreKind>,
    /// Whether tables may exist.
    pub merge: bool,
}

/// Loads a dump from a file, or from standard input.
pub fn run(target: Target<'_>, input: Option<&Path>) -> Result<ExitCode> {
    let (rows, tables) = match input {
        Some(path) => {
            let file = File::open(path).map_err(|error| Error::file("read", path, error))?;
            let bytes = file.metadata().map_or(0, |metadata| metadata.len());
            let again = file.try_clone().map_err(|error| Error::file("read", path, error))?;
            verify(path, BufReader::new(file), bytes)?;
            io::Seek::rewind(&mut &again).map_err(|error| Error::file("read again", path, error))?;
            let progress = Progress::bar("loading", bytes, Unit::Bytes);
            load(target, &path.display().to_string(), BufReader::new(again), &progress)?
        }
        None => {
            let progress = Progress::open_ended("loading", Unit::Bytes);
            load(target, "standard input", io::stdin().lock(), &progress)?
        }
    };
    Out::new().line(format_args!("{} rows in {} tables loaded", units::count(rows), units::count(tables)))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all of a dump, so that nothing is loaded from a damaged one.
fn verify(path: &Path, input: impl BufRead, bytes: u64) -> Result<()> {
    let progress = Progress::bar("checking the dump", bytes, Unit::Bytes);
    let named = |what| Error::Other(format!("{}: {what}", path.display()));
    let mut reader = Reader::new(input).map_err(named)?;
    loop {
        match reader.next().map_err(named)? {
            Line::End => break,
            Line::Row(_) => {
                _ = io::copy(&mut reader.value(), &mut io::sink()).map_err(|error| named(error.to_string()))?
            }
            Line::Table(_) => {}
        }
        progress.add(reader.line_bytes());
    }
    progress.finish();
    Ok(())
}

/// Returns the rows and tables loaded.
fn load(target: Target<'_>, name: &str, input: impl BufRead, progress: &Progress) -> Result<(u64, u64)> {
    let named = |what| Error::Other(format!("{name}: {what}"));
    let mut reader = Reader::new(input).map_err(named)?;
    let Target { dir, page_store, merge } = target;
    let builder = page_store.into_iter().fold(builder(true), Builder::page_store);
    let db = builder.open(dir)?;
    let existing = db.tables()?;
    let mut loader = Loader { db: &db, merges: merge, filling: None, batch: None, in_flight: VecDeque::new() };
    let (mut rows, mut tables) = (0, 0);
    loop {
        match reader.next().map_err(named)? {
            Line::End => break,
            Line::Table(name) if existing.contains(&name) && !merge => {
                return Err(Error::Other(format!(
                    "table {name:?} exists already; drop it, load into a new database, or give --merge"
                )));
            }
            Line::Table(name) => {
                loader.begin(&name, existing.contains(&name))?;
                tables += 1;
            }
            Line::Row(key) => {
                loader.put(&key, &mut reader.value()).map_err(|error| match error {
                    Error::Engine(error) if error.kind() == ErrorKind::InvalidInput => {
                        named(format!("{error}; or give --merge, with which rows are loaded in any order"))
                    }
                    Error::Engine(error) if error.kind() == ErrorKind::Io => named(error.to_string()),
                    Error::Other(what) => named(what),
                    error => error,
                })?;
                rows += 1;
            }
        }
        progress.add(reader.line_bytes());
    }
    loader.finish()?;
    db.close()?;
    progress.finish();
    Ok((rows, tables))
}

/// Fills a new table by a bulk load, and another by transactions of a good size.
struct Loader<'a> {
    db: &'a Db,
    /// Whether rows come in any order, and tables have some.
    merges: bool,
    filling: Option<Filling>,
    /// The running transaction, and the bytes in it.
    batch: Option<(Transaction, usize)>,
    in_flight: VecDeque<Ticket>,
}

/// The table that rows go to.
enum Filling {
    New(Box<BulkLoad>),
    Merging(Table),
}

impl Loader<'_> {
    /// Begins a table, which is new or not.
    fn begin(&mut self, name: &str, exists: bool) -> Result<()> {
        self.finish_table()?;
        self.filling = Some(match exists || self.merges {
            true => Filling::Merging(self.db.table(name)?),
            false => Filling::New(Box::new(self.db.begin_bulk_load(name)?)),
        });
        Ok(())
    }

    fn finish_table(&mut self) -> Result<()> {
        if let Some(Filling::New(load)) = self.filling.take() {
            load.finish()?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &mut dyn Read) -> Result<()> {
        let table = match self.filling.as_mut().expect("the reader refuses a row before the first table") {
            Filling::New(load) => {
                load.add_from(key, value)?;
                return Ok(());
            }
            Filling::Merging(table) => table.clone(),
        };
        let mut first = Vec::new();
        let read = value.take(TRANSACTION_BYTES as u64).read_to_end(&mut first);
        read.map_err(|error| Error::Other(error.to_string()))?;
        if first.len() == TRANSACTION_BYTES {
            self.commit()?;
            let mut transaction = self.db.begin()?;
            transaction.put_from(&table, key, (&first[..]).chain(value))?;
            self.in_flight.push_back(transaction.commit_async()?);
            return self.commit();
        }
        let bytes = key.len() + first.len() + 16;
        if self.batch.as_ref().is_some_and(|(_, filled)| filled + bytes > TRANSACTION_BYTES) {
            self.commit()?;
        }
        let (mut transaction, filled) = match self.batch.take() {
            Some(batch) => batch,
            None => (self.db.begin()?, 0),
        };
        transaction.put(&table, key, first)?;
        self.batch = Some((transaction, filled + bytes));
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if let Some((transaction, _)) = self.batch.take() {
            self.in_flight.push_back(transaction.commit_async()?);
        }
        while self.in_flight.len() > COMMITS_IN_FLIGHT {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        if let Some(ticket) = self.in_flight.pop_front() {
            ticket.wait()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.finish_table()?;
        self.commit()?;
        while !self.in_flight.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }
}
