//! A trace of requests on its way back from a file that may be anything.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use super::{
    Record, Summary,
    format::{RECORD_NUMBERS, decode_record},
};
use crate::{
    error::Result,
    framing::{Damage, FrameReader, Head, Records, TraceKind, field},
};

/// Reads a trace of requests: an iterator over its records in the order in which they ended, which ends after the first error.
/// Each chunk is checked before any of its records is given.
#[derive(Debug)]
pub struct Reader<R> {
    records: Records<R, Record>,
    label: String,
    /// One more than the greatest device of a record.
    devices: u64,
    summary: Option<Summary>,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self::of(FrameReader::open(path, TraceKind::Requests)?))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a trace; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) if this is no trace of this kind and version,
    /// [`Error::TraceInput`](crate::Error::TraceInput) if it cannot be read.
    pub fn new(name: impl Into<String>, input: R) -> Result<Self> {
        Ok(Self::of(FrameReader::new(name.into(), input, TraceKind::Requests)?))
    }

    fn of((frames, head): (FrameReader<R>, Head)) -> Self {
        let records = Records::new(frames, RECORD_NUMBERS, decode_record);
        Self { records, label: head.text, devices: 0, summary: None }
    }

    /// What the trace is called.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What stands at its end; `None` before all records were read without an error.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    fn read_summary(&mut self) -> Result<()> {
        let read = serde_json::from_slice::<Summary>(self.records.trailer());
        let read = read.map_err(|error| Damage::Summary { line: error.line() as u64, column: error.column() as u64 });
        let read = read.and_then(|summary| match self.devices <= summary.devices.len() as u64 {
            true => Ok(summary),
            false => field("a record's device", self.devices - 1),
        });
        self.summary = Some(read.map_err(|damage| self.records.damaged(damage))?);
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let was_over = self.records.is_over();
        match self.records.next() {
            Some(Ok(record)) => {
                self.devices = self.devices.max(u64::from(record.device) + 1);
                Some(Ok(record))
            }
            None if !was_over => self.read_summary().err().map(Err),
            other => other,
        }
    }
}
