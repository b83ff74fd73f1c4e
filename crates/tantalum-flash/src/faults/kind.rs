//! The kinds of faults: what each does, when it can, and whether an engine can survive it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a fault asks of an engine that makes no mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Survival {
    /// The device keeps its promises: every guarantee must hold.
    Survivable,
    /// A promise is broken, and the engine gets an error or sees it in the bytes that it reads: it must report the fault,
    /// and lose nothing of this silently.
    Reported,
    /// What the device returns may have been right at another time, so that no engine can tell.
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

/// What there is to know of a kind.
pub(super) struct Traits {
    name: &'static str,
    pub(super) occasion: Occasion,
    survival: Survival,
    /// Those that a planned fault of this kind may give.
    pub(super) parameters: &'static [&'static str],
    doc: &'static str,
}

macro_rules! kinds {
    ($($kind:ident = $name:literal, $occasion:ident, $survival:ident, $parameters:expr, $doc:literal;)*) => {
        /// A kind of fault. [`FaultKind::doc`] explains the words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum FaultKind {
            $(#[doc = $doc] #[serde(rename = $name)] $kind,)*
        }

        impl FaultKind {
            /// All kinds, in their order.
            pub const ALL: [Self; KINDS] = [$(Self::$kind),*];
        }

        /// By kind.
        const TRAITS: [Traits; KINDS] = [$(Traits {
            name: $name,
            occasion: Occasion::$occasion,
            survival: Survival::$survival,
            parameters: &$parameters,
            doc: $doc,
        }),*];
    };
}

/// How many kinds there are.
pub(super) const KINDS: usize = 24;

// Its name, when it can happen, what it asks of an engine, the parameters that a planned one may give, and what it does. Of
// a misdirected write the victim can be known, but its own place holds what was right before: no engine can tell.
kinds! {
    LoseUnsynced = "lose-unsynced", Cut, Survivable, [],
        "at a power cut, every write at stake is lost";
    LoseSubset = "lose-subset", Cut, Survivable, [],
        "at a power cut, of the writes at stake some are lost and the others survive, drawn one by one";
    PrefixTear = "prefix-tear", Cut, Survivable, [],
        "at a power cut, each write at stake leaves a prefix, of whole blocks or what the device writes atomically";
    ScatteredTear = "scattered-tear", Cut, Survivable, [],
        "at a power cut, each write at stake leaves any of its blocks, or of what the device writes atomically";
    SectorShear = "sector-shear", Cut, Survivable, [],
        "at a power cut, a write at stake ends within a block: first bytes new, the others old; not where the device \
         promises atomic writes";
    SectorGarbage = "sector-garbage", Cut, Survivable, [],
        "at a power cut, one block of a write at stake holds random bytes; not where the device promises atomic \
         writes";
    NeighbourDamage = "neighbour-damage", Cut, Reported, [],
        "at a power cut with a write at stake, a block beside it on the medium becomes unreadable: on a disk the \
         block before or after it, on flash one that was written shortly before (a paired page)";
    IgnoredFlush = "ignored-flush", Flush, Unknowable, [],
        "a flush, or the one within a durable write, returns at once and flushes nothing; on volatile caches only";
    IgnoredFua = "ignored-fua", Write, Unknowable, [],
        "a durable write by forced unit access completes in the cache; on volatile caches with such access only";
    FlushReorder = "flush-reorder", Cut, Unknowable, [],
        "at a power cut, some writes that a flush or forced unit access covered are lost, while what was written \
         after that survives; on volatile caches only";
    MapRollback = "map-rollback", Cut, Unknowable, ["back"],
        "at a power cut, everything that completed within the last `back` (default: up to 700 ms) is undone; not on \
         disks";
    WeakCapacitor = "weak-capacitor", Cut, Unknowable, ["back", "share"],
        "at a power cut, of the blocks that completed within the last `back` (default 100 ms) the oldest `share` \
         (default: drawn) is dumped, the others are lost; on devices with protected memory only";
    DeadAfterCut = "dead-after-cut", Cut, Reported, [],
        "after a power cut, every operation fails: the device is dead for good";
    CutDuringRecovery = "cut-during-recovery", Recovery, Survivable, [],
        "when power returns, it fails again before the device has recovered";
    BitRot = "bit-rot", Read, Reported, ["offset", "bits"],
        "`bits` (default 1) flip in a block that a read asks for, or at `offset`, and stay so until it is written";
    UnreadableSector = "unreadable-sector", Read, Reported, ["offset"],
        "a block that a read asks for, or the one at `offset`, fails to be read until it is written again";
    MisdirectedWrite = "misdirected-write", Write, Unknowable, ["offset"],
        "a write goes to another aligned place, to `offset` if given; its own place stays as it was";
    MisdirectedRead = "misdirected-read", Read, Reported, ["offset"],
        "a read returns the bytes of another aligned place, of `offset` if given";
    LostWrite = "lost-write", Write, Unknowable, [],
        "a write completes successfully, and nothing was written";
    FlushFailsOnce = "flush-fails-once", Flush, Reported, [],
        "a flush fails; writes that it should have covered stay readable, later flushes succeed without them, and \
         the next power cut loses them";
    NoSpace = "no-space", Write, Reported, [],
        "a write fails for lack of space, and nothing is written";
    ShortRead = "short-read", Read, Reported, ["bytes"],
        "a read fails after `bytes` (default: drawn)";
    Stuck = "stuck", Any, Reported, ["delay"],
        "an operation and all later ones do not complete for `delay` (default: until the power is cut; what is then \
         asked for is not done)";
    Slow = "slow", Any, Survivable, ["delay"],
        "an operation completes later by `delay` (default 200 ms)";
}

impl FaultKind {
    /// Its name in plans.
    pub const fn name(self) -> &'static str {
        self.traits().name
    }

    /// What it does, and on which occasion. "At stake" is a write that no promise covers yet: under way when the power
    /// fails, or completed in a volatile cache and covered by no completed flush.
    pub const fn doc(self) -> &'static str {
        self.traits().doc
    }

    /// What it asks of an engine.
    pub const fn survival(self) -> Survival {
        self.traits().survival
    }

    pub(super) const fn traits(self) -> &'static Traits {
        &TRAITS[self as usize]
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
