//! What "Early Experience and Evaluation of File Systems on SSD with Database Applications" (sections III-B and III-C)
//! publishes of the Mtron PRO 7500, on its profile.

use tantalum_flash::ftl::hybrid::InitialState;
use tantalum_flash::{Kind, Model, Nanos, Profile};
use tantalum_rt::Random;

/// A sixteenth of the drive, written once before, with such a share of its buffer.
fn drive(buffer_share: u32) -> (Box<dyn Model>, Nanos, u64) {
    let capacity = 2_000_000_000_u64 / 4096 * 4096;
    let mut profile = Profile::named("mtron").expect("it comes with the crate").with_capacity(capacity);
    let Kind::BlockSsd(parameters) = &mut profile.device else { panic!("{profile:?}") };
    parameters.ftl.initial_state = InitialState::Steady;
    parameters.buffer_kib /= buffer_share;
    (profile.build().expect("it is possible"), 0, capacity)
}

#[test]
fn sequential_reads_and_writes_saturate_at_the_same_rate() {
    let (mut drive, begin, _) = drive(1);
    let (mut now, mut buffer) = (begin, vec![1; 256 << 10]);
    let total = 200_u64 << 20;
    for offset in (0..total).step_by(buffer.len()) {
        now = drive.write(now, offset, &buffer, false).done;
    }
    let write = total as f64 * 1e3 / (now - begin) as f64;
    let begin = drive.flush(now).done;
    now = begin;
    for offset in (0..total).step_by(buffer.len()) {
        now = drive.read(now, offset, &mut buffer).done;
    }
    let read = total as f64 * 1e3 / (now - begin) as f64;
    println!("fs.mtron.sequential: reads {read:.0} MB/s, writes {write:.0} MB/s (120)");
    assert!((0.85 * 120.0..=120.0).contains(&read) && (0.85 * 120.0..=120.0).contains(&write));
}

#[test]
fn a_third_of_random_writes_waits_for_a_merge() {
    let (mut drive, mut now, capacity) = drive(16);
    let mut random = Random::with_seed(5);
    let count = 30_000;
    let mut latencies = Vec::new();
    let before = drive.counters();
    for number in 0..count {
        let begin = now;
        now = drive.write(now, random.u64(..capacity / 4096) * 4096, &[2; 4096], false).done;
        if number >= count / 2 {
            latencies.push((now - begin) as f64 / 1e6);
        }
    }
    let share = |from: f64, to: f64| {
        latencies.iter().filter(|&&ms| ms >= from && ms < to).count() as f64 / latencies.len() as f64
    };
    let merges = drive.counters().partial_merges - before.partial_merges;
    println!(
        "fs.fig5 mtron, random 4 KiB writes: {:.3} below 0.1 ms (2/3), {:.3} from 10 to 30 ms (1/3), {:.3} between, \
         {:.3} above; {merges} partial merges for {count} writes",
        share(0.0, 0.1),
        share(10.0, 30.0),
        share(0.1, 10.0),
        share(30.0, f64::MAX)
    );
    assert!((0.6..0.73).contains(&share(0.0, 0.1)));
    assert!((0.2..0.4).contains(&share(10.0, 30.0)));
    assert!(merges > count / 4, "because of merges");
}

#[test]
fn random_writes_that_stay_in_the_segments_never_wait() {
    let (mut drive, mut now, _) = drive(1);
    now = drive.flush(now).done;
    let (mut random, before) = (Random::with_seed(5), drive.counters());
    for _ in 0..10_000 {
        let begin = now;
        now = drive.write(now, random.u64(..2 << 20) / 4096 * 4096, &[2; 4096], false).done;
        assert!(now - begin < 100_000, "all of one unit fits into the buffer: nothing leaves it");
    }
    assert_eq!(drive.counters().programs, before.programs);
}

#[test]
fn random_reads_mostly_take_less_than_100_us() {
    let (mut drive, now, capacity) = drive(16);
    let (mut now, mut random, mut fast) = (drive.flush(now).done, Random::with_seed(6), 0);
    for _ in 0..5000 {
        let begin = now;
        now = drive.read(now, random.u64(..capacity / 4096) * 4096, &mut [0; 4096]).done;
        fast += u32::from(now - begin < 100_000);
    }
    println!("fs.fig5 mtron, random 4 KiB reads: {:.3} below 0.1 ms (most)", f64::from(fast) / 5000.0);
    assert!(fast > 4500);
}
