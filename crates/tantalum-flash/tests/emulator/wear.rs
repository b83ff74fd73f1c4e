//! Flash wears out: bad blocks are replaced while there are spare ones, and then the device can only be read.

use std::collections::BTreeMap;

use tantalum_device::WriteCache;
use tantalum_flash::{MediaError, Model, Nanos, Profile};
use tantalum_rt::Random;

use crate::edited::{SMALL, edited};

const CAPACITY: u64 = 2 << 20;
const SECTOR: u64 = 4096;

/// The profile's device, small, and with flash that bears little.
fn frail(name: &str, table: &str) -> Profile {
    let frail =
        [("buffer_kib", "256"), ("endurance", "40"), ("spread", "0.3"), ("factory_bad", "0.05"), ("spare", "0.08")];
    let mut text = Profile::text(name).unwrap();
    if !text.contains(".wear]") {
        let keys = ["endurance", "spread", "factory_bad", "spare", "seed"].map(|key| format!("{key} = 5\n")).concat();
        text += &format!("\n[device.{table}.wear]\n{keys}");
    }
    edited(name, text, SMALL.iter().chain(&frail)).with_capacity(CAPACITY)
}

const DEVICES: [(&str, &str); 6] = [
    ("ssd-a", "solid-state"),
    ("intel-x25e", "solid-state"),
    ("durassd", "solid-state"),
    ("usb-a", "usb-drive.ftl"),
    ("usb-c", "usb-drive.ftl"),
    ("mtron", "block-ssd.ftl"),
];

/// What the device acknowledged, and whether it promised the host that it stays.
struct Host {
    now: Nanos,
    written: BTreeMap<u64, u64>,
    /// Versions since the last flush, which may be there or not.
    open: BTreeMap<u64, Vec<u64>>,
}

impl Host {
    fn new() -> Self {
        Self { now: 0, written: BTreeMap::new(), open: BTreeMap::new() }
    }

    fn check(&self, name: &str, model: &mut dyn Model, may_be_open: bool) {
        for (&sector, &version) in &self.written {
            let mut bytes = [0; SECTOR as usize];
            assert_eq!(model.read(self.now, sector * SECTOR, &mut bytes).result, Ok(()), "{name}");
            let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let is_open = may_be_open && self.open.get(&sector).is_some_and(|versions| versions.contains(&found));
            assert!(found == version || is_open, "{name}: sector {sector} holds {found}, not {version}");
        }
    }

    /// Writes until the device refuses.
    fn wear_out(&mut self, name: &str, model: &mut dyn Model, random: &mut Random) -> MediaError {
        let is_volatile = model.describe().write_cache == WriteCache::Volatile;
        for version in 1u64..3_000_000 {
            let sector = random.u64(..CAPACITY / SECTOR);
            let bytes = version.to_le_bytes().repeat(SECTOR as usize / 8);
            self.open.entry(sector).or_default().push(version);
            let outcome = model.write(self.now, sector * SECTOR, &bytes, false);
            self.now = outcome.done;
            if let Err(error) = outcome.result {
                return error;
            }
            if version % 64 != 0 && is_volatile {
                continue;
            }
            let outcome = model.flush(self.now);
            self.now = outcome.done;
            if let Err(error) = outcome.result {
                return error;
            }
            for (sector, versions) in std::mem::take(&mut self.open) {
                self.written.insert(sector, *versions.last().unwrap());
            }
        }
        panic!("{name} never wears out");
    }
}

#[test]
fn a_worn_device_can_be_read_and_says_why_it_cannot_be_written() {
    for (name, table) in DEVICES {
        for seed in 0..2 {
            let mut random = Random::with_seed(seed);
            let mut model = frail(name, table).build().unwrap();
            let at_birth = model.counters().bad_blocks;
            let mut host = Host::new();
            assert_eq!(host.wear_out(name, &mut *model, &mut random), MediaError::WornOut, "{name}");
            let counters = model.counters();
            assert!(counters.bad_blocks > at_birth, "{name}: {counters:?}");
            assert!(counters.erases > 40 * 10, "{name} did wear: {counters:?}");
            host.check(name, &mut *model, true);
            for _ in 0..3 {
                // What has failed stays so, once it has ended.
                let at = host.now + 10_000_000_000 + random.u64(..10_000_000);
                model.power_cut(at, &mut random);
                host.now = model.power_on(at);
                host.check(name, &mut *model, true);
                let outcome = model.write(host.now, 0, &[1; SECTOR as usize], true);
                assert_eq!(outcome.result, Err(MediaError::WornOut), "{name}");
            }
            assert!(MediaError::WornOut.to_string().contains("replace"));
        }
    }
}

#[test]
fn bad_blocks_are_found_again_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    for (name, table) in DEVICES {
        let (path, mut random) = (directory.path().join(name), Random::with_seed(9));
        let profile = frail(name, table);
        let mut model = profile.open_file(&path).unwrap();
        let mut host = Host::new();
        assert_eq!(host.wear_out(name, &mut *model, &mut random), MediaError::WornOut, "{name}");
        let bad = model.counters().bad_blocks;
        drop(model);
        let mut model = profile.open_file(&path).unwrap();
        assert!(model.counters().bad_blocks >= bad, "{name}");
        host.now = 0;
        host.check(name, &mut *model, true);
        let outcome = model.write(0, 0, &[1; SECTOR as usize], true);
        assert_eq!(outcome.result, Err(MediaError::WornOut), "{name}");
    }
}

/// Cuts at any time while blocks wear out and are replaced.
#[test]
fn power_cuts_lose_nothing_while_blocks_go_bad() {
    for (name, table) in DEVICES {
        for seed in 0..2 {
            let mut random = Random::with_seed(seed);
            let mut model = frail(name, table).build().unwrap();
            let is_volatile = model.describe().write_cache == WriteCache::Volatile;
            let mut host = Host::new();
            let mut last_done = 0;
            'life: for version in 1u64..200_000 {
                let sector = random.u64(..CAPACITY / SECTOR);
                let bytes = version.to_le_bytes().repeat(SECTOR as usize / 8);
                let outcome = model.write(host.now, sector * SECTOR, &bytes, true);
                host.open.insert(sector, vec![version]);
                if outcome.result.is_err() {
                    break;
                }
                if random.u32(..400) == 0 {
                    host.now += random.u64(..=outcome.done - host.now);
                    model.power_cut(host.now, &mut random);
                    if host.now >= outcome.done {
                        host.written.insert(sector, version);
                    }
                    host.now = model.power_on(host.now);
                    host.check(name, &mut *model, true);
                    let mut bytes = [0; SECTOR as usize];
                    assert_eq!(model.read(host.now, sector * SECTOR, &mut bytes).result, Ok(()));
                    host.written.insert(sector, u64::from_le_bytes(bytes[..8].try_into().unwrap()));
                    continue 'life;
                }
                assert!(outcome.done > last_done || !is_volatile);
                (host.now, last_done) = (outcome.done, outcome.done);
                host.written.insert(sector, version);
                host.open.remove(&sector);
            }
            host.check(name, &mut *model, true);
            assert!(model.counters().bad_blocks > 0, "{name}");
        }
    }
}
