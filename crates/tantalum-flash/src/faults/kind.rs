//! The kinds of faults: what each does, when it can, and whether an engine can survive it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a fault asks of an engine that makes no mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Survival {
    /// The device keeps its promises: every guarantee must hold.
    Survivable,
    /// A promise is broken and the engine is told, or sees it in the bytes that it reads: it must report the fault, and
    /// lose nothing silently that it has read or was told of.
    Reported,
    /// What the device returns may have been right at another time, so that nobody can tell.
    Unknowable,
}

/// When a fault of a kind can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The power fails.
    Cut,
    /// The power returns.
    Recovery,
    Read,
    Write,
    /// A flush, or a write that has one within it.
    Flush,
    Any,
}

/// A kind of fault. [`FaultKind::doc`] says what each does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A power cut loses everything that was not durable.
    LoseUnsynced,
    /// A power cut loses any of the writes that were not durable, the others survive: they were reordered.
    LoseSubset,
    /// A power cut leaves a prefix of each write that was not durable.
    PrefixTear,
    /// A power cut leaves any sectors of each write that was not durable.
    ScatteredTear,
    /// A power cut leaves a write that ends within a sector.
    SectorShear,
    /// A power cut leaves garbage in a sector that was being written.
    SectorGarbage,
    /// A power cut makes a sector unreadable that is next to one being written.
    NeighbourDamage,
    /// A flush is claimed to be done and is not.
    IgnoredFlush,
    /// A write by forced unit access stays in the cache.
    IgnoredFua,
    /// A power cut loses writes from before a flush, and keeps later ones.
    FlushReorder,
    /// A power cut takes the translation layer's map back to an earlier time.
    MapRollback,
    /// A power cut finds the capacitors too weak for the whole dump.
    WeakCapacitor,
    /// After a power cut the device answers with errors only.
    DeadAfterCut,
    /// The power fails again while the device starts.
    CutDuringRecovery,
    /// Bits at rest flip.
    BitRot,
    /// A sector cannot be read until it is written again.
    UnreadableSector,
    /// A write goes to another place.
    MisdirectedWrite,
    /// A read comes from another place.
    MisdirectedRead,
    /// A write is claimed to be done and is not.
    LostWrite,
    /// A flush fails, and later ones claim that nothing is left to flush.
    FlushFailsOnce,
    /// A write finds no space.
    NoSpace,
    /// A read ends early.
    ShortRead,
    /// The device takes operations and does not complete them.
    Stuck,
    /// An operation takes longer.
    Slow,
}

/// How many kinds there are.
pub(super) const KINDS: usize = FaultKind::ALL.len();

