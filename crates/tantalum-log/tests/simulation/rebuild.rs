//! Recovery from the archive alone: a log is made anew, from a whole, a short, a damaged archive, and whenever it is interrupted.

use tantalum_device::Fault;
use tantalum_log::{ErrorKind, Log, Lsn, Standing, standings};

use crate::archive::{Bed, append, device, numbers};
use crate::plan::{LOG_ID, as_devices};
use crate::steps::{read, simulate};

#[test]
fn what_is_archived_survives_the_loss_of_all_log_devices() {
    simulate(40, |seed| {
        let mut bed = Bed::new(2, 300);
        let (mut log, _) = bed.open().expect("open");
        let mut expected = Vec::new();
        for round in 0..5 {
            let first = expected.len() as u64;
            let ends: Vec<_> = (first..first + 20).map(|n| append(&log, n, 700)).collect();
            if round == 2 {
                log.set_checkpoint(ends[3].min(log.durable_lsn())).expect("checkpoint");
            }
            log.flush_archived(ends[seed as usize % 20]).expect("flush");
            let archived = log.archived_lsn().expect("an archive");
            drop(log);
            bed = bed.cut(seed);
            let records;
            (log, records) = bed.rebuild().expect("rebuild");
            assert!(log.durable_lsn() >= archived, "everything archived is there");
            assert!(log.checkpoint_lsn() <= archived);
            let numbers = numbers(&records);
            expected = (0..numbers.last().map_or(0, |last| last + 1)).collect();
            assert!(numbers.len() <= expected.len() && numbers == expected[expected.len() - numbers.len()..]);
            assert!(log.durable_lsn() < ends[19] || expected.len() as u64 == first + 20);
        }
    });
}

/// The archive of two copies is not needed, so nothing but its slots tells where a run of it starts.
#[test]
fn a_mirrored_log_is_made_anew_from_an_archive_that_has_only_begun() {
    simulate(10, |seed| {
        let mut bed = Bed::mirrored();
        let (log, _) = bed.open().expect("open");
        for n in 0..20 {
            append(&log, n, 10);
        }
        drop(log);
        bed = bed.cut(seed);
        let (log, records) = bed.rebuild().expect("nothing was written to the archive");
        assert!(records.is_empty() && log.archived_lsn() == Some(Lsn::ZERO));
        (0..20).for_each(|n| log.flush(append(&log, n, 700)).expect("flush"));
        drop(log);

        // The archive is lost, and a new one begins where the log ends.
        bed = bed.cut(seed);
        bed.archive = device("archive", 2 << 20, 100);
        let (log, records) = bed.open().expect("open");
        assert_eq!(records.len(), 20);
        let run_start = log.end_lsn();
        let early = bed.cut(seed).rebuild().map(drop);
        let lacks = format!("lacks the records from LSN 0 up to LSN {run_start};");
        assert!(matches!(&early, Err(error) if error.to_string().contains(&lacks)), "{early:?}");
        log.set_checkpoint(run_start).expect("checkpoint");
        drop(log);
        bed = bed.cut(seed);
        let (log, records) = bed.rebuild().expect("rebuild");
        assert_eq!((records.len(), log.end_lsn()), (0, run_start));
    });
}

#[test]
fn a_damaged_archive_is_not_taken_for_one_that_has_only_begun() {
    let mut bed = Bed::mirrored();
    let (log, _) = bed.open().expect("open");
    for n in 0..3 {
        log.flush_archived(append(&log, n, 5000)).expect("flush");
    }
    log.close().expect("close");
    // The first of three writes, behind four fixed blocks and the segment's header.
    bed.archive.corrupt(5 * 4096 + 2000, 1, |bytes| bytes[0] ^= 1);
    let error = bed.rebuild().map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().starts_with("archive: "), "{error}");
}

#[test]
fn making_a_log_anew_can_be_interrupted_anywhere() {
    let mut bed = Bed::new(2, 10);
    let (log, _) = bed.open().expect("open");
    (0..30).for_each(|n| {
        append(&log, n, 500);
    });
    log.close().expect("close");
    let (mut again, mut opened) = (0, 0);
    for at in 0..2 {
        for after in 0.. {
            bed.lose_log();
            let bed = Bed { archive: bed.archive.fork(), ..bed.clone() };
            bed.log[at].inject(Fault::FailWrites { after });
            let rebuild =
                || Log::rebuild(bed.options(), &mut |_| {}).and_then(|log| log.onto(as_devices(&bed.log), &mut |_| {}));
            if rebuild().is_ok() {
                break;
            }
            bed.log[at].clear_faults();
            let is_one = |standing: &Standing| matches!(standing, Standing::Member { .. });
            let (_, records) = match standings(LOG_ID, &as_devices(&bed.log)).iter().filter(|at| is_one(at)).count() {
                0 => {
                    again += 1;
                    read(rebuild().expect("it can be done again")).expect("read")
                }
                members => {
                    assert_eq!(members, 2, "a log on some of its devices only");
                    opened += 1;
                    bed.open().expect("it can be opened")
                }
            };
            assert_eq!(numbers(&records), (0..30).collect::<Vec<_>>(), "write {after} to device {at} failed");
        }
    }
    assert!(again > 20 && opened > 2, "done again {again} times, opened {opened} times");
}

#[test]
fn a_closed_log_lies_in_its_archive_as_a_whole() {
    simulate(10, |_| {
        let mut bed = Bed::new(2, 3000);
        let (log, _) = bed.open().expect("open");
        (0..50).for_each(|n| {
            append(&log, n, 3000);
        });
        log.close().expect("close");
        assert!(bed.open().expect("open").0.stats().archive.is_some());
        let (_, records) = bed.rebuild().expect("rebuild");
        assert_eq!(numbers(&records), (0..50).collect::<Vec<_>>());
    });
}
