//! What "Durable Write Cache in Flash Memory SSD for Relational and NoSQL Databases" publishes of its hard disk that no
//! file system has a part in: Table 1 without fsync, and Table 2 with 128 threads. On the profile hdd-15k, over the whole disk,
//! since the size of the paper's file is not named.

use tantalum_flash::disk::{CacheMode, DiskParameters, HardDisk};
use tantalum_flash::{Contents, Kind, Model, Nanos, Profile, Ticket};
use tantalum_rt::Random;

fn disk(write_cache: CacheMode) -> HardDisk {
    let profile = Profile::named("hdd-15k").expect("it comes with the crate");
    let Kind::HardDisk(parameters) = profile.device else { panic!("{profile:?}") };
    HardDisk::new(DiskParameters { write_cache, ..parameters }, profile.capacity_bytes, Contents::in_memory)
}

/// Operations a second of `threads` that have one random operation under way each.
fn iops(disk: &mut HardDisk, threads: usize, size: usize, is_read: bool) -> f64 {
    let mut random = Random::with_seed(2);
    let mut buffer = vec![0; size];
    let blocks = disk.describe().capacity_bytes / size as u64;
    let mut threads: Vec<(Nanos, Option<Ticket>)> = vec![(0, None); threads];
    let (warm_up, count) = (6000, 6000);
    let (mut number, mut begin) = (0, 0);
    loop {
        let (thread, &(now, queued)) =
            threads.iter().enumerate().min_by_key(|&(_, (next, _))| next).expect("there is a thread");
        if let Some(later) = queued.and_then(|ticket| disk.ask_again(now, ticket)) {
            threads[thread].0 = later;
            continue;
        }
        if number == warm_up {
            begin = now;
        }
        if number == warm_up + count {
            return f64::from(count) * 1e9 / (now - begin) as f64;
        }
        number += 1;
        let offset = random.u64(..blocks) * size as u64;
        let outcome = match is_read {
            true => disk.read(now, offset, &mut buffer),
            false => disk.write(now, offset, &buffer, false),
        };
        threads[thread] = (outcome.done, outcome.ticket);
    }
}

fn report(what: &str, measured: f64, published: f64) -> f64 {
    println!("{what}: {measured:.0} IOPS, published {published} ({:+.0} %)", 100.0 * (measured / published - 1.0));
    measured / published
}

#[test]
fn table1_random_writes_without_fsync() {
    let off = iops(&mut disk(CacheMode::Off), 1, 4096, false);
    let on = iops(&mut disk(CacheMode::On), 1, 4096, false);
    let off = report("ds.table1 hdd-15k, cache off, no fsync", off, 158.0);
    let on = report("ds.table1 hdd-15k, cache on, no fsync", on, 387.0);
    for ratio in [off, on] {
        assert!((0.75..=1.25).contains(&ratio), "{ratio}");
    }
}

#[test]
fn table2_many_threads() {
    let mut last = (0.0, 0.0);
    for (size, read, write) in [(16_384, 516.0, 428.0), (8192, 528.0, 439.0), (4096, 538.0, 444.0)] {
        let reads = iops(&mut disk(CacheMode::On), 128, size, true);
        let writes = iops(&mut disk(CacheMode::On), 128, size, false);
        for (what, measured, published) in [("read", reads, read), ("write", writes, write)] {
            let ratio = report(&format!("ds.table2 hdd-15k, {size} B, {what}, 128 threads"), measured, published);
            assert!((0.75..=1.25).contains(&ratio), "{ratio}");
        }
        assert!(reads > last.0 && writes > last.1, "smaller is faster");
        last = (reads, writes);
    }
}
