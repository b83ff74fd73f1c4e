//! The frame of a trace on its way back from a file that may be anything.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use super::{
    Damage, Head, TraceKind,
    bytes::{
        CHUNK_HEAD_BYTES, HEADER_BYTES, TRAILER_HEAD_BYTES, chunk_bytes, decode_chunk, decode_header, decode_trailer,
        text_bytes, trailer_bytes,
    },
};
use crate::error::{Error, Result};

/// Reads the chunks of a trace. Each is checked before any of its numbers is given.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    name: String,
    kind: TraceKind,
    input: R,
    /// Numbers in the chunks that were read.
    read: u64,
    /// Where the part begins that was read last, in bytes.
    at: u64,
    /// Where the next one begins.
    next_at: u64,
}

impl FrameReader<BufReader<File>> {
    /// Opens a file, and reads the header.
    ///
    /// # Errors
    /// As [`FrameReader::new`].
    pub fn open(path: &Path, kind: TraceKind) -> Result<(Self, Head)> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(name, BufReader::new(file), kind),
            Err(source) => Err(Error::TraceInput { name, source }),
        }
    }
}

impl<R: Read> FrameReader<R> {
    /// Reads the header; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Trace`] if this is no trace of this kind and version, [`Error::TraceInput`] if it cannot be read.
    pub fn new(name: String, input: R, kind: TraceKind) -> Result<(Self, Head)> {
        let mut reader = Self { name, kind, input, read: 0, at: 0, next_at: 0 };
        let head: [u8; HEADER_BYTES] = reader.read_head()?;
        let text_bytes = text_bytes(kind, &head).map_err(|damage| reader.damaged(damage))?;
        let bytes = reader.read_rest(&head, text_bytes)?;
        let head = decode_header(&bytes).map_err(|damage| reader.damaged(damage))?;
        Ok((reader, head))
    }

    /// Reads the numbers of a chunk; `None` at the end mark.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u64>>> {
        let head: [u8; CHUNK_HEAD_BYTES] = self.read_head()?;
        let rest = chunk_bytes(&head).map_err(|damage| self.damaged(damage))?;
        let bytes = self.read_rest(&head, rest)?;
        let numbers = decode_chunk(&bytes, self.read).map_err(|damage| self.damaged(damage))?;
        self.read += numbers.len() as u64;
        Ok((!numbers.is_empty()).then_some(numbers))
    }

    /// Reads what stands behind the end mark: the trailer's text, empty for a kind without one. Nothing may follow.
    pub fn end(&mut self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        if self.kind.has_trailer() {
            let head: [u8; TRAILER_HEAD_BYTES] = self.read_head()?;
            let rest = trailer_bytes(&head).map_err(|damage| self.damaged(damage))?;
            let bytes = self.read_rest(&head, rest)?;
            text = decode_trailer(bytes).map_err(|damage| self.damaged(damage))?;
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(text),
            Ok(_) => Err(self.damaged(Damage::Long)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The error for damage in the part that was read last.
    pub fn damaged(&self, damage: Damage) -> Error {
        Error::Trace { name: self.name.clone(), kind: self.kind, at: self.at, damage }
    }

    fn read_head<const BYTES: usize>(&mut self) -> Result<[u8; BYTES]> {
        self.at = self.next_at;
        let mut bytes = [0; BYTES];
        self.input.read_exact(&mut bytes).map_err(|error| self.failed(error))?;
        Ok(bytes)
    }

    /// What begins with `head` and goes on for so long, which is never more than a chunk or a trailer.
    fn read_rest(&mut self, head: &[u8], rest: usize) -> Result<Vec<u8>> {
        let mut bytes = head.to_vec();
        bytes.resize(head.len() + rest, 0);
        self.input.read_exact(&mut bytes[head.len()..]).map_err(|error| self.failed(error))?;
        self.next_at = self.at + bytes.len() as u64;
        Ok(bytes)
    }

    fn failed(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(Damage::Short),
            _ => Error::TraceInput { name: self.name.clone(), source: error },
        }
    }
}
