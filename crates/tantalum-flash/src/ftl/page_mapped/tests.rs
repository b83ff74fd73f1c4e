//! The layer against a simple model: what is programmed is there, also after power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tantalum_rt::Random;

use super::*;
use crate::contents::Contents;
use crate::nand::{Geometry, Timing};

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    packages_per_channel: 1,
    dies_per_package: 1,
    planes_per_die: 2,
    blocks_per_plane: 0,
    pages_per_block: 16,
    page_bytes: 8192,
    spare_bytes: 448,
    partial_programs: 1,
};
const TIMING: Timing = Timing { read_ns: 50_000, program_ns: 1_000_000, erase_ns: 3_000_000, bus_mb_per_s: 166 };

fn layer(capacity_bytes: u64, mapping: PageMapping) -> PageMapped {
    let layout = Layout::new(GEOMETRY, &mapping, capacity_bytes, 0);
    let nand = Nand::new(layout.geometry, TIMING, Contents::in_memory(layout.geometry.capacity_bytes()));
    PageMapped::new(nand, layout, mapping)
}

fn mapping(collection: Collection) -> PageMapping {
    PageMapping { over_provision: 0.1, collection, wear_spread: 8, placement_handles: 1 }
}

fn piece(value: u32) -> Piece {
    let mut bytes = [0; PIECE_BYTES];
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    (value != 0).then(|| Arc::new(bytes))
}

fn value(piece: &Piece) -> u32 {
    piece.as_ref().map_or(0, |piece| u32::from_le_bytes(piece[..4].try_into().unwrap()))
}

fn program(layer: &mut PageMapped, at: Nanos, unit: u32, value: u32) -> Nanos {
    layer.settle(at);
    layer.program(at, unit / 2 % 2, 0, &[(unit, piece(value))])
}

#[test]
fn overwriting_at_random_goes_on_for_ever_and_wears_evenly() {
    for collection in [Collection::Greedy, Collection::CostBenefit] {
        let mut layer = layer(4 << 20, mapping(collection));
        let mut random = Random::with_seed(1);
        let mut expected = vec![0; 1024];
        let mut now = 0;
        for round in 1..60_000 {
            // A tenth of the sectors gets nine tenths of the writes, so that cold blocks exist.
            let unit = if random.u32(0..10) < 9 { random.u32(0..102) } else { random.u32(0..1024) };
            expected[unit as usize] = round;
            now = now.max(program(&mut layer, now, unit, round).saturating_sub(2_000_000));
        }
        for (unit, &expected) in expected.iter().enumerate() {
            assert_eq!(value(&layer.piece(unit as u32)), expected);
        }
        for plane in 0..4 {
            let wear = layer.layout.data_blocks(plane).map(|block| layer.nand.block(block).erase_count);
            let (least, most) = (wear.clone().min().unwrap(), wear.max().unwrap());
            assert!(most - least <= 30, "{collection:?}: plane {plane} wears from {least} to {most}");
        }
        let counters = layer.counters();
        assert!(counters.gc_copies > 0, "{counters:?}");
    }
}

/// What is written for two handles in turn, and forgotten for one of them, leaves nothing to move where the handles keep it apart.
#[test]
fn what_is_written_for_one_handle_dies_without_what_is_written_for_another() {
    let copies = |placement_handles: u32| {
        let mut layer = layer(4 << 20, PageMapping { placement_handles, ..mapping(Collection::Greedy) });
        let half = layer.layout.units / 2;
        let mut now = 0;
        for round in 1..=80u32 {
            for first in (0..half / 8).step_by(2) {
                // An eighth of the first half is written again each time, the second half written and forgotten.
                for (handle, unit) in [(0, round % 8 * half / 8 + first), (1, half + first)] {
                    let sectors = [(unit, piece(round)), (unit + 1, piece(round))];
                    layer.settle(now);
                    now = now.max(layer.program(now, unit / 2 % 2, handle.min(placement_handles - 1), &sectors));
                }
            }
            (half..2 * half).for_each(|unit| layer.discard(unit));
        }
        assert!((0..half).all(|unit| (73..=80).contains(&value(&layer.piece(unit)))));
        layer.counters().gc_copies
    };
    let (together, apart) = (copies(1), copies(2));
    assert!(4 * apart < together, "{apart} sectors were moved, and {together} without handles");
}

