//! Space is given back while the database is in use.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tantalum::{CompactProgress, CompactStep, Db, Devices, ErrorKind, StoreKind, Table};
use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{self, check, cut_power_after, rows, simulate, small};

/// What the files of rows take on disk.
fn data_bytes(path: &Path) -> u64 {
    let files = ["data", "doublewrite"].iter().filter_map(|name| fs::metadata(path.join(name)).ok());
    files.map(|file| file.blocks() * 512).sum()
}

/// What all files take on disk.
fn all_bytes(path: &Path) -> u64 {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// A log-structured store in small segments.
fn in_segments() -> tantalum::Builder {
    small().page_store(StoreKind::LogStructured).expert(|expert| expert.segment_bytes(17 * 4096))
}

/// A data device on which such a store can begin.
const FIRST_SEGMENTS_BYTES: u64 = (128 << 10) + 34 * 17 * 4096;

fn fill(db: &Db, table: &Table, numbers: impl IntoIterator<Item = u32>, bytes: usize) {
    let numbers: Vec<_> = numbers.into_iter().collect();
    for numbers in numbers.chunks(50) {
        let mut tx = db.begin().unwrap();
        numbers.iter().for_each(|number| tx.put(table, number.to_be_bytes(), vec![*number as u8; bytes]).unwrap());
        tx.commit().unwrap();
    }
}

fn compact(db: &Db) -> tantalum::CompactReport {
    let mut last = None;
    let report = db
        .compact(&mut |progress| {
            assert!(progress.done <= progress.total);
            last = Some(progress);
        })
        .unwrap();
    assert!(report.data_kept.is_none() && last.is_some_and(|last| last.done == last.total));
    report
}

#[test]
fn a_dropped_table_leaves_nothing_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(16 << 20).open(dir.path()).unwrap();
    let large = db.table("large").unwrap();
    fill(&db, &large, 0..60_000, 1000);
    // Its root lies behind those pages.
    let last = db.table("last").unwrap();
    fill(&db, &last, 0..100, 100);
    let mut tx = db.begin().unwrap();
    tx.put(&last, "value", vec![5; 300_000]).unwrap();
    tx.commit().unwrap();
    assert!(data_bytes(dir.path()) > 60 << 20);
    drop(large);
    db.drop_table("large").unwrap();
    let report = compact(&db);
    assert!(
        report.pages_moved > 70 && report.data_bytes_before > 60 << 20 && report.data_bytes_after < 2 << 20,
        "{report:?}"
    );
    assert!(data_bytes(dir.path()) < 4 << 20, "{} bytes remain", data_bytes(dir.path()));
    check(&db);
    assert_eq!(rows(&db.snapshot().unwrap(), &last).len(), 101);
    assert_eq!(compact(&db).pages_moved, 0, "there is nothing left to do");
    // It grows again, and is found again.
    fill(&db, &last, 0..5000, 1000);
    check(&db);
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    let last = db.table("last").unwrap();
    assert_eq!(rows(&db.snapshot().unwrap(), &last).len(), 5001);
    assert_eq!(db.get(&last, "value").unwrap().as_deref(), Some(&[5; 300_000][..]));
    check(&db);
}

#[test]
fn a_dropped_table_leaves_nothing_on_disk_in_segments() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().page_store(StoreKind::LogStructured).log_bytes(16 << 20).open(dir.path()).unwrap();
    let large = db.table("large").unwrap();
    fill(&db, &large, 0..60_000, 1000);
    let last = db.table("last").unwrap();
    fill(&db, &last, 0..100, 100);
    db.checkpoint().unwrap();
    let before = data_bytes(dir.path());
    assert!(before > 60 << 20, "{before} bytes");
    drop(large);
    db.drop_table("large").unwrap();
    let mut packing = Vec::new();
    let mut note = |progress: CompactProgress| {
        if progress.step == CompactStep::EmptySegments {
            packing.push(progress);
        }
    };
    let report = db.compact(&mut note).unwrap();
    assert!(report.pages_moved > 0 && report.data_bytes_after < report.data_bytes_before, "{report:?}");
    assert!(packing.is_sorted_by_key(|progress| progress.done), "{packing:?}");
    let at_the_end = *packing.last().unwrap();
    assert!(at_the_end.done > 0 && at_the_end.done == at_the_end.total, "{packing:?}");
    let (data, all) = (data_bytes(dir.path()), all_bytes(dir.path()));
    assert!(all < 4 << 20, "{data} bytes of {all} remain: {report:?}, {:?}", db.stats().unwrap().store);
    assert!(data + report.data_bytes_unallocated <= report.data_bytes_after, "{data} bytes: {report:?}");
    check(&db);
    assert_eq!(rows(&db.snapshot().unwrap(), &last).len(), 100);
    assert_eq!(compact(&db).pages_moved, 0, "there is nothing left to do");
    assert!(all_bytes(dir.path()) < 4 << 20, "{} bytes remain", all_bytes(dir.path()));
    fill(&db, &last, 0..30_000, 1000);
    check(&db);
    drop(db);
    for _ in 0..2 {
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("last").unwrap()).len(), 30_000);
        check(&db);
        db.close().unwrap();
    }
}

