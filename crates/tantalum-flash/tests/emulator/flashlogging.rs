//! What FlashLogging (SIGMOD 2009) publishes of its disk and its three USB drives, on the profiles: sections 2.1, 3.3,
//! 3.4 and 4. Each test prints what it measures. Smaller drives than the paper's, written once before.

use std::collections::BTreeSet;

use tantalum_flash::{Kind, Model, Nanos, Profile, ftl::hybrid::InitialState};

const CAPACITY: u64 = 64 << 20;
const NAMES: [&str; 3] = ["usb-a", "usb-b", "usb-c"];

fn device(name: &str, capacity_bytes: u64) -> Box<dyn Model> {
    let profile = Profile::named(name).expect("it comes with the crate");
    profile.with_capacity(capacity_bytes).build().expect("it is possible")
}

fn stick(name: &str) -> (Box<dyn Model>, Nanos) {
    let mut profile = Profile::named(name).expect("it comes with the crate").with_capacity(CAPACITY);
    let Kind::UsbDrive(parameters) = &mut profile.device else { panic!("{name} is a USB drive") };
    parameters.ftl.initial_state = InitialState::Steady;
    (profile.build().expect("it is possible"), 0)
}

fn disk() -> Box<dyn Model> {
    device("hdd-10k", 1 << 30)
}