/// Greedy collection under uniform random writes of single pages follows the analytical model of Desnoyers ("Analytic
/// Modeling of SSD Write Performance", SYSTOR 2012) for large blocks: the write amplification A satisfies, with spare
/// factor a = flash over capacity, A = a / (a + W(-a exp(-a))), W being Lambert's function.
#[test]
fn write_amplification_is_near_the_analytical_model() {
    let mapping = PageMapping {
        over_provision: 0.25,
        collection: Collection::Greedy,
        wear_spread: u32::MAX,
        placement_handles: 1,
    };
    let geometry = Geometry { pages_per_block: 64, ..GEOMETRY };
    let layout = Layout::new(geometry, &mapping, 128 << 20, 0);
    let nand = Nand::new(layout.geometry, TIMING, Contents::in_memory(layout.geometry.capacity_bytes()));
    let mut layer = PageMapped::new(nand, layout, mapping);
    let mut random = Random::with_seed(2);
    let units = layer.layout.units;
    let page = |layer: &mut PageMapped, first: u32| {
        layer.settle(Nanos::MAX);
        layer.program(0, first / 2 % 2, 0, &[(first, None), (first + 1, None)]);
    };
    (0..units).step_by(2).for_each(|unit| page(&mut layer, unit));
    let mut write = |layer: &mut PageMapped, count: u32| {
        for _ in 0..count {
            page(layer, random.u32(0..units / 2) * 2);
        }
    };
    write(&mut layer, 3 * units / 2);
    let before = layer.counters().gc_copies;
    write(&mut layer, 2 * units / 2);
    let measured = 1.0 + (layer.counters().gc_copies - before) as f64 / f64::from(2 * units);
    let planes = layer.planes.len() as f64;
    // Free blocks take no part.
    let blocks = layer.layout.data_blocks(0).len() as f64 - super::collect::FREE_LOW as f64;
    let spare = blocks * 128.0 * planes / f64::from(units);
    let mut lambert = -0.5f64;
    for _ in 0..200 {
        lambert = -spare * (-spare).exp() / lambert.exp();
    }
    let predicted = spare / (spare + lambert);
    assert!((measured / predicted - 1.0).abs() < 0.1, "measured {measured}, predicted {predicted}");
}

#[derive(Debug, Clone)]
enum Step {
    Write(u32),
    Discard(u32),
    Sync,
    Wait(u64),
    Cut(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (0u32..256).prop_map(Step::Write),
        4 => (0u32..256).prop_map(Step::Discard),
        2 => Just(Step::Sync),
        6 => (0u64..4_000_000).prop_map(Step::Wait),
        2 => (0u64..6_000_000, any::<u64>()).prop_map(|(after, seed)| Step::Cut(after, seed)),
    ];
    prop::collection::vec(step, 1..400)
}

/// What a sector may hold after a cut: the last write done before it, and everything later; zeros if discarded.
#[derive(Default)]
struct Versions(Vec<(Nanos, u32)>);

impl Versions {
    fn allowed(&self, cut: Nanos) -> Vec<u32> {
        let durable = self.0.iter().rposition(|&(done, _)| done <= cut).unwrap_or(0);
        let mut allowed: Vec<u32> = self.0[durable..].iter().map(|&(_, value)| value).collect();
        if self.0.first().is_none_or(|&(done, _)| done > cut) {
            allowed.push(0);
        }
        allowed
    }
}

fn check(steps: Vec<Step>, collection: Collection) -> Result<(), TestCaseError> {
    let mut layer = layer(1 << 20, mapping(collection));
    let mut expected: BTreeMap<u32, Versions> = BTreeMap::new();
    let (mut now, mut counter) = (0, 0);
    for step in steps {
        layer.settle(now);
        match step {
            Step::Write(unit) => {
                counter += 1;
                let done = program(&mut layer, now, unit, counter);
                expected.entry(unit).or_default().0.push((done, counter));
            }
            // Known to be gone only once it is journaled; until then the versions before may come back.
            Step::Discard(unit) => {
                layer.discard(unit);
                expected.entry(unit).or_default().0.push((Nanos::MAX, 0));
            }
            Step::Sync => {
                now = layer.sync(now);
                for (done, _) in expected.values_mut().flat_map(|versions| &mut versions.0) {
                    *done = (*done).min(now);
                }
            }
            Step::Wait(nanos) => now += nanos,
            Step::Cut(after, seed) => {
                let mut random = Random::with_seed(seed);
                now += after;
                let cut = now;
                layer.nand.power_cut(now, &mut random);
                // Power fails again and again while the layer recovers.
                let mut ready = layer.recover(now, &[]);
                while random.u8(0..3) == 0 {
                    now += random.u64(0..=ready - now);
                    layer.nand.power_cut(now, &mut random);
                    ready = layer.recover(now, &[]);
                }
                for (&unit, versions) in &mut expected {
                    let (found, allowed) = (value(&layer.piece(unit)), versions.allowed(cut));
                    prop_assert!(allowed.contains(&found), "sector {unit} holds {found}, not one of {allowed:?}");
                    versions.0 = vec![(now, found)];
                }
                now = ready;
            }
        }
    }
    for (&unit, versions) in &expected {
        prop_assert_eq!(value(&layer.piece(unit)), versions.0.last().unwrap().1);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever is written, discarded and cut: what was done is there, and nothing older.
    #[test]
    fn the_map_is_rebuilt_after_cuts(steps in steps()) {
        check(steps, Collection::Greedy)?;
    }

    #[test]
    fn the_map_is_rebuilt_after_cuts_with_cost_benefit(steps in steps()) {
        check(steps, Collection::CostBenefit)?;
    }
}
