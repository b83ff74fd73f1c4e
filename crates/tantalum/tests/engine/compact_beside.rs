//! Space is given back beside what keeps it: large transactions, snapshots, base backups.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tantalum::{Builder, CompactReport, CompactStep, Db, Devices, ErrorKind, Restore, Table};
use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{check, committed, contents, cut_power_after, rows, simulate, small, wait_until_applied};

/// In which transactions are staged soon.
fn little_memory() -> Builder {
    small().transaction_memory_bytes(8 << 10)
}

fn compact(db: &Db) -> CompactReport {
    db.compact(&mut |progress| assert!(progress.done <= progress.total)).unwrap()
}

fn fill(db: &Db, table: &Table, rows: std::ops::Range<u32>) {
    for first in rows.step_by(20) {
        let mut tx = db.begin().unwrap();
        (first..first + 20).for_each(|n| tx.put(table, n.to_be_bytes(), [n as u8; 1000]).unwrap());
        tx.commit().unwrap();
    }
}

/// Makes free pages in front of those that are taken meanwhile.
fn with_pages_in_front<T>(db: &Db, run: impl FnOnce() -> T) -> T {
    let dropped = db.table("dropped").unwrap();
    fill(db, &dropped, 0..600);
    let result = run();
    drop(dropped);
    db.drop_table("dropped").unwrap();
    result
}

#[test]
fn staging_tables_of_open_transactions_move() {
    simulate(0..10, |_, devices| {
        let db = little_memory().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        fill(&db, &table, 0..40);
        let mut tx = db.begin().unwrap();
        with_pages_in_front(&db, || {
            (0..200u32).for_each(|n| tx.put(&table, n.to_be_bytes(), [7; 600]).unwrap());
        });
        let report = compact(&db);
        assert!(report.pages_moved > 20 && report.end_kept.is_empty(), "{report:?}");
        assert!(report.data_bytes_after < 500_000 && report.data_bytes_before > 700_000, "{report:?}");
        (200..220u32).for_each(|n| tx.put(&table, n.to_be_bytes(), [7; 600]).unwrap());
        assert_eq!(tx.get(&table, 150u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 600][..]));
        tx.commit().unwrap();
        let mut steps = Vec::new();
        let report = db.compact(&mut |progress| steps.push(progress.step)).unwrap();
        assert!(steps.starts_with(&[CompactStep::FinishTransactions]), "{steps:?}");
        assert!(report.data_bytes_after < 600_000 && report.end_kept.is_empty(), "{report:?}");
        wait_until_applied(&db);
        check(&db);
        let found = committed(&db, &table);
        assert!(found.len() == 220 && found.values().all(|value| value[..] == [7; 600]));
    });
}

/// The commit of a transaction writes the rows of its staging tables, which name their roots.
#[test]
fn roots_of_staging_tables_move_beside_their_commits() {
    let moved = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&moved);
    simulate(0..100, move |seed, devices| {
        let db = little_memory().open_on(devices).unwrap();
        let tables: Vec<_> = (0..12).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
        let mut random = Random::with_seed(seed);
        let dropped = db.table("dropped").unwrap();
        fill(&db, &dropped, 0..100);
        let mut tx = db.begin().unwrap();
        for n in 0..30u32 {
            tables.iter().for_each(|table| tx.put(table, n.to_be_bytes(), [7; 300]).unwrap());
        }
        drop(dropped);
        db.drop_table("dropped").unwrap();
        let compactor = spawn("compactor", {
            let db = db.clone();
            move || compact(&db).pages_moved
        });
        sleep(Duration::from_micros(random.u64(0..12_000)));
        tx.commit().unwrap();
        counted.fetch_add(compactor.join().unwrap(), SeqCst);
        wait_until_applied(&db);
        check(&db);
        tables.iter().for_each(|table| assert_eq!(committed(&db, table).len(), 30));
    });
    assert!(moved.load(SeqCst) > 100, "{moved:?} pages moved");
}

#[test]
fn what_keeps_the_end_is_named() {
    simulate(0..6, |_, devices| {
        let db = little_memory().expert(|expert| expert.version_bytes(16 << 10)).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        fill(&db, &table, 0..40);
        let mut tx = db.begin().unwrap();
        with_pages_in_front(&db, || {
            let _savepoint = tx.savepoint();
            (0..200u32).for_each(|n| tx.put(&table, n.to_be_bytes(), [7; 600]).unwrap());
        });
        let named = |report: &CompactReport, what: &str| {
            report
                .end_kept
                .iter()
                .any(|kept| kept.pages > 0 && kept.by.contains(what) && kept.by.contains("compact again"))
        };
        let report = compact(&db);
        assert!(named(&report, "savepoints of a large transaction"), "{report:?}");
        tx.rollback();
        let report = compact(&db);
        assert!(report.end_kept.is_empty() && report.data_bytes_after < 400_000, "{report:?}");
        let snapshot = with_pages_in_front(&db, || {
            let snapshot = db.snapshot().unwrap();
            (0..20).for_each(|_| fill(&db, &table, 0..40));
            assert!(db.stats().unwrap().transactions.scratch_pages > 0);
            snapshot
        });
        let report = compact(&db);
        assert!(named(&report, "row versions that snapshots see"), "{report:?}");
        assert_eq!(rows(&snapshot, &table).len(), 40);
        drop(snapshot);
        let report = compact(&db);
        assert!(report.end_kept.is_empty() && report.data_bytes_after < 400_000, "{report:?}");
        check(&db);
    });
}

