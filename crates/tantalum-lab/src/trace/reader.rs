//! A trace on its way back from a file that may be anything.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use super::{
    Damage, Header, Record,
    format::{CHUNK_HEAD_BYTES, HEADER_BYTES, chunk_bytes, decode_chunk, decode_header, label_bytes},
};
use crate::error::{Error, Result};

/// Reads a trace: an iterator over its records, which ends after the first error. Each chunk is checked before any of its records
/// is given.
#[derive(Debug)]
pub struct Reader<R> {
    name: String,
    input: R,
    header: Header,
    /// Of the chunk, in reverse.
    left: Vec<Record>,
    /// Records in the chunks that were read.
    read: u64,
    /// Where the next chunk begins, in bytes.
    at: u64,
    is_over: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(name, BufReader::new(file)),
            Err(source) => Err(Error::TraceInput { name, source }),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a trace; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Trace`] if this is no trace of this version, [`Error::TraceInput`] if it cannot be read.
    pub fn new(name: impl Into<String>, input: R) -> Result<Self> {
        let header = Header { page_bytes: 0, buffer_pool_bytes: 0, label: String::new() };
        let mut reader = Self { name: name.into(), input, header, left: Vec::new(), read: 0, at: 0, is_over: false };
        let head: [u8; HEADER_BYTES] = reader.read_head()?;
        let label_bytes = label_bytes(&head).map_err(|damage| reader.damaged(damage))?;
        let bytes = reader.read_rest(&head, label_bytes)?;
        reader.header = decode_header(&bytes).map_err(|damage| reader.damaged(damage))?;
        reader.at = bytes.len() as u64;
        Ok(reader)
    }

    /// Of what database the trace is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads a chunk. False at the end.
    fn next_chunk(&mut self) -> Result<bool> {
        let head: [u8; CHUNK_HEAD_BYTES] = self.read_head()?;
        let rest = chunk_bytes(&head).map_err(|damage| self.damaged(damage))?;
        let bytes = self.read_rest(&head, rest)?;
        let mut records = decode_chunk(&bytes, self.read).map_err(|damage| self.damaged(damage))?;
        if records.is_empty() {
            return match self.input.read(&mut [0]) {
                Ok(0) => Ok(false),
                Ok(_) => Err(self.damaged(Damage::Long)),
                Err(error) => Err(self.failed(error)),
            };
        }
        self.at += bytes.len() as u64;
        self.read += records.len() as u64;
        records.reverse();
        self.left = records;
        Ok(true)
    }

    fn read_head<const BYTES: usize>(&mut self) -> Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.input.read_exact(&mut bytes).map_err(|error| self.failed(error))?;
        Ok(bytes)
    }

    /// What begins with `head` and goes on for so long, which is never more than a chunk.
    fn read_rest(&mut self, head: &[u8], rest: usize) -> Result<Vec<u8>> {
        let mut bytes = head.to_vec();
        bytes.resize(head.len() + rest, 0);
        self.input.read_exact(&mut bytes[head.len()..]).map_err(|error| self.failed(error))?;
        Ok(bytes)
    }

    fn failed(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(Damage::Short),
            _ => Error::TraceInput { name: self.name.clone(), source: error },
        }
    }

    fn damaged(&self, damage: Damage) -> Error {
        Error::Trace { name: self.name.clone(), at: self.at, damage }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            if let Some(record) = self.left.pop() {
                return Some(Ok(record));
            }
            match self.next_chunk() {
                Ok(goes_on) => self.is_over = !goes_on,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
