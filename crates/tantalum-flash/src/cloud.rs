//! A cloud volume: replicas behind a network, and a cap on how much one may do.
//!
//! Promises: a write that has ended is on all replicas, and outlives the machine that wrote it. One under way when the
//! machine loses its power may be there in part.
//!
//! Requests pay from two token buckets, one of operations and one of bytes; one that finds a bucket empty waits. A write
//! ends when every replica has it; a replica stalls now and then, mostly for a moment and rarely for half a second, and
//! that is the long tail.

use serde::Deserialize;
use tantalum_device::sparse::PIECE_BYTES;
use tantalum_rt::Random;

use crate::disk::SECTOR_BYTES;
use crate::profile::{Problem, check_ranges};
use crate::writeback::{Transfer, Transfers, pieces};
use crate::{Contents, Counters, Model, Nanos, Outcome, Shape};

/// A cloud volume. Times are in microseconds, and means where they are drawn at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudParameters {
    /// Operations a second, in the long run.
    pub iops: f64,
    /// Operations that may come at once after a pause.
    pub burst_operations: f64,
    /// Bytes a second in the long run, in MB.
    pub mb_per_s: f64,
    /// Bytes that may come at once after a pause, in MB.
    pub burst_mb: f64,
    /// A larger request counts as several, in KiB.
    pub operation_kib: u32,
    /// To the replicas and back.
    pub network_us: f64,
    /// What a replica takes at least.
    pub service_us: f64,
    /// What it takes beyond that, exponentially distributed.
    pub jitter_us: f64,
    /// Copies, all of which a write waits for. A read asks the first.
    pub replicas: u32,
    /// From one stall of a replica to the next, exponentially distributed.
    pub stall_every_us: f64,
    /// The shortest stall; longer ones follow a power law.
    pub stall_least_us: f64,
    /// The longest stall: another replica takes over.
    pub stall_most_us: f64,
    /// Exponent of the power law: the share of stalls of at least `x` times the shortest is `x` to the minus this.
    pub stall_exponent: f64,
    /// From power on until the volume is attached again.
    pub attach_us: f64,
    /// Where its randomness begins.
    pub seed: u64,
}

impl CloudParameters {
    /// Whether the volume is possible, with so many bytes.
    pub(crate) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        check_ranges(&[
            ("iops", self.iops, 1.0, 1e8),
            ("burst_operations", self.burst_operations, 1.0, 1e9),
            ("mb_per_s", self.mb_per_s, 0.01, 1e6),
            ("burst_mb", self.burst_mb, 0.01, 1e6),
            ("operation_kib", f64::from(self.operation_kib), 1.0, 65_536.0),
            ("network_us", self.network_us, 0.1, 1e6),
            ("service_us", self.service_us, 0.0, 1e6),
            ("jitter_us", self.jitter_us, 0.0, 1e6),
            ("replicas", f64::from(self.replicas), 1.0, 16.0),
            ("stall_every_us", self.stall_every_us, 1.0, 1e15),
            ("stall_least_us", self.stall_least_us, 1.0, self.stall_most_us),
            ("stall_most_us", self.stall_most_us, 1.0, 1e9),
            ("stall_exponent", self.stall_exponent, 0.1, 10.0),
            ("attach_us", self.attach_us, 0.0, 1e9),
        ])?;
        match capacity_bytes != 0 && capacity_bytes.is_multiple_of(SECTOR_BYTES) {
            true => Ok(()),
            false => Err(("capacity_bytes", format!("expected a multiple of {SECTOR_BYTES} above 0"))),
        }
    }
}

/// A token bucket, as the time at which it will be full again.
#[derive(Debug)]
struct Bucket {
    nanos_per_token: f64,
    depth: Nanos,
    full_at: Nanos,
}

impl Bucket {
    fn new(tokens_per_s: f64, depth: f64) -> Self {
        let nanos_per_token = 1e9 / tokens_per_s;
        Self { nanos_per_token, depth: (depth * nanos_per_token) as Nanos, full_at: 0 }
    }

