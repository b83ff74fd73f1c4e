//! What a write costs depends on how many pages of its unit come with it, and what was flushed is kept.

use super::*;

const PAGE: u64 = 8192;

/// A drive of 32 segments, all of it written and flushed, and when that was done.
fn full_drive() -> (BlockMapped, Nanos) {
    let mut drive = BlockMapped::new(BlockMappedParameters::example(), 32 << 20, Contents::in_memory);
    let mut now = 0;
    for megabyte in 0..32 {
        now = drive.write(now, megabyte << 20, &[1; 1 << 20], false).done;
    }
    now = drive.flush(now).done;
    (drive, now)
}

/// Writes all pages once, in rounds that begin one page later each; tells erases and nanoseconds for a page.
fn strided(stride: u64) -> (u64, u64) {
    let (mut drive, begin) = full_drive();
    let (before, mut now) = (drive.counters(), begin);
    let pages = (32 << 20) / PAGE;
    for first in 0..stride {
        for page in (first..pages).step_by(stride as usize) {
            now = drive.write(now, page * PAGE, &[2; PAGE as usize], false).done;
        }
    }
    now = drive.flush(now).done;
    (drive.counters().erases - before.erases, (now - begin) / pages)
}

#[test]
fn erases_follow_the_distance_of_writes() {
    // In-page logging, section 4.1.3: one for 16 pages, one for 8, one for each.
    let pages = (32 << 20) / PAGE;
    let [sequential, units, segments] = [1, 16, 128].map(strided);
    assert_eq!([sequential.0, units.0, segments.0], [pages / 16, pages / 8, pages]);
    assert!(sequential.1 < units.1 && units.1 < segments.1);
    assert!((6_600_000..6_900_000).contains(&segments.1), "16 programs, 15 reads and an erase: {} ns", segments.1);
}

#[test]
fn reads_do_not_care_where_they_are() {
    let (mut drive, mut now) = full_drive();
    let mut buffer = [0; PAGE as usize];
    for page in [5, 900, 17, 4000] {
        let done = drive.read(now, page * PAGE, &mut buffer).done;
        assert_eq!(done - now, 10_000 + 25_000 + 1600 + 81_920, "command, array, spare area, interface");
        assert_eq!(buffer, [1; PAGE as usize]);
        now = done;
    }
}

#[test]
fn parts_of_pages_are_joined_with_the_old_ones() {
    let (mut drive, now) = full_drive();
    let written = drive.write(now, 512, &[3; 1024], true).done;
    let mut buffer = [0; 2048];
    assert_eq!(drive.read(written, 0, &mut buffer).result, Ok(()));
    assert_eq!((buffer[511], buffer[512], buffer[1535], buffer[1536]), (1, 3, 3, 1));
    assert_eq!(drive.counters().full_merges, 1);
}

#[test]
fn a_drive_that_is_worn_out_can_still_be_read() {
    let wear = Wear { endurance: 5, spread: 0.5, factory_bad: 0.1, spare: 0.2, seed: 1 };
    let parameters = BlockMappedParameters { wear: Some(wear), buffer_kib: 2048, ..BlockMappedParameters::example() };
    let mut drive = BlockMapped::new(parameters, 4 << 20, Contents::in_memory);
    let (mut now, mut stored) = (0, 0);
    for value in 1..=255 {
        let outcome = drive.write(now, 0, &[value; PAGE as usize], true);
        now = outcome.done;
        match outcome.result {
            Ok(()) => stored = value,
            Err(error) => {
                assert_eq!(error, MediaError::WornOut);
                break;
            }
        }
    }
    assert!((30..250).contains(&stored), "{stored} rewritings");
    assert!(drive.counters().bad_blocks > 5);
    drive.power_cut(now, &mut Random::with_seed(1));
    let ready = drive.power_on(now);
    let mut buffer = [0; PAGE as usize];
    assert_eq!(drive.read(ready, 0, &mut buffer).result, Ok(()));
    assert!(buffer == [stored; PAGE as usize] || buffer == [stored + 1; PAGE as usize], "{}", buffer[0]);
}
