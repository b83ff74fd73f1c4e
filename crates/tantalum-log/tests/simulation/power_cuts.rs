//! The log under random load and random power cuts: what was acknowledged is recovered, what is recovered was
//! appended, in order and without gaps, and nothing that a crash left behind ever comes back.
//!
//! `TANTALUM_SEEDS=from..to` runs other seeds than the default.

use tantalum_log::LogLayout;

use crate::plan::Plan;
use crate::world::{Counts, run};

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let chosen = std::env::var("TANTALUM_SEEDS").ok();
    let parse = |text: String| text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    chosen.and_then(parse).unwrap_or(default)
}

fn search(plans: impl Iterator<Item = Plan>) -> Counts {
    let mut total = Counts::default();
    for plan in plans {
        let counts = std::panic::catch_unwind(|| run(&plan)).unwrap_or_else(|panic| {
            eprintln!("failed with {plan:?}");
            std::panic::resume_unwind(panic)
        });
        total.add(&counts);
    }
    println!("{total:?}");
    assert!(total.fulls > 0 && total.closes > 0 && total.cuts_in_recovery > 0, "{total:?}");
    total
}

#[test]
fn acknowledged_records_survive_power_cuts() {
    let total = search(seeds(0..100).map(|seed| Plan::new(seed, LogLayout::FlashLogging)));
    assert!(total.reissued > 0, "{total:?}");
    assert!(total.hidden_won > 0 && total.hidden > total.hidden_won, "{total:?}");
}

#[test]
fn acknowledged_records_survive_power_cuts_in_the_single_layout() {
    search(seeds(0..60).map(|seed| Plan::new(seed, LogLayout::Single)));
}

#[test]
fn acknowledged_records_survive_power_cuts_in_the_striped_layout() {
    // No smaller than the block.
    let units = |seed: u64| if seed.is_multiple_of(2) { [512, 2048, 65536] } else { [4096, 16384, 65536] };
    let layout = |seed: u64| LogLayout::Striped { unit_bytes: units(seed)[seed as usize % 3] };
    search(seeds(0..120).map(|seed| Plan::new(seed, layout(seed))));
}

#[test]
fn with_an_archive_they_survive_too_and_what_is_archived_survives_without_the_devices() {
    let total = search(seeds(0..100).map(|seed| Plan::new(seed, LogLayout::FlashLogging).with_archive()));
    assert!(total.reissued > 0 && total.hidden_won > 0, "{total:?}");
    assert!(total.rebuilt > 0 && total.archived_first > 0 && total.archives_set_aside > 0, "{total:?}");
}

#[test]
fn they_survive_while_devices_come_and_go() {
    let plan = |seed: u64| {
        let plan = Plan::new(seed, LogLayout::FlashLogging).with_spares();
        if seed.is_multiple_of(3) { plan.with_archive() } else { plan }
    };
    let total = search(seeds(0..150).map(plan));
    assert!(total.joined > 0 && total.left > 0 && total.cuts_in_changes > 0, "{total:?}");
    assert!(total.reissued > 0 && total.hidden_won > 0 && total.rebuilt > 0, "{total:?}");
}

#[test]
fn with_two_copies_they_survive_the_loss_of_any_one_device() {
    let plan = |seed: u64| {
        let plan = Plan::new(seed, LogLayout::FlashLogging).mirrored();
        if seed.is_multiple_of(4) { plan.with_archive() } else { plan }
    };
    let total = search(seeds(0..200).map(plan));
    assert!(total.lost > 100 && total.replaced > 10 && total.degraded > 10, "{total:?}");
    assert!(total.reissued > 0 && total.hidden_won > 0, "{total:?}");
}

#[test]
fn with_two_copies_devices_come_and_go() {
    let total = search(seeds(0..80).map(|seed| Plan::new(seed, LogLayout::FlashLogging).mirrored().with_spares()));
    assert!(total.joined > 0 && total.left > 0 && total.cuts_in_changes > 0, "{total:?}");
}
