//! The log's devices, added, removed and replaced while the database is open; and what a crash in between leaves.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum::{
    Builder, Db, DeviceRequest, Devices, Error, ErrorKind, LogChange, LogChangePhase, LogLayout, TornPageProtection,
};
use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_rt::{Simulation, spawn};

use crate::support::{check, contents, get, put, small};

fn names(db: &Db) -> Vec<String> {
    let file_name = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    db.stats().unwrap().log.devices.iter().map(|device| file_name(&device.name)).collect()
}

fn recorded(dir: &Path) -> Vec<PathBuf> {
    let log = tantalum::locate_log(dir).unwrap();
    assert!(log.is_recorded);
    log.devices
}

fn one_partition() -> Builder {
    Db::builder().log_bytes(2 << 20).buffer_pool_bytes(64 * 4096)
}

#[test]
fn devices_come_and_go_while_clients_commit() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3u8)
        .map(|client| {
            let (db, table, stop) = (db.clone(), table.clone(), Arc::clone(&stop));
            spawn("client", move || {
                let mut count = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    let mut tx = db.begin().unwrap();
                    tx.put(&table, [client], count.to_be_bytes()).unwrap();
                    tx.put(&table, [client, (count % 100) as u8], vec![client; 500]).unwrap();
                    tx.commit().unwrap();
                }
                count
            })
        })
        .collect();
    let mut phases = Vec::new();
    db.change_log_devices(LogChange::Add { new: "log-1".into() }, &mut |progress| phases.push(progress.phase)).unwrap();
    phases.dedup();
    assert_eq!(phases, [LogChangePhase::Create, LogChangePhase::Join]);
    assert_eq!(db.stats().unwrap().log.devices.len(), 4, "two partitions each");
    db.replace_log_device("log-0", "log-2").unwrap();
    db.replace_log_device("log-1", "log-1").unwrap();
    // A number of log-2: it came while 0 to 3 were taken.
    db.remove_log_device("4").unwrap();
    db.add_log_device("log-0").unwrap();
    assert_eq!(db.stats().unwrap().log.devices.len(), 4);
    stop.store(true, Ordering::Relaxed);
    let counts: Vec<u64> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(counts.iter().all(|&count| count > 0));
    assert!(db.stats().unwrap().log.devices.iter().all(|device| device.set_aside.is_none() && !device.is_changing));
    let before = contents(&db).unwrap();
    let record = recorded(dir.path());
    assert_eq!(record.len(), 2);
    drop((db, table));

    let db = Db::open(dir.path()).unwrap();
    assert_eq!(contents(&db).unwrap(), before);
    assert_eq!(recorded(dir.path()), record);
    check(&db);
    let table = db.table("t").unwrap();
    for (client, count) in counts.into_iter().enumerate() {
        let value = db.begin().unwrap().get(&table, [client as u8]).unwrap().unwrap();
        assert_eq!(value, count.to_be_bytes()[..]);
    }
}

#[test]
fn what_a_crash_leaves_in_the_record_is_put_right() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("log-devices.toml");
    let db = one_partition().open(dir.path()).unwrap();
    put(&db, &db.table("t").unwrap(), &[("k", "v")]);
    // Each session notes itself in the record; what a crash leaves is of the last one.
    let is_session = |line: &&str| line.starts_with("session = ");
    let read = || fs::read_to_string(&record).unwrap();
    let entries = |text: &str| text.lines().filter(|line| !is_session(line)).collect::<Vec<_>>().join("\n");
    let leave = |text: &str| {
        let (session, now) = (|text: &str| text.lines().find(is_session).unwrap().to_owned(), read());
        fs::write(&record, text.replace(&session(text), &session(&now))).unwrap();
    };
    let with_one = read();
    db.add_log_device("log-1").unwrap();
    let with_both = read();
    db.remove_log_device("log-1").unwrap();
    drop(db);
    assert_eq!(entries(&read()), entries(&with_one));

    // After the removal and before the record of it; log-1 still holds what it held.
    leave(&with_both);
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(names(&db), ["log-0"]);
    assert_eq!(get(&db, &db.table("t").unwrap(), "k").unwrap(), b"v");
    assert_eq!(entries(&read()), entries(&with_one));
    drop(db);

    // After the record of an addition: the file is missing, or blank.
    for blank in [false, true] {
        let entry = format!("{with_one}\n[[device]]\npath = \"log-7\"\nids = []\n");
        leave(&entry);
        if blank {
            fs::write(dir.path().join("log-7"), vec![0; 2 << 20]).unwrap();
        }
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(names(&db), ["log-0"], "{blank}");
        assert_eq!(entries(&read()), entries(&with_one));
        if blank {
            db.add_log_device("log-7").unwrap();
        }
    }

    // Without a record, as the settings say; that is not enough any more.
    fs::remove_file(&record).unwrap();
    let error = Db::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("log device 1 of 2 is missing"), "{error}");
    let db = Db::builder().log_devices(["log-0", "log-7"]).open(dir.path()).unwrap();
    assert_eq!(recorded(dir.path()), [Path::new("log-0"), Path::new("log-7")]);
    check(&db);
}

