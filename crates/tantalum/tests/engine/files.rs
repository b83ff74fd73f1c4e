//! The database's directory: which process may have it open, and what is said when something in it is wrong.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tantalum::{Db, ErrorKind, LogLayout, Result};

use crate::support::{check, contents, get, open, put, small};

fn filled(path: &Path) {
    let db = open(path);
    let table = db.table("t").unwrap();
    put(&db, &table, &[("a", "1"), ("b", "2")]);
    db.close().unwrap();
}

fn message(result: Result<Db>) -> String {
    result.expect_err("it cannot be opened").to_string()
}

#[test]
fn a_second_open_names_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    match small().open(dir.path()) {
        Err(error) => assert!(error.to_string().contains("this process has the database open already"), "{error}"),
        other => panic!("{other:?}"),
    }
    // A transaction keeps the database open as well.
    let tx = db.begin().unwrap();
    drop(db);
    assert!(matches!(small().open(dir.path()), Err(error) if error.kind() == ErrorKind::InUse));
    drop(tx);
    check(&open(dir.path()));
}

#[test]
fn a_database_is_created_only_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    assert!(matches!(small().create_if_missing(false).open(&path), Err(error) if error.kind() == ErrorKind::NotFound));
    assert!(!path.exists());
    filled(&path);
    check(&small().create_if_missing(false).open(&path).unwrap());
    let deeper = dir.path().join("no/such/parent");
    assert!(message(small().open(&deeper)).contains("no/such/parent"));
    fs::write(dir.path().join("file"), "x").unwrap();
    assert!(message(small().open(dir.path().join("file"))).contains("file"));
}

#[test]
fn settings_come_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let toml = dir.path().join("tantalum.toml");
    fs::write(&toml, "page_size = 8192\nbuffer_pool_bytes = 1048576\nlog_bytes = 4194304\n").unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.stats().unwrap().page_bytes, 8192);
    assert_eq!(db.stats().unwrap().pool.frames, 128);
    drop(db);
    fs::write(&toml, "# mine\npage_size = 8192\npage_sise = 4096\n").unwrap();
    let text = message(Db::open(dir.path()));
    assert!(text.contains("tantalum.toml, line 3") && text.contains("page_sise"), "{text}");
    fs::write(&toml, "page_size = 4097\n").unwrap();
    let text = message(Db::open(dir.path()));
    assert!(text.contains("line 1") && text.contains("4097"), "{text}");
}

#[test]
fn another_page_size_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let text = message(small().page_size(16384).buffer_pool_bytes(64 * 16384).open(dir.path()));
    assert!(text.contains("page_size") && text.contains("16384") && text.contains("4096"), "{text}");
    check(&open(dir.path()));
}

#[test]
fn a_missing_file_is_named() {
    for name in ["data", "log-0", "doublewrite"] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let file = dir.path().join(name);
        fs::rename(&file, dir.path().join("away")).unwrap();
        match small().open(dir.path()) {
            Err(error) => {
                assert!(error.to_string().starts_with(&format!("{} is missing, but", file.display())), "{error}")
            }
            other => panic!("{name}: {other:?}"),
        }
        fs::rename(dir.path().join("away"), &file).unwrap();
        assert_eq!(contents(&open(dir.path())).unwrap()[0].1.len(), 2);
    }
}

#[test]
fn a_truncated_file_is_reported() {
    for (name, left) in
        [("data", 0), ("data", 4096), ("data", 3 * 4096), ("log-0", 0), ("log-0", 1 << 20), ("doublewrite", 0)]
    {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let file = fs::OpenOptions::new().write(true).open(dir.path().join(name)).unwrap();
        file.set_len(left).unwrap();
        let result = small().open(dir.path()).and_then(|db| Ok((contents(&db)?, db.check()?)));
        match result {
            Err(error) => assert!(error.to_string().contains(name), "{name} of {left} bytes: {error}"),
            Ok((read, report)) => {
                let is_right = read.len() == 1 && read[0].1.len() == 2;
                assert!(is_right || !report.is_sound(), "{name} of {left} bytes: it reads as {read:?}");
            }
        }
    }
}

#[test]
fn a_blanked_superblock_is_no_reason_to_begin_anew() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let file = fs::OpenOptions::new().write(true).open(dir.path().join("data")).unwrap();
    file.write_all_at(&[0; 8192], 0).unwrap();
    let before = fs::read(dir.path().join("log-0")).unwrap();
    let text = message(small().open(dir.path()));
    assert!(text.contains("data"), "{text}");
    assert!(fs::read(dir.path().join("log-0")).unwrap() == before, "nothing was touched");
}

