use std::collections::BTreeMap;

use tantalum_rt::Random;

use crate::{MediaError, Model, Nanos, Profile};

const KIB: u64 = 1 << 10;
const CONVENTIONAL: u64 = 64 * KIB;
/// Four blocks of eight pages of 8 KiB.
const ZONE: u64 = 256 * KIB;
const ZONES: u64 = 12;
const MAX_ACTIVE: u64 = 3;
const SECTOR: usize = 4096;

/// A profile with few and small zones, and memory that is soon full.
fn small() -> Profile {
    let mut text = Profile::text("nvme-zns").unwrap();
    for (key, value) in [
        ("channels", "2"),
        ("packages_per_channel", "1"),
        ("pages_per_block", "8"),
        ("page_bytes", "8192"),
        ("pool_bytes", "131072"),
        ("max_command_bytes", "32768"),
        ("conventional_bytes", "65536"),
        ("blocks", "4"),
        ("max_active", "3"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap().to_owned();
        text = text.replace(&line, &format!("{key} = {value}"));
    }
    Profile::parse("small-zns", &text).unwrap().with_capacity(CONVENTIONAL + ZONES * ZONE)
}

fn at(zone: u64, sector: u64) -> u64 {
    CONVENTIONAL + zone * ZONE + sector * SECTOR as u64
}

fn sectors(value: u8, count: usize) -> Vec<u8> {
    vec![value; count * SECTOR]
}

fn read(drive: &mut dyn Model, now: Nanos, offset: u64) -> u8 {
    let mut sector = [0xee; SECTOR];
    drive.read(now, offset, &mut sector).result.unwrap();
    assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
    sector[0]
}

#[test]
fn a_zone_is_written_where_it_goes_on_and_not_beyond_its_end() {
    let mut drive = small().build().unwrap();
    let write = |drive: &mut dyn Model, offset, count| drive.write(0, offset, &sectors(1, count), true).result;
    let (offset, pointer) = (at(2, 1), at(2, 0));
    assert_eq!(write(&mut *drive, offset, 1), Err(MediaError::WritePointer { offset, pointer }));
    assert_eq!(write(&mut *drive, at(2, 0), 3), Ok(()));
    let (offset, pointer) = (at(2, 0), at(2, 3));
    assert_eq!(write(&mut *drive, offset, 1), Err(MediaError::WritePointer { offset, pointer }));
    let offset = at(2, 3);
    assert_eq!(write(&mut *drive, offset, 62), Err(MediaError::ZoneEnd { offset, end: at(3, 0) }));
    assert_eq!(write(&mut *drive, at(2, 3), 61), Ok(()));
    assert_eq!(write(&mut *drive, at(2, 0), 1), Err(MediaError::ZoneFull { offset: at(2, 0) }));
    let offset = CONVENTIONAL - SECTOR as u64;
    assert_eq!(write(&mut *drive, offset, 2), Err(MediaError::ZoneEnd { offset, end: CONVENTIONAL }));
    for _ in 0..3 {
        assert_eq!(write(&mut *drive, offset, 1), Ok(()), "what lies before the zones is written in any order");
    }
    let error = drive.reset_zone(0, at(2, 1)).result.unwrap_err();
    assert_eq!(error, MediaError::NoZone { offset: at(2, 1), start: CONVENTIONAL, bytes: ZONE });
    assert!(error.to_string().contains("every 262144 bytes"), "{error}");
    assert!(drive.finish_zone(0, at(ZONES, 0)).result.is_err(), "the last zone ends there");
}

#[test]
fn so_many_zones_are_partly_written_and_no_more() {
    let mut drive = small().build().unwrap();
    let mut now = 0;
    for zone in 0..MAX_ACTIVE {
        now = drive.write(now, at(zone, 0), &sectors(1, 1), true).done;
    }
    assert_eq!(drive.active_zones(), [at(0, 0), at(1, 0), at(2, 0)]);
    let begin = |drive: &mut dyn Model, now, zone| drive.write(now, at(zone, 0), &sectors(1, 1), true).result;
    assert_eq!(begin(&mut *drive, now, 7), Err(MediaError::ActiveZones { offset: at(7, 0), most: 3 }));
    now = drive.finish_zone(now, at(1, 0)).done;
    assert_eq!(begin(&mut *drive, now, 7), Ok(()));
    assert_eq!(drive.write(now, at(1, 1), &sectors(1, 1), true).result, Err(MediaError::ZoneFull { offset: at(1, 1) }));
    assert!(begin(&mut *drive, now, 8).is_err());
    now = drive.reset_zone(now, at(0, 0)).done;
    assert_eq!(begin(&mut *drive, now, 8), Ok(()));
    assert_eq!((read(&mut *drive, now, at(0, 0)), read(&mut *drive, now, at(1, 0))), (0, 1));
    now = drive.write(now, at(2, 1), &sectors(1, 63), true).done;
    assert_eq!(begin(&mut *drive, now, 9), Ok(()), "a zone that is full is not active");
}

/// What the flash is written is what the host has written, however often it is written again.
#[test]
fn flash_is_written_once_for_what_the_host_writes() {
    let mut drive = small().build().unwrap();
    let mut now = 0;
    for round in 0..40 {
        for zone in 0..ZONES {
            now = drive.reset_zone(now, at(zone, 0)).done;
            for sector in (0..64).step_by(4) {
                now = drive.write(now, at(zone, sector), &sectors(round, 4), true).done;
            }
        }
    }
    now = now.max(drive.shut_down(now));
    assert!((0..ZONES).all(|zone| read(&mut *drive, now, at(zone, 63)) == 39));
    let counters = drive.counters();
    assert_eq!((counters.host_written_bytes, counters.media_written_bytes), (40 * ZONES * ZONE, 40 * ZONES * ZONE));
    assert_eq!((counters.gc_copies, counters.zone_resets), (0, 40 * ZONES));
    assert!(counters.erases >= 39 * ZONES * 4, "{counters:?}");
}

/// One zone's pages go to several planes: it is written as fast as they all are.
#[test]
fn a_zone_is_as_fast_as_its_planes_together() {
    let took = |blocks: u64| {
        let mut profile = small();
        let crate::Kind::SolidState(drive) = &mut profile.device else { unreachable!() };
        drive.zones.as_mut().unwrap().blocks = blocks as u32;
        drive.geometry.pages_per_block = (32 / blocks) as u32;
        // The check is about the energy of the capacitors, of which there are enough.
        drive.capacitors.as_mut().unwrap().count = 1000;
        let mut drive = profile.build().unwrap();
        let mut now = 0;
        for sector in (0..64).step_by(4) {
            now = drive.write(now, at(0, sector), &sectors(1, 4), true).done;
        }
        drive.shut_down(now)
    };
    let (one, four) = (took(1), took(4));
    assert!(3 * four < one, "{four} ns on four planes, {one} ns on one");
}

/// What the host knows of a zone.
#[derive(Default)]
struct Expected {
    /// The values of its sectors, as they were written.
    values: Vec<u8>,
    /// How many of them have completed.
    completed: usize,
    is_finished: bool,
}

/// Writes, resets and finishes at random, with power cuts at any time: what has completed is there, a write under way in part from its
/// beginning, a reset or finish under way whole or not.
fn cut_often(seed: u64) {
    let mut drive = small().build().unwrap();
    let mut random = Random::with_seed(seed);
    let mut now = 0;
    let mut zones: BTreeMap<u64, Expected> = (0..ZONES).map(|zone| (zone, Expected::default())).collect();
    for round in 0..60_u8 {
        // What is under way in the end: when it ends, its zone, and the zone before it.
        let mut changed: Option<(Nanos, u64, Expected)> = None;
        let mut under_way: Vec<(Nanos, u64, usize)> = Vec::new();
        let mut last = now;
        for _ in 0..random.usize(1..60) {
            let zone = random.u64(..ZONES);
            let active =
                zones.iter().filter(|(_, zone)| !zone.values.is_empty() && zone.values.len() < 64 && !zone.is_finished);
            let others = active.filter(|(active, _)| **active != zone).count() as u64;
            let found = zones.get_mut(&zone).unwrap();
            match random.u8(..10) {
                0 => {
                    now = now.max(last);
                    let before = std::mem::take(found);
                    last = drive.reset_zone(now, at(zone, 0)).done;
                    changed = Some((last, zone, before));
                    under_way.clear();
                    break;
                }
                1 if !found.values.is_empty() && !found.is_finished => {
                    now = now.max(last);
                    let (values, completed) = (found.values.clone(), found.values.len());
                    let before = Expected { values, completed, is_finished: false };
                    found.is_finished = true;
                    found.completed = completed;
                    last = drive.finish_zone(now, at(zone, 0)).done;
                    changed = Some((last, zone, before));
                    under_way.clear();
                    break;
                }
                _ if found.is_finished || found.values.len() == 64 || others >= MAX_ACTIVE => {}
                _ => {
                    let count = random.usize(1..=20).min(64 - found.values.len());
                    let value = 1 + random.u8(..250);
                    let offset = at(zone, found.values.len() as u64);
                    let outcome = drive.write(now, offset, &sectors(value, count), random.bool());
                    assert_eq!(outcome.result, Ok(()), "seed {seed}, round {round}");
                    found.values.extend(vec![value; count]);
                    under_way.push((outcome.done, zone, found.values.len()));
                    last = last.max(outcome.done);
                    now = if random.bool() { now + random.u64(..2_000_000) } else { now };
                }
            }
        }
        let cut = now + random.u64(..=(last.saturating_sub(now)) * 3 / 2);
        for (done, zone, end) in under_way {
            if done <= cut {
                let found = zones.get_mut(&zone).unwrap();
                found.completed = found.completed.max(end);
            }
        }
        if let Some((done, ..)) = changed {
            // The host had waited for all that it had asked for before.
            zones.values_mut().for_each(|found| found.completed = found.values.len());
            changed = changed.filter(|_| done > cut);
        }
        drive.power_cut(cut, &mut random);
        now = drive.power_on(cut);
        if random.bool() {
            let again = random.u64(cut..=now);
            drive.power_cut(again, &mut random);
            now = drive.power_on(again);
        }
        let active = drive.active_zones();
        for (zone, found) in &mut zones {
            let there: Vec<u8> = (0..64).map(|sector| read(&mut *drive, now, at(*zone, sector))).collect();
            let held = there.iter().take_while(|value| **value > 0).count();
            assert!(there[held..].iter().all(|value| *value == 0), "behind its end there is nothing");
            let is_changing = changed.as_ref().filter(|(_, changing, _)| changing == zone);
            let is_before =
                is_changing.is_some_and(|(_, _, before)| there[..held] == before.values && !before.values.is_empty());
            assert!(
                is_before || there[..held] == found.values[..held] && held >= found.completed,
                "seed {seed}, round {round}, zone {zone}: {held} sectors, {} have completed",
                found.completed
            );
            let is_partly = (1..64).contains(&held);
            let was_finished = match is_changing {
                Some((_, _, before)) if is_before && before.is_finished => true,
                Some(_) => is_partly && !active.contains(&at(*zone, 0)),
                None => found.is_finished,
            };
            assert_eq!(
                active.contains(&at(*zone, 0)),
                is_partly && !was_finished,
                "seed {seed}, round {round}, zone {zone}"
            );
            *found = Expected { values: there[..held].to_vec(), completed: held, is_finished: was_finished };
        }
    }
    let counters = drive.counters();
    assert!(counters.dumped_pages > 0 && counters.power_cuts > 0, "{counters:?}");
}

#[test]
fn what_has_completed_is_there_after_power_cuts_and_a_write_under_way_in_part() {
    (0..100).for_each(cut_often);
}

#[test]
fn a_drive_in_a_file_has_its_zones_when_its_program_has_died() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    let mut now = 0;
    {
        let mut drive = small().open_file(&path).unwrap();
        for (zone, count) in [(0, 64), (1, 5), (2, 33), (3, 7)] {
            now = drive.write(now, at(zone, 0), &sectors(1 + zone as u8, count), true).done;
            if zone == 2 {
                now = drive.finish_zone(now, at(2, 0)).done;
            }
        }
        now = drive.reset_zone(now, at(0, 0)).done;
        drive.catch_up(now);
        // As a program that dies: what its drive would do at the end does not happen.
        std::mem::forget(drive);
    }
    // The lock on the file is the forgotten drive's.
    let copy = directory.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let mut drive = small().open_file(&copy).unwrap();
    let first = |drive: &mut dyn Model, zone| read(drive, 0, at(zone, 0));
    assert_eq!([0, 1, 2, 3].map(|zone| first(&mut *drive, zone)), [0, 2, 3, 4]);
    assert_eq!((read(&mut *drive, 0, at(1, 4)), read(&mut *drive, 0, at(1, 5))), (2, 0));
    assert_eq!((read(&mut *drive, 0, at(2, 32)), read(&mut *drive, 0, at(2, 33))), (3, 0));
    assert_eq!(drive.active_zones(), [at(1, 0), at(3, 0)]);
    assert!(drive.write(0, at(2, 33), &sectors(9, 1), true).result.is_err(), "it is finished");
    let now = drive.write(0, at(1, 5), &sectors(9, 59), true).done;
    assert_eq!((read(&mut *drive, now, at(1, 4)), read(&mut *drive, now, at(1, 63))), (2, 9));
    drop(drive);
    let mut drive = small().open_file(&copy).unwrap();
    assert_eq!((read(&mut *drive, 0, at(1, 63)), read(&mut *drive, 0, at(3, 6))), (9, 4));
}

#[test]
fn what_cannot_be_a_drive_with_zones_is_refused() {
    let refused = |change: fn(&mut crate::SolidStateDrive)| {
        let mut profile = small();
        let crate::Kind::SolidState(drive) = &mut profile.device else { unreachable!() };
        change(drive);
        profile.build().unwrap_err().to_string()
    };
    assert!(refused(|drive| drive.capacitors.as_mut().unwrap().count = 1).contains("key capacitors"));
    assert!(refused(|drive| drive.capacitors = None).contains("key capacitors"));
    assert!(refused(|drive| drive.zones.as_mut().unwrap().blocks = 5).contains("1 to 4, the planes"));
    assert!(refused(|drive| drive.zones.as_mut().unwrap().max_active = 99).contains("zones.max_active"));
    assert!(refused(|drive| drive.zones.as_mut().unwrap().conventional_bytes = 100).contains("conventional_bytes"));
    let error = small().with_capacity(CONVENTIONAL + ZONE / 2).build().unwrap_err().to_string();
    assert!(error.contains("a multiple of 262144"), "{error}");
}