/// Rows that one transaction after the other replaces, all of them.
struct Generations {
    acknowledged: AtomicU64,
    begun: AtomicU64,
}

impl Generations {
    const KEYS: u32 = 60;

    fn write(&self, db: &Db, table: &Table, random: &mut Random) {
        let generation = self.acknowledged.load(SeqCst) + 1;
        self.begun.store(generation, SeqCst);
        let mut tx = db.begin().unwrap();
        let put = |tx: &mut tantalum::Transaction, generation: u64| {
            let mut value = generation.to_be_bytes().to_vec();
            value.resize(500, 1);
            (0..Self::KEYS).for_each(|key| tx.put(table, key.to_be_bytes(), &value).unwrap());
        };
        if random.u64(0..10) < 3 {
            let savepoint = tx.savepoint();
            put(&mut tx, u64::MAX);
            tx.rollback_to(&savepoint).unwrap();
        }
        put(&mut tx, generation);
        sleep(Duration::from_micros(random.u64(0..3000)));
        tx.commit().unwrap();
        self.acknowledged.store(generation, SeqCst);
    }

    /// All rows are of one transaction, which may be the last that was begun.
    fn check(&self, db: &Db, table: &Table) {
        let rows = committed(db, table);
        let found: Vec<_> = rows.values().map(|value| u64::from_be_bytes(value[..8].try_into().unwrap())).collect();
        let allowed = self.acknowledged.load(SeqCst)..=self.begun.load(SeqCst);
        let first = found.first().copied().unwrap_or(0);
        assert!(allowed.contains(&first) && found.iter().all(|found| *found == first), "{found:?} of {allowed:?}");
        assert!(found.len() == if first == 0 { 0 } else { Self::KEYS as usize });
    }
}

