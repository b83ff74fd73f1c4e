//! Point-in-time recovery: base backups, and what the archive makes of them; and a log made anew from its archive.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum::{Builder, Db, Devices, ErrorKind, Lsn, Restore, RestorePhase, RestoreTarget};
use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_log::{ArchiveRetention, ArchiveTarget, inspect_archive, prune_archive};
use tantalum_rt::spawn;

use crate::support::{Rows, check, contents, get, put, small};

/// The places of a test.
struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        Bed { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn archive(&self) -> ArchiveTarget {
        ArchiveTarget::Directory(self.at("archive"))
    }

    fn builder(&self) -> Builder {
        small().log_archive(self.at("archive"))
    }

    fn open(&self) -> Db {
        self.builder().open(self.at("db")).unwrap()
    }

    fn back_up(&self, db: &Db, name: &str) -> tantalum::BaseBackup {
        db.base_backup(self.at(name), &mut |_| {}).unwrap()
    }

    fn restore(&self, backup: &str, to: &str, target: RestoreTarget) -> tantalum::Result<tantalum::Restored> {
        Restore::new(self.at(backup), self.at("archive")).target(target).run(self.at(to))
    }

    /// What is in a restored database, which must be sound.
    fn contents(&self, name: &str) -> Vec<(String, Rows)> {
        let db = Db::builder().create_if_missing(false).open(self.at(name)).unwrap();
        check(&db);
        let contents = contents(&db).unwrap();
        db.close().unwrap();
        contents
    }
}

/// Where everything lies that was committed, and is durable.
fn durable(db: &Db) -> Lsn {
    drop(db.snapshot().unwrap());
    db.stats().unwrap().log.durable_lsn
}

fn refused(result: tantalum::Result<tantalum::Restored>, words: &[&str]) {
    let error = result.unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
}

