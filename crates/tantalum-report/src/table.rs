//! Tables for people and for pipes.

use std::{
    fmt,
    io::{IsTerminal, stdout},
};

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};
use serde::Serialize;
use serde_json::{Number, Value};

use crate::{Error, units};

/// Rows under a header. Columns of numbers, with or without a unit, are right-aligned.
///
/// Printing ([`Display`](fmt::Display)) draws lines where standard output is a terminal; elsewhere columns are only
/// padded with spaces, so that `cut`, `awk` and `diff` work on them.
///
/// ```
/// use tantalum_report::Table;
///
/// let mut table = Table::new(["device", "writes", "latency"]);
/// table.row(["usb-a", "12,000", "1.46 ms"]);
/// table.row(["ssd", "900", "85 us"]);
/// let expected = "device  writes  latency\nusb-a   12,000  1.46 ms\nssd        900    85 us\n";
/// assert_eq!(table.to_plain(), expected);
/// println!("{table}");
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<C: ToString>(header: impl IntoIterator<Item = C>) -> Self {
        Self { header: texts(header), rows: Vec::new() }
    }

    /// A table of what is serialized: a row for each number and text, under its dotted name, and a column for each value. Units
    /// follow from words in a name: `bytes`, `us` and `ns` for times, `share` for a part of a whole.
    ///
    /// ```
    /// #[derive(serde::Serialize)]
    /// struct Disk { writes: u64, written_bytes: u64, busy_us: u64 }
    ///
    /// let disks = [Disk { writes: 12_000, written_bytes: 4096, busy_us: 1500 }];
    /// let expected = "disk                 a\nwrites          12,000\nwritten_bytes    4 KiB\nbusy_us        1.50 ms\n";
    /// assert_eq!(tantalum_report::Table::of_fields(["disk", "a"], disks)?.to_plain(), expected);
    /// # Ok::<(), tantalum_report::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a value cannot be serialized.
    pub fn of_fields<C: ToString>(
        header: impl IntoIterator<Item = C>,
        values: impl IntoIterator<Item = impl Serialize>,
    ) -> Result<Self, Error> {
        let mut table = Self::new(header);
        for (column, value) in values.into_iter().enumerate() {
            let mut fields = Vec::new();
            flatten(String::new(), &serialized(&value)?, &mut fields);
            for (name, cell) in fields {
                let known = table.rows.iter().position(|row| row[0] == name);
                let at = known.unwrap_or_else(|| {
                    table.row([name]);
                    table.rows.len() - 1
                });
                table.rows[at].resize(column + 1, String::new());
                table.rows[at].push(cell);
            }
        }
        Ok(table)
    }

    /// A table of what is serialized: a row for each value, and a column for each of its numbers and texts.
    ///
    /// ```
    /// let rows = [std::collections::BTreeMap::from([("bytes", 4096), ("writes", 1)])];
    /// assert_eq!(tantalum_report::Table::of_rows(rows)?.to_plain(), "bytes  writes\n4 KiB       1\n");
    /// # Ok::<(), tantalum_report::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a value cannot be serialized.
    pub fn of_rows(values: impl IntoIterator<Item = impl Serialize>) -> Result<Self, Error> {
        let mut table = Self::new([""; 0]);
        for value in values {
            let mut fields = Vec::new();
            flatten(String::new(), &serialized(&value)?, &mut fields);
            let (header, cells) = fields.into_iter().unzip();
            table.header = header;
            table.rows.push(cells);
        }
        Ok(table)
    }

    /// Without rows that have only zeros, absent values and empty texts after their first cell.
    #[must_use]
    pub fn without_zeros(mut self) -> Self {
        let is_zero = |cell: &String| cell == "-" || cell.is_empty() || cell.split(' ').next() == Some("0");
        self.rows.retain(|row| !row[1..].iter().all(is_zero));
        self
    }

    /// Adds a row at the end. Cells that it lacks are empty.
    pub fn row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.rows.push(texts(cells));
        self
    }

    /// The table without lines, as it is printed where standard output is not a terminal.
    pub fn to_plain(&self) -> String {
        let mut table = self.build(presets::NOTHING);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    fn build(&self, preset: &str) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(preset).set_content_arrangement(ContentArrangement::Disabled);
        let numeric: Vec<bool> = (0..self.header.len()).map(|column| self.is_numeric(column)).collect();
        let cell = |(column, text): (usize, &String)| match numeric.get(column) {
            Some(true) => Cell::new(text).set_alignment(CellAlignment::Right),
            _ => Cell::new(text),
        };
        table.set_header(self.header.iter().enumerate().map(cell));
        for row in &self.rows {
            table.add_row(row.iter().enumerate().map(cell));
        }
        table
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| is_number(cell))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if stdout().is_terminal() {
            write!(formatter, "{}", self.build(presets::UTF8_FULL_CONDENSED))
        } else {
            formatter.write_str(self.to_plain().trim_end_matches('\n'))
        }
    }
}

