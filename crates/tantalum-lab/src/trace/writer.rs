//! A trace on its way into a file.

use std::io::{self, Write};

use super::{
    Header, Record,
    format::{encode_header, encode_record},
};
use crate::framing::{FrameWriter, TraceKind, invalid};

/// Writes a trace.
///
/// ```
/// use tantalum_lab::trace::{Header, Reader, Record, Writer};
///
/// let header = Header { page_bytes: 8192, buffer_pool_bytes: 20 << 20, label: "an example".into() };
/// let mut writer = Writer::new(Vec::new(), &header)?;
/// writer.push(Record::Write { page: 5 })?;
/// let bytes = writer.finish()?;
///
/// let records: Vec<Record> = Reader::new("example", &bytes[..])?.collect::<Result<_, _>>()?;
/// assert_eq!(records, [Record::Write { page: 5 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a trace without its end cannot be read"]
pub struct Writer<W: Write>(FrameWriter<W>);

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// What `out` says; and if the label is longer than 255 bytes.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        Ok(Self(FrameWriter::new(out, TraceKind::Pages, &encode_header(header))?))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// What the output says; and if the page's number is 2^40 or more or the change has 2 MiB or more.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        match encode_record(&record) {
            Some(number) => self.0.push(&[number]),
            None => Err(invalid(format!("{record:?} does not fit into a trace"))),
        }
    }

    /// Writes the end, without which the trace counts as cut off, and gives the output back.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}
