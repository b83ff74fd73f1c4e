//! A trace of requests on its way into a file.

use std::io::{self, Write};

use super::{Record, Summary, format::encode_record};
use crate::framing::{FIXED_BYTES, FrameWriter, Head, TraceKind, invalid};

/// Writes a trace of requests.
///
/// ```
/// use tantalum_device::{Ending, Request, RequestKind};
/// use tantalum_lab::io_trace::{Reader, Record, Summary, TracedDevice, Writer};
///
/// let request = Request { kind: RequestKind::Read, offset: 8192, len: 4096 };
/// let record = Record { device: 0, began_ns: 5, took_ns: 70_000, request, ending: Ending::Done };
/// let mut writer = Writer::new(Vec::new(), "an example")?;
/// writer.push(record)?;
/// let device = TracedDevice { used_for: "data".into(), name: "disk".into(), capacity_bytes: 1 << 20 };
/// let bytes = writer.finish(&Summary { devices: vec![device], ..Default::default() })?;
///
/// let mut reader = Reader::new("example", &bytes[..])?;
/// assert_eq!(reader.next().transpose()?, Some(record));
/// assert_eq!(reader.next().transpose()?, None);
/// assert_eq!(reader.summary().map(|summary| summary.devices.len()), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a trace without its end cannot be read"]
pub struct Writer<W: Write>(FrameWriter<W>);

impl<W: Write> Writer<W> {
    /// Begins a trace; the label is for people.
    ///
    /// # Errors
    /// What `out` says; and if the label is longer than 255 bytes.
    pub fn new(out: W, label: &str) -> io::Result<Self> {
        let head = Head { fixed: [0; FIXED_BYTES], text: label.to_owned() };
        Ok(Self(FrameWriter::new(out, TraceKind::Requests, &head)?))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// What the output says; and if an offset or length is no multiple of 512, an offset has 512 TiB or more, a length 8 GiB, a
    /// time two years, or a request took three days.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        match encode_record(&record) {
            Some(numbers) => self.0.push(&numbers),
            None => Err(invalid(format!("{record:?} does not fit into a trace"))),
        }
    }

    /// Writes the end, without which the trace counts as cut off, and gives the output back.
    ///
    /// # Errors
    /// What the output says; and if the summary has more than 1 MiB of text.
    pub fn finish(self, summary: &Summary) -> io::Result<W> {
        self.0.finish_with(&serde_json::to_vec(summary)?)
    }
}
