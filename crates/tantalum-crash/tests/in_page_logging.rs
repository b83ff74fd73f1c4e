//! The search over databases on the in-page logging store.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use tantalum_crash::{Faults, Options, Protection, Report, Scope, search};

fn run(options: Options, seeds: std::ops::Range<u64>) -> Report {
    let scope = Scope::new(Options { only: vec![Protection::InPageLogging], ..options }).unwrap();
    let (mut total, mut failures) = (Report::default(), Vec::new());
    for seed in seeds {
        match search(seed, &scope) {
            Ok(report) => total.add(&report),
            Err(failure) => failures.push(failure),
        }
    }
    assert_eq!(failures, []);
    total
}

#[test]
fn what_was_acknowledged_survives_and_nothing_else() {
    let report = run(Options { faults: Faults::None, ..Options::default() }, 0..400);
    assert!(report.seeds > 20 && report.profiles["nand-k9wag08u1a"].seeds > 10, "a part of the seeds is on this store");
    for name in [
        "merges of erase units",
        "merges that carried active records over",
        "merges that were avoided by overflow",
        "merges that freed overflow units",
        "records of aborted groups that merges dropped",
    ] {
        assert!(report.counts.get(name).is_some_and(|count| *count > 0), "{name}: {:?}", report.counts);
    }
}
