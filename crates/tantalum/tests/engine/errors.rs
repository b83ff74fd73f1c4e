//! Errors keep what caused them, and name a remedy that helps.

use std::{error::Error as StdError, fmt, fs, io, sync::Arc};

use tantalum::{Db, DeviceRequest, Devices, Error, ErrorKind, StoreKind, control};
use tantalum_device::{Device, Fault, MemoryDevice};

use crate::support::put;

/// Whether an error was caused, however indirectly, by one of this type.
fn is_caused_by<T: StdError + 'static>(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<T>() || error.is::<Arc<T>>() || error.is::<Box<T>>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A database on memory, and its devices for the data and the log.
fn on_memory(store: StoreKind) -> (Db, Arc<MemoryDevice>, Arc<MemoryDevice>) {
    on_memory_of(store, 4 << 20)
}

fn on_memory_of(store: StoreKind, log_bytes: u64) -> (Db, Arc<MemoryDevice>, Arc<MemoryDevice>) {
    let (data, log) = (MemoryDevice::new("data", 16 << 20), MemoryDevice::new("log", log_bytes));
    let double_write =
        (store == StoreKind::InPlace).then(|| MemoryDevice::new("doublewrite", 1 << 20) as Arc<dyn Device>);
    let devices = Devices { data: data.clone(), double_write, log: vec![log.clone()] };
    (Db::builder().page_store(store).open_on(devices).unwrap(), data, log)
}

#[test]
fn a_commit_whose_outcome_is_unknown_names_the_failure_of_the_device() {
    let (db, _, log) = on_memory(StoreKind::InPlace);
    let table = db.table("t").unwrap();
    log.inject(Fault::FailWrites { after: 0 });
    for _ in 0..2 {
        let mut tx = db.begin().unwrap();
        tx.put(&table, "k", "v").unwrap();
        let error = tx.commit().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Poisoned), "{error}");
        assert!(is_caused_by::<tantalum_device::Error>(&error), "{error:?}");
        assert!(is_caused_by::<io::Error>(&error), "{error:?}");
    }
    let (db, data, _) = on_memory(StoreKind::InPageLogging);
    let table = db.table("t").unwrap();
    put(&db, &table, &[("k", "v")]);
    data.inject(Fault::FailWrites { after: 0 });
    let mut tx = db.begin().unwrap();
    tx.put(&table, "k", "w").unwrap();
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(is_caused_by::<tantalum_device::Error>(&error), "{error:?}");
}

#[derive(Debug)]
struct NotToday;

impl fmt::Display for NotToday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not today")
    }
}

impl StdError for NotToday {}

#[test]
fn what_cannot_be_opened_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |request: DeviceRequest<'_>| -> Option<Result<Arc<dyn Device>, Box<dyn StdError + Send + Sync>>> {
        request.name.starts_with("shelf:").then(|| Err(NotToday.into()))
    };
    let error = Db::builder()
        .expert(|expert| expert.device_opener(refuse))
        .data_device("shelf:data")
        .open(dir.path())
        .unwrap_err();
    // The opener's own error, whose type is hidden.
    let cause = error.source().map(ToString::to_string);
    assert!(error.to_string().contains("cannot open the device") && cause.as_deref() == Some("not today"), "{error:?}");

    let dir = tempfile::tempdir().unwrap();
    let builder = || Db::builder().log_bytes(4 << 20).expert(|expert| expert.log_characteristics(["measured.toml"]));
    let error = builder().open(dir.path()).unwrap_err();
    assert!(is_caused_by::<io::Error>(&error), "{error:?}");
    fs::write(dir.path().join("measured.toml"), "format = 9").unwrap();
    let error = builder().open(dir.path()).unwrap_err();
    assert!(
        error.to_string().contains("option log_characteristics: ") && error.to_string().contains("format 9"),
        "{error}"
    );

    let error = control::Client::connect(dir.path()).unwrap_err();
    assert!(is_caused_by::<io::Error>(&error), "{error:?}");
}

/// A value must fit in one record; what is said to raise the limit does.
#[test]
fn a_value_may_be_larger_than_a_record_of_the_log() {
    let (db, ..) = on_memory_of(StoreKind::InPlace, 16 << 20);
    let table = db.table("t").unwrap();
    for bytes in (1..=26).map(|times| times * 40_000) {
        let mut tx = db.begin().unwrap();
        tx.put(&table, "key", vec![7; bytes]).unwrap();
        tx.commit().unwrap();
        assert!(db.get(&table, "key").unwrap().unwrap() == vec![7; bytes][..]);
    }
}
