//! Databases with large values in chains of overflow pages are compacted: the values are written anew, as this version does.

use std::{fs, path::Path, time::Duration};

use tantalum::{CompactReport, Db, StoreKind};
use tantalum_device::{
    Durability, MemoryProfile,
    files::{self as simulated, SimulatedFiles},
};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use super::{FIXTURES, Fixture, read_fixture_files, rows_in_chains, unpack};

fn open(path: &Path) -> Db {
    Db::builder().create_if_missing(false).open(path).unwrap()
}

/// The rows of the database, of which one is to be deleted, so that there is space in front of others.
fn expected(fixture: &Fixture) -> Vec<(String, Vec<u8>)> {
    let mut rows = rows_in_chains(fixture.store);
    rows.pop();
    rows
}

fn delete_last(db: &Db, fixture: &Fixture) {
    let (last, _) = rows_in_chains(fixture.store).pop().unwrap();
    let mut tx = db.begin().unwrap();
    tx.delete(&db.table("rows").unwrap(), last).unwrap();
    tx.commit().unwrap();
}

fn check(db: &Db, expected: &[(String, Vec<u8>)]) {
    let table = db.table("rows").unwrap();
    let snapshot = db.snapshot().unwrap();
    let rows: Vec<_> = snapshot.range(&table, ..).unwrap().map(Result::unwrap).collect();
    let expected = expected.iter().map(|(key, value)| (key.as_bytes(), &value[..]));
    assert!(rows.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected));
    assert_eq!(db.check().unwrap().problems(), [] as [&str; 0]);
}

fn compact(db: &Db) -> CompactReport {
    db.compact(&mut |progress| assert!(progress.done <= progress.total)).unwrap()
}

#[test]
fn chains_at_the_end_are_written_anew_and_the_file_is_smaller() {
    // As a whole in memory, and staged.
    for (fixture, memory_bytes) in FIXTURES.iter().flat_map(|fixture| [(fixture, 64 << 20), (fixture, 8 << 10)]) {
        let dir = tempfile::tempdir().unwrap();
        unpack(&fs::read(fixture.path("chains")).unwrap(), dir.path());
        let rows = expected(fixture);
        let builder = Db::builder().create_if_missing(false).transaction_memory_bytes(memory_bytes);
        let db = builder.open(dir.path()).unwrap();
        let table = db.table("rows").unwrap();
        let before = db.snapshot().unwrap();
        delete_last(&db, fixture);
        let whole = before.range(&table, ..).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        let report = compact(&db);
        assert!(report.values_converted > 0, "{}: {report:?}", fixture.name);
        // What the snapshot keeps may lie at the end now.
        assert!(report.end_kept.iter().all(|kept| kept.by.contains("snapshots see")), "{}: {report:?}", fixture.name);
        assert!(before.range(&table, ..).unwrap().map(Result::unwrap).eq(whole.into_iter()));
        drop(before);
        while db.stats().unwrap().transactions.scratch_pages > 0 {
            sleep(Duration::from_millis(1));
        }
        let then = compact(&db);
        assert!(then.end_kept.is_empty(), "{}: {then:?}", fixture.name);
        assert!(
            then.data_bytes_after + (800 << 10) < report.data_bytes_before,
            "{}: {report:?}, {then:?}",
            fixture.name
        );
        check(&db, &rows);
        let again = compact(&db);
        assert_eq!((again.values_converted, again.end_kept), (0, Vec::new()), "{}", fixture.name);
        db.close().unwrap();
        let db = open(dir.path());
        check(&db, &rows);
        drop(table);
        db.drop_table("rows").unwrap();
        assert_eq!(db.check().unwrap().problems(), [] as [&str; 0]);
        db.close().unwrap();
    }
}

