//! The change feed has what was committed, in order, once, and says when it has not.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tantalum::{
    Change, ChangeFeed, ChangedValue, CommittedChanges, Db, Devices, ErrorKind, ExpiringTable, FeedPosition,
    FellBehind, StoreKind, Table,
};
use tantalum_device::MemoryDevice;
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{
    Model, committed, cut_power_after, on_store, open, simulate, slow_devices_of, small, with_little_memory,
};

/// Applies a transaction to copies of the tables.
fn apply(copies: &mut BTreeMap<String, Model>, transaction: &CommittedChanges) {
    for change in transaction.changes() {
        let change = change.unwrap();
        let copy = copies.entry(change.table().to_owned()).or_default();
        match change {
            Change::Put { key, value, .. } => {
                // One that was replaced since comes again.
                let value = value.read().unwrap().map_or_else(|| b"replaced".to_vec(), |value| value.to_vec());
                copy.insert(key.to_vec(), value);
            }
            Change::Delete { key, .. } => drop(copy.remove(&key[..])),
            Change::DropTable { .. } => copy.clear(),
            other => panic!("{other:?}"),
        }
    }
}

/// All that a feed has now: where each transaction was committed, and how many changes it has.
fn rest(feed: &mut ChangeFeed) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    while let Some(transaction) = feed.try_next().unwrap() {
        all.push((transaction.position().lsn(), transaction.changes().map(Result::unwrap).count()));
    }
    all
}

fn keys(transaction: &CommittedChanges) -> Vec<String> {
    let describe = |change: tantalum::Result<Change>| match change.unwrap() {
        Change::Put { table, key, .. } => format!("{table} {} put", key.escape_ascii()),
        Change::Delete { table, key } => format!("{table} {} deleted", key.escape_ascii()),
        Change::DropTable { table } => format!("{table} dropped"),
        Change::EndFeed { table } => format!("{table} ended"),
        other => panic!("{other:?}"),
    };
    transaction.changes().map(describe).collect()
}

/// A client that writes transactions of all sizes to two tables, of which one has a feed.
fn write(db: &Db, tables: &[Table; 2], seed: u64) -> Vec<u64> {
    let mut random = Random::with_seed(seed);
    let mut positions = Vec::new();
    for _ in 0..40 {
        let operations = [1, 1, 3, 20, 150][random.usize(0..5)];
        let mut has_fed = false;
        let done = db.transact(|tx| {
            has_fed = false;
            for _ in 0..operations {
                let table = random.usize(0..2);
                let key = random.u16(0..300).to_be_bytes();
                let mut is_written = true;
                match random.u8(0..10) {
                    0 => is_written = tx.delete(&tables[table], key)?,
                    1 => tx.blind_delete(&tables[table], key)?,
                    2 => tx.put(&tables[table], key, vec![random.u8(..); random.usize(2000..9000)])?,
                    _ => tx.put(&tables[table], key, vec![random.u8(..); random.usize(0..200)])?,
                }
                has_fed |= table == 0 && is_written;
            }
            Ok(())
        });
        done.unwrap();
        // The position is that of the feed: that it has all is seen from the contents.
        positions.push(u64::from(has_fed));
    }
    positions
}

#[test]
fn a_copy_made_from_the_feed_is_the_table_whatever_commits_beside() {
    simulate(0..12, |seed, _| {
        let devices = Devices { double_write: None, ..slow_devices_of(seed, 24 << 20) };
        let store = StoreKind::LogStructured;
        let db = with_little_memory(store).open_on(devices).unwrap();
        let tables = ["fed", "other"].map(|name| db.table(name).unwrap());
        let start = db.start_change_feed(&tables[0]).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let follower = spawn("follower", {
            let (db, is_over) = (db.clone(), Arc::clone(&is_over));
            move || {
                let (mut copies, mut stored) = (BTreeMap::new(), start);
                let mut feed = db.changes(&stored).unwrap();
                let mut random = Random::with_seed(seed);
                loop {
                    let was_over = is_over.load(SeqCst);
                    match feed.next_within(Duration::from_millis(5)).unwrap() {
                        Some(transaction) => {
                            assert!(transaction.position().lsn() > stored.lsn(), "in order, and once");
                            apply(&mut copies, &transaction);
                            stored = transaction.position();
                        }
                        None if was_over => return copies,
                        None => {}
                    }
                    if random.u8(0..4) == 0 {
                        // As after a restart.
                        feed = db.changes(&FeedPosition::from_bytes(&stored.to_bytes()).unwrap()).unwrap();
                    }
                }
            }
        });
        let clients: Vec<_> = (0..3)
            .map(|n| {
                let (db, tables) = (db.clone(), tables.clone());
                spawn("client", move || write(&db, &tables, seed * 8 + n))
            })
            .collect();
        let fed: u64 = clients.into_iter().flat_map(|client| client.join().unwrap()).sum();
        is_over.store(true, SeqCst);
        let copies = follower.join().unwrap();
        assert_eq!(copies.keys().collect::<Vec<_>>(), ["fed"]);
        assert!(copies["fed"] == committed(&db, &tables[0]), "seed {seed}");
        let count = rest(&mut db.changes(&start).unwrap());
        assert_eq!(count.len() as u64, fed, "each transaction that wrote to it");
        assert!(count.is_sorted());
        let stats = db.stats().unwrap().transactions;
        assert_eq!(stats.changes_fed, count.iter().map(|(_, changes)| *changes as u64).sum::<u64>());
        assert!(stats.staged_commits > 0 && stats.change_feed_bytes > stats.changes_fed * 3);
        db.close().unwrap();
    });
}

