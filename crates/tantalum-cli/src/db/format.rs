//! The format of `tantalum db dump`: lines of printable ASCII that hold any bytes, described in docs/use/backups.md#dumps.
//!
//! ```text
//! tantalum-dump 1
//! table accounts
//! alice 100
//! b\x20ob \x00\x01
//! end 1 2 7a3f00c1
//! ```
//!
//! Promises: equal contents give equal bytes, and a dump that was cut short or changed is refused.

use std::io::{self, BufRead, Write};

/// The first line.
pub const HEADER: &str = "tantalum-dump 1";

/// A line is at most this long: the longest key and value, every byte escaped, and the space.
const LINE_MAX: u64 = 4 * (tantalum::limits::MAX_VALUE_BYTES as u64 + 4096) + 2;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// What a line of a dump says.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The rows that follow belong to this table.
    Table(String),
    /// A row.
    Row(Vec<u8>, Vec<u8>),
    /// The dump is complete.
    End,
}

/// Writes a dump.
pub struct Writer<W> {
    inner: W,
    tables: u64,
    rows: u64,
    crc: u32,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a dump.
    pub fn new(inner: W) -> io::Result<Self> {
        let mut writer = Self { inner, tables: 0, rows: 0, crc: 0, line: Vec::new() };
        writer.line.extend(HEADER.as_bytes());
        writer.finish_line()?;
        Ok(writer)
    }

    /// Begins a table.
    pub fn table(&mut self, name: &str) -> io::Result<()> {
        self.tables += 1;
        self.line.extend(b"table ");
        escape(name.as_bytes(), &mut self.line);
        self.finish_line()
    }

    /// A row of the table. Tables begin with a line of their own, so a row's first field is always followed by a space
    /// and a second field, even if that is empty; a leading space tells a row from other lines.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.rows += 1;
        self.line.push(b' ');
        escape(key, &mut self.line);
        self.line.push(b' ');
        escape(value, &mut self.line);
        self.finish_line()
    }

    /// Ends the dump and hands back what it was written to.
    pub fn end(mut self) -> io::Result<W> {
        let last = format!("end {} {} {:08x}\n", self.tables, self.rows, self.crc);
        self.inner.write_all(last.as_bytes())?;
        Ok(self.inner)
    }

    fn finish_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.crc = crc32c::crc32c_append(self.crc, &self.line);
        self.inner.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

/// Reads a dump.
pub struct Reader<R> {
    inner: R,
    line_number: u64,
    tables: u64,
    rows: u64,
    crc: u32,
    line: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Begins to read; the first line must be a dump's.
    pub fn new(inner: R) -> Result<Self, String> {
        let mut reader = Self { inner, line_number: 0, tables: 0, rows: 0, crc: 0, line: Vec::new() };
        reader.next_line()?;
        if reader.line == HEADER.as_bytes() {
            reader.count_line();
            return Ok(reader);
        }
        let what = if reader.line.starts_with(b"tantalum-dump ") {
            "a dump of a newer version; use the tantalum that wrote it, or a newer one"
        } else {
            "not a dump; give the output of `tantalum db dump`"
        };
        Err(reader.at(what))
    }

    /// The next line.
    ///
    /// # Errors
    /// What is wrong with it, with its number.
    pub fn next(&mut self) -> Result<Line, String> {
        self.next_line()?;
        if let Some(row) = self.line.strip_prefix(b" ") {
            let space = row.iter().position(|&byte| byte == b' ');
            let space = space.ok_or_else(|| self.at("a row without a value"))?;
            let (key, value) = (self.unescape(&row[..space])?, self.unescape(&row[space + 1..])?);
            if self.tables == 0 {
                return Err(self.at("a row before the first table"));
            }
            self.rows += 1;
            self.count_line();
            return Ok(Line::Row(key, value));
        }
        if let Some(name) = self.line.strip_prefix(b"table ") {
            let name = String::from_utf8(self.unescape(name)?).map_err(|_| self.at("a table's name is not UTF-8"))?;
            self.tables += 1;
            self.count_line();
            return Ok(Line::Table(name));
        }
        let end = format!("end {} {} {:08x}", self.tables, self.rows, self.crc);
        if self.line == end.as_bytes() {
            return Ok(Line::End);
        }
        if self.line.starts_with(b"end ") {
            return Err(self.at("the dump was changed: its last line does not fit what comes before"));
        }
        Err(self.at("neither a table, nor a row, nor the end"))
    }