#[test]
fn the_settings_find_devices_that_were_moved() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = one_partition().open(dir.path()).unwrap();
    put(&db, &db.table("t").unwrap(), &[("k", "v")]);
    db.replace_log_device("log-0", elsewhere.path().join("a")).unwrap();
    drop(db);
    assert_eq!(recorded(dir.path()), [elsewhere.path().join("a")]);
    fs::rename(elsewhere.path().join("a"), elsewhere.path().join("b")).unwrap();
    let error = Db::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("/a is missing, but"), "no device is left: {error}");
    let db = Db::builder().log_devices([elsewhere.path().join("b")]).open(dir.path()).unwrap();
    drop(db);
    assert_eq!(recorded(dir.path()), [elsewhere.path().join("b")]);
    // The settings of old do no harm: log-0 was removed.
    let db = Db::builder().log_devices(["log-0"]).open(dir.path()).unwrap();
    assert_eq!(get(&db, &db.table("t").unwrap(), "k").unwrap(), b"v");
    assert_eq!(names(&db), ["b"]);
}

#[test]
fn what_was_measured_of_the_devices_in_the_settings_does_not_hinder_others() {
    let dir = tempfile::tempdir().unwrap();
    let measured = "format = 1\ndevice = \"a disk\"\n\n[[write_latency]]\nbytes = 4096\nmean_us = 100.0\n";
    ["a.toml", "b.toml"].iter().for_each(|name| fs::write(dir.path().join(name), measured).unwrap());
    let builder = || {
        one_partition()
            .log_devices(["log-a", "log-b"])
            .expert(|expert| expert.log_characteristics(["a.toml", "b.toml"]))
    };
    let db = builder().open(dir.path()).unwrap();
    db.add_log_device("log-c").unwrap();
    drop(db);
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(names(&db), ["log-a", "log-b", "log-c"]);
    db.remove_log_device("log-a").unwrap();
    drop(db);
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(names(&db), ["log-b", "log-c"]);
    drop(db);
    let error =
        builder().expert(|expert| expert.log_characteristics(["a.toml"])).open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("log_characteristics"), "{error}");
}

#[test]
fn a_device_is_removed_by_each_name_that_the_statistics_tell() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.add_log_device("log-1").unwrap();
    let of_log_1 = || {
        let devices = db.stats().unwrap().log.devices;
        devices.into_iter().filter(|device| device.name.contains("log-1")).collect::<Vec<_>>()
    };
    assert_eq!(of_log_1().len(), 2, "two partitions");
    let ways: [fn(&[tantalum::LogDeviceStats]) -> String; 5] = [
        |_| "log-1".into(),
        |devices| devices[0].name.clone(),
        |devices| devices[1].name.clone(),
        |devices| devices[0].ordinal.to_string(),
        |devices| devices[1].ordinal.to_string(),
    ];
    for way in ways {
        let name = way(&of_log_1());
        db.remove_log_device(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((of_log_1().len(), recorded(dir.path())), (0, vec!["log-0".into()]), "{name} goes as a whole");
        db.add_log_device("log-1").unwrap();
    }
    for name in ["", "log-2", "9"] {
        let error = db.remove_log_device(name).unwrap_err();
        assert!(error.to_string().contains("is no device of the log"), "{name:?}: {error}");
    }
}

