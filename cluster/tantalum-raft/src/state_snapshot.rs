//! The rows of a state machine at one moment, and as a stream of bytes.
//!
//! The stream: a mark; each row behind a 1, as the number of its table (2 bytes), the lengths of key and value (4 bytes each), key and
//! value; a 0, the number of rows (8 bytes), and the CRC-32C of everything before it. Numbers are little-endian.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

use tantalum::{Snapshot, Table};

const MARK: &[u8; 8] = b"tlraft\0\x01";
/// Of a row, before its key.
const ROW_BYTES: usize = 10;

/// The state that a state machine had at one moment: a snapshot of its database, or one that came from another
/// node and lies in a file without a name.
///
/// The network of a program sends [`write_to`](Self::write_to)'s bytes, and has the other node
/// [`read_from`](Self::read_from) them. Both block, and take memory for one row at a time.
///
/// ```
/// use tantalum_raft::StateSnapshot;
///
/// let refused = StateSnapshot::read_from(&b"something else"[..]).unwrap_err();
/// assert!(refused.to_string().contains("not a snapshot of a state machine"));
/// ```
pub struct StateSnapshot {
    source: Source,
}

enum Source {
    Database(Snapshot, Vec<Table>),
    Received(File),
}

impl StateSnapshot {
    pub(crate) fn of_database(snapshot: Snapshot, tables: Vec<Table>) -> StateSnapshot {
        StateSnapshot { source: Source::Database(snapshot, tables) }
    }

    /// Writes the rows. Returns how many there were.
    ///
    /// # Errors
    /// Those of `out`, and of reading the rows.
    pub fn write_to(&self, out: impl Write) -> io::Result<u64> {
        let mut out = Checksummed { inner: BufWriter::new(out), crc: 0 };
        out.write_all(MARK)?;
        let mut rows = 0u64;
        self.for_each(|table, key, value| {
            rows += 1;
            out.write_all(&[1])?;
            out.write_all(&table.to_le_bytes())?;
            for part in [key, value] {
                let bytes = u32::try_from(part.len()).map_err(|_| {
                    let what =
                        format!("a value of {} bytes is too large for a snapshot of a state machine", part.len());
                    io::Error::new(io::ErrorKind::InvalidInput, what)
                })?;
                out.write_all(&bytes.to_le_bytes())?;
            }
            out.write_all(key)?;
            out.write_all(value)
        })?;
        out.write_all(&[0])?;
        out.write_all(&rows.to_le_bytes())?;
        let crc = out.crc;
        out.write_all(&crc.to_le_bytes())?;
        out.flush()?;
        Ok(rows)
    }

    /// Reads what [`write_to`](Self::write_to) wrote, to its end, into a file without a name in the directory for temporary files.
    ///
    /// # Errors
    /// [`InvalidData`](io::ErrorKind::InvalidData) or [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if it is something else, cut off
    /// or changed; those of `input` and of the file.
    pub fn read_from(input: impl Read) -> io::Result<StateSnapshot> {
        let mut file = tempfile::tempfile()?;
        let mut copy = BufWriter::new(&mut file);
        let mut tee = Tee { input: BufReader::new(input), copy: &mut copy };
        read_rows(&mut tee, |_, _, _| Ok(()))?;
        copy.flush()?;
        drop(copy);
        Ok(StateSnapshot { source: Source::Received(file) })
    }

    /// Calls `row` for each row, with the number of its table.
    pub(crate) fn for_each(&self, mut row: impl FnMut(u16, &[u8], &[u8]) -> io::Result<()>) -> io::Result<()> {
        match &self.source {
            Source::Database(snapshot, tables) => {
                for (number, table) in (0..).zip(tables) {
                    for found in snapshot.range(table, ..).map_err(io::Error::other)? {
                        let (key, value) = found.map_err(io::Error::other)?;
                        row(number, &key, &value)?;
                    }
                }
                Ok(())
            }
            Source::Received(file) => {
                let mut file = file;
                file.rewind()?;
                read_rows(&mut BufReader::new(file), row)
            }
        }
    }
}

