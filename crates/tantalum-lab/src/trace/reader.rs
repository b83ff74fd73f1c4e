//! A trace on its way back from a file that may be anything.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use super::{
    Header, Record,
    format::{decode_header, decode_record},
};
use crate::{
    error::Result,
    framing::{FrameReader, Head, Records, TraceKind},
};

/// Reads a trace: an iterator over its records, which ends after the first error. Each chunk is checked before any of its records
/// is given.
#[derive(Debug)]
pub struct Reader<R> {
    records: Records<R, Record>,
    header: Header,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(FrameReader::open(path, TraceKind::Pages)?)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a trace; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) if this is no trace of this kind and version,
    /// [`Error::TraceInput`](crate::Error::TraceInput) if it cannot be read.
    pub fn new(name: impl Into<String>, input: R) -> Result<Self> {
        Self::of(FrameReader::new(name.into(), input, TraceKind::Pages)?)
    }

    fn of((frames, head): (FrameReader<R>, Head)) -> Result<Self> {
        let header = decode_header(head).map_err(|damage| frames.damaged(damage))?;
        Ok(Self { records: Records::new(frames, 1, |number| decode_record(number[0])), header })
    }

    /// Of what database the trace is.
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next()
    }
}
