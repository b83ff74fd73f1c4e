//! Self-proof of the faults: each does what its documentation says, and without it the same schedule is clean.

mod cut;
mod host;
mod lies;
mod plans;
mod rest;
mod rig;
mod survivable;

use tantalum_flash::faults::FaultKind;

/// A test for each proof, and the list of what is proven.
macro_rules! proofs {
    ($($kind:ident => $module:ident::$proof:ident,)*) => {
        $(#[test] fn $proof() { $module::$proof(); })*
        const PROVEN: &[FaultKind] = &[$(FaultKind::$kind),*];
    };
}

proofs! {
    LoseUnsynced => cut::lose_unsynced,
    LoseSubset => cut::lose_subset,
    PrefixTear => cut::prefix_tear,
    ScatteredTear => cut::scattered_tear,
    SectorShear => cut::sector_shear,
    SectorGarbage => cut::sector_garbage,
    NeighbourDamage => cut::neighbour_damage,
    IgnoredFlush => lies::ignored_flush,
    IgnoredFua => lies::ignored_fua,
    FlushReorder => lies::flush_reorder,
    MapRollback => lies::map_rollback,
    WeakCapacitor => lies::weak_capacitor,
    DeadAfterCut => cut::dead_after_cut,
    CutDuringRecovery => cut::cut_during_recovery,
    BitRot => rest::bit_rot,
    UnreadableSector => rest::unreadable_sector,
    MisdirectedWrite => rest::misdirected_write,
    MisdirectedRead => rest::misdirected_read,
    LostWrite => lies::lost_write,
    FlushFailsOnce => host::flush_fails_once,
    NoSpace => host::no_space,
    ShortRead => host::short_read,
    Stuck => host::stuck,
    Slow => host::slow,
}

#[test]
fn every_kind_has_a_proof() {
    for kind in FaultKind::ALL {
        assert!(PROVEN.contains(&kind), "nothing proves that {kind} does what it says: {}", kind.doc());
    }
}
