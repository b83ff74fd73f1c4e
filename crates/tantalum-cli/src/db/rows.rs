//! `tantalum db get` and `tantalum db scan`: rows, as text.
//!
//! Keys and values are written and read as in a dump: printable ASCII stands for itself, all else is `\xNN`, a backslash `\\`.

use std::{
    ops::Bound,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;
use tantalum::{KeyRange, Prefix, control::RowSelection};

use super::{
    format::{escaped, unescaped},
    source::Source,
};
use crate::error::{Error, Out, Result};

#[derive(Args)]
pub struct ScanArguments {
    /// The database's directory.
    dir: PathBuf,
    /// The table.
    table: String,
    /// The smallest key.
    #[arg(long, value_name = "KEY", value_parser = key)]
    from: Option<Key>,
    /// Keys below this one only.
    #[arg(long, value_name = "KEY", value_parser = key)]
    to: Option<Key>,
    /// Keys that begin so only.
    #[arg(long, value_name = "KEY", value_parser = key, conflicts_with_all = ["from", "to"])]
    prefix: Option<Key>,
    /// From the largest key down.
    #[arg(long)]
    reverse: bool,
    /// At most so many rows; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Print keys only.
    #[arg(long)]
    keys: bool,
    /// Print a JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Bytes that were given as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// Reads a key: printable text as it is, other bytes as `\xNN`, a backslash as `\\`.
pub fn key(text: &str) -> Result<Key, String> {
    let bytes = unescaped(text.as_bytes());
    bytes.map(Key).ok_or_else(|| "write bytes other than printable ASCII as \\xNN, and a backslash as \\\\".to_owned())
}

/// A line of `db scan --json`.
#[derive(Serialize)]
struct Row {
    /// Its key, escaped as in a dump.
    key: String,
    /// Its value, likewise; absent with `--keys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

/// Prints the value of a key. Exit code 1 if the key is not there.
pub fn get(dir: &Path, table: &str, key: &Key, raw: bool) -> Result<ExitCode> {
    let mut source = Source::open(dir)?;
    let mut found = None;
    source.rows(RowSelection::of_key(table, &key.0), &mut |_, rows| {
        found = found.take().or_else(|| rows.into_iter().next().map(|(_, value)| value));
        Ok(())
    })?;
    source.close()?;
    match found {
        Some(value) if raw => Out::new().bytes(&value)?,
        Some(value) => Out::new().line(escaped(&value))?,
        None => return Err(Error::Other(format!("there is no key {} in table {table:?}", escaped(&key.0)))),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints rows in the order of their keys.
pub fn scan(arguments: ScanArguments) -> Result<ExitCode> {
    let ScanArguments { dir, table, from, to, prefix, reverse, limit, keys, json } = arguments;
    let (from, to) = match prefix {
        Some(Key(prefix)) => match Prefix(&prefix).into_bounds() {
            (_, Bound::Excluded(behind)) => (Some(prefix), Some(behind)),
            _ => (Some(prefix), None),
        },
        None => (from.map(|key| key.0), to.map(|key| key.0)),
    };
    let limit = (limit > 0).then_some(limit);
    let mut source = Source::open(&dir)?;
    let (mut out, mut count) = (Out::new(), 0);
    source.rows(RowSelection { tables: vec![table], from, to, reverse, limit }, &mut |_, rows| {
        for (key, value) in rows {
            count += 1;
            let row = Row { key: escaped(&key), value: (!keys).then(|| escaped(&value)) };
            match (json, row.value) {
                (true, value) => {
                    let row = serde_json::to_string(&Row { value, ..row });
                    out.line(row.map_err(|error| Error::Other(error.to_string()))?)?;
                }
                (false, Some(value)) => out.line(format_args!("{} {value}", row.key))?,
                (false, None) => out.line(row.key)?,
            }
        }
        Ok(())
    })?;
    source.close()?;
    out.flush()?;
    if limit == Some(count) {
        eprintln!("there may be more than {count} rows; --limit 0 shows all");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_given_as_dumps_show_them() {
        assert_eq!(key("a\\x00\\\\"), Ok(Key(vec![b'a', 0, b'\\'])));
        assert!(key("a\\x").unwrap_err().contains("\\xNN"));
    }
}
