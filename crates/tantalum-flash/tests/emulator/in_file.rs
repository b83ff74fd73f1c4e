//! A device in a file outlives the program: one that ends in good order, and one that is killed at any time.
//!
//! A program that dies leaves the file as it is at that moment, so a copy of the file stands for it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use tantalum_device::WriteCache;
use tantalum_flash::{ErrorKind, Model, Nanos, Outcome, Profile};
use tantalum_rt::Random;

use crate::edited::{SMALL, edited};

const CAPACITY: u64 = 4 << 20;
const SECTOR: usize = 4096;

/// The profile's device with few planes, small blocks and a small memory.
fn small(name: &str) -> Profile {
    let memory = [("buffer_kib", "256"), ("segment_units", "1")];
    edited(name, Profile::text(name).unwrap(), SMALL.iter().chain(&memory)).with_capacity(CAPACITY)
}

/// All profiles that can be written in any order.
fn names() -> impl Iterator<Item = &'static str> {
    Profile::names().filter(|&name| !["nand-k9wag08u1a", "nvme-zns"].contains(&name))
}

fn copy(from: &Path, to: &Path) {
    let (mut from, mut to) = (std::fs::File::open(from).unwrap(), std::fs::File::create(to).unwrap());
    to.set_len(from.metadata().unwrap().len()).unwrap();
    let mut buffer = [0; 1 << 16];
    let mut at = 0;
    loop {
        let read = from.read(&mut buffer).unwrap();
        if read == 0 {
            return;
        }
        if buffer[..read].iter().any(|&byte| byte != 0) {
            to.seek(SeekFrom::Start(at)).unwrap();
            to.write_all(&buffer[..read]).unwrap();
        }
        at += read as u64;
    }
}

/// What may be in each sector: versions from the one that is certain on, which may be a mixture.
struct Oracle {
    versions: Vec<Vec<Vec<u64>>>,
    next: u64,
}

impl Oracle {
    fn new() -> Self {
        Self { versions: vec![vec![vec![0]]; CAPACITY as usize / SECTOR], next: 1 }
    }

    fn data(&mut self, sector: usize, count: usize) -> Vec<u8> {
        let version = self.next;
        self.next += 1;
        (sector..sector + count)
            .flat_map(|sector| {
                self.versions[sector].push(vec![version]);
                [version, sector as u64].map(u64::to_le_bytes).concat().repeat(SECTOR / 16)
            })
            .collect()
    }

    fn secure(&mut self, sectors: std::ops::Range<usize>) {
        for versions in &mut self.versions[sectors] {
            versions.drain(..versions.len() - 1);
        }
    }

    fn check(&mut self, name: &str, model: &mut dyn Model, now: Nanos) {
        for (sector, versions) in self.versions.iter_mut().enumerate() {
            let mut bytes = vec![0; SECTOR];
            let outcome = model.read(now, (sector * SECTOR) as u64, &mut bytes);
            assert_eq!(outcome.result, Ok(()), "{name}");
            // A disk's sectors are smaller.
            let mut all_found = Vec::new();
            for part in bytes.chunks(512) {
                let found = u64::from_le_bytes(part[..8].try_into().unwrap());
                let whole = [found, if found == 0 { 0 } else { sector as u64 }].map(u64::to_le_bytes).concat();
                assert!(part == whole.repeat(512 / 16), "{name}: sector {sector} is whole");
                let is_allowed = versions.iter().flatten().any(|&version| version == found);
                assert!(is_allowed, "{name}: sector {sector} holds {found}, not one of {versions:?}");
                all_found.push(found);
            }
            *versions = vec![all_found];
        }
    }
}

/// Waits for an operation as a host does.
fn finish(model: &mut dyn Model, outcome: Outcome) -> Nanos {
    assert_eq!(outcome.result, Ok(()));
    let done = outcome.end(model);
    model.catch_up(done);
    done
}

