//! `tantalum db get`, `scan`, `count`, `put` and `delete`: rows, whose keys and values are written in an [`Encoding`](super::encoding).

use std::{
    fs::File,
    io::{self, Read},
    ops::Bound,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use tantalum::{
    KeyRange, Prefix,
    control::{KeyBounds, RowSelection, TableWrite},
};
use tantalum_report::units;

use super::{
    encoding::{Encodings, text_of},
    source::{RowAccess, Source},
};
use crate::error::{Error, Out, Result};

/// Keys between two, or with a common beginning.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyRangeArguments {
    /// The smallest key.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Keys below this one only.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Keys that begin so only.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
}

impl KeyRangeArguments {
    pub fn bounds(&self, encodings: &Encodings) -> Result<KeyBounds> {
        let key = |text: &Option<String>| text.as_deref().map(|text| encodings.key(text)).transpose();
        Ok(match key(&self.prefix)? {
            Some(prefix) => match Prefix(&prefix).into_bounds() {
                (_, Bound::Excluded(behind)) => KeyBounds { from: Some(prefix), to: Some(behind) },
                _ => KeyBounds { from: Some(prefix), to: None },
            },
            None => KeyBounds { from: key(&self.from)?, to: key(&self.to)? },
        })
    }
}

#[derive(Args)]
pub struct Get {
    /// The table.
    table: String,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// Print the bytes as they are, without a line break.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    encodings: Encodings,
}

#[derive(Args)]
pub struct Scan {
    /// The table.
    table: String,
    #[command(flatten)]
    range: KeyRangeArguments,
    /// From the largest key down.
    #[arg(long)]
    reverse: bool,
    /// At most so many rows; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Print keys only.
    #[arg(long)]
    keys_only: bool,
    /// Print a JSON object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    encodings: Encodings,
}

#[derive(Args)]
pub struct Count {
    /// The table.
    table: String,
    #[command(flatten)]
    range: KeyRangeArguments,
    #[command(flatten)]
    encodings: Encodings,
}

#[derive(Args)]
#[group(id = "content", required = true, multiple = false, args = ["value", "file"])]
pub struct Put {
    /// The table.
    table: String,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// The value.
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    /// Take the bytes of this file as the value; - for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Create the table if there is none.
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    encodings: Encodings,
}

#[derive(Args)]
#[group(id = "which", required = true, multiple = true, args = ["keys", "from", "to", "prefix"])]
pub struct Delete {
    /// The table.
    table: String,
    /// The keys.
    #[arg(value_name = "KEY", allow_negative_numbers = true, conflicts_with_all = ["from", "to", "prefix"])]
    keys: Vec<String>,
    #[command(flatten)]
    range: KeyRangeArguments,
    #[command(flatten)]
    encodings: Encodings,
}

/// A value that is shown is in memory as a whole.
fn whole(value: &mut dyn Read) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    value.read_to_end(&mut whole).map_err(|error| Error::Other(format!("a value cannot be read: {error}")))?;
    Ok(whole)
}

/// A line of `db scan --json`.
#[derive(Serialize)]
struct Row {
    /// Its key: a string, or with `--key-as` a number or any JSON.
    key: Box<RawValue>,
    /// Its value, likewise with `--value-as`; absent with `--keys-only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
}

/// A command on the database in a directory.
#[derive(Args)]
pub struct In<C: Args> {
    /// The database's directory.
    dir: PathBuf,
    #[command(flatten)]
    command: C,
}

/// A command that reads or writes rows of a database.
pub trait RowCommand: Args {
    /// Whether it writes.
    const WRITES: bool;

    fn run(&self, database: &dyn RowAccess) -> Result<()>;
}

/// Runs a command on the database in its directory.
pub fn run<C: RowCommand>(In { dir, command }: &In<C>) -> Result<ExitCode> {
    let source = if C::WRITES { Source::open_writable(dir)? } else { Source::open(dir)? };
    command.run(&source)?;
    source.close()?;
    Ok(ExitCode::SUCCESS)
}

impl RowCommand for Get {
    const WRITES: bool = false;