impl FaultKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 24] = [
        Self::LoseUnsynced,
        Self::LoseSubset,
        Self::PrefixTear,
        Self::ScatteredTear,
        Self::SectorShear,
        Self::SectorGarbage,
        Self::NeighbourDamage,
        Self::IgnoredFlush,
        Self::IgnoredFua,
        Self::FlushReorder,
        Self::MapRollback,
        Self::WeakCapacitor,
        Self::DeadAfterCut,
        Self::CutDuringRecovery,
        Self::BitRot,
        Self::UnreadableSector,
        Self::MisdirectedWrite,
        Self::MisdirectedRead,
        Self::LostWrite,
        Self::FlushFailsOnce,
        Self::NoSpace,
        Self::ShortRead,
        Self::Stuck,
        Self::Slow,
    ];

    /// Its name in plans.
    ///
    /// ```
    /// assert_eq!(tantalum_flash::faults::FaultKind::BitRot.name(), "bit-rot");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoseUnsynced => "lose-unsynced",
            Self::LoseSubset => "lose-subset",
            Self::PrefixTear => "prefix-tear",
            Self::ScatteredTear => "scattered-tear",
            Self::SectorShear => "sector-shear",
            Self::SectorGarbage => "sector-garbage",
            Self::NeighbourDamage => "neighbour-damage",
            Self::IgnoredFlush => "ignored-flush",
            Self::IgnoredFua => "ignored-fua",
            Self::FlushReorder => "flush-reorder",
            Self::MapRollback => "map-rollback",
            Self::WeakCapacitor => "weak-capacitor",
            Self::DeadAfterCut => "dead-after-cut",
            Self::CutDuringRecovery => "cut-during-recovery",
            Self::BitRot => "bit-rot",
            Self::UnreadableSector => "unreadable-sector",
            Self::MisdirectedWrite => "misdirected-write",
            Self::MisdirectedRead => "misdirected-read",
            Self::LostWrite => "lost-write",
            Self::FlushFailsOnce => "flush-fails-once",
            Self::NoSpace => "no-space",
            Self::ShortRead => "short-read",
            Self::Stuck => "stuck",
            Self::Slow => "slow",
        }
    }

    /// What it does, and on which occasion. "At stake" is a write that no promise covers yet: under way when the power
    /// fails, or completed in a volatile cache and covered by no completed flush.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::LoseUnsynced => "at a power cut, every write at stake is lost",
            Self::LoseSubset => {
                "at a power cut, of the writes at stake some are lost and the others survive, drawn one by one"
            }
            Self::PrefixTear => {
                "at a power cut, each write at stake leaves a prefix, of whole blocks or what the device writes atomically"
            }
            Self::ScatteredTear => {
                "at a power cut, each write at stake leaves any of its blocks, or of what the device writes atomically"
            }
            Self::SectorShear => {
                "at a power cut, a write at stake ends within a block: first bytes new, the others old; not where the \
                 device promises atomic writes"
            }
            Self::SectorGarbage => {
                "at a power cut, one block of a write at stake holds random bytes; not where the device promises atomic \
                 writes"
            }
            Self::NeighbourDamage => {
                "at a power cut with a write at stake, a block beside it on the medium becomes unreadable: on a disk the \
                 block before or after it, on flash one that was written shortly before (a paired page)"
            }
            Self::IgnoredFlush => {
                "a flush, or the one within a durable write, returns at once and flushes nothing; on volatile caches only"
            }
            Self::IgnoredFua => {
                "a durable write by forced unit access completes in the cache; on volatile caches with such access only"
            }
            Self::FlushReorder => {
                "at a power cut, some writes that a flush or forced unit access covered are lost, while what was written \
                 after that survives; on volatile caches only"
            }
            Self::MapRollback => {
                "at a power cut, everything that completed within the last `back` (default: up to 700 ms) is undone; not \
                 on disks"
            }
            Self::WeakCapacitor => {
                "at a power cut, of the blocks that completed within the last `back` (default 100 ms) the oldest `share` \
                 (default: drawn) is dumped, the others are lost; on devices with protected memory only"
            }
            Self::DeadAfterCut => "after a power cut, every operation fails: the device is dead for good",
            Self::CutDuringRecovery => "when power returns, it fails again before the device has recovered",
            Self::BitRot => {
                "`bits` (default 1) flip in a block that a read asks for, or at `offset`, and stay so until it is written"
            }
            Self::UnreadableSector => {
                "a block that a read asks for, or the one at `offset`, fails to be read until it is written again"
            }
            Self::MisdirectedWrite => {
                "a write goes to another aligned place, to `offset` if given; its own place stays as it was"
            }
            Self::MisdirectedRead => "a read returns the bytes of another aligned place, of `offset` if given",
            Self::LostWrite => "a write completes successfully, and nothing was written",
            Self::FlushFailsOnce => {
                "a flush fails; writes that it should have covered stay readable, later flushes succeed without them, and \
                 the next power cut loses them"
            }
            Self::NoSpace => "a write fails for lack of space, and nothing is written",
            Self::ShortRead => "a read fails after `bytes` (default: drawn)",
            Self::Stuck => {
                "an operation and all later ones do not complete for `delay` (default: until the power is cut; what is \
                 then asked for is not done)"
            }
            Self::Slow => "an operation completes later by `delay` (default 200 ms)",
        }
    }

    /// What it asks of an engine.
    pub const fn survival(self) -> Survival {
        match self {
            Self::LoseUnsynced
            | Self::LoseSubset
            | Self::PrefixTear
            | Self::ScatteredTear
            | Self::SectorShear
            | Self::SectorGarbage
            | Self::CutDuringRecovery
            | Self::Slow => Survival::Survivable,
            Self::NeighbourDamage
            | Self::DeadAfterCut
            | Self::BitRot
            | Self::UnreadableSector
            | Self::MisdirectedRead
            | Self::FlushFailsOnce
            | Self::NoSpace
            | Self::ShortRead
            | Self::Stuck => Survival::Reported,
            // Of a misdirected write the victim can be known, but its own place holds what was right before.
            Self::IgnoredFlush
            | Self::IgnoredFua
            | Self::FlushReorder
            | Self::MapRollback
            | Self::WeakCapacitor
            | Self::MisdirectedWrite
            | Self::LostWrite => Survival::Unknowable,
        }
    }

    /// The parameters that a planned fault of this kind may give.
    pub(super) const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::BitRot => &["offset", "bits"],
            Self::UnreadableSector | Self::MisdirectedWrite | Self::MisdirectedRead => &["offset"],
            Self::MapRollback => &["back"],
            Self::WeakCapacitor => &["back", "share"],
            Self::ShortRead => &["bytes"],
            Self::Stuck | Self::Slow => &["delay"],
            _ => &[],
        }
    }

    pub(super) const fn occasion(self) -> Occasion {
        match self {
            Self::LoseUnsynced
            | Self::LoseSubset
            | Self::PrefixTear
            | Self::ScatteredTear
            | Self::SectorShear
            | Self::SectorGarbage
            | Self::NeighbourDamage
            | Self::FlushReorder
            | Self::MapRollback
            | Self::WeakCapacitor
            | Self::DeadAfterCut => Occasion::Cut,
            Self::CutDuringRecovery => Occasion::Recovery,
            Self::IgnoredFlush | Self::FlushFailsOnce => Occasion::Flush,
            Self::IgnoredFua | Self::MisdirectedWrite | Self::LostWrite | Self::NoSpace => Occasion::Write,
            Self::BitRot | Self::UnreadableSector | Self::MisdirectedRead | Self::ShortRead => Occasion::Read,
            Self::Stuck | Self::Slow => Occasion::Any,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_holds_every_kind_once_under_its_name() {
        for (number, kind) in FaultKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            let quoted = format!("{:?}", kind.name());
            assert_eq!(toml::Value::try_from(kind).unwrap().to_string(), quoted);
        }
    }
}
