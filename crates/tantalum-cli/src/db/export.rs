//! What rows are written out as: a [dump](super::format), JSON lines, or CSV.
//!
//! ```text
//! {"table":"accounts","key":"alice","value":"100"}
//! ```
//!
//! ```text
//! table,key,value
//! accounts,alice,100
//! ```

use std::io::{self, Read, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    encoding::{Encoding, Encodings, text_of},
    format::Writer,
};
use crate::error::{Error, Result};

/// The columns of CSV.
pub const COLUMNS: [&str; 3] = ["table", "key", "value"];

/// A format of rows in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A dump, which a load refuses if it was cut short or changed
    #[default]
    Text,
    /// A JSON object a line, with table, key and value
    Jsonl,
    /// Comma-separated values, with the columns table, key and value
    Csv,
}

impl Format {
    /// Refuses encodings where the format has its own.
    pub fn check(self, encodings: &Encodings) -> Result<()> {
        let Encodings { key_as, value_as } = *encodings;
        if self == Self::Text && (key_as, value_as) != (Encoding::Text, Encoding::Text) {
            let what = "a dump has its own encoding: give --format jsonl or --format csv with --key-as and --value-as";
            return Err(Error::Usage(what.into()));
        }
        Ok(())
    }
}

/// A line of `db dump --format jsonl`.
#[derive(Serialize)]
struct ExportedRow<'a> {
    /// The table.
    table: &'a str,
    /// The row's key: a string, or with `--key-as` a number or any JSON; absent for a table that is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Box<RawValue>>,
    /// The row's value, likewise with `--value-as`.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
}

/// Writes rows in one of the formats. But for a dump, each row is in memory as a whole.
pub enum Exporter<W: Write> {
    Text(Writer<W>),
    JsonLines { out: W, table: Table },
    Csv { out: Box<csv::Writer<W>>, table: Table },
}

/// The table that rows are written of.
pub struct Table {
    name: String,
    encodings: Encodings,
    is_empty: bool,
}

/// Why a row was not written.
#[derive(Debug)]
pub enum Failure {
    /// The output cannot be written to.
    Write(io::Error),
    /// The value cannot be read.
    Read(io::Error),
    /// The bytes are not what the encoding says.
    Encoding(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl<W: Write> Exporter<W> {
    pub fn new(format: Format, encodings: Encodings, out: W) -> io::Result<Self> {
        let table = Table { name: String::new(), encodings, is_empty: false };
        Ok(match format {
            Format::Text => Self::Text(Writer::new(out)?),
            Format::Jsonl => Self::JsonLines { out, table },
            Format::Csv => {
                let mut out = csv::Writer::from_writer(out);
                out.write_record(COLUMNS).map_err(io::Error::other)?;
                Self::Csv { out: Box::new(out), table }
            }
        })
    }

    /// Begins a table.
    pub fn table(&mut self, name: &str) -> io::Result<()> {
        match self {
            Self::Text(writer) => return writer.table(name),
            Self::JsonLines { out, table } => {
                write_empty_table(out, table)?;
                table.begin(name);
            }
            // A row cannot stand for a table without rows.
            Self::Csv { table, .. } => table.begin(name),
        }
        Ok(())
    }

    /// A row of the table.
    pub fn row(&mut self, key: &[u8], value: &mut dyn Read) -> Result<(), Failure> {
        match self {
            Self::Text(writer) => {
                let mut unread = None;
                let written = writer.row(key, &mut Noted { value, error: &mut unread });
                unread.map_or(Ok(()), |error| Err(Failure::Read(error)))?;
                Ok(written?)
            }
            Self::JsonLines { out, table: Table { name, encodings, is_empty } } => {
                let value = all_of(value)?;
                let key_json = encodings.key_json(key).map_err(Failure::Encoding)?;
                let value = encodings.value_json(key, &value).map_err(Failure::Encoding)?;
                *is_empty = false;
                Ok(write_line(out, &ExportedRow { table: name, key: Some(key_json), value: Some(value) })?)
            }
            Self::Csv { out, table: Table { name, encodings, .. } } => {
                let value = all_of(value)?;
                let shown = encodings.key_as.show(key).map_err(|what| not_shown(key, &what))?;
                let value = encodings.show_value(key, &value).map_err(Failure::Encoding)?;
                Ok(out.write_record([name.as_str(), &shown, &value]).map_err(io::Error::other)?)
            }
        }
    }

    /// Ends the output and hands back what it was written to.
    pub fn end(self) -> io::Result<W> {
        match self {
            Self::Text(writer) => writer.end(),
            Self::JsonLines { mut out, table } => {
                write_empty_table(&mut out, &table)?;
                Ok(out)
            }
            Self::Csv { out, .. } => out.into_inner().map_err(|error| error.into_error()),
        }
    }
}

impl Table {
    fn begin(&mut self, name: &str) {
        (self.name, self.is_empty) = (name.into(), true);
    }
}

fn write_empty_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    if !table.is_empty {
        return Ok(());
    }
    write_line(out, &ExportedRow { table: &table.name, key: None, value: None })
}

fn write_line(out: &mut impl Write, row: &ExportedRow<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    out.write_all(b"\n")
}

fn not_shown(key: &[u8], what: &str) -> Failure {
    Failure::Encoding(Error::Other(format!("the key \"{}\" {what}; give another --key-as", text_of(key))))
}

fn all_of(value: &mut dyn Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    value.read_to_end(&mut bytes).map_err(Failure::Read)?;
    Ok(bytes)
}

/// Notes what a value cannot be read by, as against what it cannot be written by.
struct Noted<'a> {
    value: &'a mut dyn Read,
    error: &'a mut Option<io::Error>,
}

impl Read for Noted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.value.read(buffer).map_err(|error| {
            let said = io::Error::new(error.kind(), error.to_string());
            *self.error = Some(error);
            said
        })
    }
}
