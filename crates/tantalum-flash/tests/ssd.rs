//! Solid-state drives keep their promises over power cuts, also those that come while they recover.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod power;

use tantalum_flash::{Model, Profile};

/// The profile's drive with few planes, small blocks and a small pool, so that collection and cuts meet.
fn small(name: &str, edits: &[(&str, &str)]) -> Box<dyn Model> {
    let mut text = Profile::text(name).expect("the profile comes with the crate");
    let small = [
        ("channels", "2"),
        ("packages_per_channel", "1"),
        ("pages_per_block", "16"),
        ("pool_bytes", "131072"),
        ("max_command_bytes", "65536"),
        ("logical_block", "512"),
    ];
    for (key, value) in small.iter().chain(edits) {
        let lines = text.lines().map(|line| match line.split_once(" = ") {
            Some((found, _)) if found == *key => format!("{key} = {value}\n"),
            _ => format!("{line}\n"),
        });
        text = lines.collect();
    }
    let profile = Profile::parse(name, &text).expect("the edited profile parses");
    profile.with_capacity(2 << 20).build().expect("the edited profile is possible")
}

fn search(name: &str, edits: &[(&str, &str)]) {
    for seed in 0..20 {
        let mut drive = small(name, edits);
        power::search(seed, &mut *drive, power::Search { operations: 80, cuts: 8, sectors: 4096, largest: 40 });
    }
}

#[test]
fn a_volatile_cache_keeps_what_was_flushed() {
    for name in ["ssd-a", "ssd-b", "ssd-2008", "intel-x25e", "ocz-vertex-ex"] {
        search(name, &[]);
    }
}

#[test]
fn a_volatile_cache_with_forced_unit_access_keeps_what_was_forced() {
    search("ssd-a", &[("fua", "true")]);
}

#[test]
fn without_a_write_cache_whatever_has_ended_is_there() {
    search("ssd-a", &[("mode", "\"write-through\"")]);
}

#[test]
fn protected_memory_keeps_whatever_has_ended() {
    search("nvme-plp", &[]);
    search("durassd", &[]);
}

#[test]
#[should_panic(expected = "after the cut")]
fn a_volatile_cache_that_claims_protection_is_found_out() {
    search("durassd", &[("count", "0")]);
}