    /// Prints the value of a key.
    fn run(&self, database: &dyn RowAccess) -> Result<()> {
        let Self { table, key, raw, encodings } = self;
        let key = encodings.key(key)?;
        let mut is_found = false;
        database.rows(RowSelection::of_key(table, &key), &mut |_, row| {
            let Some((_, value)) = row else { return Ok(()) };
            is_found = true;
            match raw {
                true => Out::new().copy(value),
                false => Out::new().line(encodings.show_value(&key, &whole(value)?)?),
            }
        })?;
        let missing = || Error::Other(format!("there is no key \"{}\" in table {table:?}", text_of(&key)));
        is_found.then_some(()).ok_or_else(missing)
    }
}

impl RowCommand for Scan {
    const WRITES: bool = false;

    /// Prints rows in the order of their keys.
    fn run(&self, database: &dyn RowAccess) -> Result<()> {
        let KeyBounds { from, to } = self.range.bounds(&self.encodings)?;
        let (limit, reverse, keys_only) = ((self.limit > 0).then_some(self.limit), self.reverse, self.keys_only);
        let selection = RowSelection { tables: vec![self.table.clone()], from, to, reverse, limit, keys_only };
        let (mut out, mut count) = (Out::new(), 0);
        database.rows(selection, &mut |_, row| {
            let Some((key, value)) = row else { return Ok(()) };
            count += 1;
            self.print(&mut out, key, &whole(value)?)
        })?;
        out.flush()?;
        if limit == Some(count) {
            eprintln!("there may be more than {count} rows; --limit 0 shows all");
        }
        Ok(())
    }
}

impl Scan {
    fn print(&self, out: &mut Out, key: &[u8], value: &[u8]) -> Result<()> {
        let Self { keys_only, json, encodings, .. } = self;
        if *json {
            let value = if *keys_only { None } else { Some(encodings.value_json(key, value)?) };
            let row = serde_json::to_string(&Row { key: encodings.key_json(key)?, value });
            return out.line(row.map_err(|error| Error::Other(error.to_string()))?);
        }
        let shown = encodings.show_key(key)?;
        match keys_only {
            true => out.line(shown),
            false => out.line(format_args!("{shown} {}", encodings.show_value(key, value)?)),
        }
    }
}

impl RowCommand for Count {
    const WRITES: bool = false;

    /// Prints how many rows there are.
    fn run(&self, database: &dyn RowAccess) -> Result<()> {
        let KeyBounds { from, to } = self.range.bounds(&self.encodings)?;
        let selection = RowSelection { tables: vec![self.table.clone()], from, to, ..RowSelection::default() };
        Out::new().line(database.count(selection)?)
    }
}

impl Put {
    /// Whether the value is to be read from standard input.
    pub fn reads_standard_input(&self) -> bool {
        self.file.as_deref() == Some(Path::new("-"))
    }
}

impl RowCommand for Put {
    const WRITES: bool = true;

    /// Writes a row.
    fn run(&self, database: &dyn RowAccess) -> Result<()> {
        let Self { table, key, value, file, create, encodings } = self;
        let key = encodings.key(key)?;
        let mut input: Box<dyn Read> = match (value, file) {
            (Some(value), _) => Box::new(io::Cursor::new(encodings.value(value)?)),
            (None, Some(path)) if path != Path::new("-") => {
                Box::new(File::open(path).map_err(|error| Error::file("read", path, error))?)
            }
            (None, _) => Box::new(io::stdin().lock()),
        };
        if !create && !database.table_names()?.contains(table) {
            return Err(Error::Other(format!("there is no table {table:?}; --create makes it")));
        }
        database.put(table, &key, &mut input)
    }
}

impl RowCommand for Delete {
    const WRITES: bool = true;

    /// Deletes rows, and prints how many there were.
    fn run(&self, database: &dyn RowAccess) -> Result<()> {
        let Self { table, keys, range, encodings } = self;
        let deletes = keys.iter().map(|key| encodings.key(key)).collect::<Result<Vec<_>>>()?;
        let bounds = range.bounds(encodings)?;
        let delete_range = deletes.is_empty().then_some(bounds);
        let write = TableWrite { table: table.clone(), deletes, delete_range, ..TableWrite::default() };
        let text = match database.write(write)?.deleted {
            1 => "1 row deleted".to_owned(),
            more => format!("{} rows deleted", units::count(more)),
        };
        Out::new().line(text)
    }
}