    /// Takes tokens; returns when the last of them is there.
    fn take(&mut self, now: Nanos, tokens: f64) -> Nanos {
        let cost = (tokens * self.nanos_per_token) as Nanos;
        self.full_at = self.full_at.max(now) + cost;
        self.full_at.saturating_sub(self.depth).max(now)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Replica {
    stalled_until: Nanos,
    next_stall: Nanos,
}

/// A cloud volume.
#[derive(Debug)]
pub struct CloudVolume {
    parameters: CloudParameters,
    contents: Contents,
    transfers: Transfers,
    operations: Bucket,
    bytes: Bucket,
    replicas: Vec<Replica>,
    random: Random,
    counters: Counters,
}

impl CloudVolume {
    /// A volume of so many bytes; `contents` makes what holds them.
    pub fn new(parameters: CloudParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the volume is possible");
        let contents = contents(capacity_bytes);
        assert_eq!(contents.len(), capacity_bytes, "the contents have the volume's size");
        let mut volume = Self {
            contents,
            transfers: Transfers::default(),
            operations: Bucket::new(parameters.iops, parameters.burst_operations),
            bytes: Bucket::new(parameters.mb_per_s * 1e6, parameters.burst_mb * 1e6),
            replicas: vec![Replica::default(); parameters.replicas as usize],
            random: Random::with_seed(parameters.seed),
            counters: Counters::default(),
            parameters,
        };
        for number in 0..volume.replicas.len() {
            volume.replicas[number].next_stall = volume.draw(volume.parameters.stall_every_us);
        }
        volume
    }

    /// Nanoseconds, exponentially distributed around a mean in microseconds.
    fn draw(&mut self, mean_us: f64) -> Nanos {
        (-(1.0 - self.random.f64()).ln() * mean_us * 1000.0) as Nanos
    }

    /// When a replica answers a request that reaches it at `at`.
    fn serve(&mut self, number: usize, at: Nanos) -> Nanos {
        while self.replicas[number].next_stall <= at {
            let p = &self.parameters;
            let (least, most, exponent) = (p.stall_least_us, p.stall_most_us, p.stall_exponent);
            let stall_us = (least * (1.0 - self.random.f64()).powf(-1.0 / exponent)).min(most);
            let stalled_until = self.replicas[number].next_stall + (stall_us * 1000.0) as Nanos;
            let next_stall = stalled_until + self.draw(self.parameters.stall_every_us);
            self.replicas[number] = Replica { stalled_until, next_stall };
        }
        let service = (self.parameters.service_us * 1000.0) as Nanos + self.draw(self.parameters.jitter_us);
        at.max(self.replicas[number].stalled_until) + service
    }

    fn settle(&mut self, now: Nanos) {
        while let Some(ended) = self.transfers.take_ended(now) {
            self.contents.write(ended.offset, &ended.data);
        }
    }

    /// When a request that comes at `now` has been answered by the first `replicas`.
    fn request(&mut self, now: Nanos, bytes: usize, replicas: usize) -> Nanos {
        self.settle(now);
        let operations = bytes.div_ceil(self.parameters.operation_kib as usize * 1024).max(1);
        let admitted = self.operations.take(now, operations as f64).max(self.bytes.take(now, bytes as f64));
        let one_way = (self.parameters.network_us * 500.0) as Nanos;
        let arrived = admitted + one_way;
        (0..replicas).map(|number| self.serve(number, arrived)).fold(arrived, Nanos::max) + one_way
    }

    fn end(&self, done: Nanos) -> Outcome {
        Outcome::at(done, self.contents.failure())
    }
}

impl Model for CloudVolume {
    fn describe(&self) -> Shape {
        Shape::plain(self.contents.len(), SECTOR_BYTES as u32, PIECE_BYTES as u32)
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.counters.read(buffer.len());
        let done = self.request(now, buffer.len(), 1);
        self.contents.read(offset, buffer);
        self.transfers.read(offset, buffer);
        self.end(done)
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], _durable: bool) -> Outcome {
        self.counters.write(data.len());
        self.counters.media_written_bytes += (data.len() * self.replicas.len()) as u64;
        let answered = self.request(now, data.len(), self.replicas.len());
        // Replicas take writes of the same place in the order of submission.
        let done = self.transfers.end_of(offset, data.len() as u64).map_or(answered, |earlier| answered.max(earlier));
        self.transfers.push(Transfer { end: done, offset, data: data.to_vec() });
        self.end(done)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.counters.flushes += 1;
        Outcome::ok(now)
    }

    fn discard(&mut self, now: Nanos, _offset: u64, _len: u64) -> Outcome {
        self.counters.discards += 1;
        let done = self.request(now, 0, self.replicas.len());
        self.end(done)
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.contents.read(offset, buffer);
        self.transfers.read(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.settle(now);
        self.counters.power_cuts += 1;
        // What was under way has left the machine in part.
        for Transfer { offset, data, .. } in self.transfers.drain() {
            let share = random.u8(..=4);
            for (at, piece) in pieces(offset, &data, SECTOR_BYTES as usize) {
                if random.u8(..4) < share {
                    self.contents.write(at, piece);
                }
            }
        }
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        now + (self.parameters.attach_us * 1000.0) as Nanos
    }

    fn catch_up(&mut self, now: Nanos) {
        self.settle(now);
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        self.settle(Nanos::MAX);
        now
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> CloudVolume {
        let profile = crate::Profile::named("cloud-volume").expect("it comes with the crate");
        let crate::Kind::CloudVolume(parameters) = profile.device else { panic!("{profile:?}") };
        CloudVolume::new(parameters, 1 << 30, Contents::in_memory)
    }

    #[test]
    fn the_cap_holds_and_a_burst_passes() {
        let mut volume = volume();
        let iops = volume.parameters.iops;
        let done: Vec<Nanos> = (0..30_000).map(|_| volume.read(0, 0, &mut [0; 4096]).done).collect();
        let second = done.iter().filter(|&&done| done > 4_000_000_000 && done <= 5_000_000_000).count() as f64;
        assert!((0.98..1.02).contains(&(second / iops)), "{second} in a second, {iops} promised");
        let at_once = done.iter().filter(|&&done| done < 5_000_000).count() as f64;
        assert!(at_once >= volume.parameters.burst_operations, "{at_once} at once");
        let large = volume.write(60_000_000_000, 0, &vec![1; 64 << 20], true).done - 60_000_000_000;
        assert!(large > 400_000_000, "bytes have a cap of their own: {large} ns");
    }

    #[test]
    fn latencies_have_a_long_tail() {
        let (mut volume, mut now, mut latencies) = (volume(), 0, Vec::new());
        for number in 0..200_000 {
            let begin = now;
            now = volume.write(begin, number % 1000 * 4096, &[1; 4096], true).done;
            latencies.push(now - begin);
        }
        latencies.sort_unstable();
        let at = |share: f64| latencies[(share * latencies.len() as f64) as usize] as f64 / 1e6;
        println!(
            "cloud-volume, 4 KiB writes: median {:.2} ms, 99 % {:.2}, 99.99 % {:.1}, longest {:.0}",
            at(0.5),
            at(0.99),
            at(0.9999),
            at(0.999_999)
        );
        assert!(at(0.5) < 1.0 && at(0.99) < 2.0, "below a millisecond, mostly");
        assert!((200.0..=550.0).contains(&at(0.999_999)), "the longest: {} ms", at(0.999_999));
    }
}
