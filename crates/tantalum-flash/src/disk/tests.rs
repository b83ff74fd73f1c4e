use super::*;

fn disk(parameters: DiskParameters) -> HardDisk {
    HardDisk::new(parameters, 68 << 30, Contents::in_memory)
}

fn cached() -> DiskParameters {
    DiskParameters { write_cache: CacheMode::On, ..DiskParameters::example() }
}

/// Milliseconds of each of `count` operations, one after the other.
fn back_to_back(
    disk: &mut HardDisk,
    count: u32,
    mut operation: impl FnMut(&mut HardDisk, Nanos, u32) -> Outcome,
) -> f64 {
    let mut now = 0;
    for number in 0..count {
        now = operation(disk, now, number).end(disk);
    }
    now as f64 / f64::from(count) / 1e6
}

#[test]
fn small_synchronous_writes_wait_for_a_turn_each() {
    let mut disk = disk(DiskParameters::example());
    let each = back_to_back(&mut disk, 2000, |disk, now, n| disk.write(now, u64::from(n) * 512, &[1; 512], true));
    assert!((5.99..6.05).contains(&each), "{each} ms");
    assert!(disk.counters().seeks <= 4, "three heads were switched, not more");
}

#[test]
fn the_write_cache_hides_the_turns() {
    let mut disk = disk(cached());
    let each = back_to_back(&mut disk, 20_000, |disk, now, n| disk.write(now, u64::from(n) * 4096, &[1; 4096], false));
    assert!(each < 0.25, "{each} ms");
    let mut disk = self::disk(cached());
    let durable = back_to_back(&mut disk, 200, |disk, now, n| disk.write(now, u64::from(n) * 4096, &[1; 4096], true));
    assert!((6.0..6.2).contains(&durable), "a durable write passes the cache: {durable} ms");
}

#[test]
fn random_writes_gain_from_the_cache_as_the_arm_sorts_them() {
    let mut random = Random::with_seed(1);
    let mut spread = |disk: &mut HardDisk| {
        let blocks = disk.describe().capacity_bytes / 4096;
        back_to_back(disk, 10_000, |disk, now, _| disk.write(now, random.u64(..blocks) * 4096, &[1; 4096], false))
    };
    let through = spread(&mut disk(DiskParameters::example()));
    let sorted = spread(&mut disk(cached()));
    assert!((7.3..7.9).contains(&through), "seek and half a turn: {through} ms");
    assert!(sorted < 0.6 * through, "{sorted} ms against {through} ms");
}

#[test]
fn sequential_reads_run_at_the_rate_of_the_media() {
    for size in [4096, 65_536, 1 << 20] {
        let mut disk = disk(DiskParameters::example());
        let mut buffer = vec![0; size];
        let count = ((64 << 20) / size) as u32;
        let each =
            back_to_back(&mut disk, count, |disk, now, n| disk.read(now, u64::from(n) * size as u64, &mut buffer));
        let rate = size as f64 / 1e3 / each;
        // 840 sectors a turn are 71.7 MB/s, less the switches between tracks; small reads also pay for their commands.
        let least = if size == 4096 { 18.0 } else { 60.0 };
        assert!((least..71.7).contains(&rate), "{size} bytes at a time: {rate} MB/s");
        assert!(disk.counters().media_reads < 3, "read ahead, not turn by turn");
    }
}

#[test]
fn flush_waits_for_everything_and_an_ideal_disk_for_nothing() {
    let mut disk = disk(cached());
    let mut now = 0;
    for block in 0..50 {
        now = disk.write(now, block * (1 << 30), &[1; 4096], false).done;
    }
    assert!(now < 20_000_000);
    let flushed = disk.flush(now).end(&mut disk);
    assert!(flushed - now > 150_000_000, "50 seeks and half turns");
    assert_eq!(disk.flush(flushed).done, flushed + disk.link.command);
    let mut ideal = self::disk(DiskParameters { write_cache: CacheMode::NeverFlushed, ..cached() });
    let written = ideal.write(0, 0, &[1; 4096], true).done;
    assert!(ideal.flush(written).done < 500_000);
}

#[test]
fn rewriting_a_cached_block_reaches_the_platter_once() {
    let mut disk = disk(cached());
    let mut now = disk.write(0, 1 << 30, &[9; 512], false).done;
    for value in 0..20 {
        now = disk.write(now, 4096, &[value; 4096], false).done;
    }
    let done = disk.flush(now).end(&mut disk);
    assert!(disk.counters().coalesced >= 18);
    assert!(disk.counters().media_written_bytes <= 512 + 2 * 4096);
    let mut read = [0; 4096];
    let _ = disk.read(done, 4096, &mut read);
    assert_eq!(read, [19; 4096]);
}

#[test]
fn a_cut_leaves_sectors_whole_and_writes_torn() {
    let mut torn = 0;
    for seed in 0..200 {
        let mut random = Random::with_seed(seed);
        let mut disk = disk(DiskParameters::example());
        let end = disk.write(0, 0, &[1; 65_536], true).done;
        let cut = random.u64(end - 1_000_000..end);
        disk.power_cut(cut, &mut random);
        let now = disk.power_on(cut);
        let mut read = vec![0; 65_536];
        let _ = disk.read(now, 0, &mut read);
        let written = read.iter().take_while(|&&byte| byte == 1).count();
        assert!(written.is_multiple_of(512) && read[written..].iter().all(|&byte| byte == 0), "a prefix of sectors");
        torn += u32::from(written > 0 && written < 65_536);
    }
    assert!(torn > 100, "{torn} of 200");
}
