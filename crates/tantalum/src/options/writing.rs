//! How pages are written: what makes them durable, and who writes them when.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Builder;
use crate::buffer::PageCleaning;

/// Whether devices are told to flush their caches, which makes a write durable where a completed one is not
/// ("Durable Write Cache in Flash Memory SSD for Relational and NoSQL Databases", section 2.2).
///
/// ```
/// use tantalum::Barriers;
/// assert_eq!(Barriers::default(), Barriers::Auto);
/// assert_eq!("trust-device".parse(), Ok(Barriers::TrustDevice));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barriers {
    /// `Off` for each device that says that its cache survives a power cut or that it has none, `On` for all others. Asked
    /// again at each open.
    #[default]
    Auto,
    /// Every device is flushed, whether it needs that or not.
    On,
    /// No device is ever flushed; refused where one does not say that it needs none.
    Off,
    /// As `Off`, on the user's word, whatever the devices say. On a device that loses what it has completed, a power cut
    /// costs acknowledged commits and damages the database.
    TrustDevice,
}

impl Barriers {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::On, Self::Off, Self::TrustDevice];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
            Self::TrustDevice => "trust-device",
        }
    }
}

impl fmt::Display for Barriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Barriers {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|barriers| barriers.name() == name);
        found.ok_or_else(|| format!("barriers cannot be {name:?}; they are auto, on, off or trust-device"))
    }
}

impl Builder {
    /// Whether devices are told to flush their caches; default [`Barriers::Auto`]. Can be changed from one open to the next.
    pub fn barriers(mut self, barriers: Barriers) -> Self {
        self.settings.barriers = Some(barriers);
        self
    }

    /// Whether each page is made durable by a write of its own, as servers do that open their files with `O_DSYNC`, instead of
    /// many pages by one flush; default false. For comparisons; without [barriers](Self::barriers) it makes no difference but
    /// that neighbours are not written together.
    pub fn durable_page_writes(mut self, durable: bool) -> Self {
        self.settings.durable_page_writes = Some(durable);
        self
    }

    /// Who writes dirty pages to make room; default [`PageCleaning::Ahead`]. Can be changed from one open to the next.
    pub fn page_cleaning(mut self, cleaning: PageCleaning) -> Self {
        self.settings.page_cleaning = Some(cleaning);
        self
    }

    /// How many batches of dirty pages may be on their way to the page store at a time, 1 to 128; by default 4, and with
    /// [`PageCleaning::OnDemand`] 128, whose batches have a page each. Together they take at most a quarter of the buffer pool's
    /// size. Can be changed from one open to the next; without meaning for the page store in-page-logging.
    pub fn write_back_batches(mut self, batches: u32) -> Self {
        self.settings.write_back_batches = Some(batches);
        self
    }
}
