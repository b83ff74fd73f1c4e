//! A trace on its way into a file.

use std::io::{self, Write};

use super::{
    Header, Record,
    format::{CHUNK_RECORDS, encode_chunk, encode_header, encode_record},
};

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
pub struct Writer<W: Write> {
    out: W,
    chunk: Vec<u64>,
    /// Records in the chunks that were written.
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// What `out` says; and if the label is longer than 255 bytes.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        let Some(bytes) = encode_header(header) else {
            let what = format!("the label of a trace has 255 bytes at most, and this has {}", header.label.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        out.write_all(&bytes)?;
        Ok(Self { out, chunk: Vec::with_capacity(CHUNK_RECORDS), written: 0 })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// What the output says; and if the page's number is 2^40 or more or the change has 2 MiB or more.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        let Some(number) = encode_record(&record) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{record:?} does not fit into a trace")));
        };
        self.chunk.push(number);
        if self.chunk.len() < CHUNK_RECORDS { Ok(()) } else { self.end_chunk() }
    }

    /// Writes the end, without which the trace counts as cut off, and gives the output back.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.chunk.is_empty() {
            self.end_chunk()?;
        }
        self.out.write_all(&encode_chunk(self.written, &[]))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        self.out.write_all(&encode_chunk(self.written, &self.chunk))?;
        self.written += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }
}
