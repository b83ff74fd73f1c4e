//! The frame of a trace on its way into a file.

use std::io::{self, Write};

use super::{
    Head, TraceKind,
    bytes::{CHUNK_NUMBERS, encode_chunk, encode_header, encode_trailer},
};

/// Writes numbers in chunks, in memory for one chunk.
#[derive(Debug)]
pub(crate) struct FrameWriter<W: Write> {
    out: W,
    chunk: Vec<u64>,
    /// Numbers in the chunks that were written.
    written: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// What `out` says; and if the text is longer than 255 bytes.
    pub fn new(mut out: W, kind: TraceKind, head: &Head) -> io::Result<Self> {
        let Some(bytes) = encode_header(kind, head) else {
            let what = format!("the label of a trace has 255 bytes at most, and this has {}", head.text.len());
            return Err(invalid(what));
        };
        out.write_all(&bytes)?;
        Ok(Self { out, chunk: Vec::with_capacity(CHUNK_NUMBERS), written: 0 })
    }

    /// Adds the numbers of one record, which are in one chunk.
    pub fn push(&mut self, numbers: &[u64]) -> io::Result<()> {
        if self.chunk.len() + numbers.len() > CHUNK_NUMBERS {
            self.end_chunk()?;
        }
        self.chunk.extend_from_slice(numbers);
        Ok(())
    }

    /// Writes the end, without which the trace counts as cut off, and gives the output back.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_records()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// The same for a kind with a trailer, which is this text.
    ///
    /// # Errors
    /// What the output says; and if the text is longer than 1 MiB.
    pub fn finish_with(mut self, trailer: &[u8]) -> io::Result<W> {
        self.end_records()?;
        let Some(trailer) = encode_trailer(trailer) else {
            return Err(invalid(format!("the summary of a trace has 1 MiB at most, and this has {}", trailer.len())));
        };
        self.out.write_all(&trailer)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_records(&mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.end_chunk()?;
        }
        self.out.write_all(&encode_chunk(self.written, &[]))
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        self.out.write_all(&encode_chunk(self.written, &self.chunk))?;
        self.written += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }
}

/// What does not fit into a trace.
pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
