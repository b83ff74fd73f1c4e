//! The workloads `replay` and `read`: opening a log of many entries that the page cache does not have, and reading ranges of it that no
//! cache has.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use crate::append::{Counted, Tally, Window, run_workers};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::store::{Kind, Ready, Session, Setup, Store};

/// Groups that the entries belong to.
pub const GROUPS: u64 = 16;
/// Entries of a ready by which the log is filled.
const READY_ENTRIES: u64 = 8;
/// Entries of a range that is read.
const RANGE_ENTRIES: u64 = 32;

/// Fills a log: the groups take turns, so that their entries lie among each other's.
///
/// # Errors
/// Of the log.
pub fn fill(store: &dyn Store, entries: u64) -> Result<()> {
    let mut session = store.session();
    let have = store.bounds(GROUPS).map_or(0, |(_, last)| last);
    for first in (have + 1..=entries.div_ceil(GROUPS)).step_by(READY_ENTRIES as usize) {
        let ready = |group| Ready { group, first, entries: READY_ENTRIES };
        let readies: Vec<_> = (1..=GROUPS).map(ready).collect();
        session.append(&readies)?;
    }
    drop(session);
    store.close()
}

/// Opens a log, and counts its entries.
///
/// # Errors
/// Of the log or the system.
pub fn replay(kind: Kind, setup: &Setup, meter: &Meter) -> Result<Counted> {
    empty_page_cache(&setup.directory)?;
    let (begun, before) = (Instant::now(), meter.read()?);
    let store = kind.open(setup)?;
    let (seconds, used) = (begun.elapsed().as_secs_f64(), meter.read()?.since(&before));
    let entries = (1..=GROUPS).filter_map(|group| store.bounds(group)).map(|(first, last)| last + 1 - first).sum();
    store.close()?;
    Ok(Counted { seconds, entries, latency_us: None, used })
}

/// Reads random ranges with so many threads.
///
/// # Errors
/// Of the log or the system, or that an entry is not the one that was appended.
pub fn read(kind: Kind, setup: &Setup, threads: u64, seconds: f64, meter: &Meter) -> Result<Counted> {
    let store = kind.open(setup)?;
    let (first, last) = store.bounds(GROUPS).unwrap_or((1, 0));
    if last < first + RANGE_ENTRIES {
        return Err(Error::Other(format!("{} has {last} entries of a group, which are too few to read", kind.name())));
    }
    empty_page_cache(&setup.directory)?;
    let work = |seed| {
        move |session: &mut dyn Session, tally: &mut Tally| {
            let mut random = fastrand::Rng::with_seed(seed);
            loop {
                let (group, at) = (random.u64(1..=GROUPS), random.u64(first..last - RANGE_ENTRIES));
                let begun = Instant::now();
                session.read(group, at, RANGE_ENTRIES)?;
                let ended = Instant::now();
                tally.add(begun, ended, RANGE_ENTRIES, 1);
                if tally.is_over(ended) {
                    return Ok(());
                }
            }
        }
    };
    let counted = run_workers(&*store, Window::of(seconds), meter, (0..threads).map(work).collect())?;
    store.close()?;
    Ok(counted)
}

/// Has the operating system forget what it has of the files, as far as it is written.
fn empty_page_cache(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(Error::file("list", directory))? {
        let path = entry.map_err(Error::file("list", directory))?.path();
        if path.is_file() {
            let file = File::open(&path).and_then(|file| file.sync_all().map(|()| file));
            let file = file.map_err(Error::file("sync", &path))?;
            let advised = fadvise(&file, 0, None, Advice::DontNeed);
            advised.map_err(|error| Error::file("advise", &path)(error.into()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_opened_and_read_by_both() {
        for kind in [Kind::TantalumRaft, Kind::RaftEngine] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().to_owned();
            let setup = Setup { directory: path, log_bytes: 64 << 20, partitions: 1, entry_bytes: 64 };
            fill(&*kind.open(&setup).expect("open"), 5000).expect("fill");
            let meter = Meter::of(directory.path()).expect("a meter");
            let replayed = replay(kind, &setup, &meter).expect("replay");
            assert!((5000..5000 + GROUPS * READY_ENTRIES).contains(&replayed.entries), "{}", kind.name());
            let counted = read(kind, &setup, 2, 0.1, &meter).expect("read");
            assert!(counted.entries > 0 && counted.latency_us.is_some(), "{}", kind.name());
        }
    }
}
