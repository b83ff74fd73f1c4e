//! Reads what a damaged database still has, and says what it leaves out.
//!
//! A walk of each tree finds the keys to which no sound pages lead; the rows between them are read as any snapshot reads them.
//! A large value is read to its end before it is given away, so what is given away is whole.

use std::{
    io::{self, Read},
    ops::Bound,
};

use tantalum_store::PageId;

use crate::{
    db::Db,
    error::{self, Result},
    table::Table,
    transaction::{Content, Snapshot},
    tree::LostKeys,
};

/// Takes the row of a key, whose value it reads in pieces; `None` when a table begins.
pub type ValueSink<'a> = &'a mut dyn FnMut(&str, Option<(&[u8], &mut dyn Read)>) -> Result<()>;

/// What [`Db::salvage`](crate::Db::salvage) leaves out.
///
/// ```
/// let (table, key, why) = ("films".into(), b"metropolis".to_vec(), "page 7 is damaged".into());
/// let skipped = tantalum::Skipped::Value { table, key, why };
/// assert_eq!(skipped.to_string(), "table \"films\": the value of the key \"metropolis\": page 7 is damaged");
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// The rows of these keys, as many as there were.
    Keys {
        /// The table.
        table: String,
        /// The page of which they are, or that leads to their pages; unknown where the damage is not in the table's tree.
        page: Option<PageId>,
        /// The smallest key that there may have been.
        from: Vec<u8>,
        /// The smallest key behind them; `None` if they are the last.
        to: Option<Vec<u8>>,
        /// What is wrong.
        why: String,
    },
    /// A row, whose large value cannot be read.
    Value {
        /// The table.
        table: String,
        /// The row's key.
        key: Vec<u8>,
        /// What is wrong.
        why: String,
    },
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Keys { table, page, from, to, why } => {
                write!(formatter, "table {table:?}: ")?;
                match (from.is_empty(), to) {
                    (true, None) => write!(formatter, "all keys")?,
                    (true, Some(to)) => write!(formatter, "keys below \"{}\"", to.escape_ascii())?,
                    (false, None) => write!(formatter, "keys from \"{}\" on", from.escape_ascii())?,
                    (false, Some(to)) => {
                        write!(formatter, "keys from \"{}\" to below \"{}\"", from.escape_ascii(), to.escape_ascii())?;
                    }
                }
                match page {
                    Some(page) => write!(formatter, ", page {page}: {why}"),
                    None => write!(formatter, ": {why}"),
                }
            }
            Self::Value { table, key, why } => {
                write!(formatter, "table {table:?}: the value of the key \"{}\": {why}", key.escape_ascii())
            }
        }
    }
}

/// Reads what can be read.
pub(crate) fn run(db: &Db, names: &[String], rows: ValueSink<'_>, skipped: &mut dyn FnMut(Skipped)) -> Result<()> {
    let all = db.open_tables();
    let named = |name: &String| {
        let found = all.iter().find(|table| table.name() == *name).cloned();
        found.ok_or_else(|| error::no_such_table(name))
    };
    let tables = match names.is_empty() {
        true => all.clone(),
        false => names.iter().map(named).collect::<Result<_>>()?,
    };
    let snapshot = db.snapshot()?;
    for table in tables {
        Salvage { table: &table, snapshot: &snapshot, rows: &mut *rows, skipped: &mut *skipped }.run()?;
    }
    Ok(())
}

/// The salvage of one table.
struct Salvage<'a> {
    table: &'a Table,
    snapshot: &'a Snapshot,
    rows: ValueSink<'a>,
    skipped: &'a mut dyn FnMut(Skipped),
}

impl Salvage<'_> {
    fn run(&mut self) -> Result<()> {
        (self.rows)(self.table.name(), None)?;
        // The smallest key that was neither read nor skipped.
        let mut from = Vec::new();
        for LostKeys { keys, problem } in self.table.tree().lost_keys()? {
            if keys.lower > from {
                self.read(&from, Some(&keys.lower))?;
            }
            (self.skipped)(Skipped::Keys {
                table: self.table.name().into(),
                page: Some(problem.page),
                from: keys.lower,
                to: keys.upper.clone(),
                why: problem.what,
            });
            match keys.upper {
                Some(upper) => from = from.max(upper),
                None => return Ok(()),
            }
        }
        self.read(&from, None)
    }

    /// Reads the rows of keys to which sound pages lead.
    fn read(&mut self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        let bounds = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
        let mut rows = self.snapshot.range(self.table, bounds)?;
        let mut next = from.to_vec();
        while let Some(row) = rows.next_unread() {
            let (key, content) = match row {
                Ok(row) => row,
                // Of a tree with rows of a large transaction, say.
                Err(error) if error::is_damage(&error) => {
                    let (table, to) = (self.table.name().into(), to.map(<[u8]>::to_vec));
                    (self.skipped)(Skipped::Keys { table, page: None, from: next, to, why: error.to_string() });
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            next = [&key[..], &[0]].concat();
            match content {
                Content::Bytes(value) => (self.rows)(self.table.name(), Some((&key, &mut &value[..])))?,
                Content::Large(_) => self.large_value(&key)?,
            }
        }
        Ok(())
    }

    fn large_value(&mut self, key: &[u8]) -> Result<()> {
        let (snapshot, table) = (self.snapshot, self.table);
        let reader = || snapshot.reader(table, key).map(|reader| reader.expect("the snapshot has shown the row"));
        let whole = reader()
            .map_err(|error| error.to_string())
            .and_then(|mut value| io::copy(&mut value, &mut io::sink()).map_err(|error| error.to_string()));
        match whole {
            Ok(_) => (self.rows)(table.name(), Some((key, &mut reader()?))),
            Err(why) => {
                (self.skipped)(Skipped::Value { table: table.name().into(), key: key.to_vec(), why });
                Ok(())
            }
        }
    }
}
