//! What the files of traces have in common: a header, chunks of numbers, an end, each with its checksum (docs/understand/format.md).
//!
//! Promise: whatever the bytes are, reading them gives what was written or says where they are damaged, in memory for one chunk.

mod bytes;
mod reader;
mod records;
mod writer;

pub(crate) use bytes::{FIXED_BYTES, Head, field, u32_at, u64_at};
pub(crate) use reader::FrameReader;
pub(crate) use records::Records;
pub(crate) use writer::{FrameWriter, invalid};

/// The kinds of traces.
///
/// ```
/// use tantalum_lab::trace::TraceKind;
/// assert_ne!(TraceKind::Pages.to_string(), TraceKind::Requests.to_string());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// Changes and writes of pages: [`trace`](crate::trace).
    Pages,
    /// Requests to devices: [`io_trace`](crate::io_trace).
    Requests,
}

impl TraceKind {
    /// All of them.
    const ALL: [Self; 2] = [Self::Pages, Self::Requests];

    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Pages => b"TNTLTRCE",
            Self::Requests => b"TNTLIOTR",
        }
    }

    /// Whether something is told behind the last chunk.
    const fn has_trailer(self) -> bool {
        match self {
            Self::Pages => false,
            Self::Requests => true,
        }
    }

    /// The command that writes one, for messages.
    pub(crate) const fn written_by(self) -> &'static str {
        match self {
            Self::Pages => "tantalum bench tpcc --trace FILE",
            Self::Requests => "tantalum bench tpcc --io-trace FILE (or another benchmark)",
        }
    }
}

impl std::fmt::Display for TraceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pages => "a trace of page changes, for tantalum lab trace",
            Self::Requests => "a trace of requests to devices, for tantalum lab io-trace",
        })
    }
}

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It ends before its end mark.
    #[error("it ends too early")]
    Short,
    /// It goes on after its end.
    #[error("something follows its end")]
    Long,
    /// It is something else.
    #[error("it does not begin as a trace does")]
    Magic,
    /// It is a trace of the other kind.
    #[error("it is {found}")]
    OtherKind {
        /// Its kind.
        found: TraceKind,
    },
    /// It is of another version.
    #[error("it is of format version {found}, and this program reads version {expected}")]
    Version {
        /// Its version.
        found: u16,
        /// What is read.
        expected: u16,
    },
    /// The bytes changed since they were written.
    #[error("the checksum is {computed:#010x}, but {stored:#010x} was stored")]
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A field has a value that no writer writes.
    #[error("{field} has the impossible value {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// What stands at its end is no summary of a run, by the place in its text.
    #[error("its summary cannot be read from line {line}, column {column} on")]
    Summary {
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
    },
}

/// Flips a bit of a trace, and cuts the trace off there.
#[cfg(test)]
pub(crate) fn assert_damage_is_refused(
    mut trace: Vec<u8>,
    at: proptest::sample::Index,
    bit: u8,
    is_refused: impl Fn(&[u8]) -> bool,
) {
    let at = at.index(trace.len());
    trace[at] ^= 1 << bit;
    assert!(is_refused(&trace), "bit {bit} of byte {at} is wrong");
    assert!(is_refused(&trace[..at]), "cut off at byte {at}");
}
