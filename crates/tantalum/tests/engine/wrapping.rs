//! What an embedder puts before devices: each device has it, and keeps what it can do.

use std::{collections::BTreeMap, sync::Arc};

use tantalum::{Barriers, Db, DeviceUse, Devices};
use tantalum_device::{
    Device, Ending, MemoryDevice, MemoryProfile, ObservedDevice, Request, RequestKind, RequestObserver,
};
use tantalum_rt::Mutex;

type Counts = Arc<Mutex<BTreeMap<(DeviceUse, &'static str), u64>>>;

#[derive(Debug)]
struct Counter(Counts, DeviceUse);

impl RequestObserver for Counter {
    fn began(&self, request: Request) -> u64 {
        let kind = match request.kind {
            RequestKind::Read => "read",
            RequestKind::Write(_) => "write",
            RequestKind::Flush => "flush",
            RequestKind::Discard => "discard",
        };
        *self.0.lock().entry((self.1, kind)).or_default() += 1;
        0
    }

    fn ended(&self, _number: u64, _ending: Ending) {}
}

fn counted(counts: &Counts) -> tantalum::Builder {
    let counts = Arc::clone(counts);
    let wrap = move |used_for, device| {
        Arc::new(ObservedDevice::new(device, Arc::new(Counter(Arc::clone(&counts), used_for)))) as Arc<dyn Device>
    };
    Db::builder().log_bytes(2 << 20).buffer_pool_bytes(1 << 20).expert(|expert| expert.wrap_devices(wrap))
}

fn devices(is_volatile: bool) -> Devices {
    let device = |name: &str, bytes| -> Arc<dyn Device> {
        let profile = MemoryProfile { volatile_cache: is_volatile, ..MemoryProfile::default() };
        MemoryDevice::with_profile(name, bytes, profile)
    };
    Devices {
        data: device("data", 4 << 20),
        double_write: Some(device("double-write", 2 << 20)),
        log: vec![device("log", 4 << 20)],
    }
}

#[test]
fn all_devices_of_a_database_are_wrapped() {
    let counts = Counts::default();
    let archive = MemoryDevice::new("archive", 8 << 20);
    let db = counted(&counts).expert(|expert| expert.log_archive_on(archive)).open_on(devices(true)).unwrap();
    let table = db.table("t").unwrap();
    let mut transaction = db.begin().unwrap();
    transaction.put(&table, b"key", b"value").unwrap();
    transaction.commit().unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let counts = counts.lock();
    for used_for in [DeviceUse::Data, DeviceUse::DoubleWrite, DeviceUse::Log, DeviceUse::Archive] {
        assert!(counts.get(&(used_for, "write")).is_some_and(|writes| *writes > 0), "{used_for}: {counts:?}");
    }
    assert!(counts.contains_key(&(DeviceUse::Data, "flush")), "{counts:?}");
}

/// Barriers follow what a device says, also from behind what is put before it; and what is not asked of a device is not seen there.
#[test]
fn capabilities_are_those_of_the_device() {
    let counts = Counts::default();
    let db = counted(&counts).open_on(devices(false)).unwrap();
    let barriers = db.stats().unwrap().barriers;
    assert_eq!((barriers.setting, barriers.sent_to.len(), barriers.spared.len()), (Barriers::Auto, 0, 3));
    db.table("t").unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let counts = counts.lock();
    assert!(counts.keys().all(|(_, kind)| *kind != "flush") && counts.len() >= 3, "{counts:?}");
}

#[test]
fn a_device_that_joins_the_log_is_wrapped_too() {
    let counts = Counts::default();
    let dir = tempfile::tempdir().unwrap();
    let wraps = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&wraps);
    let wrap = move |used_for, device: Arc<dyn Device>| {
        told.lock().push((used_for, device.name().rsplit('/').next().unwrap_or_default().to_owned()));
        device
    };
    let db = counted(&counts).expert(|expert| expert.wrap_devices(wrap)).open(dir.path().join("db")).unwrap();
    db.add_log_device("log-1").unwrap();
    db.close().unwrap();
    let wrapped = wraps.lock().clone();
    let expected = [
        (DeviceUse::Data, "data"),
        (DeviceUse::DoubleWrite, "doublewrite"),
        (DeviceUse::Log, "log-0"),
        (DeviceUse::Log, "log-1"),
    ];
    assert_eq!(wrapped, expected.map(|(used_for, name)| (used_for, name.to_owned())));
}
