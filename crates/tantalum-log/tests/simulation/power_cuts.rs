//! The log under random load and random power cuts: what was acknowledged is recovered, what is recovered was
//! appended, in order and without gaps, and nothing that a crash left behind ever comes back.
//!
//! `TANTALUM_SEEDS=from..to` runs other seeds than the default.

use tantalum_log::LogLayout;

use crate::world::{Counts, Plan, run};

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let chosen = std::env::var("TANTALUM_SEEDS").ok();
    let parse = |text: String| text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    chosen.and_then(parse).unwrap_or(default)
}

fn search(default: std::ops::Range<u64>, layout: impl Fn(u64) -> LogLayout) -> Counts {
    let mut total = Counts::default();
    for seed in seeds(default) {
        let plan = Plan::new(seed, layout(seed));
        let counts = std::panic::catch_unwind(|| run(&plan)).unwrap_or_else(|panic| {
            eprintln!("failed with {plan:?}");
            std::panic::resume_unwind(panic)
        });
        total.records += counts.records;
        total.fulls += counts.fulls;
        total.checkpoints += counts.checkpoints;
        total.cuts += counts.cuts;
        total.cuts_in_recovery += counts.cuts_in_recovery;
        total.closes += counts.closes;
        total.reissued += counts.reissued;
        total.hidden += counts.hidden;
        total.hidden_won += counts.hidden_won;
        total.recovered += counts.recovered;
    }
    println!("{total:?}");
    assert!(total.fulls > 0 && total.closes > 0 && total.cuts_in_recovery > 0, "{total:?}");
    total
}

#[test]
fn acknowledged_records_survive_power_cuts() {
    let total = search(0..100, |_| LogLayout::FlashLogging);
    assert!(total.reissued > 0, "{total:?}");
    assert!(total.hidden_won > 0 && total.hidden > total.hidden_won, "{total:?}");
}

#[test]
fn acknowledged_records_survive_power_cuts_in_the_single_layout() {
    search(0..60, |_| LogLayout::Single);
}

#[test]
fn acknowledged_records_survive_power_cuts_in_the_striped_layout() {
    // No smaller than the block.
    let units = |seed: u64| if seed.is_multiple_of(2) { [512, 2048, 65536] } else { [4096, 16384, 65536] };
    search(0..120, |seed| LogLayout::Striped { unit_bytes: units(seed)[seed as usize % 3] });
}
