//! How often a page that is read waits for one that is written, in virtual time on emulated drives.

use std::{sync::Arc, time::Duration};

use tantalum::{Db, Devices, ErrorKind, PageCleaning, PoolStats};
use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Random, Scheduling, Simulation};

use crate::support::{check, wait_until_applied};

const READ: Duration = Duration::from_micros(100);

/// What a run is made of.
#[derive(Clone, Copy)]
struct Load {
    profile: &'static str,
    cleaning: PageCleaning,
    keys: u64,
    pool_frames: u64,
    clients: u64,
    /// Of each client.
    operations: u64,
}

fn drive(profile: &str, bytes: u64) -> Arc<dyn Device> {
    EmulatedDevice::new(profile, Profile::named(profile).unwrap().with_capacity(bytes).build().unwrap())
}

/// Three reads to each write of random rows, most of which do not fit into the pool.
fn run(load: Load) -> PoolStats {
    let Load { profile, cleaning, keys, pool_frames, clients, operations } = load;
    let simulated = move || {
        let data = Devices::on_data_device(drive(profile, 64 << 20), 4096, vec![drive("durassd", 32 << 20)]).unwrap();
        let builder =
            Db::builder().buffer_pool_bytes(pool_frames * 4096).expert(|expert| expert.page_cleaning(cleaning));
        let db = builder.open_on(data).unwrap();
        let table = db.table("t").unwrap();
        for chunk in (0..keys).collect::<Vec<_>>().chunks(100) {
            let mut tx = db.begin().unwrap();
            chunk.iter().for_each(|key| tx.put(&table, key.to_be_bytes(), [7; 600]).unwrap());
            tx.commit().unwrap();
        }
        let loaded = db.stats().unwrap().pool;
        let client = |number: u64| {
            let (db, table) = (db.clone(), table.clone());
            tantalum_rt::spawn("client", move || {
                let mut random = Random::with_seed(number);
                for _ in 0..operations {
                    let key = random.u64(..keys).to_be_bytes();
                    let mut tx = db.begin().unwrap();
                    match random.u8(0..4) {
                        0 => tx.put(&table, key, [number as u8; 600]).unwrap(),
                        _ => assert!(tx.get(&table, key).unwrap().is_some()),
                    }
                    tx.commit().unwrap();
                }
            })
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let stats = db.stats().unwrap().pool;
        check(&db);
        stats.since(&loaded)
    };
    Simulation::new(1).scheduling(Scheduling::InOrder).run(simulated).expect_finished()
}

fn blocked_percent(pool: &PoolStats) -> f64 {
    assert!(pool.fault_reads > 5000, "{pool:?}");
    100.0 * pool.blocked_reads as f64 / pool.fault_reads as f64
}

#[test]
fn with_a_reserve_hardly_any_read_waits_for_a_write() {
    let load =
        |cleaning| Load { profile: "durassd", cleaning, keys: 12_000, pool_frames: 320, clients: 32, operations: 400 };
    let ahead = run(load(PageCleaning::Ahead));
    assert!(blocked_percent(&ahead) < 1.0, "{ahead:?}");
    let on_demand = run(load(PageCleaning::OnDemand));
    assert!(blocked_percent(&on_demand) > 10.0, "{on_demand:?}");
    assert_eq!(on_demand.reserve_frames, 0);
}

#[test]
fn a_device_that_writes_slowly_gets_a_larger_reserve() {
    // So many clients that the least reserve is too small on the slow one, and so few that the largest is not reached on both.
    let [fast, slow] = ["durassd", "ssd-a"].map(|profile| {
        let cleaning = PageCleaning::Ahead;
        run(Load { profile, cleaning, keys: 30_000, pool_frames: 1600, clients: 8, operations: 1000 })
    });
    assert!(slow.reserve_frames > fast.reserve_frames, "{slow:?}, {fast:?}");
}

/// Keys that are read together, or announced, have their pages read at the same time; also where hints lead to frames that have other
/// pages by now.
#[test]
fn keys_that_are_prefetched_share_the_time_of_their_reads() {
    let simulated = || {
        let profile = MemoryProfile { read_latency: READ..READ, ..MemoryProfile::default() };
        let devices = Devices {
            data: MemoryDevice::with_profile("data", 64 << 20, profile),
            double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
            log: vec![MemoryDevice::new("log", 32 << 20)],
        };
        let db = Db::builder().buffer_pool_bytes(256 * 4096).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let row = |key: u64| [key as u8; 600];
        for chunk in (0..6000u64).collect::<Vec<_>>().chunks(100) {
            let mut tx = db.begin().unwrap();
            chunk.iter().for_each(|key| tx.put(&table, key.to_be_bytes(), row(*key)).unwrap());
            tx.commit().unwrap();
        }
        wait_until_applied(&db);
        db.checkpoint().unwrap();
        let mut random = Random::with_seed(3);
        let mut times = [Duration::ZERO; 3];
        for round in 0..60 {
            let keys: Vec<u64> = (0..20).map(|_| random.u64(..6200)).collect();
            let expected: Vec<_> = keys.iter().map(|key| (*key < 6000).then(|| row(*key).to_vec())).collect();
            let bytes: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
            let begin = tantalum_rt::now();
            let found: Vec<_> = match round % 3 {
                0 => bytes.iter().map(|key| db.get(&table, key).unwrap()).collect(),
                1 => db.get_many(&table, &bytes).unwrap(),
                _ => {
                    let tx = db.begin().unwrap();
                    tx.prefetch(&table, &bytes).unwrap();
                    bytes.iter().map(|key| tx.get_for_update(&table, key).unwrap()).collect()
                }
            };
            times[round % 3] += tantalum_rt::now() - begin;
            assert!(found.into_iter().map(|value| value.map(|value| value.to_vec())).eq(expected));
        }
        let [one_by_one, together, announced] = times;
        assert!(together * 2 < one_by_one && announced * 2 < one_by_one, "{times:?}");
        assert!(db.stats().unwrap().pool.read_ahead > 500);
        check(&db);
        let snapshot = db.snapshot().unwrap();
        db.drop_table("t").unwrap();
        assert_eq!(snapshot.prefetch(&table, &["a"]).unwrap_err().kind(), ErrorKind::NotFound);
    };
    Simulation::new(1).scheduling(Scheduling::InOrder).run(simulated).expect_finished();
}
