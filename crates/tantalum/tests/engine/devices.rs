//! Databases on devices that their settings name: raw ones, and those of an opener.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use tantalum::{Builder, Db, DeviceRequest, ErrorKind};
use tantalum_device::{Device, Durability, MemoryDevice};
use tantalum_rt::Mutex;

use crate::support::{check, get, put, small};

/// Memory devices by name, which outlive their databases: `shelf:NAME`.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<BTreeMap<String, Arc<MemoryDevice>>>>);

const SHELF_BYTES: u64 = 8 << 20;

impl Shelf {
    fn device(&self, name: &str) -> Arc<MemoryDevice> {
        let new = || MemoryDevice::new(name, SHELF_BYTES);
        self.0.lock().entry(name.to_owned()).or_insert_with(new).clone()
    }

    fn builder(&self) -> Builder {
        let shelf = self.clone();
        small().expert(|expert| {
            expert.device_opener(move |request: DeviceRequest<'_>| {
                let name = request.name.strip_prefix("shelf:")?;
                if !request.may_create && !shelf.0.lock().contains_key(name) {
                    return Some(Err(format!("{name} is not on the shelf").into()));
                }
                Some(Ok(shelf.device(name) as Arc<dyn Device>))
            })
        })
    }
}

fn create(shelf: &Shelf, dir: &Path) -> tantalum::Result<Db> {
    shelf.builder().data_device("shelf:data").log_devices(["shelf:a", "shelf:b"]).open(dir)
}

#[test]
fn an_opener_gives_the_devices_and_the_settings_remember_them() {
    let (shelf, dir) = (Shelf::default(), tempfile::tempdir().unwrap());
    let db = create(&shelf, dir.path()).unwrap();
    put(&db, &db.table("t").unwrap(), &[("k", "v")]);
    // Two partitions each, of what log_bytes allows; a part of each is the hiding area.
    let stats = db.stats().unwrap();
    assert_eq!(stats.log.devices.len(), 4);
    assert!(stats.log.capacity_bytes <= 2 * (4 << 20) && stats.log.capacity_bytes > 4 << 20, "{stats:?}");
    assert!(stats.store.capacity_bytes < SHELF_BYTES, "the double-write area is the device's end");
    drop(db);
    for name in ["data", "log-0", "doublewrite"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    let db = shelf.builder().create_if_missing(false).open(dir.path()).unwrap();
    assert_eq!(get(&db, &db.table("t").unwrap(), "k").unwrap(), b"v");
    check(&db);
    drop(db);

    let error = Db::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("shelf:data"), "without the opener it is a path: {error}");
    let lost = Shelf::default();
    lost.device("data").load(&shelf.device("data").image());
    let error = lost.builder().create_if_missing(false).open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("shelf:a") && error.to_string().contains("not on the shelf"), "{error}");
}

#[test]
fn a_device_that_holds_something_is_not_taken() {
    for name in ["data", "b"] {
        let (shelf, dir) = (Shelf::default(), tempfile::tempdir().unwrap());
        shelf.device(name).write(4096, &[&[7; 4096]], Durability::Durable).unwrap();
        match create(&shelf, dir.path()) {
            Err(error) => {
                assert!(error.kind() == ErrorKind::AlreadyExists && error.to_string().starts_with(name), "{error}")
            }
            other => panic!("{name}: {other:?}"),
        }
        assert!(!dir.path().join("tantalum.toml").exists(), "settings that do not work are not kept");
        shelf.device(name).write(4096, &[&[0; 4096]], Durability::Durable).unwrap();
        check(&create(&shelf, dir.path()).unwrap());
    }
}

#[test]
fn a_file_of_fixed_size_serves_as_the_data_device() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = elsewhere.path().join("disk");
    let open = || small().data_device(&disk).open(dir.path());
    let error = open().unwrap_err().to_string();
    assert!(error.contains("data_device") && error.contains("does not exist"), "{error}");
    fs::File::create(&disk).unwrap().set_len(200 << 10).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("needs at least"), "{error}");
    fs::File::create(&disk).unwrap().set_len(3 << 20).unwrap();

    let db = open().unwrap();
    let table = db.table("t").unwrap();
    let full = (0..2000u32).find_map(|n| {
        let mut tx = db.begin().unwrap();
        tx.put(&table, n.to_be_bytes(), [n as u8; 3000]).and_then(|()| tx.commit()).err()
    });
    assert!(matches!(&full, Some(error) if error.kind() == ErrorKind::StoreFull), "{full:?}");
    check(&db);
    drop((db, table));
    check(&Db::open(dir.path()).unwrap());
    assert_eq!(fs::metadata(&disk).unwrap().len(), 3 << 20);

    // Blank, with a log in the directory: never taken for a new database.
    fs::write(&disk, vec![0; 3 << 20]).unwrap();
    let error = Db::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("disk") && error.contains("blank"), "{error}");
}

#[test]
fn the_log_cannot_lie_on_the_data_device() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = elsewhere.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(3 << 20).unwrap();
    let same = elsewhere.path().join("./disk");
    let error = small().data_device(&disk).log_devices([same]).open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("is the data device"), "{error}");
}
