//! Solid-state drives keep their promises over power cuts, also those that come while they recover.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod edited;
mod power;

use tantalum_flash::{Model, Profile};
use tantalum_rt::Random;

use edited::{SMALL, edited};

/// The profile's drive with few planes, small blocks and a small pool, so that collection and cuts meet.
fn small(name: &str, edits: &[(&str, &str)]) -> Box<dyn Model> {
    let sectors = [("logical_block", "512")];
    let profile = edited(name, Profile::text(name).unwrap(), SMALL.iter().chain(&sectors).chain(edits));
    profile.with_capacity(2 << 20).build().unwrap()
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

/// SATA's flush is none of the commands that can be queued.
#[test]
fn a_flush_waits_for_what_is_queued_and_holds_up_what_comes_unless_it_is_queued_itself() {
    let ends = |is_queued: bool| {
        let text = Profile::text("durassd").unwrap();
        let text = text.replace("ordered = true", &format!("ordered = true\nflush_is_queued = {is_queued}"));
        let mut drive = Profile::parse("durassd", &text).unwrap().with_capacity(64 << 20).build().unwrap();
        let write = drive.write(0, 0, &[1; 256 << 10], false).done;
        let flush = drive.flush(0).done;
        let read = drive.read(0, 32 << 20, &mut [0; 4096]).done;
        (write, flush, read)
    };
    let (write, flush, read) = ends(false);
    assert!(flush > write + 400_000, "the write ended at {write}, the flush at {flush}");
    assert!(read > flush, "a read that came with the flush is served after it: {read}, {flush}");
    let (_, flush, read) = ends(true);
    assert!(read < flush, "a read passes a flush that is queued: {read}, {flush}");
}

/// A read of flash that is being programmed does not keep the channel, or the link, from others until it is served.
#[test]
fn reads_pass_those_that_wait_for_flash_if_the_profile_says_so() {
    let mean_ns = |pass: bool| {
        let text = Profile::text("durassd").unwrap();
        let text = text.replace("reads_pass = true", &format!("reads_pass = {pass}"));
        let mut drive = Profile::parse("durassd", &text).unwrap().with_capacity(64 << 20).build().unwrap();
        let (mut random, mut now, mut reads_ns) = (Random::with_seed(1), 0, 0);
        for offset in (0..32 << 20).step_by(512 << 10) {
            now = drive.write(now, offset, &[1; 512 << 10], false).done;
        }
        now += 1_000_000_000;
        for _ in 0..4000 {
            now += 50_000;
            _ = drive.write(now, random.u64(0..8192) * 4096, &[2; 4096], false);
            reads_ns += drive.read(now, random.u64(0..8192) * 4096, &mut [0; 4096]).done - now;
        }
        reads_ns / 4000
    };
    let (waiting, passing) = (mean_ns(false), mean_ns(true));
    assert!(2 * passing < waiting, "{passing} and {waiting} ns");
}
