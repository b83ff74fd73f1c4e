//! Which faults the devices of a seed have, and what may then be expected of the engine.

use std::{collections::BTreeMap, fmt};

use tantalum_flash::faults::{FaultKind, Plan, Survival};
use tantalum_rt::Random;

use crate::scope::Faults;

/// The faults to inject, as the seed or the caller of the search has decided.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// None but what profiles bring.
    None,
    /// These kinds, with these rates, on every device.
    Rates(BTreeMap<FaultKind, f64>),
    /// The same plan for every device.
    Plan(Plan),
}

/// What may happen without being the engine's fault, after the faults that there were. Each level includes those before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Tolerance {
    /// Nothing: all guarantees hold, and no operation fails.
    Nothing,
    /// Operations fail with an error. Whatever was promised holds.
    Errors,
    /// Acknowledged writes are gone or out of place, and the engine could not know. But whatever is read was written once.
    Loss,
}

impl Choice {
    pub fn new(random: &mut Random, faults: &Faults) -> Self {
        match faults {
            Faults::None => Self::None,
            Faults::Plan(plan) => Self::Plan(plan.clone()),
            Faults::BySeed => {
                let of = |wanted: fn(Survival) -> bool| {
                    FaultKind::ALL.into_iter().filter(|kind| wanted(kind.survival())).collect::<Vec<_>>()
                };
                let survivable = of(|survival| survival == Survival::Survivable);
                let others = of(|survival| survival != Survival::Survivable);
                let mut rates = BTreeMap::new();
                match random.u8(0..20) {
                    0..9 => return Self::None,
                    9..16 => {
                        for kind in survivable {
                            if random.u8(0..4) == 0 {
                                rates.insert(kind, rate(kind, random));
                            }
                        }
                    }
                    // One at a time, so that what follows has one cause.
                    _ => {
                        let kind = others[random.usize(0..others.len())];
                        rates.insert(kind, rate(kind, random));
                    }
                }
                Self::Rates(rates)
            }
        }
    }

    /// The plan of one device, whose profile has faults of its own. Raw flash and zones are written in order.
    pub fn plan(&self, seed: u64, of_profile: Option<Plan>, is_in_order: bool) -> Option<Plan> {
        let mut plan = self.plan_of_drive(seed, of_profile)?;
        plan.rates.retain(|kind, _| !is_in_order || happens_in_order(*kind));
        Some(plan)
    }

    fn plan_of_drive(&self, seed: u64, of_profile: Option<Plan>) -> Option<Plan> {
        match self {
            Self::None => of_profile,
            Self::Rates(rates) => {
                let mut plan = of_profile.unwrap_or_default();
                plan.seed ^= seed;
                plan.rates.extend(rates);
                Some(plan)
            }
            Self::Plan(plan) => Some(plan.clone()),
        }
    }

    /// Whether there may be faults.
    pub fn is_any(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether a device may stop answering.
    pub fn hang(&self) -> bool {
        match self {
            Self::None => false,
            Self::Rates(rates) => rates.keys().copied().any(hangs),
            // Nothing is known of it.
            Self::Plan(_) => true,
        }
    }

    /// Whether a power cut may leave a sector neither as it was nor as it was to be written.
    pub fn garble_sectors(&self) -> bool {
        match self {
            Self::None => false,
            Self::Rates(rates) => rates.contains_key(&FaultKind::SectorGarbage),
            // Nothing is known of it.
            Self::Plan(_) => true,
        }
    }

    /// In the words of the report's table.
    pub fn describe(&self) -> &'static str {
        match self {
            Self::None => "no faults",
            Self::Plan(_) => "faults as planned",
            Self::Rates(rates) if rates.keys().all(|kind| kind.survival() == Survival::Survivable) => {
                "faults that must be survived"
            }
            Self::Rates(_) => "a fault that cannot always be survived",
        }
    }
}

/// Whether a chip without a cache and a translation layer has this fault, or a drive with zones. The others lose, move or keep back what
/// such a device has programmed; what a power cut tears there, its model says itself.
fn happens_in_order(kind: FaultKind) -> bool {
    use FaultKind::{
        BitRot, CutDuringRecovery, DeadAfterCut, MisdirectedRead, ShortRead, Slow, Stuck, UnreadableSector,
    };
    matches!(
        kind,
        BitRot | CutDuringRecovery | DeadAfterCut | MisdirectedRead | ShortRead | Slow | Stuck | UnreadableSector
    )
}

/// Whether a device with this fault does not answer.
pub(crate) fn hangs(kind: FaultKind) -> bool {
    kind == FaultKind::Stuck
}

/// Whether a device with this fault answers reads with errors.
pub(crate) fn fails_reads(kind: FaultKind) -> bool {
    use FaultKind::{DeadAfterCut, NeighbourDamage, ShortRead, UnreadableSector};
    matches!(kind, DeadAfterCut | NeighbourDamage | ShortRead | UnreadableSector)
}

/// What may follow a fault. On raw flash, in-page logging takes a sector that cannot be read for one that a power cut has
/// torn, unless a later one has counted it.
pub(crate) fn tolerance(kind: FaultKind, is_on_raw_flash: bool) -> Tolerance {
    match kind {
        kind if is_on_raw_flash && fails_reads(kind) => Tolerance::Loss,
        // In the newest part of a log, damaged bytes look as if a power cut had torn them.
        FaultKind::BitRot | FaultKind::MisdirectedRead => Tolerance::Loss,
        _ => match kind.survival() {
            Survival::Survivable => Tolerance::Nothing,
            Survival::Reported => Tolerance::Errors,
            Survival::Unknowable => Tolerance::Loss,
        },
    }
}

/// How likely a fault is on each occasion: rare enough that others come to their turn, and that it is met again.
fn rate(kind: FaultKind, random: &mut Random) -> f64 {
    let (least, most): (f64, f64) = match kind {
        FaultKind::DeadAfterCut => (0.02, 0.2),
        FaultKind::CutDuringRecovery => (0.2, 0.8),
        FaultKind::IgnoredFlush | FaultKind::IgnoredFua => (0.01, 1.0),
        FaultKind::FlushFailsOnce => (0.001, 0.05),
        FaultKind::Slow => (0.0005, 0.1),
        FaultKind::Stuck => (0.0001, 0.003),
        FaultKind::BitRot | FaultKind::UnreadableSector | FaultKind::MisdirectedRead | FaultKind::ShortRead => {
            (0.0003, 0.03)
        }
        FaultKind::MisdirectedWrite | FaultKind::LostWrite | FaultKind::NoSpace => (0.0003, 0.03),
        // At power cuts.
        _ => (0.1, 1.0),
    };
    least * (most / least).powf(random.f64())
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no faults"),
            Self::Plan(_) => f.write_str("faults as planned"),
            Self::Rates(rates) => {
                let rates: Vec<_> = rates.iter().map(|(kind, rate)| format!("{} {rate:.4}", kind.name())).collect();
                write!(f, "faults: {}", if rates.is_empty() { "none".to_owned() } else { rates.join(", ") })
            }
        }
    }
}