fn serialized(value: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|source| Error::Serialize { source })
}

/// The numbers and texts in a serialized value, under dotted names.
fn flatten(name: String, value: &Value, fields: &mut Vec<(String, String)>) {
    let below = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match value {
        Value::Object(parts) => parts.iter().for_each(|(part, value)| flatten(below(part), value, fields)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| flatten(below(&at.to_string()), item, fields));
        }
        Value::String(text) => fields.push((name, wrapped(text))),
        Value::Number(number) => {
            let cell = number_of(&name, number);
            fields.push((name, cell));
        }
        Value::Bool(is_so) => fields.push((name, is_so.to_string())),
        Value::Null => fields.push((name, "-".to_owned())),
    }
}

/// A text in lines of up to 44 bytes, where it has spaces: beside most names that is 80 columns.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= 44 => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// A number in the unit that the name of its field says.
fn number_of(name: &str, number: &Number) -> String {
    let field = name.rsplit('.').next().unwrap_or_default();
    let has = |word| field.split('_').any(|part| part == word);
    let (whole, real) = (number.as_u64(), number.as_f64().unwrap_or_default());
    match whole {
        _ if has("bytes") => units::bytes(whole.unwrap_or(real as u64)),
        _ if has("us") => units::duration_ns((real * 1e3) as u64),
        _ if has("ns") => units::duration_ns(real as u64),
        _ if has("share") => format!("{:.2}%", 100.0 * real),
        Some(whole) => units::count(whole),
        None => units::number(real),
    }
}

fn texts<C: ToString>(cells: impl IntoIterator<Item = C>) -> Vec<String> {
    cells.into_iter().map(|cell| cell.to_string()).collect()
}

/// Whether a cell is a dash for "none", or a number with at most a unit after it.
fn is_number(cell: &str) -> bool {
    let number = cell.split(' ').next().unwrap_or_default().trim_end_matches(['%', 'x']);
    cell == "-" || number.replace(',', "").parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_words() {
        for number in ["0", "-1.5", "12,345", "1.46 MiB", "12%", "3.2x", "2 min 5 s", "-"] {
            assert!(is_number(number), "{number}");
        }
        for word in ["", "usb-a", "4k", "2024-01-01", "a 1"] {
            assert!(!is_number(word), "{word}");
        }
    }

    #[test]
    fn short_rows_and_mixed_columns_stay_readable() {
        let mut table = Table::new(["name", "value"]);
        table.row(["one"]).row(["two", "2"]).row(["three", "many"]);
        assert_eq!(table.to_plain(), "name   value\none\ntwo    2\nthree  many\n");
    }

    #[test]
    fn a_table_without_rows_shows_its_header() {
        assert_eq!(Table::new(["a", "b"]).to_plain(), "a  b\n");
    }
}
