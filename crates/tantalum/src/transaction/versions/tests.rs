use std::{collections::BTreeMap, ops::Bound};

use tantalum_device::MemoryDevice;
use tantalum_rt::Random;

use super::{super::key_range::Interval, run::RunWriter, *};
use crate::{Db, Devices, StoreKind, tree::Reference};

pub(in crate::transaction) fn database(store: StoreKind) -> Db {
    let double_write = (store == StoreKind::InPlace).then(|| MemoryDevice::new("area", 1 << 20) as _);
    let devices = Devices {
        data: MemoryDevice::new("data", 4 << 20),
        double_write,
        log: vec![MemoryDevice::new("log", 4 << 20)],
    };
    let builder = Db::builder().page_store(store).buffer_pool_bytes(64 * 4096);
    let builder = if store == StoreKind::LogStructured {
        builder.expert(|expert| expert.segment_bytes(64 << 10))
    } else {
        builder
    };
    builder.open_on(devices).expect("the database opens")
}

type Entries = BTreeMap<(TableId, Vec<u8>, u64), Option<Content>>;

/// Some keys with several versions, some values across pages and some in a value tree, and enough for several pages to a fence.
fn entries(random: &mut Random) -> Entries {
    let mut entries = Entries::new();
    while entries.len() < 60_000 {
        let key = (TableId(random.u32(2..4)), random.u32(0..20_000).to_be_bytes().to_vec(), random.u64(1..1000));
        let len = if random.u32(0..2000) == 0 { random.usize(0..40_000) } else { random.usize(0..120) };
        let content = match random.u8(0..16) {
            0 | 1 => None,
            2 => Some(Content::Large(Reference { id: random.u64(..), length: 1 + len as u32, born: random.u64(..) })),
            _ => Some(Value::from(vec![random.u8(..); len]).into()),
        };
        entries.insert(key, content);
    }
    entries
}

#[test]
fn a_run_shows_each_snapshot_the_oldest_version_after_it() {
    for store in [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging] {
        let (mut random, db) = (Random::with_seed(7), database(store));
        let entries = entries(&mut random);
        let mut writer = RunWriter::new(db.space(), 1);
        for ((table, key, by), value) in &entries {
            writer.push(*table, key, *by, value.as_ref()).expect("there is room");
        }
        let run = writer.finish().expect("there is room").expect("there are entries");
        assert_eq!((run.entries(), run.newest_overwrite()), (60_000, 999));
        assert!(u64::from(run.pages()) <= db.space().scratch_pages());

        let mut cursor = run.entries_in_order();
        for ((table, key, by), value) in &entries {
            let entry = cursor.peek().expect("it can be read").expect("it is there").clone();
            assert_eq!((entry.table, &entry.key, entry.overwritten_by), (*table, key, *by));
            assert_eq!(cursor.take_value().expect("it can be read"), *value);
        }
        assert!(cursor.peek().expect("it can be read").is_none());

        let seen_until = |table: TableId, key: &[u8], snapshot: u64, until: u64| {
            let after =
                (Bound::Excluded((table, key.to_vec(), snapshot)), Bound::Included((table, key.to_vec(), u64::MAX)));
            let found = entries.range(after).next().filter(|((_, _, overwritten_by), _)| *overwritten_by <= until);
            found.map(|(_, value)| value.clone())
        };
        let seen = |table, key: &[u8], snapshot| seen_until(table, key, snapshot, u64::MAX);
        for _ in 0..3000 {
            let (table, snapshot) = (TableId(random.u32(1..5)), random.u64(0..1001));
            let key = random.u32(0..20_001).to_be_bytes();
            let until = if random.bool() { u64::MAX } else { random.u64(0..1001) };
            let found = run.find(table, &key, &(snapshot + 1..=until)).expect("it can be read");
            assert_eq!(found, seen_until(table, &key, snapshot, until));
        }
        for _ in 0..100 {
            let (table, snapshot, low) = (TableId(random.u32(1..5)), random.u64(0..1001), random.u32(0..20_000));
            let keys: Vec<_> = (low..low + random.u32(0..50)).map(u32::to_be_bytes).collect();
            let Some(last) = keys.last() else { continue };
            let interval = Interval::of(&keys[0][..]..=&last[..]);
            let mut found = Vec::new();
            let visit = &mut |key: Value, content: Option<Content>| found.push((key.to_vec(), content));
            run.find_range(table, &interval, &(snapshot + 1..=u64::MAX), visit).expect("it can be read");
            let expected = keys.iter().filter_map(|key| Some((key.to_vec(), seen(table, key, snapshot)?)));
            assert!(found.into_iter().eq(expected));
        }
        drop(cursor);
        drop(run);
        assert_eq!(db.space().scratch_pages(), 0);
        assert!(db.check().expect("it can be read").is_sound());
    }
}
