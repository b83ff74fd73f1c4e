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
    assert!(report.seeds > 20, "a part of the seeds is on this store");
}