#[test]
fn every_moment_after_a_base_backup_can_be_restored() {
    let bed = Bed::new();
    let db = bed.open();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("before", "the backup")]);
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..3u8)
        .map(|client| {
            let (db, table, stop, started) = (db.clone(), table.clone(), Arc::clone(&stop), Arc::clone(&started));
            spawn("client", move || {
                for count in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut tx = db.begin().unwrap();
                    tx.put(&table, [client, (count % 200) as u8], vec![count as u8; 700]).unwrap();
                    // The same in two places, always.
                    tx.put(&table, [client], count.to_be_bytes()).unwrap();
                    tx.put(&table, [client + 100], count.to_be_bytes()).unwrap();
                    tx.commit().unwrap();
                    started.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while started.load(Ordering::Relaxed) < 300 {
        tantalum_rt::sleep(Duration::from_millis(1));
    }
    let mut phases = Vec::new();
    let backup = db.base_backup(bed.at("backup"), &mut |progress| phases.push(progress)).unwrap();
    assert!(
        phases
            .iter()
            .all(|progress| progress.phase == RestorePhase::Copy && progress.done_bytes <= progress.total_bytes)
    );
    let until = started.load(Ordering::Relaxed) + 300;
    while started.load(Ordering::Relaxed) < until {
        tantalum_rt::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());

    // Moments at which what is there is known.
    let mut moments = vec![(durable(&db), contents(&db).unwrap())];
    for n in 0..4 {
        put(&db, &table, &[("n", &n.to_string())]);
        let other = db.table(&format!("table-{n}")).unwrap();
        put(&db, &other, &[("large", &"x".repeat(20_000))]);
        moments.push((durable(&db), contents(&db).unwrap()));
    }
    db.drop_table("table-0").unwrap();
    let last = (durable(&db), contents(&db).unwrap());
    put(&db, &table, &[("later", "than all that is asked for")]);
    // So that the archive has it.
    db.checkpoint().unwrap();
    for (n, (lsn, expected)) in moments.iter().chain([&last]).enumerate() {
        let name = format!("restored-{n}");
        let restored = bed.restore("backup", &name, RestoreTarget::Lsn(*lsn)).unwrap();
        assert_eq!(restored.end_lsn, *lsn, "a commit ends at its LSN");
        assert!(restored.commits > 0 && restored.records >= restored.commits);
        assert_eq!(bed.contents(&name), *expected, "{n}");
    }
    // The earliest is the backup's end: there, too, all is whole.
    bed.restore("backup", "earliest", RestoreTarget::Lsn(Lsn::new(backup.end_lsn))).unwrap();
    let restored = Db::open(bed.at("earliest")).unwrap();
    check(&restored);
    let table = restored.table("t").unwrap();
    for client in 0..3u8 {
        let tx = restored.begin().unwrap();
        assert_eq!(tx.get(&table, [client]).unwrap(), tx.get(&table, [client + 100]).unwrap());
    }
    assert_eq!(get(&restored, &table, "before").as_deref(), Some(&b"the backup"[..]));
    db.close().unwrap();
    assert_eq!(bed.restore("backup", "end", RestoreTarget::End).unwrap().end_lsn.get(), {
        let end = inspect_archive(&bed.archive()).unwrap().runs[0].end;
        end.get()
    });
    assert_eq!(bed.contents("end"), contents(&bed.open()).unwrap());
}

#[test]
fn a_time_is_restored_to_within_a_second() {
    let bed = Bed::new();
    let db = bed.open();
    let table = db.table("t").unwrap();
    bed.back_up(&db, "backup");
    put(&db, &table, &[("a", "1")]);
    // The archive joins what is half a second apart at most.
    tantalum_rt::sleep(Duration::from_millis(600));
    let time = tantalum_rt::wall_clock();
    tantalum_rt::sleep(Duration::from_millis(10));
    put(&db, &table, &[("b", "2")]);
    db.close().unwrap();
    let restored = bed.restore("backup", "restored", RestoreTarget::Time(time)).unwrap();
    assert!(restored.time <= time && restored.time + Duration::from_secs(10) > time, "{restored:?}");
    let db = Db::open(bed.at("restored")).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!((get(&db, &table, "a").is_some(), get(&db, &table, "b").is_some()), (true, false));
    let past = RestoreTarget::Time(time - Duration::from_secs(3600));
    refused(bed.restore("backup", "past", past), &["earlier backup"]);
    let future = RestoreTarget::Time(time + Duration::from_secs(3600));
    refused(bed.restore("backup", "future", future), &["archive", "last records"]);
    assert!(!bed.at("past").exists() && !bed.at("future.partial").exists());
}

#[test]
fn what_the_archive_does_not_lead_to_is_refused_before_anything_is_written() {
    let bed = Bed::new();
    let unarchived = small().open(bed.at("none")).unwrap();
    let error = unarchived.base_backup(bed.at("x"), &mut |_| {}).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("log_archive"), "{error}");
    assert!(!bed.at("x").exists() && !bed.at("x.partial").exists());

    let db = bed.open();
    let table = db.table("t").unwrap();
    // The archive of a new database begins behind its creation.
    put(&db, &table, &[("a", "1")]);
    let early = bed.back_up(&db, "early");
    put(&db, &table, &[("b", "2")]);
    let late = bed.back_up(&db, "late");
    assert!(early.start_lsn <= early.end_lsn && early.end_lsn < late.start_lsn);
    let lsn = |lsn: u64| RestoreTarget::Lsn(Lsn::new(lsn));
    refused(bed.restore("late", "r", lsn(late.end_lsn - 1)), &["earlier backup", &late.end_lsn.to_string()]);
    refused(
        bed.restore("late", "r", lsn(late.end_lsn + 1_000_000)),
        &["lacks", &(late.end_lsn + 1_000_000).to_string()],
    );
    refused(bed.restore("none", "r", RestoreTarget::End), &["backup.toml", "no base backup"]);
    refused(bed.restore("late", "db", RestoreTarget::End), &["db"]);
    let other = Restore::new(bed.at("late"), bed.at("none")).run(bed.at("r"));
    refused(other, &["not an archive"]);
    // Torn off in the middle.
    let pages = bed.at("late").join("pages");
    let whole = fs::read(&pages).unwrap();
    fs::write(&pages, &whole[..whole.len() - 4096]).unwrap();
    refused(bed.restore("late", "r", RestoreTarget::End), &["pages", "another backup"]);
    let mut damaged = whole.clone();
    damaged[5 * 4096 + 100] ^= 1;
    fs::write(&pages, damaged).unwrap();
    refused(bed.restore("late", "r", RestoreTarget::End), &["pages", "page 5", "byte 20480"]);
    fs::write(&pages, whole).unwrap();

    // A gap: a session that is not archived.
    db.close().unwrap();
    fs::rename(bed.at("archive"), bed.at("away")).unwrap();
    let settings = fs::read_to_string(bed.at("db").join("tantalum.toml")).unwrap();
    let without: String =
        settings.lines().filter(|line| !line.starts_with("log_archive")).map(|line| format!("{line}\n")).collect();
    fs::write(bed.at("db").join("tantalum.toml"), without).unwrap();
    let db = small().open(bed.at("db")).unwrap();
    put(&db, &db.table("t").unwrap(), &[("c", "3")]);
    db.close().unwrap();
    fs::rename(bed.at("away"), bed.at("archive")).unwrap();
    let db = bed.open();
    put(&db, &db.table("t").unwrap(), &[("d", "4")]);
    let after = bed.back_up(&db, "after");
    let runs = inspect_archive(&bed.archive()).unwrap().runs;
    assert_eq!(runs.len(), 2);
    let gap = [runs[0].end.to_string(), runs[1].start.to_string()];
    refused(bed.restore("late", "r", RestoreTarget::End), &["lacks", &gap[0], &gap[1]]);
    refused(bed.restore("late", "r", lsn(after.end_lsn)), &["lacks", &gap[0], &gap[1]]);
    bed.restore("late", "up-to-the-gap", RestoreTarget::Lsn(runs[0].end)).unwrap();
    bed.restore("after", "after-the-gap", RestoreTarget::End).unwrap();
    db.checkpoint().unwrap();
    let before = ArchiveRetention { before: Some(Lsn::new(after.start_lsn)), ..ArchiveRetention::default() };
    assert!(!prune_archive(&bed.archive(), &before, false).unwrap().removed.is_empty());
    refused(bed.restore("late", "r", RestoreTarget::End), &["lacks", &late.start_lsn.to_string()]);
    bed.restore("after", "again", RestoreTarget::End).unwrap();
    assert!(!bed.at("r").exists() && !bed.at("r.partial").exists());
}

#[test]
fn a_restored_database_is_one_of_its_own() {
    let bed = Bed::new();
    let db = bed.open();
    put(&db, &db.table("t").unwrap(), &[("a", "1")]);
    bed.back_up(&db, "backup");
    db.close().unwrap();
    bed.restore("backup", "restored", RestoreTarget::End).unwrap();
    // The original's archive is not for it.
    let error = Db::builder().log_archive(bed.at("archive")).open(bed.at("restored")).unwrap_err();
    assert!(error.kind() == ErrorKind::Mismatch, "{error}");
    let own = || Db::builder().log_archive(bed.at("own")).open(bed.at("restored")).unwrap();
    let restored = own();
    put(&restored, &restored.table("t").unwrap(), &[("b", "2")]);
    let lsn = durable(&restored);
    restored.base_backup(bed.at("second"), &mut |_| {}).unwrap();
    restored.close().unwrap();
    assert!(lsn.get() > 0);
    // Both go on, and neither takes the other's log.
    let original = bed.open();
    assert_eq!(get(&original, &original.table("t").unwrap(), "b"), None);
    original.close().unwrap();
    let swap = |a: &Path, b: &Path| {
        fs::rename(a, bed.at("swapped")).unwrap();
        fs::rename(b, a).unwrap();
        fs::rename(bed.at("swapped"), b).unwrap();
    };
    let logs = [bed.at("db").join("log-0"), bed.at("restored").join("log-0")];
    swap(&logs[0], &logs[1]);
    assert!(Db::open(bed.at("db")).is_err() && Db::open(bed.at("restored")).is_err());
    swap(&logs[0], &logs[1]);
    assert_eq!(contents(&own()).unwrap()[0].1.len(), 2);
    // And a restored one can be restored from.
    Restore::new(bed.at("second"), bed.at("own")).run(bed.at("third")).unwrap();
    assert_eq!(bed.contents("third")[0].1.len(), 2);
}

#[test]
fn a_log_whose_devices_are_lost_is_made_anew_from_its_archive() {
    let bed = Bed::new();
    let db = bed.open();
    db.add_log_device("log-1").unwrap();
    let table = db.table("t").unwrap();
    for n in 0..50u32 {
        put(&db, &table, &[(&format!("key-{n}"), &"v".repeat(500))]);
    }
    let before = contents(&db).unwrap();
    // Everything is archived; the process ends without closing.
    db.base_backup(bed.at("backup"), &mut |_| {}).unwrap();
    std::mem::forget(db);
    let dir = bed.at("copy");
    fs::create_dir(&dir).unwrap();
    for entry in fs::read_dir(bed.at("db")).unwrap().flatten().filter(|entry| entry.metadata().unwrap().is_file()) {
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    let rebuild = || bed.builder().expert(|expert| expert.rebuild_log()).open(&dir);
    let error = rebuild().unwrap_err();
    assert!(
        error.to_string().starts_with("log device ") && error.to_string().contains("the log is not lost"),
        "{error}"
    );
    fs::remove_file(dir.join("log-0")).unwrap();
    assert!(rebuild().is_err(), "one is still there");
    fs::rename(dir.join("log-1"), bed.at("log-1")).unwrap();
    assert!(bed.builder().open(&dir).is_err());
    let error = small().expert(|expert| expert.rebuild_log()).log_archive(bed.at("nowhere")).open(&dir).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    let db = rebuild().unwrap();
    check(&db);
    assert_eq!(contents(&db).unwrap(), before);
    put(&db, &db.table("t").unwrap(), &[("new", "life")]);
    db.close().unwrap();
    // A device of before is refused, and what was made is opened like any other.
    fs::rename(bed.at("log-1"), dir.join("log-1")).unwrap();
    let db = bed.builder().open(&dir).unwrap();
    assert_eq!(db.stats().unwrap().log.devices.len(), 2, "two partitions of the new one");
    assert!(get(&db, &db.table("t").unwrap(), "new").is_some());
    db.close().unwrap();
    let error =
        bed.builder().log_devices(["log-0", "log-1"]).open(&dir).map(|db| db.stats().unwrap().log.devices.len());
    assert!(!matches!(error, Ok(4)), "the old device is no part of the log");
    assert!(bed.builder().expert(|expert| expert.rebuild_log()).open(bed.at("never")).is_err(), "nothing is created");
}

/// An archive that was set aside holds up no page. Pages that are further than it would be taken for good once the new log
/// has grown past them.
#[test]
fn a_log_is_not_made_anew_from_an_archive_that_pages_are_ahead_of() {
    let device = |name: &str| MemoryDevice::new(name, 4 << 20);
    let [data, double_write, log, archive] = ["data", "double-write", "log", "archive"].map(device);
    let builder = || Db::builder().buffer_pool_bytes(64 * 4096).expert(|expert| expert.log_archive_on(archive.clone()));
    let on = |log: &Arc<MemoryDevice>| {
        let (data, double_write, log) = (data.clone(), Some(double_write.clone() as _), vec![log.clone() as _]);
        Devices { data, double_write, log }
    };
    let db = builder().open_on(on(&log)).unwrap();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("a", "1")]);
    db.checkpoint().unwrap();
    archive.inject(Fault::FailWrites { after: 0 });
    for n in 0..20 {
        put(&db, &table, &[("a", &n.to_string())]);
    }
    db.checkpoint().unwrap();
    assert!(db.stats().unwrap().log.archive.unwrap().set_aside.is_some());
    drop((table, db));
    archive.clear_faults();

    let fresh = device("fresh");
    for _ in 0..2 {
        let error = builder().expert(|expert| expert.rebuild_log()).open_on(on(&fresh)).map(drop).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("data: page "), "{message}");
        let (lsn, end) = message.split_once(", but archive ends at LSN ").unwrap_or_else(|| panic!("{message}"));
        let lsn: u64 = lsn.rsplit_once("changed at LSN ").unwrap().1.parse().unwrap();
        assert!(lsn > end.split_once(':').unwrap().0.parse().unwrap(), "{message}");
        let mut first = [0; 4096];
        fresh.read(0, &mut first).unwrap();
        assert_eq!(first, [0; 4096], "nothing was written");
    }
    // The lost device is found: nothing was lost.
    let db = builder().open_on(on(&log)).unwrap();
    check(&db);
    assert_eq!(get(&db, &db.table("t").unwrap(), "a").unwrap(), b"19");
}
