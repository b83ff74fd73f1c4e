//! The six core workloads: which operations come how often, and which records they prefer.

use serde::Serialize;
use tantalum_rt::Random;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One record.
    Read,
    /// One field of a record gets a new value.
    Update,
    /// A new record.
    Insert,
    /// Up to 100 records that follow each other in the order of keys.
    Scan,
    /// A record is read, and one field of it gets a new value, in one transaction.
    ReadModifyWrite,
}

impl Kind {
    /// Their names.
    pub const NAMES: [&str; 5] = ["read", "update", "insert", "scan", "read-modify-write"];
}

/// A core workload of YCSB.
///
/// ```
/// use tantalum_workloads::ycsb::{Chooser, Mix};
///
/// assert_eq!(Mix::D.chooser(), Chooser::Latest);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Mix {
    /// Update heavy: 50 % reads, 50 % updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Read only.
    C,
    /// Read latest: 95 % reads, 5 % inserts.
    D,
    /// Short ranges: 95 % scans, 5 % inserts.
    E,
    /// Read-modify-write: 50 % reads, 50 % read-modify-writes.
    F,
}

/// Which records are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Chooser {
    /// A few favourites by Zipf's distribution with a shape of 0.99, scattered over all records.
    Zipfian,
    /// The records that were inserted last, by the same distribution.
    Latest,
    /// All alike.
    Uniform,
}

impl Mix {
    /// What the workload is defined with.
    pub fn chooser(self) -> Chooser {
        match self {
            Self::D => Chooser::Latest,
            _ => Chooser::Zipfian,
        }
    }

    pub(super) fn choose(self, random: &mut Random) -> Kind {
        let (frequent, percent, other) = match self {
            Self::A => (Kind::Read, 50, Kind::Update),
            Self::B => (Kind::Read, 95, Kind::Update),
            Self::C => (Kind::Read, 100, Kind::Read),
            Self::D => (Kind::Read, 95, Kind::Insert),
            Self::E => (Kind::Scan, 95, Kind::Insert),
            Self::F => (Kind::Read, 50, Kind::ReadModifyWrite),
        };
        if random.u8(0..100) < percent { frequent } else { other }
    }
}