#[test]
fn a_log_in_another_layout_keeps_its_devices() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LogLayout::Striped { unit_bytes: 4096 };
    let builder = || one_partition().expert(|expert| expert.log_layout(layout)).log_devices(["log-a", "log-b"]);
    let db = builder().open(dir.path()).unwrap();
    for refused in [db.add_log_device("log-c"), db.remove_log_device("log-a"), db.replace_log_device("0", "log-c")] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains(&format!("a log in the {layout} layout are fixed")));
    }
    assert!(!dir.path().join("log-c").exists(), "nothing is made in vain");
    let log = tantalum::locate_log(dir.path()).unwrap();
    assert_eq!((log.is_recorded, log.devices.len()), (false, 2), "the settings name them");
    drop(db);
    check(&builder().open(dir.path()).unwrap());
}

#[test]
fn what_cannot_be_a_log_device_is_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = one_partition().open(dir.path()).unwrap();
    let before = recorded(dir.path());
    fs::write(dir.path().join("letters"), vec![7; 2 << 20]).unwrap();
    fs::write(dir.path().join("letter.partial"), "dear").unwrap();
    fs::write(dir.path().join("small"), [0; 8192]).unwrap();
    for (path, words) in [
        ("letters", "not blank"),
        ("small", "too few"),
        ("data", "a file of the database"),
        ("./doublewrite", "a file of the database"),
        ("CREATING", "a file of the database"),
        ("./LOCK", "a file of the database"),
        ("log-devices.toml.new", "a file of the database"),
        ("letter", "letter.partial exists"),
        ("log-0", "is device 0 of this log already"),
        ("no/such/directory", "no/such/directory"),
    ] {
        let error = db.add_log_device(path).unwrap_err().to_string();
        assert!(error.contains(words), "{path}: {error}");
    }
    let other = tempfile::tempdir().unwrap();
    one_partition().open(other.path()).unwrap().close().unwrap();
    let error = db.add_log_device(other.path().join("log-0")).unwrap_err();
    assert!(error.kind() == ErrorKind::AlreadyExists, "the log of another database: {error}");
    for name in ["log-1", "1", ""] {
        let error = db.remove_log_device(name).unwrap_err().to_string();
        assert!(error.contains("is no device of the log") && error.contains("log-0"), "{error}");
    }
    for error in [db.remove_log_device("log-0").unwrap_err(), db.replace_log_device("0", "log-0").unwrap_err()] {
        assert!(error.to_string().contains("no other device of the log is healthy"), "{error}");
    }
    assert_eq!(recorded(dir.path()), before);
    assert_eq!(names(&db), ["log-0"]);
    let device: Arc<dyn Device> = MemoryDevice::new("m", 2 << 20);
    assert!(db.add_log_device(device).unwrap_err().to_string().contains("by its path"));
    check(&db);
}