/// Rows that a writer replaces one after the other: it is known what each must be.
struct Rounds {
    acknowledged: AtomicU64,
    begun: AtomicU64,
}

impl Rounds {
    const KEYS: u64 = 400;

    fn new() -> Arc<Self> {
        Arc::new(Self { acknowledged: AtomicU64::new(0), begun: AtomicU64::new(0) })
    }

    fn write(&self, db: &Db, table: &Table) -> tantalum::Result<()> {
        // One whose outcome a crash has left open is written once more.
        let number = self.acknowledged.load(SeqCst) + 1;
        self.begun.store(number, SeqCst);
        let mut tx = db.begin()?;
        let mut value = number.to_be_bytes().to_vec();
        value.resize(100 + number as usize % 400, 7);
        tx.put(table, (number % Self::KEYS).to_be_bytes(), value)?;
        tx.commit()?;
        self.acknowledged.store(number, SeqCst);
        Ok(())
    }

    /// What was acknowledged is there, and nothing but what was begun.
    fn check(&self, rows: &support::Rows, acknowledged: u64) {
        let begun = self.begun.load(SeqCst);
        let found: BTreeMap<u64, u64> = rows.iter().map(|(key, value)| (number_in(key), number_in(value))).collect();
        for key in 0..Self::KEYS {
            let last = |up_to: u64| {
                (0..Self::KEYS)
                    .find_map(|back| Some(up_to.checked_sub(back)?).filter(|number| number % Self::KEYS == key))
                    .unwrap_or(0)
            };
            let found = found.get(&key).copied().unwrap_or(0);
            let allowed = last(acknowledged)..=last(begun);
            assert!(allowed.contains(&found), "key {key}: {found} is not in {allowed:?}");
        }
    }
}