/// Reads a stream of rows, and checks it.
fn read_rows(input: &mut impl Read, mut row: impl FnMut(u16, &[u8], &[u8]) -> io::Result<()>) -> io::Result<()> {
    let refuse = |what: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("the snapshot that was received is {what}; send it again"))
    };
    let mut input = Checksummed { inner: input, crc: 0 };
    let mut mark = [0; MARK.len()];
    input.read_exact(&mut mark)?;
    if mark != *MARK {
        return Err(refuse("not a snapshot of a state machine, or of another version"));
    }
    let (mut rows, mut key, mut value) = (0u64, Vec::new(), Vec::new());
    loop {
        let mut kind = [0];
        input.read_exact(&mut kind)?;
        match kind[0] {
            0 => break,
            1 => {}
            _ => return Err(refuse("damaged")),
        }
        let mut head = [0; ROW_BYTES];
        input.read_exact(&mut head)?;
        let [t0, t1, k0, k1, k2, k3, v0, v1, v2, v3] = head;
        for (part, bytes) in [(&mut key, [k0, k1, k2, k3]), (&mut value, [v0, v1, v2, v3])] {
            let bytes = u64::from(u32::from_le_bytes(bytes));
            part.clear();
            // Grown as bytes come, whatever the length says.
            if input.by_ref().take(bytes).read_to_end(part)? as u64 != bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        rows += 1;
        row(u16::from_le_bytes([t0, t1]), &key, &value)?;
    }
    let mut count = [0; 8];
    input.read_exact(&mut count)?;
    let computed = input.crc;
    let mut crc = [0; 4];
    input.read_exact(&mut crc)?;
    if u64::from_le_bytes(count) != rows || u32::from_le_bytes(crc) != computed {
        return Err(refuse("damaged"));
    }
    Ok(())
}

/// Computes the checksum of what passes.
struct Checksummed<T> {
    inner: T,
    crc: u32,
}

impl<T: Read> Read for Checksummed<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..read]);
        Ok(read)
    }
}

impl<T: Write> Write for Checksummed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Copies what is read.
struct Tee<'w, R, W> {
    input: R,
    copy: &'w mut W,
}

impl<R: Read, W: Write> Read for Tee<'_, R, W> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.copy.write_all(&bytes[..read])?;
        Ok(read)
    }
}

impl fmt::Debug for StateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_received = matches!(self.source, Source::Received(_));
        f.debug_struct("StateSnapshot").field("is_received", &is_received).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_travel_and_whatever_is_cut_or_changed_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path().join("db")).expect("open");
        let tables = [db.table("a").expect("a table"), db.table("b").expect("a table")];
        for n in 0..20u8 {
            db.put(&tables[n as usize % 2], [n], vec![n; n as usize * 3]).expect("put");
        }
        let snapshot = StateSnapshot::of_database(db.snapshot().expect("snapshot"), tables.to_vec());
        db.put(&tables[0], "later", "").expect("put");
        let mut bytes = Vec::new();
        assert_eq!(snapshot.write_to(&mut bytes).expect("write"), 20);
        let received = StateSnapshot::read_from(&bytes[..]).expect("intact");
        let rows = |snapshot: &StateSnapshot| {
            let mut rows = Vec::new();
            let note = |table: u16, key: &[u8], value: &[u8]| {
                rows.push((table, key.to_vec(), value.to_vec()));
                Ok(())
            };
            snapshot.for_each(note).expect("read");
            rows
        };
        assert_eq!(rows(&received), rows(&snapshot));
        assert_eq!(rows(&received), rows(&received), "it can be read again");
        assert_eq!(rows(&snapshot).len(), 20);
        for len in 0..bytes.len() {
            assert!(StateSnapshot::read_from(&bytes[..len]).is_err(), "{len} bytes");
            let mut changed = bytes.clone();
            changed[len] ^= 4;
            assert!(StateSnapshot::read_from(&changed[..]).is_err(), "byte {len}");
        }
    }
}