#[test]
fn after_power_cuts_the_feed_has_what_recovery_kept() {
    for seed in 0..10 {
        let device = |name: &str| MemoryDevice::new(name, 8 << 20);
        let (data, area, log) = (device("data"), device("area"), device("log"));
        let stored = Arc::new(Mutex::new((None::<FeedPosition>, BTreeMap::new())));
        for round in 0..4 {
            let devices = Devices { data: data.clone(), double_write: Some(area.clone()), log: vec![log.clone()] };
            let stored = Arc::clone(&stored);
            let simulation = Simulation::new(seed * 4 + round).time_limit(Duration::from_secs(3600));
            let ended: Outcome<()> = simulation.run(move || {
                let db = on_store(StoreKind::InPlace).transaction_memory_bytes(16 << 10).open_on(devices).unwrap();
                let tables = ["fed", "other"].map(|name| db.table(name).unwrap());
                let (position, mut copies) = stored.lock().unwrap().clone();
                let position = position.unwrap_or_else(|| db.start_change_feed(&tables[0]).unwrap());
                assert!(tables[0].has_change_feed());
                let mut feed = db.changes(&position).unwrap();
                while let Some(transaction) = feed.try_next().unwrap() {
                    apply(&mut copies, &transaction);
                }
                let copy = copies.get("fed").cloned().unwrap_or_default();
                assert!(copy == committed(&db, &tables[0]), "seed {seed}, round {round}");
                *stored.lock().unwrap() = (Some(feed.position()), copies.clone());
                spawn("follower", move || {
                    loop {
                        if let Some(transaction) = feed.next_within(Duration::from_secs(60)).unwrap() {
                            apply(&mut copies, &transaction);
                            *stored.lock().unwrap() = (Some(transaction.position()), copies.clone());
                        }
                    }
                });
                cut_power_after(Duration::from_millis(20 + 7 * seed));
                write(&db, &tables, seed + round);
                write(&db, &tables, seed + round + 100);
                sleep(Duration::from_secs(1));
            });
            assert!(matches!(ended, Outcome::PowerCut { .. }));
            let mut random = Random::with_seed(seed + round);
            [&data, &area, &log].into_iter().for_each(|device| device.power_cut(&mut random));
        }
    }
}

