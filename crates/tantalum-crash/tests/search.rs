//! What the search finds, and what it must not find.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use tantalum_crash::{Failure, Faults, Options, Protection, Report, Scope, search};
use tantalum_flash::faults::{FaultKind, Plan};

fn on(profile: &str) -> Options {
    Options { profiles: vec![profile.to_owned()], faults: Faults::None, ..Options::default() }
}

fn run(options: &Options, seeds: u64) -> (Report, Vec<Failure>) {
    let scope = Scope::new(options.clone()).unwrap();
    let (mut total, mut failures) = (Report::default(), Vec::new());
    for seed in 0..seeds {
        match search(seed, &scope) {
            Ok(report) => total.add(&report),
            Err(failure) => failures.push(failure),
        }
    }
    (total, failures)
}

#[test]
fn a_durable_cache_needs_no_barriers_and_no_double_write() {
    for profile in ["durassd", "nvme-plp"] {
        let (report, failures) = run(&Options { without_barriers: true, ..on(profile) }, 8);
        assert_eq!(failures, []);
        assert!(report.schedules > 8 && report.profiles[profile].seeds == 8);
    }
}

/// The engine chooses by itself what suits the device; on another one it must be told, and then loses data.
#[test]
fn an_engine_that_trusts_a_device_which_loses_its_cache_is_found_out() {
    let unflushed = |profile| Options { only: vec![Protection::Device], ..on(profile) };
    let (report, failures) = run(&unflushed("durassd"), 40);
    assert_eq!(failures, []);
    assert!(report.schedules > 4, "{report:?}");
    let (_, failures) = run(&Options { trusts_devices: true, ..unflushed("ssd-a") }, 40);
    let lost = failures
        .iter()
        .filter(|failure| ["recovery is wrong", "damaged", "LSN"].iter().any(|word| failure.what.contains(word)));
    assert!(lost.count() >= 2, "{failures:?}");
}

#[test]
fn what_a_device_loses_is_found() {
    let volatile = Options { without_barriers: true, ..on("ssd-a") };
    let weak = Options { capacitors: Some(0), ..on("durassd") };
    for options in [volatile, weak, on("hdd-10k-cached")] {
        let (_, failures) = run(&options, 6);
        let found = failures.iter().filter(|f| f.what.contains("recovery is wrong") || f.what.contains("damaged"));
        assert!(found.count() >= 3, "{options:?}: {failures:?}");
    }
    let plan = Plan::new(1).with_rate(FaultKind::LoseUnsynced, 1.0);
    let (_, failures) = run(&Options { without_barriers: true, faults: Faults::Plan(plan), ..on("ssd-a") }, 6);
    assert!(failures.iter().any(|f| f.what.contains(": lose-unsynced at ")), "{failures:?}");
}

/// The search found (its seeds 243 and 247 at the time) that a creation that was cut while it blanked the first block could
/// leave garbage there, and that the next start then refused it as a stranger's.
#[test]
fn a_creation_that_is_cut_within_a_sector_is_begun_anew() {
    let plan = Plan::new(1).with_rate(FaultKind::SectorGarbage, 1.0);
    let (report, failures) = run(&Options { faults: Faults::Plan(plan), ..on("intel-x25e") }, 30);
    assert_eq!(failures, []);
    assert!(report.faults["sector-garbage"].injected > 20);
}

#[test]
fn every_kind_of_fault_is_met_and_none_is_blamed_on_the_engine() {
    for kind in FaultKind::ALL {
        let rate = match kind {
            FaultKind::Stuck => 0.002,
            FaultKind::Slow | FaultKind::BitRot | FaultKind::UnreadableSector | FaultKind::ShortRead => 0.02,
            FaultKind::MisdirectedRead | FaultKind::MisdirectedWrite | FaultKind::LostWrite => 0.02,
            FaultKind::NoSpace | FaultKind::FlushFailsOnce => 0.02,
            _ => 0.5,
        };
        let plan = Plan::new(7).with_rate(kind, rate);
        let scope = Scope::new(Options { faults: Faults::Plan(plan), ..Options::default() }).unwrap();
        let mut total = Report::default();
        for seed in 100..160 {
            total.add(&search(seed, &scope).unwrap_or_else(|failure| panic!("{kind}: {failure}")));
            if total.faults.contains_key(kind.name()) {
                break;
            }
        }
        assert!(total.faults.contains_key(kind.name()), "{kind} is not met in {} schedules", total.schedules);
    }
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let refused = |profile| Scope::new(on(profile)).unwrap_err().to_string();
    let in_any_order = "a log needs a device that can be written in any order";
    assert!(refused("nand-k9wag08u1a").contains(in_any_order) && refused("nvme-zns").contains(in_any_order));
    let few = Options { capacitors: Some(1), ..on("nvme-zns") };
    assert!(Scope::new(few).unwrap_err().to_string().contains(in_any_order), "it is left out");
    assert!(refused("luck").contains("luck"));
}
