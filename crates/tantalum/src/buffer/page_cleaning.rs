//! Who makes room in the pool, as settings name it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Who writes dirty pages to make room in the buffer pool.
///
/// ```
/// use tantalum::PageCleaning;
/// assert_eq!(PageCleaning::default(), PageCleaning::Ahead);
/// assert_eq!("on-demand".parse(), Ok(PageCleaning::OnDemand));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageCleaning {
    /// A task that keeps so many frames free that a page that is read rarely waits for one that is written.
    #[default]
    Ahead,
    /// Whoever reads a page writes the one that makes room for it, as the server of "Durable Write Cache in Flash Memory SSD"
    /// did (section 2, Figure 1). For comparisons.
    OnDemand,
}

impl PageCleaning {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ahead, Self::OnDemand];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::OnDemand => "on-demand",
        }
    }
}

impl fmt::Display for PageCleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PageCleaning {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|cleaning| cleaning.name() == name);
        found.ok_or_else(|| format!("page cleaning cannot be {name:?}; it is ahead or on-demand"))
    }
}