    /// How many bytes a line took, break included.
    pub fn line_bytes(&self) -> u64 {
        self.line.len() as u64 + 1
    }

    /// Says where.
    pub fn at(&self, what: &str) -> String {
        format!("line {}: {what}", self.line_number)
    }

    fn next_line(&mut self) -> Result<(), String> {
        self.line.clear();
        self.line_number += 1;
        let mut limited = io::Read::take(&mut self.inner, LINE_MAX);
        limited.read_until(b'\n', &mut self.line).map_err(|error| self.at(&format!("cannot be read: {error}")))?;
        match self.line.pop() {
            Some(b'\n') => Ok(()),
            Some(_) if self.line.len() as u64 + 1 >= LINE_MAX => Err(self.at("too long for a row")),
            _ => Err(self.at("the dump ends here, before its last line; it was cut short")),
        }
    }

    fn count_line(&mut self) {
        self.crc = crc32c::crc32c_append(crc32c::crc32c_append(self.crc, &self.line), b"\n");
    }

    fn unescape(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        unescape(text).ok_or_else(|| self.at("a byte that should be escaped, or an escape other than \\xNN or \\\\"))
    }
}

/// The bytes as printable ASCII without spaces.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    escape(bytes, &mut text);
    String::from_utf8(text).expect("it is ASCII")
}

/// The bytes that `text` stands for, which may have spaces and other forms than [`escaped`] chooses; `None` if it has other
/// characters or no such escape.
pub fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => {
                bytes.push(b'\\');
                tail
            }
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                bytes.push((digit(high)? << 4 | digit(low)?) as u8);
                tail
            }
            (b' '..=b'~', tail) if *first != b'\\' => {
                bytes.push(*first);
                tail
            }
            _ => return None,
        };
    }
    Some(bytes)
}

/// Writes bytes as printable ASCII without spaces. Each byte has exactly one form.
fn escape(bytes: &[u8], text: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'\\' => text.extend(b"\\\\"),
            b'!'..=b'~' => text.push(byte),
            _ => text.extend([b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// The bytes that `escape` writes so; nothing else is accepted.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let bytes = unescaped(text)?;
    let mut only_form = Vec::with_capacity(text.len());
    escape(&bytes, &mut only_form);
    (only_form == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.table("names of things").unwrap();
        writer.row(b"", b"").unwrap();
        writer.row(&(0..=255).collect::<Vec<u8>>(), b"a b\\c\n").unwrap();
        writer.table("empty").unwrap();
        writer.end().unwrap()
    }

    fn read(dump: &[u8]) -> Result<Vec<Line>, String> {
        let mut reader = Reader::new(dump)?;
        let mut lines = Vec::new();
        loop {
            match reader.next()? {
                Line::End => return Ok(lines),
                line => lines.push(line),
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let lines = read(&dump()).unwrap();
        let expected = [
            Line::Table("names of things".to_owned()),
            Line::Row(vec![], vec![]),
            Line::Row((0..=255).collect(), b"a b\\c\n".to_vec()),
            Line::Table("empty".to_owned()),
        ];
        assert_eq!(lines, expected);
        assert!(dump().iter().all(|&byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
    }

    #[test]
    fn a_dump_cut_short_or_changed_anywhere_is_refused() {
        let dump = dump();
        for len in 0..dump.len() {
            assert!(read(&dump[..len]).is_err(), "cut at {len}");
        }
        for place in 0..dump.len() {
            let mut changed = dump.clone();
            changed[place] ^= 1;
            assert!(read(&changed).is_err(), "changed at {place}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        assert!(read(b"hello\n").unwrap_err().starts_with("line 1: not a dump"));
        assert!(read(b"tantalum-dump 2\n").unwrap_err().contains("newer"));
        assert!(read(b"tantalum-dump 1\n a b\n").unwrap_err().starts_with("line 2: a row before"));
        assert!(read(b"tantalum-dump 1\ntable a\\x41\n").unwrap_err().starts_with("line 2"));
    }
}
