//! The search over databases on one kind of page store.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::ops::Range;

use tantalum_crash::{Faults, Options, Protection, Report, Scope, search};

/// Searches without faults, and expects no failure, and each of these things at least once.
fn nothing_is_lost(on: Protection, seeds: Range<u64>, happens: &[&str]) -> Report {
    let scope = Scope::new(Options { only: vec![on], faults: Faults::None, ..Options::default() }).unwrap();
    let (mut total, mut failures) = (Report::default(), Vec::new());
    for seed in seeds {
        match search(seed, &scope) {
            Ok(report) => total.add(&report),
            Err(failure) => failures.push(failure),
        }
    }
    assert_eq!(failures, []);
    assert!(total.seeds > 20, "a part of the seeds is on this store");
    for name in happens {
        assert!(total.counts.get(*name).is_some_and(|count| *count > 0), "{name}: {:?}", total.counts);
    }
    total
}

#[test]
fn what_was_acknowledged_survives_on_in_page_logging() {
    let happens = [
        "merges of erase units",
        "merges that carried active records over",
        "merges that were avoided by overflow",
        "merges that freed overflow units",
        "records of aborted groups that merges dropped",
    ];
    let report = nothing_is_lost(Protection::InPageLogging, 0..400, &happens);
    assert!(report.profiles["nand-k9wag08u1a"].seeds > 10, "a part of the seeds is on raw flash");
}

#[test]
fn what_was_acknowledged_survives_on_the_log_structured_store() {
    let happens = [
        "segments that were cleaned",
        "pages that cleaning moved",
        "checkpoints of the page map",
        "appends that recovery followed",
    ];
    nothing_is_lost(Protection::LogStructured, 0..300, &happens);
}