#[test]
fn each_way_to_write_rows_is_in_the_feed() {
    let dir = tempfile::tempdir().unwrap();
    // The log may grow, and its first file be gone.
    let reopen = || small().log_archive(dir.path().join("archive")).open(dir.path().join("db")).unwrap();
    let db = reopen();
    let table = db.table("t").unwrap();
    let before = db.feed_position().unwrap();
    db.put(&table, "0", "").unwrap();
    let start = db.start_change_feed(&table).unwrap();
    let mut feed = db.changes(&start).unwrap();
    assert!(feed.try_next().unwrap().is_none());
    assert!(feed.next_within(Duration::from_millis(1)).unwrap().is_none());
    assert_eq!(db.changes(&before).unwrap_err().kind(), ErrorKind::InvalidInput, "before the feed");

    db.transact(|tx| {
        tx.put(&table, "c", "3")?;
        tx.put(&table, "a", "1")?;
        tx.put(&table, "b", "2")?;
        tx.blind_delete(&table, "never there")?;
        let savepoint = tx.savepoint();
        tx.put(&table, "d", "4")?;
        tx.rollback_to(&savepoint)?;
        tx.put(&table, "a", "11")
    })
    .unwrap();
    let expected = ["t a put", "t b put", "t c put", "t never there deleted"];
    assert_eq!(keys(&feed.try_next().unwrap().unwrap()), expected, "by key, and each once");
    db.transact(|tx| tx.delete_range(&table, "b"..)).unwrap();
    assert_eq!(keys(&feed.try_next().unwrap().unwrap()), ["t b deleted", "t c deleted"]);
    let mut rolled_back = db.begin().unwrap();
    rolled_back.put(&table, "x", "").unwrap();
    rolled_back.rollback();
    assert!(feed.try_next().unwrap().is_none());

    // The table of times has no feed, the rows have.
    let sessions: ExpiringTable<String, String> = db.expiring_table("sessions").unwrap();
    let rows = db.open_table("sessions").unwrap();
    db.start_change_feed(&rows).unwrap();
    db.transact(|tx| sessions.put(tx, "s", "", Duration::from_millis(1))).unwrap();
    sleep(Duration::from_millis(20));
    assert_eq!(sessions.remove_expired(&db).unwrap(), 1);
    let put = feed.try_next().unwrap().unwrap();
    assert!(put.changes().all(|change| matches!(change, Ok(Change::Put { .. }))));
    let removed = feed.try_next().unwrap().unwrap();
    assert!(removed.changes().all(|change| matches!(change, Ok(Change::Delete { .. }))));

    // A bulk load is a transaction.
    let empty = db.table("empty").unwrap();
    db.start_change_feed(&empty).unwrap();
    let report = db.bulk_load("empty", (0..2000u32).map(|n| (n.to_be_bytes(), [0; 100]))).unwrap();
    assert_eq!((report.rows, report.pages), (2000, 0));
    assert_eq!(feed.try_next().unwrap().unwrap().changes().count(), 2000);
    db.drop_table("empty").unwrap();
    assert_eq!(keys(&feed.try_next().unwrap().unwrap()), ["empty dropped"]);
    assert!(!db.table("empty").unwrap().has_change_feed(), "another table");
    db.put(&db.table("empty").unwrap(), "a", "").unwrap();
    assert!(feed.try_next().unwrap().is_none());
    let position = feed.position();
    db.close().unwrap();
    assert_eq!(feed.try_next().unwrap_err().kind(), ErrorKind::Closed);

    let db = reopen();
    assert!(db.open_table("t").unwrap().has_change_feed());
    assert_eq!(rest(&mut db.changes(&start).unwrap()).len(), 6);
    assert_eq!(rest(&mut db.changes(&position).unwrap()), []);
    db.backup(dir.path().join("copy")).unwrap();
    let copy = Db::open(dir.path().join("copy")).unwrap();
    assert!(copy.open_table("t").unwrap().has_change_feed());
    assert_eq!(copy.changes(&position).unwrap_err().kind(), ErrorKind::Mismatch, "of another database");
}

