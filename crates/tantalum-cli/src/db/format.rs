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

use std::io::{self, BufRead, Read, Write};

/// The first line.
pub const HEADER: &str = "tantalum-dump 1";

/// A row's value is no longer than this.
const VALUE_MAX: u64 = tantalum::limits::MAX_VALUE_BYTES as u64;
/// All but the values of rows is at most this long: a key or a table's name, every byte escaped, and more.
const WORD_MAX: u64 = 64 << 10;
/// Bytes of a value that are in memory at a time, about.
const PIECE_BYTES: usize = 64 << 10;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// What a line of a dump says.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The rows that follow belong to this table.
    Table(String),
    /// A row with this key; [`Reader::value`] has its value.
    Row(Vec<u8>),
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
    pub fn row(&mut self, key: &[u8], value: &mut dyn Read) -> io::Result<()> {
        self.rows += 1;
        self.line.push(b' ');
        escape(key, &mut self.line);
        self.line.push(b' ');
        let mut piece = Vec::new();
        loop {
            piece.clear();
            value.take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            escape(&piece, &mut self.line);
            if piece.len() < PIECE_BYTES {
                return self.finish_line();
            }
            self.write_line()?;
        }
    }

    /// Ends the dump and hands back what it was written to.
    pub fn end(mut self) -> io::Result<W> {
        let last = format!("end {} {} {:08x}\n", self.tables, self.rows, self.crc);
        self.inner.write_all(last.as_bytes())?;
        Ok(self.inner)
    }

    fn finish_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.write_line()
    }

    /// Writes what there is of the line.
    fn write_line(&mut self) -> io::Result<()> {
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
    /// The line, but for the value of a row.
    line: Vec<u8>,
    /// Bytes of the line that were read.
    line_bytes: u64,
    value: ValueState,
}

/// How far the value of a row was read.
#[derive(Debug, Default)]
struct ValueState {
    /// There is more.
    is_open: bool,
    /// Text that begins an escape.
    text: Vec<u8>,
    /// Bytes that were not taken yet, and those taken of them.
    bytes: Vec<u8>,
    taken: usize,
    /// All bytes so far.
    length: u64,
}

impl<R: BufRead> Reader<R> {
    /// Begins to read; the first line must be a dump's.
    pub fn new(inner: R) -> Result<Self, String> {
        let mut reader = Self {
            inner,
            line_number: 0,
            tables: 0,
            rows: 0,
            crc: 0,
            line: Vec::new(),
            line_bytes: 0,
            value: ValueState::default(),
        };
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

    /// The next line. The value of the row before must have been read to its end.
    ///
    /// # Errors
    /// What is wrong with it, with its number.
    pub fn next(&mut self) -> Result<Line, String> {
        assert!(!self.value.is_open, "values are read to their ends");
        if self.begins_with_space()? {
            return self.next_row();
        }
        self.next_line()?;
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

    fn begins_with_space(&mut self) -> Result<bool, String> {
        match self.inner.fill_buf() {
            Ok(buffer) => Ok(buffer.first() == Some(&b' ')),
            Err(error) => Err(format!("line {}: cannot be read: {error}", self.line_number + 1)),
        }
    }

    /// Reads a row up to its value.
    fn next_row(&mut self) -> Result<Line, String> {
        (self.line_number, self.line_bytes) = (self.line_number + 1, 0);
        self.line.clear();
        self.read_word(b' ')?;
        self.read_word(b' ')?;
        let Some(key) = self.line.strip_prefix(b" ").and_then(|line| line.strip_suffix(b" ")) else {
            return Err(self.at("a row without a value"));
        };
        let key = unescape(key).ok_or_else(|| self.at(NO_ESCAPE))?;
        if self.tables == 0 {
            return Err(self.at("a row before the first table"));
        }
        self.rows += 1;
        self.crc = crc32c::crc32c_append(self.crc, &self.line);
        self.value = ValueState { is_open: true, ..ValueState::default() };
        Ok(Line::Row(key))
    }

    /// The value of the row that was read last: to be read to its end.
    pub fn value(&mut self) -> ValueOf<'_, R> {
        ValueOf { reader: self }
    }

    /// Reads some of the value.
    fn read_piece(&mut self) -> Result<(), String> {
        let line_number = self.line_number;
        let at = |what: &str| format!("line {line_number}: {what}");
        let buffer = self.inner.fill_buf().map_err(|error| at(&format!("cannot be read: {error}")))?;
        if buffer.is_empty() {
            return Err(self.at(CUT_SHORT));
        }
        let piece = &buffer[..buffer.len().min(PIECE_BYTES)];
        let (text, is_end) = match piece.iter().position(|&byte| byte == b'\n') {
            Some(end) => (&piece[..end], true),
            None => (piece, false),
        };
        let read = text.len() + usize::from(is_end);
        self.crc = crc32c::crc32c_append(self.crc, &piece[..read]);
        self.line_bytes += read as u64;
        let ValueState { is_open, text: rest, bytes, taken, length } = &mut self.value;
        rest.extend_from_slice(text);
        (*is_open, *taken) = (!is_end, 0);
        bytes.clear();
        let used = unescape_whole(rest, bytes).filter(|used| !is_end || *used == rest.len());
        rest.drain(..used.ok_or_else(|| at(NO_ESCAPE))?);
        *length += bytes.len() as u64;
        if *length > VALUE_MAX {
            return Err(at("too long for a row"));
        }
        self.inner.consume(read);
        Ok(())
    }

    /// How many bytes a line took, break included.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Says where.
    pub fn at(&self, what: &str) -> String {
        format!("line {}: {what}", self.line_number)
    }

    fn next_line(&mut self) -> Result<(), String> {
        self.line.clear();
        (self.line_number, self.line_bytes) = (self.line_number + 1, 0);
        self.read_word(b'\n')?;
        self.line.pop();
        Ok(())
    }

    /// Reads up to and with a byte.
    fn read_word(&mut self, end: u8) -> Result<(), String> {
        let mut limited = io::Read::take(&mut self.inner, WORD_MAX);
        let read = limited.read_until(end, &mut self.line);
        let read = read.map_err(|error| self.at(&format!("cannot be read: {error}")))? as u64;
        self.line_bytes += read;
        match self.line.last() {
            Some(last) if read > 0 && *last == end => Ok(()),
            _ if read == WORD_MAX => Err(self.at("too long for a key or a table's name")),
            _ => Err(self.at(CUT_SHORT)),
        }
    }

    fn count_line(&mut self) {
        self.crc = crc32c::crc32c_append(crc32c::crc32c_append(self.crc, &self.line), b"\n");
    }

    fn unescape(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        unescape(text).ok_or_else(|| self.at(NO_ESCAPE))
    }
}

/// The value of a row that a [`Reader`] has come to.
pub struct ValueOf<'r, R> {
    reader: &'r mut Reader<R>,
}

