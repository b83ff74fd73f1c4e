//! How a log-structured store writes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Builder;

/// What the log-structured store writes beside pages.
///
/// ```
/// use tantalum::MetadataWrites;
/// assert_eq!(MetadataWrites::default(), MetadataWrites::Own);
/// assert_eq!("nilfs2".parse(), Ok(MetadataWrites::Nilfs2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataWrites {
    /// What it needs itself: a block before each append, and now and then the blocks of its map that changed.
    #[default]
    Own,
    /// As much more with each append as the file system NILFS2 wrote: nodes of its trees and blocks of its own files, about as
    /// much as the pages ("Early Experience and Evaluation of File Systems on SSD with Database Applications", section IV-G).
    /// For comparisons only: the blocks mean nothing.
    Nilfs2,
}

impl MetadataWrites {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Own, Self::Nilfs2];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Nilfs2 => "nilfs2",
        }
    }
}

impl fmt::Display for MetadataWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MetadataWrites {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|writes| writes.name() == name);
        found.ok_or_else(|| format!("metadata writes cannot be {name:?}; they are own or nilfs2"))
    }
}

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