#[test]
fn a_device_that_fails_is_told_of_left_out_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let device = |name: &str| MemoryDevice::new(name, 4 << 20);
    let (data, a, b, c) = (device("data"), device("mem:a"), device("mem:b"), device("mem:c"));
    let open = |lost: &'static str| {
        let shelf = [("mem:data", data.clone()), ("mem:a", a.clone()), ("mem:b", b.clone()), ("mem:c", c.clone())];
        let opener = move |request: DeviceRequest<'_>| {
            if request.name == lost {
                return Some(Err("it is gone".into()));
            }
            let (_, device) = shelf.iter().find(|(name, _)| *name == request.name)?;
            Some(Ok(Arc::clone(device) as Arc<dyn Device>))
        };
        let builder =
            Db::builder().log_bytes(4 << 20).buffer_pool_bytes(64 * 4096).expert(|expert| expert.device_opener(opener));
        builder.data_device("mem:data").log_devices(["mem:a", "mem:b"]).open(dir.path())
    };
    let db = open("").unwrap();
    let table = db.table("t").unwrap();
    b.inject(Fault::FailWrites { after: 0 });
    for n in 0..50u32 {
        put(&db, &table, &[(&n.to_string(), "v")]);
    }
    // Requests go to whichever device is faster, a checkpoint to both.
    db.checkpoint().unwrap();
    let aside = |db: &Db| db.stats().unwrap().log.devices.into_iter().find(|device| device.set_aside.is_some());
    let told = aside(&db).expect("b was set aside");
    assert_eq!((&*told.name, told.ordinal), ("mem:b", 1));
    assert!(told.set_aside.unwrap().to_string().contains("mem:b"));
    assert!(db.stats().unwrap().remedies[0].contains("tantalum log replace-device DIR 1 NEW"));
    drop(table);
    db.close().unwrap();

    // Closing checkpoints, so nothing on it is needed.
    let db = open("mem:b").unwrap();
    let told = aside(&db).expect("b is absent");
    assert_eq!((&*told.name, told.ordinal), ("mem:b", 1), "the record knows its name");
    db.replace_log_device("mem:b", "mem:c").unwrap();
    assert_eq!(aside(&db).map(|device| device.name), None);
    assert_eq!(recorded(dir.path()), [Path::new("mem:a"), Path::new("mem:c")]);
    put(&db, &db.table("t").unwrap(), &[("x", "y")]);
    db.close().unwrap();
    b.clear_faults();
    let error = open("mem:c").map(drop).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("cannot open the device mem:c: ") && text.contains("; therefore log device 2 of "),
        "{text}"
    );
    let db = open("").unwrap();
    assert_eq!(names(&db), ["mem:a", "mem:c"]);
    // Whole again, it comes back as a new device.
    db.add_log_device("mem:b").unwrap();
    assert_eq!(names(&db), ["mem:a", "mem:b", "mem:c"]);
    check(&db);
}

#[test]
fn a_device_stays_while_no_checkpoint_can_be_made() {
    let run = || {
        let device = |name: &str| MemoryDevice::new(name, 4 << 20);
        let (data, a, b) = (device("data"), device("a"), device("b"));
        let log = [&a, &b].map(|device| Arc::clone(device) as Arc<dyn Device>).to_vec();
        let devices = Devices { data: data.clone(), double_write: None, log };
        let protection = TornPageProtection::FullPageImages;
        let builder =
            Db::builder().buffer_pool_bytes(64 * 4096).expert(|expert| expert.torn_page_protection(protection));
        let db = builder.open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("k", "v")]);
        data.inject(Fault::FailWrites { after: 0 });
        let refused = db.remove_log_device("a").unwrap_err();
        assert!(
            refused.to_string().contains("what they hold is needed until a checkpoint, and that failed"),
            "{refused}"
        );
        let cause = refused.cause::<Error>().expect("its cause");
        assert!(cause.to_string().contains("data"), "it says which device is to be put right: {cause}");
        assert!(cause.is_io() && refused.is_io(), "{cause:?}");
        assert_eq!(names(&db), ["a", "b"]);
        assert!(db.stats().unwrap().log.devices.iter().all(|device| !device.is_changing), "both serve as before");
        put(&db, &table, &[("k", "w")]);
    };
    Simulation::new(1).time_limit(Duration::from_secs(3600)).run(run).expect_finished();
}

/// Memory devices on a shelf, by name; those that are `lost` cannot be opened.
fn open_mirrored(dir: &Path, shelf: &[Arc<MemoryDevice>], lost: &[&str]) -> tantalum::Result<Db> {
    let shelf: Vec<_> = shelf.iter().map(|device| (device.name().to_owned(), Arc::clone(device))).collect();
    let lost: Vec<String> = lost.iter().map(|&name| name.to_owned()).collect();
    let opener = move |request: DeviceRequest<'_>| {
        if lost.iter().any(|name| name == request.name) {
            return Some(Err("it burnt".into()));
        }
        let (_, device) = shelf.iter().find(|(name, _)| *name == request.name)?;
        Some(Ok(Arc::clone(device) as Arc<dyn Device>))
    };
    let builder =
        Db::builder().log_bytes(4 << 20).buffer_pool_bytes(64 * 4096).expert(|expert| expert.device_opener(opener));
    builder.data_device("mem:data").log_devices(["mem:a", "mem:b"]).log_copies(2).open(dir)
}

