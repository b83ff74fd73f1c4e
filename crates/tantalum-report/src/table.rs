//! Tables for people and for pipes.

use std::{
    fmt,
    io::{IsTerminal, stdout},
};

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};

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