/// Writes, flushes and reads; returns the time.
fn work(random: &mut Random, oracle: &mut Oracle, model: &mut dyn Model, mut now: Nanos) -> Nanos {
    let is_volatile = model.describe().write_cache == WriteCache::Volatile;
    let sectors = CAPACITY as usize / SECTOR;
    for _ in 0..random.u32(1..60) {
        let count = random.usize(1..=16);
        let last = if random.bool() { 64 } else { sectors - count };
        let sector = random.usize(..last);
        let durable = random.u8(..4) == 0;
        if random.u8(..8) == 0 {
            let outcome = model.flush(now);
            now = finish(model, outcome);
            oracle.secure(0..sectors);
        } else {
            let data = oracle.data(sector, count);
            let outcome = model.write(now, (sector * SECTOR) as u64, &data, durable);
            // The last one may still be under way when the program dies.
            now = finish(model, outcome);
            if durable || !is_volatile {
                oracle.secure(sector..sector + count);
            }
        }
    }
    let data = oracle.data(0, 3);
    assert_eq!(model.write(now, 0, &data, true).result, Ok(()));
    now
}

#[test]
fn what_a_killed_program_was_promised_is_there() {
    let directory = tempfile::tempdir().unwrap();
    // A disk that is never flushed promises nothing.
    for name in names().filter(|&name| name != "hdd-10k-cached") {
        for seed in 0..2 {
            let (profile, mut random, mut oracle) = (small(name), Random::with_seed(seed), Oracle::new());
            let path = |life: u32| directory.path().join(format!("{name}-{seed}-{life}"));
            for life in 0..6 {
                let mut model = profile.open_file(&path(life)).unwrap();
                oracle.check(name, &mut *model, 0);
                let mut now = work(&mut random, &mut oracle, &mut *model, 60_000_000_000);
                if random.u8(..3) == 0 {
                    // The emulated power fails, and the program dies before or after it returns.
                    now += random.u64(..4_000_000);
                    model.power_cut(now, &mut random);
                    if random.bool() {
                        model.power_on(now);
                    }
                }
                copy(&path(life), &path(life + 1));
                drop(model);
                std::fs::remove_file(path(life)).unwrap();
            }
        }
    }
}

#[test]
fn everything_is_there_after_a_restart_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    for name in names() {
        let (profile, mut random, mut oracle) = (small(name), Random::with_seed(7), Oracle::new());
        let path = directory.path().join(name);
        for _ in 0..4 {
            let mut model = profile.open_file(&path).unwrap();
            oracle.check(name, &mut *model, 0);
            work(&mut random, &mut oracle, &mut *model, 60_000_000_000);
            oracle.secure(0..CAPACITY as usize / SECTOR);
        }
    }
}

#[test]
fn raw_flash_keeps_its_pages_and_what_is_erased() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nand");
    let profile = Profile::named("nand-k9wag08u1a").unwrap().with_capacity(CAPACITY);
    let mut model = profile.open_file(&path).unwrap();
    let mut now = model.write(0, 512, &[5; 512], true).done;
    now = model.write(now, 131_072, &[6; 2048], true).done;
    model.discard(now, 131_072, 131_072).result.unwrap();
    let copied = directory.path().join("copy");
    copy(&path, &copied);
    let mut model = profile.open_file(&copied).unwrap();
    for (offset, byte) in [(0, 0xff), (512, 5), (1024, 0xff), (131_072, 0xff)] {
        let mut sector = [0; 512];
        model.read(0, offset, &mut sector).result.unwrap();
        assert_eq!(sector, [byte; 512], "at {offset}");
    }
    assert!(model.write(0, 512, &[1; 512], true).result.is_err(), "it is not erased");
}