/// Their staging tables move with their roots, also while they commit; the power fails at any moment, and each is there whole or not at
/// all.
#[test]
fn large_transactions_are_whole_beside_compactions() {
    let moved = Arc::new(AtomicU64::new(0));
    for seed in 0..40u64 {
        let mut random = Random::with_seed(seed);
        let device = |name: &str, bytes, salt| {
            let us = Duration::from_micros;
            let profile =
                MemoryProfile { write_latency: us(20)..us(200), seed: seed * 16 + salt, ..MemoryProfile::default() };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        let (data, area, log) = (device("data", 256 << 10, 0), device("area", 300 << 10, 1), device("log", 4 << 20, 2));
        let generations = Arc::new(Generations { acknowledged: AtomicU64::new(0), begun: AtomicU64::new(0) });
        for life in 0..4u64 {
            let cut_at = (life < 3).then(|| Duration::from_micros(random.u64(1..200_000)));
            let devices = Devices {
                data: data.clone(),
                double_write: Some(area.clone() as Arc<dyn Device>),
                log: vec![log.clone()],
            };
            let (generations, moved) = (Arc::clone(&generations), Arc::clone(&moved));
            let mut of_writer = Random::with_seed(seed * 8 + life);
            let run = move || {
                cut_at.into_iter().for_each(cut_power_after);
                let builder = Db::builder().buffer_pool_bytes(64 * 4096).transaction_memory_bytes(8 << 10);
                let db = builder.open_on(devices).unwrap();
                check(&db);
                let table = db.table("large").unwrap();
                generations.check(&db, &table);
                let stop = Arc::new(AtomicBool::new(false));
                let compactor = spawn("compactor", {
                    let (db, stop) = (db.clone(), Arc::clone(&stop));
                    move || {
                        while !stop.load(SeqCst) {
                            moved.fetch_add(compact(&db).pages_moved, SeqCst);
                            sleep(Duration::from_millis(1));
                        }
                    }
                });
                for turn in 0..5u32 {
                    let name = format!("dropped {life} {turn}");
                    let dropped = db.table(&name).unwrap();
                    fill(&db, &dropped, 0..100);
                    let dropper = spawn("dropper", {
                        let db = db.clone();
                        move || {
                            sleep(Duration::from_millis(3));
                            drop(dropped);
                            db.drop_table(&name).unwrap();
                        }
                    });
                    generations.write(&db, &table, &mut of_writer);
                    dropper.join().unwrap();
                }
                stop.store(true, SeqCst);
                compactor.join().unwrap();
                check(&db);
                generations.check(&db, &table);
                db.close().unwrap();
            };
            let simulation = Simulation::new(seed * 8 + life).cores(2).time_limit(Duration::from_secs(600));
            let (Outcome::PowerCut { .. } | Outcome::Finished(())) = simulation.run(run);
            [&data, &area, &log].into_iter().for_each(|device| device.power_cut(&mut random));
        }
    }
    assert!(moved.load(SeqCst) > 1000, "{moved:?} pages moved");
}

/// While a base backup is copied, compaction is refused, and one that is under way gives back no page that the copy reads. The log keeps
/// its size until then. What was copied is restored with all that came later.
#[test]
fn base_backups_and_compactions_leave_each_other_whole() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let builder = Db::builder()
        .buffer_pool_bytes(4 << 20)
        .log_bytes(8 << 20)
        .expert(|expert| expert.log_initial_bytes(512 << 10))
        .log_archive(at("archive"));
    let db = builder.open(at("db")).unwrap();
    let log_bytes = || db.stats().unwrap().log.capacity_bytes;
    let table = db.table("t").unwrap();
    let initial_bytes = log_bytes();
    while log_bytes() == initial_bytes {
        fill(&db, &table, 0..100);
    }
    let is_in_use = |result: &tantalum::Result<CompactReport>| {
        let error = result.as_ref().err();
        error.is_some_and(|error| error.kind() == ErrorKind::InUse && error.to_string().contains("base backup"))
    };

    // A compaction inside of the copy.
    with_pages_in_front(&db, || fill(&db, &table, 100..200));
    let mut inside = None;
    db.base_backup(at("first"), &mut |_| {
        inside.get_or_insert_with(|| db.compact(&mut |_| {}));
    })
    .unwrap();
    assert!(is_in_use(&inside.unwrap()) && log_bytes() > initial_bytes);

    // A copy that begins and ends while pages move.
    let mut second = None;
    let report = db.compact(&mut |progress| {
        if progress.step == CompactStep::MovePages && progress.done == 10 {
            second.get_or_insert_with(|| db.base_backup(at("second"), &mut |_| {}).unwrap());
        }
    });
    let report = report.unwrap();
    assert!(second.is_some() && report.pages_moved > 20 && report.end_kept.is_empty(), "{report:?}");
    assert!(report.data_bytes_after < report.data_bytes_before && report.log_bytes_given_back > 0, "{report:?}");
    assert_eq!(log_bytes(), initial_bytes);

    // One that begins while pages move, and ends after the compaction.
    with_pages_in_front(&db, || fill(&db, &table, 200..300));
    let [has_begun, may_end] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(SeqCst) {
            sleep(Duration::from_millis(1));
        }
    };
    let mut copy = None;
    let refused = db.compact(&mut |progress| {
        if progress.step == CompactStep::MovePages && progress.done == 10 && copy.is_none() {
            let (db, to, begun, may_end) = (db.clone(), at("third"), Arc::clone(&has_begun), Arc::clone(&may_end));
            copy = Some(spawn("copy", move || {
                db.base_backup(to, &mut |_| {
                    begun.store(true, SeqCst);
                    while !may_end.load(SeqCst) {
                        sleep(Duration::from_millis(1));
                    }
                })
            }));
            wait_for(&has_begun);
        }
    });
    assert!(is_in_use(&refused), "{refused:?}");
    fill(&db, &table, 300..320);
    may_end.store(true, SeqCst);
    copy.unwrap().join().unwrap().unwrap();
    let report = compact(&db);
    assert!(report.data_bytes_after < report.data_bytes_before && report.end_kept.is_empty(), "{report:?}");
    check(&db);

    let expected = contents(&db).unwrap();
    db.close().unwrap();
    for name in ["first", "second", "third"] {
        let to = at(&format!("{name}-restored"));
        Restore::new(at(name), at("archive")).run(&to).unwrap();
        let restored = Db::open(&to).unwrap();
        check(&restored);
        assert_eq!(contents(&restored).unwrap(), expected, "{name}");
        restored.close().unwrap();
    }
}

/// They take pages during the checkpoint that comes before the end is cut off, and some make the file grow ahead of need.
#[test]
fn writers_that_take_pages_do_not_keep_the_end() {
    const SEEDS: u64 = 8;
    let cut_off = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&cut_off);
    simulate(0..SEEDS, move |seed, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        with_pages_in_front(&db, || fill(&db, &table, 0..400));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (1..4u32)
            .map(|writer| {
                let (db, table, stop) = (db.clone(), table.clone(), Arc::clone(&stop));
                let mut random = Random::with_seed(seed * 10 + u64::from(writer));
                spawn(format!("writer-{writer}"), move || {
                    let mut written = 0;
                    while !stop.load(SeqCst) {
                        let first = writer * 100_000 + written;
                        fill(&db, &table, first..first + 20);
                        written += 20;
                        sleep(Duration::from_micros(random.u64(0..20)));
                    }
                    written
                })
            })
            .collect();
        let report = compact(&db);
        stop.store(true, SeqCst);
        let written: u32 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        // What was written meanwhile needs its room.
        let needed = (u64::from(written) + 400) * 1100 + (2 << 20);
        assert!(report.data_bytes_after <= report.data_bytes_before.max(needed), "{needed} would do: {report:?}");
        counted.fetch_add(u64::from(report.end_kept.is_empty()), SeqCst);
        check(&db);
        assert_eq!(committed(&db, &table).len(), written as usize + 400);
    });
    assert!(cut_off.load(SeqCst) > SEEDS / 2, "the end was cut off {cut_off:?} times");
}
