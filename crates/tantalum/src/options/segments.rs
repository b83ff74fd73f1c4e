//! How a log-structured store writes.

use tantalum_store::MetadataWrites;

use super::Builder;

impl Builder {
    /// Bytes of a segment of the log-structured store: a multiple of the page size, of 8 pages to 64 MiB; default 1 MiB. Fixed
    /// when the database is created.
    pub fn segment_bytes(mut self, bytes: u32) -> Self {
        self.settings.segment_bytes = Some(bytes);
        self
    }

    /// How much of all segments live pages may take, in percent: 10 to 95, default 80. A file grows before more are. The
    /// fuller, the more cleaning has to move for each page that is stored. Fixed when the database is created.
    pub fn segment_fill_percent(mut self, percent: u32) -> Self {
        self.settings.segment_fill_percent = Some(percent);
        self
    }

    /// Whether the log-structured store tells a device which segments it does not need: a trim for an SSD; nothing for a file.
    /// Default false.
    pub fn discard_segments(mut self, discard: bool) -> Self {
        self.settings.discard_segments = Some(discard);
        self
    }

    /// What the log-structured store writes beside pages; default [`MetadataWrites::Own`].
    pub fn metadata_writes(mut self, writes: MetadataWrites) -> Self {
        self.settings.metadata_writes = Some(writes);
        self
    }
}
