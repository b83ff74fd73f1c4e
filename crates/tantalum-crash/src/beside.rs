//! Tasks that use or watch the database beside the clients, again and again.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tantalum::Db;
use tantalum_rt::spawn;

use crate::{
    checks::check,
    config::Config,
    history::{Event, Recorder},
    stop::{Stop, is_closed},
};

/// A task that watches the database pauses for twice as long after so many looks.
const LOOKS: u32 = 65_536;

/// What a task does again and again beside the clients: calls `again`, after a pause each time, until it returns false or is to stop. The
/// pause doubles after so many `repetitions`, since clients may wait for a device that is stuck until the power goes, half an hour later.
pub(crate) fn again_and_again(
    stop: &AtomicBool,
    mut pause: Duration,
    repetitions: u32,
    mut again: impl FnMut() -> bool,
) {
    loop {
        for _ in 0..repetitions {
            if stop.load(Ordering::Acquire) {
                return;
            }
            tantalum_rt::sleep(pause);
            if !again() {
                return;
            }
        }
        pause *= 2;
    }
}

/// The checker task: checks the database again and again beside the clients.
pub(crate) fn check_again_and_again(db: &Db, recorder: &Recorder, stop: &AtomicBool, pause: Duration) {
    again_and_again(stop, pause, 256, || {
        match check(db, recorder) {
            Ok(()) => {
                recorder.count("database checks beside clients", 1);
                return true;
            }
            Err(Stop::Failed(error)) if is_closed(&error) => {}
            Err(stop) => recorder.record(stop.into_event()),
        }
        false
    });
}

/// The compactor task: compacts the database again and again beside the clients.
pub(crate) fn compact_again_and_again(db: &Db, recorder: &Recorder, stop: &AtomicBool, pause: Duration) {
    again_and_again(stop, pause, 256, || {
        match db.compact(&mut |_| {}) {
            Ok(report) => {
                recorder.count("compactions beside clients", 1);
                recorder.count("pages that compactions moved", report.pages_moved);
                recorder.count(
                    "bytes that compactions left in the data file without space on disk",
                    report.data_bytes_unallocated,
                );
                recorder.count(
                    "bytes given back by compactions",
                    report.data_bytes_before.saturating_sub(report.data_bytes_after),
                );
                return true;
            }
            Err(error) if is_closed(&error) => {}
            Err(error) => recorder.record(Stop::from(error).into_event()),
        }
        false
    });
}

/// Tells when two copies are kept of everything: now, or as soon as a checkpoint has made it so.
pub(crate) fn watch_copies(db: &Db, pause: Duration, recorder: &Recorder) -> Result<(), Stop> {
    if db.stats()?.log.may_lose_a_device {
        recorder.record(Event::MayLoseLogDevice);
        return Ok(());
    }
    let (db, recorder) = (db.clone(), recorder.clone());
    spawn("copies", move || {
        while db.stats().is_ok_and(|stats| !stats.log.may_lose_a_device) {
            tantalum_rt::sleep(pause);
        }
        recorder.record(Event::MayLoseLogDevice);
    });
    Ok(())
}

/// Notes which devices the log goes on without, as a database in a directory does. True if the log was opened on none but
/// such devices: of two copies each can be left behind in turn, and only that record tells which has the newest
/// commits. A database in a directory refuses that.
pub(crate) fn follow_left_behind(
    db: &Db,
    mut left_behind: Vec<u32>,
    pause: Duration,
    recorder: &Recorder,
) -> Result<bool, Stop> {
    let (mut serving, aside) = standing(db)?;
    serving.retain(|number| !left_behind.contains(number));
    if serving.is_empty() && !left_behind.is_empty() {
        return Ok(true);
    }
    recorder.record(Event::LeftBehind(aside.clone()));
    left_behind = aside;
    let (db, recorder) = (db.clone(), recorder.clone());
    spawn("left-behind", move || {
        again_and_again(&AtomicBool::new(false), pause, LOOKS, || {
            let Ok((_, aside)) = standing(&db) else { return false };
            if aside != left_behind {
                recorder.record(Event::LeftBehind(aside.clone()));
                left_behind = aside;
            }
            true
        });
    });
    Ok(false)
}

/// The log's devices that serve, and those that do not, by their numbers.
fn standing(db: &Db) -> Result<(Vec<u32>, Vec<u32>), Stop> {
    let (aside, serving): (Vec<_>, Vec<_>) =
        db.stats()?.log.devices.into_iter().partition(|device| device.set_aside.is_some());
    let numbers = |devices: Vec<tantalum::LogDeviceStats>| devices.into_iter().map(|device| device.ordinal).collect();
    Ok((numbers(serving), numbers(aside)))
}

/// Notes again and again what the archive has.
pub(crate) fn watch_archive(
    db: &Db,
    config: &Config,
    recorder: &Recorder,
    stop: &AtomicBool,
    pause: Duration,
) -> Result<(), Stop> {
    let mut found = Ok(());
    again_and_again(stop, pause, LOOKS, || {
        found = check_archive(db, config);
        let (Ok(()), Ok(stats)) = (&found, db.stats()) else { return false };
        if let Some(archive) = stats.log.archive.filter(|archive| archive.set_aside.is_none()) {
            recorder.record(Event::Archived(archive.archived_lsn.get()));
        }
        true
    });
    found
}

/// An archive is set aside for what its own device does, and for nothing else.
pub(crate) fn check_archive(db: &Db, config: &Config) -> Result<(), Stop> {
    let archive = db.stats().ok().and_then(|stats| stats.log.archive);
    match archive.and_then(|archive| archive.set_aside) {
        Some(reason) if config.archive_is_sound() => {
            Err(Stop::Violation(format!("the archive was set aside, and its device has no faults: {reason}")))
        }
        _ => Ok(()),
    }
}