/// Milliseconds of each of `count` sequential writes.
fn sequential_writes(model: &mut dyn Model, mut now: Nanos, size: usize, count: u64) -> Vec<f64> {
    let data = vec![2; size];
    let latency = |number| {
        let begin = now;
        now = model.write(begin, number * size as u64 % CAPACITY, &data, true).done;
        (now - begin) as f64 / 1e6
    };
    (0..count).map(latency).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn sequential_read_rate(model: &mut dyn Model, mut now: Nanos) -> f64 {
    let (begin, mut buffer) = (now, vec![0; 1 << 20]);
    for offset in (0..CAPACITY).step_by(1 << 20) {
        now = model.read(now, offset, &mut buffer).done;
    }
    CAPACITY as f64 * 1e3 / (now - begin) as f64
}

#[test]
fn fig3_small_writes_over_the_disk() {
    for size in [512, 1024, 2048, 4096, 8192, 16_384] {
        let disk = mean(&sequential_writes(&mut *disk(), 0, size, 1000));
        assert!(size > 512 || (5.9..6.1).contains(&disk), "fl.fig3.disk_small_write: {disk} ms, published 6.0");
        for name in NAMES {
            let (mut stick, now) = stick(name);
            let each = mean(&sequential_writes(&mut *stick, now, size, 10_000));
            println!("fl.fig3 {name} {size:>6} B: {each:.2} ms, {:.2} times the disk (1.2 to 9.4)", disk / each);
            assert!((1.2..=9.4).contains(&(disk / each)), "{name}, {size} B: {}", disk / each);
        }
    }
}

#[test]
fn fig3_the_disk_is_as_fast_from_32_kib_on() {
    for size in [32_768, 65_536, 131_072] {
        let disk = mean(&sequential_writes(&mut *disk(), 0, size, 1000));
        for name in NAMES {
            let (mut stick, now) = stick(name);
            let each = mean(&sequential_writes(&mut *stick, now, size, 1000));
            println!("fl.fig3 {name} {size:>6} B: {each:.2} ms, {:.2} times the disk (1 or less)", disk / each);
            assert!(disk / each <= 1.0, "{name}, {size} B: {}", disk / each);
        }
    }
}

#[test]
fn long_writes_reach_ten_to_twenty_mb_a_second() {
    for name in NAMES {
        let rate = |size: usize| {
            let (mut stick, now) = stick(name);
            size as f64 / 1e3 / mean(&sequential_writes(&mut *stick, now, size, (500 << 20) / size as u64))
        };
        let peak = [256 << 10, 1 << 20, 2 << 20].map(rate).into_iter().fold(0.0, f64::max);
        println!("fl.usb.write_bandwidth {name}: {peak:.1} MB/s (10 to 20)");
        assert!((10.0..=20.0).contains(&peak), "{name}: {peak} MB/s");
    }
}

#[test]
fn fig3_sequential_reads_under_the_disk() {
    let disk = sequential_read_rate(&mut *disk(), 0);
    for name in NAMES {
        let (mut stick, now) = stick(name);
        let rate = sequential_read_rate(&mut *stick, now);
        println!("fl.fig3 {name} reads {rate:.1} MB/s, the disk {:.2} times as fast (2.6 to 11.4)", disk / rate);
        assert!((2.6..=11.4).contains(&(disk / rate)), "{name}: {}", disk / rate);
    }
}

#[test]
fn fig5_requests_kept_whole() {
    for (name, from, to) in [("usb-a", 1.41, 1.51), ("usb-b", 1.79, 1.83), ("usb-c", 1.13, 1.85)] {
        let each = |size| {
            let (mut stick, now) = stick(name);
            mean(&sequential_writes(&mut *stick, now, size, 10_000))
        };
        // Two drives serve the halves at the same time, but have twice as many requests between them.
        let gain = 2.0 * each(2048) / each(4096);
        println!("fl.fig5 {name}: whole over split {gain:.3} ({from} to {to})");
        assert!((from..=to).contains(&gain), "{name}: {gain}");
    }
}

/// Latencies over twice the mean, by number.
fn outliers(latencies: &[f64]) -> Vec<usize> {
    let limit = 2.0 * mean(latencies);
    (0..latencies.len()).filter(|&number| latencies[number] > limit).collect()
}

/// How often a request is an outlier of which the numbers of requests since the last outlier was seen before an
/// outlier already, over how often any request is.
fn predictor_lift(outliers: &[usize], count: usize) -> f64 {
    let (seen, tested) = outliers.split_at(outliers.len() / 2);
    let seen: BTreeSet<usize> = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let gaps: Vec<usize> = tested.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let alarms: usize = gaps.iter().map(|&gap| seen.range(..=gap).count()).sum();
    let hits = gaps.iter().filter(|gap| seen.contains(gap)).count();
    (hits as f64 / alarms.max(1) as f64) / (outliers.len() as f64 / count as f64)
}

#[test]
fn fig6_outliers_are_bimodal_and_hard_to_predict() {
    let mut gaps = Vec::new();
    for name in NAMES {
        for size in [512, 4096] {
            let (mut stick, now) = stick(name);
            let count = 200_000;
            let latencies = sequential_writes(&mut *stick, now, size, count);
            let first = outliers(&latencies[..5000]);
            let all = outliers(&latencies);
            let normal = median(&latencies);
            let longest = latencies.iter().copied().fold(0.0, f64::max);
            let between = latencies.iter().filter(|&&ms| ms > 1.6 * normal && ms < 0.5 * longest).count();
            let lift = predictor_lift(&all, latencies.len());
            println!(
                "fl.fig6 {name} {size:>4} B: normal {normal:.2} ms, longest {longest:.1} ms ({:.0} times), {} outliers \
                 in 5000, {between} of {count} between, prediction {lift:.1} times chance",
                longest / normal,
                first.len()
            );
            assert!((2..1000).contains(&first.len()), "{name}: a number of writes are outliers");
            let distances: BTreeSet<usize> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(distances.len() > 3, "{name}: the number of writes between outliers varies: {distances:?}");
            assert!(lift < 1.5, "{name}, {size} B: {lift} times chance");
            if name == "usb-c" && size == 512 {
                assert!(longest / normal > 80.0, "two orders of magnitude: {}", longest / normal);
            }
            gaps.push((longest / normal, name));
        }
    }
    gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(gaps.last().unwrap().1, "usb-c", "the largest gap is flash-C's");
}

#[test]
fn fig7_a_second_stream_is_nearly_as_fast() {
    for name in NAMES {
        let (mut stick, mut now) = stick(name);
        let mut latencies = [Vec::new(), Vec::new()];
        for number in 0..20_000_u64 {
            let (stream, offset) = match number % 100 {
                99 => (1, CAPACITY / 2 + number / 100 * 4096),
                _ => (0, (number - number / 100) * 4096 % (CAPACITY / 2)),
            };
            let begin = now;
            now = stick.write(now, offset, &[3; 4096], true).done;
            latencies[stream].push((now - begin) as f64 / 1e6);
        }
        let (first, second) = (mean(&latencies[0]), mean(&latencies[1]));
        println!(
            "fl.fig7 {name}: first stream {first:.2} ms, second {second:.2} ms, medians {:.2} and {:.2}",
            median(&latencies[0]),
            median(&latencies[1])
        );
        assert!(median(&latencies[1]) < 1.5 * median(&latencies[0]), "{name}: comparable");
        assert!(second < 2.5 * first, "{name}: moderately worse at most");
    }
}

#[test]
fn sec4_overlapping_writes_collapse_on_the_worst_drive() {
    let mut worst: f64 = 0.0;
    for (name, size) in NAMES.into_iter().flat_map(|name| [(name, 1024), (name, 4096)]) {
        let plain = {
            let (mut stick, now) = stick(name);
            mean(&sequential_writes(&mut *stick, now, size, 10_000))
        };
        let (mut stick, mut now) = stick(name);
        for number in 0..1000 {
            now = stick.write(now, number * (size as u64 - 512), &vec![3; size], true).done;
        }
        let overlapping = now as f64 / 1e6 / 1000.0;
        println!(
            "fl.sec4 {name} {size} B: {plain:.2} ms apart, {overlapping:.2} ms overlapping, {:.1} times",
            overlapping / plain
        );
        assert!(overlapping > 1.2 * plain, "{name}, {size} B");
        worst = worst.max(overlapping / plain);
    }
    println!("fl.sec4.overlapping_writes: {worst:.1} (published: up to 60.8)");
    assert!((0.75 * 60.8..=60.8).contains(&worst), "{worst} times on the worst drive");
}
