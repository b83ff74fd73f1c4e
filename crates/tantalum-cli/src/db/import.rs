//! Rows from a file: a [dump](super::format), JSON lines, or CSV.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    encoding::Encodings,
    export::{COLUMNS, Format},
    format::{Line, Reader},
};

/// A line of JSON, or a row of CSV, has at most so many bytes: a value of the largest size, each byte escaped, would have more.
const ROW_BYTES_MAX: u64 = 256 << 20;

/// How the rows of a file are to be read.
#[derive(Clone, Copy)]
pub struct InputFormat<'a> {
    pub format: Format,
    pub encodings: Encodings,
    /// The table of rows that name none.
    pub table: Option<&'a str>,
}

/// Reads rows in one of the formats.
pub enum Importer<R> {
    Text(Reader<R>),
    JsonLines { input: R, line: Vec<u8>, rows: Rows },
    Csv { input: Box<csv::Reader<R>>, record: csv::ByteRecord, columns: [Option<usize>; 3], rows: Rows },
}

/// The rows of a format that says the table with each.
pub struct Rows {
    encodings: Encodings,
    /// The table of rows that name none.
    default_table: Option<String>,
    /// The table of the row before.
    table: Option<String>,
    /// A row whose table was begun with the line before it.
    row: Option<(Vec<u8>, Vec<u8>)>,
    value: io::Cursor<Vec<u8>>,
    line_number: u64,
    line_bytes: u64,
}

/// A line of JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportedRow {
    table: Option<String>,
    key: Option<Box<RawValue>>,
    value: Option<Box<RawValue>>,
}

impl<R: BufRead> Importer<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// What is wrong with the beginning, and where.
    pub fn new(input: R, how: InputFormat<'_>) -> Result<Self, String> {
        let rows = Rows {
            encodings: how.encodings,
            default_table: how.table.map(str::to_owned),
            table: None,
            row: None,
            value: io::Cursor::default(),
            line_number: 0,
            line_bytes: 0,
        };
        match how.format {
            Format::Text => Ok(Self::Text(Reader::new(input)?)),
            Format::Jsonl => Ok(Self::JsonLines { input, line: Vec::new(), rows }),
            Format::Csv => {
                let mut input = csv::Reader::from_reader(input);
                let header = input.byte_headers().map_err(|error| error.to_string())?;
                if let Some(other) = header.iter().find(|name| !COLUMNS.iter().any(|column| column.as_bytes() == *name))
                {
                    let name = String::from_utf8_lossy(other);
                    return Err(format!("line 1: there is no column {name:?}; name the columns table, key and value"));
                }
                let columns = COLUMNS.map(|column| header.iter().position(|name| name == column.as_bytes()));
                if columns[1].is_none() || columns[2].is_none() {
                    return Err("line 1: no columns key and value are named here; begin with a line that does".into());
                }
                Ok(Self::Csv { input: Box::new(input), record: csv::ByteRecord::new(), columns, rows })
            }
        }
    }

    /// What comes next. The value of the row before must have been read to its end.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn next(&mut self) -> Result<Line, String> {
        match self {
            Self::Text(reader) => reader.next(),
            Self::JsonLines { input, line, rows } => loop {
                if let Some(row) = rows.take_row() {
                    return Ok(row);
                }
                if !rows.read_line(input, line)? {
                    return Ok(Line::End);
                }
                if !line.trim_ascii().is_empty() {
                    return rows.add_json(line);
                }
            },
            Self::Csv { input, record, columns, rows } => {
                if let Some(row) = rows.take_row() {
                    return Ok(row);
                }
                let before = input.position().byte();
                let is_there = input.read_byte_record(record).map_err(|error| error.to_string())?;
                rows.line_number = record.position().map_or(0, csv::Position::line);
                rows.line_bytes = input.position().byte() - before;
                if is_there { rows.add_csv(record, columns) } else { Ok(Line::End) }
            }
        }
    }

    /// The value of the row that was read last: to be read to its end.
    pub fn value(&mut self) -> Box<dyn Read + '_> {
        match self {
            Self::Text(reader) => Box::new(reader.value()),
            Self::JsonLines { rows, .. } | Self::Csv { rows, .. } => Box::new(&mut rows.value),
        }
    }

    /// How many bytes the last line took.
    pub fn line_bytes(&self) -> u64 {
        match self {
            Self::Text(reader) => reader.line_bytes(),
            Self::JsonLines { rows, .. } | Self::Csv { rows, .. } => rows.line_bytes,
        }
    }
}

impl Rows {
    fn at(&self, what: &str) -> String {
        format!("line {}: {what}", self.line_number)
    }

    /// Reads a line; `false` at the end.
    fn read_line(&mut self, input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, String> {
        line.clear();
        self.line_number += 1;
        let read = input.take(ROW_BYTES_MAX).read_until(b'\n', line);
        self.line_bytes = read.map_err(|error| self.at(&format!("cannot be read: {error}")))? as u64;
        if self.line_bytes == ROW_BYTES_MAX {
            return Err(self.at(&format!("has more than {} MiB; load such rows from a dump", ROW_BYTES_MAX >> 20)));
        }
        Ok(self.line_bytes > 0)
    }

    fn add_json(&mut self, line: &[u8]) -> Result<Line, String> {
        let row: ImportedRow =
            serde_json::from_slice(line).map_err(|error| self.at(&format!("is no row as JSON: {error}")))?;
        let (key_as, value_as) = (self.encodings.key_as, self.encodings.value_as);
        let row_of = match (row.key, row.value) {
            (Some(key), Some(value)) => {
                let key = key_as.bytes_of_json(&key).map_err(|what| self.at(&format!("the key {what}")))?;
                let value = value_as.bytes_of_json(&value).map_err(|what| self.at(&format!("the value {what}")))?;
                Some((key, value))
            }
            (None, None) if row.table.is_some() => None,
            _ => return Err(self.at("a row has a key and a value")),
        };
        self.add(row.table, row_of)
    }

    fn add_csv(&mut self, record: &csv::ByteRecord, columns: &[Option<usize>; 3]) -> Result<Line, String> {
        let field = |column: usize| {
            let field = columns[column].and_then(|place| record.get(place));
            let text = field.map(std::str::from_utf8).transpose();
            text.map_err(|_| self.at("is not UTF-8; write other bytes as \\xNN"))
        };
        let (table, key, value) = (field(0)?, field(1)?.unwrap_or_default(), field(2)?.unwrap_or_default());
        let key = self.encodings.key_as.bytes_of(key).map_err(|what| self.at(&format!("the key {what}")))?;
        let value = self.encodings.value_as.bytes_of(value).map_err(|what| self.at(&format!("the value {what}")))?;
        self.add(table.map(str::to_owned), Some((key, value)))
    }

    /// Takes a row; what comes first of it: its table, if it is another, or its key.
    fn add(&mut self, table: Option<String>, row: Option<(Vec<u8>, Vec<u8>)>) -> Result<Line, String> {
        let table = table.or_else(|| self.default_table.clone());
        let table = table.ok_or_else(|| self.at("names no table; give --table for rows without one"))?;
        self.row = row;
        if self.table.as_ref() != Some(&table) {
            self.table = Some(table.clone());
            return Ok(Line::Table(table));
        }
        // A line without a row begins its table once more.
        Ok(self.take_row().unwrap_or(Line::Table(table)))
    }

    fn take_row(&mut self) -> Option<Line> {
        let (key, value) = self.row.take()?;
        self.value = io::Cursor::new(value);
        Some(Line::Row(key))
    }
}