#[test]
fn what_was_left_behind_is_no_substitute_for_what_turns_out_to_be_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = ["mem:data", "mem:a", "mem:b"].map(|name| MemoryDevice::new(name, 4 << 20));
    let (mut refused, mut opened) = (0, 0);
    for after in 0..40u64 {
        // Neither may be marked before.
        let db = open_mirrored(dir.path(), &shelf, &[]).unwrap();
        db.checkpoint().unwrap();
        drop(db);
        let (key, db) = (after.to_string(), open_mirrored(dir.path(), &shelf, &["mem:a"]).unwrap());
        put(&db, &db.table("t").unwrap(), &[(&key, "without a")]);
        drop(db);
        shelf[2].inject(Fault::FailReads { after });
        match open_mirrored(dir.path(), &shelf, &[]) {
            Ok(db) => {
                assert_eq!(get(&db, &db.table("t").unwrap(), &key).unwrap(), b"without a", "after {after} reads");
                opened += 1;
            }
            Err(error) if error.to_string().starts_with("the log went on without ") => {
                let words = "the log went on without mem:a, and what followed is on mem:b, which";
                assert!(error.to_string().starts_with(words), "{error}");
                refused += 1;
            }
            Err(_) => {}
        }
        shelf[2].clear_faults();
        let db = open_mirrored(dir.path(), &shelf, &[]).unwrap();
        assert_eq!(get(&db, &db.table("t").unwrap(), &key).unwrap(), b"without a", "after {after} reads");
    }
    assert!(refused > 3 && opened > 3, "{refused} and {opened}");
}

#[test]
fn with_two_copies_either_device_may_be_lost_but_what_was_left_behind_is_no_substitute() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = ["mem:data", "mem:a", "mem:b", "mem:c"].map(|name| MemoryDevice::new(name, 4 << 20));
    let db = open_mirrored(dir.path(), &shelf, &[]).unwrap();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("first", "1")]);
    let log = db.stats().unwrap().log;
    assert!(log.copies == 2 && log.keeps_copies && log.may_lose_a_device && log.single_copies == 0);
    drop((table, db));

    for lost in ["mem:a", "mem:b"] {
        let db = open_mirrored(dir.path(), &shelf, &[lost]).unwrap();
        assert_eq!(get(&db, &db.table("t").unwrap(), "first").unwrap(), b"1");
        put(&db, &db.table("t").unwrap(), &[(lost, "without it")]);
        let log = db.stats().unwrap().log;
        assert!(!log.keeps_copies && log.single_copies > 0 && !log.may_lose_a_device, "{lost}");
        let absent = log.devices.iter().find(|device| device.set_aside.is_some()).unwrap();
        assert!(absent.name == lost && db.stats().unwrap().remedies.len() == 1);
        drop(db);
        // The one that was lost returns without the other: it lacks what followed.
        let other = if lost == "mem:a" { "mem:b" } else { "mem:a" };
        let error = open_mirrored(dir.path(), &shelf, &[other]).map(drop).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("the log went on without {lost}, and what followed is on {other}, which"))
        );
        let db = open_mirrored(dir.path(), &shelf, &[]).unwrap();
        assert_eq!(get(&db, &db.table("t").unwrap(), lost).unwrap(), b"without it");
        db.checkpoint().unwrap();
        assert!(db.stats().unwrap().log.may_lose_a_device);
    }

    let db = open_mirrored(dir.path(), &shelf, &["mem:b"]).unwrap();
    db.replace_log_device("mem:b", "mem:c").unwrap();
    put(&db, &db.table("t").unwrap(), &[("last", "1")]);
    db.checkpoint().unwrap();
    assert!(db.stats().unwrap().log.may_lose_a_device);
    let refused = db.remove_log_device("mem:c").unwrap_err().to_string();
    assert!(refused.contains("two copies"), "{refused}");
    drop(db);
    let db = open_mirrored(dir.path(), &shelf, &["mem:a", "mem:b"]).unwrap();
    assert_eq!(get(&db, &db.table("t").unwrap(), "last").unwrap(), b"1");
    check(&db);
}