impl<R: BufRead> Read for ValueOf<'_, R> {
    /// What is wrong with the dump is the text of the error.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let ValueState { is_open, bytes, taken, .. } = &mut self.reader.value;
            let left = &bytes[*taken..];
            if !left.is_empty() || !*is_open || buffer.is_empty() {
                let count = left.len().min(buffer.len());
                buffer[..count].copy_from_slice(&left[..count]);
                *taken += count;
                return Ok(count);
            }
            self.reader.read_piece().map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        }
    }
}

const NO_ESCAPE: &str = "a byte that should be escaped, or an escape other than \\xNN or \\\\";
const CUT_SHORT: &str = "the dump ends here, before its last line; it was cut short";

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
    let mut bytes = Vec::with_capacity(text.len());
    let used = unescape_whole(text, &mut bytes)?;
    (used == text.len()).then_some(bytes)
}

/// Adds the bytes that `escape` writes so, but for an escape that is not whole yet. Returns how much of the text that is; `None` if
/// `escape` writes nothing so.
fn unescape_whole(text: &[u8], bytes: &mut Vec<u8>) -> Option<usize> {
    let digit = |digit: u8| HEX.iter().position(|hex| *hex == digit).map(|value| value as u8);
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'\\', tail @ ..] => {
                bytes.push(b'\\');
                tail
            }
            [b'\\', b'x', high, low, tail @ ..] => {
                let byte = digit(*high)? << 4 | digit(*low)?;
                if matches!(byte, b'!'..=b'~') {
                    return None;
                }
                bytes.push(byte);
                tail
            }
            [] | [b'\\'] | [b'\\', b'x'] | [b'\\', b'x', _] => return Some(text.len() - rest.len()),
            [byte @ b'!'..=b'~', tail @ ..] if *byte != b'\\' => {
                bytes.push(*byte);
                tail
            }
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.table("names of things").unwrap();
        writer.row(b"", &mut &b""[..]).unwrap();
        writer.row(&(0..=255).collect::<Vec<u8>>(), &mut &b"a b\\c\n"[..]).unwrap();
        writer.table("empty").unwrap();
        writer.end().unwrap()
    }

    /// Each line, and its value if it is a row.
    fn read(dump: impl BufRead) -> Result<Vec<(Line, Vec<u8>)>, String> {
        let mut reader = Reader::new(dump)?;
        let mut lines = Vec::new();
        loop {
            let (line, mut value) = (reader.next()?, Vec::new());
            match line {
                Line::End => return Ok(lines),
                Line::Row(_) => _ = reader.value().read_to_end(&mut value).map_err(|error| error.to_string())?,
                Line::Table(_) => {}
            }
            lines.push((line, value));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let expected = [
            (Line::Table("names of things".to_owned()), vec![]),
            (Line::Row(vec![]), vec![]),
            (Line::Row((0..=255).collect()), b"a b\\c\n".to_vec()),
            (Line::Table("empty".to_owned()), vec![]),
        ];
        // Wherever it is cut into pieces.
        for piece in [1, 2, 3, 1000] {
            assert_eq!(read(io::BufReader::with_capacity(piece, &dump()[..])).unwrap(), expected);
        }
        assert!(dump().iter().all(|&byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
    }

    #[test]
    fn a_large_value_is_written_and_read_in_pieces() {
        for bytes in [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let value: Vec<u8> = (0..bytes).map(|at| (at * at / 7) as u8).collect();
            let mut writer = Writer::new(Vec::new()).unwrap();
            writer.table("t").unwrap();
            writer.row(b"key", &mut &value[..]).unwrap();
            assert!(writer.line.capacity() <= 8 * PIECE_BYTES);
            let dump = writer.end().unwrap();
            let lines = read(io::BufReader::with_capacity(777, &dump[..])).unwrap();
            assert_eq!(lines[1], (Line::Row(b"key".to_vec()), value));
        }
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
            assert!(read(&changed[..]).is_err(), "changed at {place}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        assert!(read(&b"hello\n"[..]).unwrap_err().starts_with("line 1: not a dump"));
        assert!(read(&b"tantalum-dump 2\n"[..]).unwrap_err().contains("newer"));
        assert!(read(&b"tantalum-dump 1\n a b\n"[..]).unwrap_err().starts_with("line 2: a row before"));
        assert!(read(&b"tantalum-dump 1\ntable a\\x41\n"[..]).unwrap_err().starts_with("line 2"));
    }
}