#[test]
fn an_ended_feed_says_so_and_has_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("db"));
    let [a, b] = ["a", "b"].map(|name| db.table(name).unwrap());
    let start = db.start_change_feed(&b).unwrap();
    let start_of_a = db.start_change_feed(&a).unwrap();
    let feeds = [("a".to_owned(), start_of_a), ("b".to_owned(), start)];
    assert_eq!(db.change_feeds().unwrap(), feeds);
    db.transact(|tx| tx.put(&a, "1", "").and_then(|()| tx.put(&b, "1", ""))).unwrap();
    let tx = db.begin().unwrap();
    assert!(tx.get(&a, "1").unwrap().is_some());
    assert_eq!(db.end_change_feed(&a).unwrap_err().kind(), ErrorKind::InUse);
    drop(tx);
    assert!(a.has_change_feed());
    db.end_change_feed(&a).unwrap();
    assert!(!a.has_change_feed());
    let position = db.feed_position().unwrap();
    db.end_change_feed(&a).unwrap();
    assert_eq!(db.feed_position().unwrap(), position, "it has none, so nothing is done");
    db.transact(|tx| tx.put(&a, "2", "").and_then(|()| tx.put(&b, "2", ""))).unwrap();
    db.put(&a, "3", "").unwrap();
    db.start_change_feed(&a).unwrap();
    db.put(&a, "4", "").unwrap();

    let mut feed = db.changes(&start).unwrap();
    for expected in [&["a 1 put", "b 1 put"][..], &["a ended"], &["b 2 put"], &["a 4 put"]] {
        assert_eq!(keys(&feed.try_next().unwrap().unwrap()), expected);
    }
    db.end_change_feed(&b).unwrap();
    assert_eq!(db.changes(&start_of_a).unwrap_err().kind(), ErrorKind::InvalidInput, "that of the other began later");
    db.end_change_feed(&a).unwrap();
    assert_eq!(rest(&mut feed).len(), 2, "a reader that has begun reads on");
    assert_eq!(db.changes(&start).unwrap_err().kind(), ErrorKind::NotFound);
    drop(feed);
    let dropped = db.table("dropped").unwrap();
    db.drop_table("dropped").unwrap();
    assert_eq!(db.end_change_feed(&dropped).unwrap_err().kind(), ErrorKind::NotFound);
    db.start_change_feed(&b).unwrap();
    db.close().unwrap();
    let db = small().read_only(true).open(dir.path().join("db")).unwrap();
    let [a, b] = ["a", "b"].map(|name| db.open_table(name).unwrap());
    assert!(!a.has_change_feed() && b.has_change_feed());
    assert_eq!(db.end_change_feed(&b).unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn the_end_of_a_feed_is_durable() {
    let device = |name: &str| MemoryDevice::new(name, 8 << 20);
    let (data, area, log) = (device("data"), device("area"), device("log"));
    for round in 0..3 {
        let devices = Devices { data: data.clone(), double_write: Some(area.clone()), log: vec![log.clone()] };
        let ended: Outcome<()> = Simulation::new(round).time_limit(Duration::from_secs(60)).run(move || {
            let db = on_store(StoreKind::InPlace).open_on(devices).unwrap();
            let table = db.table("t").unwrap();
            match round {
                0 => _ = db.start_change_feed(&table).unwrap(),
                1 => {
                    assert!(table.has_change_feed());
                    db.end_change_feed(&table).unwrap();
                }
                _ => assert!(!table.has_change_feed()),
            }
            tantalum_rt::power_cut();
        });
        assert!(matches!(ended, Outcome::PowerCut { .. }));
        let mut random = Random::with_seed(round);
        [&data, &area, &log].into_iter().for_each(|device| device.power_cut(&mut random));
    }
}

#[test]
fn large_values_are_read_until_their_rows_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("db"));
    let table = db.table("t").unwrap();
    let mut feed = db.changes(&db.start_change_feed(&table).unwrap()).unwrap();
    let value = |n: u8| vec![n; 100_000];
    db.put(&table, "a", value(1)).unwrap();
    db.transact(|tx| tx.put_from(&table, "b", &value(2)[..])).unwrap();
    db.put(&table, "c", vec![3; 10_000]).unwrap();
    let mut values = Vec::new();
    for _ in 0..3 {
        for change in feed.try_next().unwrap().unwrap().changes() {
            let Change::Put { value, .. } = change.unwrap() else { panic!("all were put") };
            values.push(value);
        }
    }
    assert!(matches!(values[..], [ChangedValue::Large(_), ChangedValue::Large(_), ChangedValue::Bytes(_)]));
    assert_eq!(values.iter().map(ChangedValue::len).collect::<Vec<_>>(), [100_000, 100_000, 10_000]);
    assert_eq!(values[0].read().unwrap().unwrap()[..], value(1)[..]);
    assert_eq!(values[1].read().unwrap().unwrap()[..], value(2)[..]);
    db.put(&table, "a", value(4)).unwrap();
    db.delete(&table, "b").unwrap();
    assert_eq!(values[0].read().unwrap(), None);
    assert_eq!(values[1].read().unwrap(), None);
    assert_eq!(values[2].read().unwrap().unwrap()[..], vec![3; 10_000][..]);
    assert_eq!(rest(&mut feed).len(), 2);
    db.drop_table("t").unwrap();
    assert_eq!(values[0].read().unwrap(), None);
    db.close().unwrap();
    assert_eq!(values[0].read().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_reader_that_fell_behind_is_told_where_the_log_begins() {
    let devices = Devices {
        data: MemoryDevice::new("data", 16 << 20),
        double_write: None,
        log: vec![MemoryDevice::new("log-0", 1 << 20), MemoryDevice::new("log-1", 1 << 20)],
    };
    let db = on_store(StoreKind::LogStructured).open_on(devices).unwrap();
    let table = db.table("t").unwrap();
    let start = db.start_change_feed(&table).unwrap();
    let mut feed = db.changes(&start).unwrap();
    let (mut positions, mut followed) = (Vec::new(), 0);
    for n in 0..3000u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&table, [n as u8], vec![n as u8; 400]).unwrap();
        positions.push(tx.commit().unwrap().position().unwrap());
        if n <= 1000 && n % 20 == 0 {
            followed += rest(&mut feed).len();
        }
    }
    assert_eq!(followed, 1001, "it was never far behind");
    let error = db.changes(&start).unwrap().try_next().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FellBehind);
    let oldest = error.cause::<FellBehind>().unwrap().oldest;
    assert!(oldest.lsn() > start.lsn() && error.to_string().contains(&oldest.lsn().to_string()), "{error}");
    let followed: Vec<u64> = rest(&mut db.changes(&oldest).unwrap()).into_iter().map(|(lsn, _)| lsn).collect();
    assert!(followed.len() > 100 && followed[..] == positions[positions.len() - followed.len()..]);
    db.close().unwrap();
}