fn number_in(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Clients go on beside it, the power fails at any moment, and everything that was acknowledged is there.
#[test]
fn power_cuts_beside_clients_lose_nothing() {
    let builder = || Db::builder().buffer_pool_bytes(64 * 4096);
    assert!(power_cuts_beside_clients(builder, 0..40, 256 << 10, true) > 10 << 20);
}

#[test]
fn power_cuts_beside_clients_lose_nothing_in_segments() {
    let builder = || in_segments().log_partitions(1);
    assert!(power_cuts_beside_clients(builder, 0..30, FIRST_SEGMENTS_BYTES, false) > 1 << 20);
}

/// Returns how many bytes were given back.
fn power_cuts_beside_clients(
    builder: fn() -> tantalum::Builder,
    seeds: std::ops::Range<u64>,
    data_bytes: u64,
    has_area: bool,
) -> u64 {
    let given_back = Arc::new(AtomicU64::new(0));
    for seed in seeds {
        let mut random = Random::with_seed(seed);
        let device = |name: &str, bytes, salt| {
            let us = Duration::from_micros;
            let latency = us(20)..us(200);
            let profile = MemoryProfile { write_latency: latency, seed: seed * 16 + salt, ..MemoryProfile::default() };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        let (data, area, log) =
            (device("data", data_bytes, 0), device("area", 300 << 10, 1), device("log", 4 << 20, 2));
        let rounds = Rounds::new();
        for life in 0..4u64 {
            let is_last = life == 3;
            let cut_at = (!is_last).then(|| Duration::from_micros(random.u64(1..150_000)));
            let devices = Devices {
                data: data.clone(),
                double_write: has_area.then(|| area.clone() as Arc<dyn Device>),
                log: vec![log.clone()],
            };
            let (rounds, given_back) = (Arc::clone(&rounds), Arc::clone(&given_back));
            let run = move || {
                cut_at.into_iter().for_each(cut_power_after);
                let db = builder().open_on(devices).unwrap();
                check(&db);
                let kept = db.table("kept").unwrap();
                rounds.check(&rows(&db.snapshot().unwrap(), &kept), rounds.acknowledged.load(SeqCst));
                let stop = Arc::new(AtomicBool::new(false));
                let repeat = |name: &str, mut act: Box<dyn FnMut() + Send>| {
                    let stop = Arc::clone(&stop);
                    spawn(name, move || {
                        while !stop.load(SeqCst) {
                            act()
                        }
                    })
                };
                let (of_writer, of_reader, of_compactor) = (
                    (db.clone(), kept.clone(), Arc::clone(&rounds)),
                    (db.clone(), kept.clone(), Arc::clone(&rounds)),
                    (db.clone(), given_back),
                );
                let tasks = [
                    repeat(
                        "writer",
                        Box::new(move || {
                            let (db, table, rounds) = &of_writer;
                            rounds.write(db, table).unwrap();
                        }),
                    ),
                    repeat(
                        "reader",
                        Box::new(move || {
                            let (db, table, rounds) = &of_reader;
                            let acknowledged = rounds.acknowledged.load(SeqCst);
                            let snapshot = db.snapshot().unwrap();
                            rounds.check(&rows(&snapshot, table), acknowledged);
                            sleep(Duration::from_millis(1));
                        }),
                    ),
                    repeat(
                        "compactor",
                        Box::new(move || {
                            let (db, given_back) = &of_compactor;
                            let report = compact(db);
                            given_back
                                .fetch_add(report.data_bytes_before.saturating_sub(report.data_bytes_after), SeqCst);
                            sleep(Duration::from_millis(1));
                        }),
                    ),
                ];
                for turn in 0..6u32 {
                    let name = format!("dropped {life} {turn}");
                    let dropped = db.table(&name).unwrap();
                    fill(&db, &dropped, 0..150, 1000);
                    let mut tx = db.begin().unwrap();
                    tx.put(&dropped, "value", vec![1; 20_000]).unwrap();
                    tx.commit().unwrap();
                    drop(db.table(&format!("late {life} {turn}")).unwrap());
                    drop(dropped);
                    db.drop_table(&name).unwrap();
                }
                stop.store(true, SeqCst);
                tasks.into_iter().for_each(|task| task.join().unwrap());
                check(&db);
                db.close().unwrap();
            };
            let simulation = Simulation::new(seed * 8 + life).cores(2).time_limit(seconds(600));
            let (Outcome::PowerCut { .. } | Outcome::Finished(())) = simulation.run(run);
            [&data, &area, &log].into_iter().for_each(|device| device.power_cut(&mut random));
        }
    }
    given_back.load(SeqCst)
}

/// All trees keep their rows, whatever moves: inner pages, roots, value trees.
#[test]
fn trees_of_several_levels_move() {
    simulate(0..10, |_, devices| {
        let db = small().open_on(devices).unwrap();
        let [first, second] = ["first", "second"].map(|name| db.table(name).unwrap());
        for part in 0..20u32 {
            fill(&db, &first, 30 * part..30 * part + 30, 500);
            fill(&db, &second, 30 * part..30 * part + 30, 500);
            let mut tx = db.begin().unwrap();
            tx.put(&second, format!("value {part}"), vec![part as u8; 9000]).unwrap();
            tx.commit().unwrap();
        }
        let before = rows(&db.snapshot().unwrap(), &second);
        let held = db.snapshot().unwrap();
        let (of_held, used) = (rows(&held, &second), second.clone());
        let mut tx = db.begin().unwrap();
        for (key, _) in rows(&held, &first) {
            tx.delete(&first, &key).unwrap();
        }
        tx.commit().unwrap();
        let report = compact(&db);
        assert!(report.pages_moved > 50, "{report:?}");
        assert_eq!(rows(&held, &used), of_held);
        drop(held);
        check(&db);
        assert_eq!(rows(&db.snapshot().unwrap(), &second), before);
        fill(&db, &first, 0..300, 700);
        check(&db);
    });
}

#[test]
fn compaction_ends_with_the_database_and_is_refused_where_it_is_not_possible() {
    simulate(0..20, |seed, devices| {
        let Devices { data, double_write, log } = devices;
        let open =
            || small().open_on(Devices { data: data.clone(), double_write: double_write.clone(), log: log.clone() });
        let db = open().unwrap();
        let table = db.table("t").unwrap();
        fill(&db, &table, 0..600, 1000);
        fill(&db, &db.table("u").unwrap(), 0..300, 1000);
        drop(table);
        db.drop_table("t").unwrap();
        let compactor = spawn("compactor", {
            let db = db.clone();
            move || db.compact(&mut |_| {})
        });
        sleep(Duration::from_micros(50 * seed * seed));
        db.close().unwrap();
        let ended = compactor.join().unwrap();
        assert!(
            ended.as_ref().is_ok_and(|report| report.data_bytes_after < report.data_bytes_before)
                || matches!(&ended, Err(error) if error.kind() == ErrorKind::Closed),
            "{ended:?}"
        );
        let db = open().unwrap();
        check(&db);
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("u").unwrap()).len(), 300);
        db.close().unwrap();
        let read_only = small()
            .read_only(true)
            .open_on(Devices { data: data.clone(), double_write: double_write.clone(), log: log.clone() })
            .unwrap();
        assert_eq!(read_only.compact(&mut |_| {}).unwrap_err().kind(), ErrorKind::ReadOnly);
    });
}

