//! Databases on drives with zones, in virtual time.

use std::sync::Arc;

use tantalum::{Builder, Db, Devices, ErrorKind, StoreKind};
use tantalum_device::{Device, MemoryDevice};
use tantalum_flash::{EmulatedDevice, Kind, Profile};
use tantalum_rt::Simulation;

use crate::support::{check, committed, put};

const ZONES: u64 = 64;

/// A drive with zones of 2 MiB.
fn zoned() -> Arc<EmulatedDevice> {
    let mut profile = Profile::named("nvme-zns").unwrap().with_capacity((16 << 20) + ZONES * (2 << 20));
    let Kind::SolidState(drive) = &mut profile.device else { unreachable!("it is a solid-state drive") };
    drive.geometry.pages_per_block = 8;
    EmulatedDevice::new("zns", profile.build().unwrap())
}

fn memory() -> Arc<dyn Device> {
    MemoryDevice::new("memory", 64 << 20)
}

fn on(data: Arc<dyn Device>, log: Arc<dyn Device>) -> Devices {
    Devices { data, double_write: None, log: vec![log] }
}

fn builder() -> Builder {
    Db::builder().page_store(StoreKind::LogStructured).buffer_pool_bytes(64 * 4096)
}

#[test]
fn segments_are_zones_and_a_database_is_there_after_close_and_crash() {
    let run = || {
        let (data, log) = (zoned(), memory());
        let devices = || on(data.clone(), log.clone());
        let db = builder().open_on(devices()).unwrap();
        let table = db.table("t").unwrap();
        for n in 0..3000_u32 {
            put(&db, &table, &[(&format!("{:05}", n * 7919 % 1000), &format!("{n}{}", "x".repeat(400)))]);
        }
        let before = committed(&db, &table);
        let store = db.stats().unwrap().store.log_structured.unwrap();
        assert_eq!((store.segments, store.page_streams), (ZONES, 2));
        check(&db);
        db.close().unwrap();
        let db = builder().open_on(devices()).unwrap();
        assert_eq!(committed(&db, &db.table("t").unwrap()), before);
        put(&db, &db.table("t").unwrap(), &[("last", "one")]);
        db.checkpoint().unwrap();
        drop(db);
        let read_only = builder().read_only(true).open_on(devices()).unwrap();
        assert_eq!(committed(&read_only, &read_only.table("t").unwrap()).len(), before.len() + 1);
        drop(read_only);
        assert!(data.active_zones().unwrap().len() <= 14);
    };
    Simulation::new(1).run(run).expect_finished();
}

#[test]
fn what_overwrites_refuses_zones_by_name_and_says_what_to_do() {
    let run = || {
        let refused = |builder: Builder, devices: Devices, what: &[&str]| {
            let error = builder.open_on(devices).map(|_| ()).unwrap_err();
            what.iter().for_each(|what| assert!(error.to_string().contains(what), "{error}"));
            error.kind()
        };
        let in_place = || Db::builder().buffer_pool_bytes(64 * 4096);
        let advice = ["zns has zones", "log-structured"];
        assert_eq!(refused(in_place(), on(zoned(), memory()), &advice), ErrorKind::Unsupported);
        let error = Devices::on_data_device(zoned(), 4096, vec![memory()]).map(|_| ()).unwrap_err();
        assert!(advice.iter().all(|what| error.to_string().contains(what)), "{error}");
        let in_page = in_place().page_store(StoreKind::InPageLogging);
        assert_eq!(refused(in_page, on(zoned(), memory()), &advice), ErrorKind::Unsupported);
        let log = ["zns has zones", "put the log elsewhere"];
        assert_eq!(refused(builder(), on(memory(), zoned()), &log), ErrorKind::Unsupported);
        let other_segments = builder().expert(|expert| expert.segment_bytes(1 << 20));
        refused(other_segments, on(zoned(), memory()), &["take segment_bytes = 2097152"]);
    };
    Simulation::new(1).run(run).expect_finished();
}