#[test]
fn with_an_archive_nothing_falls_behind() {
    let dir = tempfile::tempdir().unwrap();
    let builder = || small().log_bytes(1 << 20).log_archive(dir.path().join("archive"));
    let path = dir.path().join("db");
    let db = builder().open(&path).unwrap();
    let table = db.table("t").unwrap();
    let start = db.start_change_feed(&table).unwrap();
    let mut expected = Vec::new();
    let mut write = |db: &Db, count: u32| {
        for n in 0..count {
            let mut tx = db.begin().unwrap();
            for key in 0..10u8 {
                tx.put(&db.table("t").unwrap(), [key], vec![n as u8; 1000]).unwrap();
            }
            expected.push((tx.commit().unwrap().position().unwrap(), 10));
        }
        expected.clone()
    };
    let all = write(&db, 400);
    assert_eq!(rest(&mut db.changes(&start).unwrap()), all);
    db.close().unwrap();
    let db = builder().open(&path).unwrap();
    let mut feed = db.changes(&start).unwrap();
    assert_eq!(feed.try_next().unwrap().unwrap().position().lsn(), all[0].0);
    let all = write(&db, 20);
    assert_eq!(rest(&mut feed), all[1..], "it goes over to the log");
    db.close().unwrap();
}

#[test]
fn positions_and_stores_that_do_not_suit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = open(&path);
    let table = db.table("t").unwrap();
    let position = db.feed_position().unwrap();
    assert_eq!(db.changes(&position).unwrap_err().kind(), ErrorKind::NotFound, "no table has a feed");
    let tx = db.begin().unwrap();
    assert!(tx.get(&table, "a").unwrap().is_none());
    assert_eq!(db.start_change_feed(&table).unwrap_err().kind(), ErrorKind::InUse);
    drop(tx);
    db.start_change_feed(&table).unwrap();
    for n in 0..100u8 {
        db.put(&table, [n], "").unwrap();
    }
    let newest = db.feed_position().unwrap();
    let changed = |lsn: u64, session: u8| {
        let mut bytes = newest.to_bytes();
        bytes[24..32].copy_from_slice(&lsn.to_le_bytes());
        bytes[16] = session;
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        FeedPosition::from_bytes(&bytes).unwrap()
    };
    let session = newest.to_bytes()[16];
    for future in [changed(newest.lsn() + 100, session), changed(newest.lsn(), session + 1), changed(u64::MAX, session)]
    {
        assert_eq!(db.changes(&future).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let within = changed(newest.lsn() - 3, session);
    assert_eq!(db.changes(&within).unwrap().try_next().unwrap_err().kind(), ErrorKind::InvalidInput, "within a record");
    db.close().unwrap();

    let db = small().read_only(true).open(&path).unwrap();
    let table = db.open_table("t").unwrap();
    assert_eq!(db.start_change_feed(&table).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(rest(&mut db.changes(&newest).unwrap()), []);
    db.close().unwrap();

    let ipl = on_store(StoreKind::InPageLogging).log_bytes(4 << 20).open(dir.path().join("ipl")).unwrap();
    let table = ipl.table("t").unwrap();
    assert_eq!(ipl.start_change_feed(&table).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(ipl.feed_position().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_feed_goes_on_while_the_log_grows_and_its_devices_change() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(64 << 20).buffer_pool_bytes(2 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let mut feed = db.changes(&db.start_change_feed(&table).unwrap()).unwrap();
    let (mut followed, mut written) = (0, 0);
    for round in 0..4u8 {
        for n in 0..60u8 {
            db.transact(|tx| (0..40u8).try_for_each(|key| tx.put(&table, [key], vec![n ^ round; 1500]))).unwrap();
            written += 1;
            followed += rest(&mut feed).len();
        }
        if round == 2 {
            db.replace_log_device("log-0", dir.path().join("another").to_str().unwrap()).unwrap_or_else(|_| {
                db.add_log_device(dir.path().join("another").to_str().unwrap()).unwrap();
            });
        }
        sleep(Duration::from_millis(1));
    }
    assert_eq!(followed, written);
    db.close().unwrap();
}