/// The change feed has nothing of what is written anew, and a row that a transaction has locked keeps its chain.
#[test]
fn readers_of_the_feed_see_nothing_and_locked_rows_are_named() {
    let fixture = &FIXTURES[0];
    let dir = tempfile::tempdir().unwrap();
    unpack(&fs::read(fixture.path("chains")).unwrap(), dir.path());
    let db = open(dir.path());
    let table = db.table("rows").unwrap();
    delete_last(&db, fixture);
    let start = db.start_change_feed(&table).unwrap();
    let rows = expected(fixture);
    let tx = db.begin().unwrap();
    let locked: Vec<_> = tx.range(&table, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(locked.len(), rows.len());
    let report = compact(&db);
    assert_eq!(report.values_converted, 0, "{report:?}");
    let kept: Vec<_> = report.end_kept.iter().map(|kept| kept.by.as_str()).collect();
    assert!(
        matches!(&kept[..], [by] if by.contains("\"rows\"") && by.contains("locked") && by.contains("compact again")),
        "{kept:?}"
    );
    tx.commit().unwrap();
    let report = compact(&db);
    assert!(report.values_converted > 0 && report.end_kept.is_empty(), "{report:?}");
    check(&db, &rows);
    assert!(db.changes(&start).unwrap().try_next().unwrap().is_none());
    let mut tx = db.begin().unwrap();
    tx.put(&table, "key", "value").unwrap();
    tx.commit().unwrap();
    assert!(db.changes(&start).unwrap().try_next().unwrap().is_some());
    db.close().unwrap();
}

/// A client replaces rows and a reader reads all of them beside the compaction; the power fails at any moment.
#[test]
fn power_cuts_while_chains_are_written_anew_lose_nothing() {
    let fixture = FIXTURES.iter().find(|fixture| fixture.store == StoreKind::InPlace && !fixture.is_closed).unwrap();
    let packed = fs::read(fixture.path("chains")).unwrap();
    let us = Duration::from_micros;
    let mut converted_in = 0;
    let whole = SimulatedFiles::new(MemoryProfile { write_latency: us(20)..us(200), ..MemoryProfile::default() });
    let attached = whole.attach();
    Simulation::new(0)
        .run(move || {
            simulated::create_directory(Path::new("/db")).unwrap();
            for (name, bytes) in read_fixture_files(&packed) {
                let path = Path::new("/db").join(name);
                if !simulated::exists(simulated::parent(&path)) {
                    simulated::create_directory(simulated::parent(&path)).unwrap();
                }
                if path.extension().is_some_and(|extension| extension == "toml") {
                    simulated::replace(&path, &bytes).unwrap();
                } else {
                    let device = simulated::create(&path, bytes.len() as u64, None).unwrap();
                    device.write(0, &[&bytes], Durability::Durable).unwrap();
                    simulated::sync_directory(simulated::parent(&path)).unwrap();
                }
            }
        })
        .expect_finished();
    drop(attached);
    for seed in 0..25u64 {
        let system = whole.fork();
        let attached = system.attach();
        let mut random = Random::with_seed(seed);
        for life in 0..3u64 {
            let cut_at = (life < 2).then(|| us(random.u64(1..150_000)));
            let run = move || {
                if let Some(pause) = cut_at {
                    spawn("power", move || {
                        sleep(pause);
                        tantalum_rt::power_cut();
                    });
                }
                let db = open(Path::new("/db"));
                let mut rows = rows_in_chains(StoreKind::InPlace);
                let last = rows.pop().unwrap().0;
                let table = db.table("rows").unwrap();
                if db.get(&table, &last).unwrap().is_some() {
                    delete_last(&db, fixture);
                }
                check(&db, &rows);
                let reader = spawn("reader", {
                    let (db, rows) = (db.clone(), rows.clone());
                    move || {
                        for _ in 0..3 {
                            let table = db.table("rows").unwrap();
                            let tx = db.begin().unwrap();
                            let found: Vec<_> = tx.range(&table, ..).unwrap().map(Result::unwrap).collect();
                            assert!(
                                found.iter().map(|(_, value)| &value[..]).eq(rows.iter().map(|(_, value)| &value[..]))
                            );
                            drop(tx);
                            sleep(Duration::from_millis(1));
                        }
                    }
                });
                let mut converted = compact(&db).values_converted;
                reader.join().unwrap();
                let report = compact(&db);
                converted += report.values_converted;
                assert!(report.end_kept.is_empty(), "{report:?}");
                check(&db, &rows);
                db.close().unwrap();
                converted
            };
            match Simulation::new(seed * 4 + life).cores(2).time_limit(Duration::from_secs(600)).run(run) {
                Outcome::Finished(converted) => converted_in += u64::from(converted > 0),
                Outcome::PowerCut { .. } => {}
            }
            system.power_cut(&mut random);
        }
        drop(attached);
    }
    assert!(converted_in > 3, "it was cut before in nearly all lives");
}