#[test]
fn a_byte_of_the_settings_changes_nothing_silently() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let toml = dir.path().join("tantalum.toml");
    let text = fs::read(&toml).unwrap();
    for offset in (0..text.len()).step_by(5) {
        let mut flipped = text.clone();
        flipped[offset] ^= 1 << (offset % 7);
        fs::write(&toml, &flipped).unwrap();
        if let Ok(db) = Db::open(dir.path()) {
            assert_eq!(contents(&db).unwrap()[0].1.len(), 2, "byte {offset}");
        }
    }
    fs::write(&toml, &text).unwrap();
    check(&Db::open(dir.path()).unwrap());
}

#[test]
fn a_creation_that_did_not_end_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    // As a crash leaves it before the superblock is written: every file may be there in part.
    fs::write(dir.path().join("CREATING"), "").unwrap();
    fs::OpenOptions::new().write(true).open(dir.path().join("data")).unwrap().set_len(40960).unwrap();
    fs::remove_file(dir.path().join("doublewrite")).unwrap();
    let db = open(dir.path());
    assert_eq!(db.tables().unwrap(), [] as [&str; 0]);
    put(&db, &db.table("t").unwrap(), &[("k", "v")]);
    drop(db);
    let db = open(dir.path());
    assert_eq!(get(&db, &db.table("t").unwrap(), "k").unwrap(), b"v");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    for name in ["data", "log-0", "LOCK"] {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o400)).unwrap();
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
    // The superuser may write all the same.
    match small().open(dir.path()) {
        Ok(db) => check(&db),
        Err(error) => assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}"),
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_log_can_lie_on_several_devices_elsewhere() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths = [elsewhere.path().join("one"), elsewhere.path().join("two")];
    let builder = || Db::builder().log_bytes(2 << 20).buffer_pool_bytes(64 * 4096);
    let db = builder().log_devices(&paths).open(dir.path()).unwrap();
    put(&db, &db.table("t").unwrap(), &[("k", "v")]);
    assert_eq!(db.stats().unwrap().log.devices.len(), 2);
    drop(db);
    // Their places are kept in the settings; given explicitly, their order does not matter.
    check(&Db::open(dir.path()).unwrap());
    check(&builder().log_devices(paths.iter().rev()).open(dir.path()).unwrap());
    fs::remove_file(&paths[1]).unwrap();
    let text = message(Db::open(dir.path()));
    assert!(text.contains("two"), "{text}");
}

#[test]
fn the_log_can_lie_as_conventional_logs_do() {
    let striped = |unit_bytes| LogLayout::Striped { unit_bytes };
    for (layout, count) in [(LogLayout::Single, 1), (striped(4096), 2), (striped(65536), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..count).map(|n| format!("part-{n}")).collect();
        let builder = || Db::builder().log_bytes(2 << 20).buffer_pool_bytes(64 * 4096).log_devices(&names);
        let db = builder().expert(|expert| expert.log_layout(layout)).open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        for n in 0..200 {
            put(&db, &table, &[("k", &format!("{n}")), (&format!("{n}"), "v")]);
        }
        drop(db);
        // The settings keep it, and without them the log knows.
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(get(&db, &db.table("t").unwrap(), "k").as_deref(), Some(&b"199"[..]));
        check(&db);
        db.close().unwrap();
        let toml = dir.path().join("tantalum.toml");
        let text = fs::read_to_string(&toml).unwrap();
        assert!(text.contains(&format!("log_layout = \"{layout}\"")), "{text}");
        let without: String =
            text.lines().filter(|line| !line.starts_with("log_layout")).map(|l| l.to_owned() + "\n").collect();
        fs::write(&toml, without).unwrap();
        drop(Db::open(dir.path()).unwrap());
        let other = message(builder().expert(|expert| expert.log_layout(LogLayout::FlashLogging)).open(dir.path()));
        assert!(other.contains("log_layout") && other.contains(&layout.to_string()), "{other}");
    }
}

#[test]
fn the_log_layout_can_be_a_table_in_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let toml = dir.path().join("tantalum.toml");
    fs::write(&toml, "log_layout = { striped = \"8KiB\" }\nlog_devices = [\"a\", \"b\"]\nlog_bytes = 4194304\n")
        .unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.stats().unwrap().log.devices.len(), 1, "an array is one device to the log");
    drop(db);
    fs::write(&toml, "log_layout = { striped = \"8KiB\", unit = 3 }\n").unwrap();
    assert!(message(Db::open(dir.path())).contains("log_layout"));
}