#[test]
fn files_that_are_not_this_device_s_are_refused_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let profile = small("durassd");
    let path = directory.path().join("device");
    drop(profile.open_file(&path).unwrap());
    let good = std::fs::read(&path).unwrap();
    let mut flipped = good.clone();
    flipped[40] ^= 1;
    let mut later = good.clone();
    later[8] = 2;
    let cases: [(&str, &[u8], &str); 6] = [
        ("truncated", &good[..good.len() - 4096], "bytes, but the device in it takes"),
        ("truncated within its head", &good[..100], "ends within its head"),
        ("longer", &[&good[..], &[0; 4096]].concat(), "bytes, but the device in it takes"),
        ("flipped", &flipped, "damaged"),
        ("of another version", &later, "version"),
        ("foreign", b"# my diary\n", "does not begin like"),
    ];
    for (case, bytes, expected) in cases {
        let path = directory.path().join(case);
        std::fs::write(&path, bytes).unwrap();
        let message = profile.open_file(&path).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains(case), "{case}: {message}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{case} is as it was");
    }
    for other in [small("nvme-plp"), small("usb-a"), profile.clone().with_capacity(2 * CAPACITY)] {
        let message = other.open_file(&path).unwrap_err().to_string();
        assert!(message.contains("another device"), "{message}");
        assert!(std::fs::read(&path).unwrap() == good, "it is as it was");
    }
    let message = profile.open_file(directory.path()).unwrap_err().to_string();
    assert!(message.contains("not a regular file"), "{message}");
    let holder = profile.open_file(&path).unwrap();
    assert_eq!(profile.open_file(&path).err().unwrap().kind(), ErrorKind::InUse);
    drop(holder);
    profile.open_file(&path).unwrap();
}

#[test]
fn damage_behind_the_head_is_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ssd-a", "durassd", "usb-b", "mtron", "nand-k9wag08u1a"] {
        let profile = small(name);
        let path = directory.path().join(name);
        let mut model = profile.open_file(&path).unwrap();
        let mut random = Random::with_seed(3);
        if name != "nand-k9wag08u1a" {
            work(&mut random, &mut Oracle::new(), &mut *model, 0);
        }
        drop(model);
        let good = std::fs::read(&path).unwrap();
        let written: Vec<usize> = (4096..good.len()).filter(|&at| good[at] != 0).collect();
        for _ in 0..6 {
            let mut bad = good.clone();
            for _ in 0..40 {
                let at = if written.is_empty() { 4096 } else { written[random.usize(..written.len())] };
                bad[at] = random.u8(..);
            }
            std::fs::write(&path, &bad).unwrap();
            let mut model = profile.open_file(&path).unwrap();
            let mut bytes = vec![0; CAPACITY as usize];
            let outcome = model.read(60_000_000_000, 0, &mut bytes);
            let now = outcome.end(&mut *model);
            let outcome = model.write(now, 0, &vec![1; 65_536], true);
            assert!(outcome.end(&mut *model) >= now);
        }
    }
}

/// What the killed child does: writes sector after sector, and tells when each has ended.
#[test]
fn child() {
    let Some(path) = std::env::var_os("TANTALUM_FLASH_TEST_CHILD") else { return };
    let device = tantalum_flash::EmulatedDevice::new("child", small("nvme-plp").open_file(path.as_ref()).unwrap());
    for number in 1u64.. {
        let sector = number % (CAPACITY / SECTOR as u64);
        let data = number.to_le_bytes().repeat(SECTOR / 8);
        tantalum_device::Device::write(&*device, sector * SECTOR as u64, &[&data], tantalum_device::Durability::Cached)
            .unwrap();
        // One system call, so that no line is cut in two.
        std::io::stderr().write_all(format!("ended {number}\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_program_that_is_killed_loses_nothing_of_a_protected_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["in_file::child", "--exact", "--nocapture"])
        .env("TANTALUM_FLASH_TEST_CHILD", &path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut last = 0u64;
    let mut note = |line: String| {
        last = line.strip_prefix("ended ").and_then(|number| number.parse().ok()).unwrap_or(last);
        last
    };
    while note(lines.next().unwrap().unwrap()) < 1500 {}
    child.kill().unwrap();
    lines.map_while(Result::ok).for_each(|line| {
        note(line);
    });
    child.wait().unwrap();
    let mut model = small("nvme-plp").open_file(&path).unwrap();
    let sectors = CAPACITY / SECTOR as u64;
    // The next one may have been under way.
    for number in last.saturating_sub(sectors - 2)..=last {
        let mut bytes = [0; SECTOR];
        model.read(0, number % sectors * SECTOR as u64, &mut bytes).result.unwrap();
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), number, "of {last}");
    }
}