/// Its erase units move to the front. What may be active becomes no less while the database is open, so some room for it stays.
#[test]
fn a_dropped_table_leaves_nothing_on_disk_in_erase_units() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::builder().page_store(StoreKind::InPageLogging).log_bytes(8 << 20).open(dir.path()).unwrap();
    let db = open();
    let large = db.table("large").unwrap();
    fill(&db, &large, 0..60_000, 1000);
    let last = db.table("last").unwrap();
    fill(&db, &last, 0..100, 100);
    let before = data_bytes(dir.path());
    assert!(before > 60 << 20, "{before} bytes");
    drop(large);
    db.drop_table("large").unwrap();
    let report = compact(&db);
    assert!(report.data_bytes_after < 8 << 20 && report.end_kept.is_empty(), "{report:?}");
    let moved = db.stats().unwrap().store.in_page.expect("it is such a store");
    assert!(moved.units_forgotten > 400, "{moved:?}");
    check(&db);
    assert_eq!(rows(&db.snapshot().unwrap(), &last).len(), 100);
    drop((last, db));
    let db = open();
    let report = compact(&db);
    assert!(report.data_bytes_after < 4 << 20 && report.end_kept.is_empty(), "{report:?}");
    assert!(data_bytes(dir.path()) < 4 << 20, "{} bytes remain", data_bytes(dir.path()));
    let last = db.table("last").unwrap();
    fill(&db, &last, 0..5000, 1000);
    check(&db);
    drop((last, db));
    let db = open();
    check(&db);
    assert_eq!(rows(&db.snapshot().unwrap(), &db.table("last").unwrap()).len(), 5000);
}

/// On a full disk a table can be dropped, rows can be deleted, and compaction gives back what they took.
#[test]
fn a_full_disk_has_space_again() {
    simulate(0..10, |seed, Devices { double_write, log, .. }| {
        let is_in_place = seed < 7;
        let data = MemoryDevice::new("data", if is_in_place { 256 << 10 } else { FIRST_SEGMENTS_BYTES });
        let double_write = double_write.filter(|_| is_in_place);
        let builder = if is_in_place { small() } else { in_segments() };
        let db = builder.open_on(Devices { data: data.clone(), double_write, log }).unwrap();
        let [dropped, kept] = ["dropped", "kept"].map(|name| db.table(name).unwrap());
        fill(&db, &dropped, 0..500, 1000);
        fill(&db, &kept, 0..500, 1000);
        data.inject(Fault::NoSpaceOnGrow);
        let full = (0..10_000u32).find_map(|number| {
            let mut tx = db.begin().unwrap();
            tx.put(&kept, (1000 + number).to_be_bytes(), [1; 1000]).and_then(|()| tx.commit().map(drop)).err()
        });
        assert_eq!(full.unwrap().kind(), ErrorKind::StoreFull);
        let before = data.capacity_bytes();
        drop(dropped);
        db.drop_table("dropped").unwrap();
        let mut tx = db.begin().unwrap();
        (0..500u32).for_each(|number| assert!(tx.delete(&kept, number.to_be_bytes()).unwrap()));
        tx.commit().unwrap();
        let report = compact(&db);
        assert!(
            report.data_bytes_after + 600_000 < before && data.capacity_bytes() == report.data_bytes_after,
            "{report:?} of {before}"
        );
        check(&db);
        data.clear_faults();
        fill(&db, &kept, 0..1000, 1000);
        check(&db);
    });
}
