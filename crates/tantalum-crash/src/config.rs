//! What a seed decides before anything runs: the devices, the engine's options, the clients.

use std::{fmt, ops::Range, str::FromStr, time::Duration};

use tantalum_device::{MemoryProfile, TearUnit};
use tantalum_rt::Random;

/// How torn pages are prevented.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protection {
    /// A double-write area, on a data device that tears.
    DoubleWrite,
    /// Full page images in the log, on a data device that tears.
    FullPageImages,
    /// A data device that writes pages atomically.
    Device,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DoubleWrite, Self::FullPageImages, Self::Device];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DoubleWrite => "double-write",
            Self::FullPageImages => "full-page-images",
            Self::Device => "device",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|protection| protection.name() == name)
            .ok_or_else(|| format!("no torn-page protection is called {name:?}; there are {}", names()))
    }
}

/// Where the log lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLayout {
    /// Each log device is a device of its own.
    Devices(usize),
    /// The log devices are partitions of one device.
    Partitions(usize),
}

/// Everything that stays the same through a seed's rounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// The seed.
    pub seed: u64,
    /// How torn pages are prevented.
    pub protection: Protection,
    /// Bytes of a page.
    pub page_size: usize,
    /// Frames of the buffer pool.
    pub pool_pages: usize,
    /// Where the log lies.
    pub log: LogLayout,
    /// Bytes of each log device or partition.
    pub log_bytes: u64,
    /// Whether the devices lose unflushed cached writes.
    pub volatile_cache: bool,
    /// How long writes to the log take.
    pub log_latency: Range<Duration>,
    /// How long writes to the data device take.
    pub data_latency: Range<Duration>,
    /// Whether read-write transactions are serializable; else snapshot isolated.
    pub is_serializable: bool,
    /// Whether locks are released when the commit is in the log, and not only when it is durable.
    pub early_lock_release: bool,
    /// Virtual processor cores.
    pub cores: usize,
    /// Power cuts, recoveries and checks.
    pub rounds: usize,
    /// What clients do.
    pub load: Load,
}

/// What clients do.
#[derive(Clone, Debug)]
pub struct Load {
    /// Clients at the same time.
    pub clients: usize,
    /// Tables.
    pub tables: u8,
    /// Keys in each table.
    pub keys: u32,
    /// Bytes added to a key, to twice as many.
    pub key_pad: u16,
    /// Bytes of an ordinary value.
    pub value_len: Range<usize>,
    /// One value in so many is large enough for overflow pages.
    pub large_value_every: u32,
    /// Operations in a transaction, at most.
    pub operations_max: usize,
    /// Percent of operations that only read.
    pub reads_percent: u32,
    /// Percent of transactions that are rolled back.
    pub rollbacks_percent: u32,
    /// Percent of transactions that are read-only snapshots.
    pub snapshots_percent: u32,
    /// Unfinished commits that a client may have.
    pub async_depth: usize,
    /// Whether clients also create and drop tables.
    pub drops_tables: bool,
    /// Whether all transactions write one value of one size and do nothing else. Then all log records are equally long,
    /// and after a cut new ones start where lost ones did: what was left behind must not be taken for their
    /// continuation.
    pub is_uniform: bool,
}

impl Config {
    /// What `seed` decides.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::with_seed(seed);
        let protection = Protection::ALL[random.usize(0..Protection::ALL.len())];
        let page_size = [4096, 4096, 4096, 8192, 16384][random.usize(0..5)];
        let devices = random.usize(1..=4);
        let load = Load::new(&mut random, page_size);
        // A section must hold a page's image several times over.
        let log_bytes = (page_size as u64 / 4096) * random.u64(128..=256) * 4096;
        Self {
            seed,
            protection,
            page_size,
            pool_pages: 64 + random.usize(0..=64),
            log: if random.u8(0..4) == 0 { LogLayout::Partitions(devices) } else { LogLayout::Devices(devices) },
            log_bytes,
            volatile_cache: random.u8(0..4) > 0,
            log_latency: latency(&mut random),
            data_latency: latency(&mut random),
            is_serializable: random.u8(0..4) > 0,
            early_lock_release: random.u8(0..4) > 0,
            cores: random.usize(1..=4),
            rounds: if load.is_uniform { random.usize(8..=16) } else { random.usize(2..=4) },
            load,
        }
    }

    /// A device's behaviour. `salt` tells devices of one seed apart.
    pub fn profile(&self, latency: &Range<Duration>, tears: TearUnit, salt: u64) -> MemoryProfile {
        MemoryProfile {
            logical_block: 4096,
            write_latency: latency.clone(),
            read_latency: latency.start / 2..latency.end / 2 + Duration::from_nanos(1),
            flush_latency: latency.clone(),
            volatile_cache: self.volatile_cache,
            tears,
            seed: self.seed.wrapping_mul(31).wrapping_add(salt),
        }
    }

    /// How many log devices or partitions there are.
    pub fn log_devices(&self) -> usize {
        match self.log {
            LogLayout::Devices(n) | LogLayout::Partitions(n) => n,
        }
    }
}

impl Load {
    fn new(random: &mut Random, page_size: usize) -> Self {
        let is_contended = random.bool();
        let value_len_max = [24, 100, page_size / 8][random.usize(0..3)];
        Self {
            clients: random.usize(2..=8),
            tables: random.u8(1..=3),
            keys: if is_contended { random.u32(4..=24) } else { random.u32(50..=600) },
            key_pad: [0, 0, 20, 150][random.usize(0..4)],
            value_len: 8..value_len_max,
            large_value_every: [8, 40, 1000][random.usize(0..3)],
            operations_max: [2, 5, 12][random.usize(0..3)],
            reads_percent: [10, 40, 70][random.usize(0..3)],
            rollbacks_percent: [0, 10, 30][random.usize(0..3)],
            snapshots_percent: [0, 10, 30][random.usize(0..3)],
            async_depth: [0, 0, 2, 6][random.usize(0..4)],
            drops_tables: random.u8(0..4) == 0,
            is_uniform: false,
        }
        .or_uniform(random)
    }

    /// One in four loads is uniform instead.
    fn or_uniform(self, random: &mut Random) -> Self {
        if random.u8(0..4) > 0 {
            return self;
        }
        Self {
            keys: random.u32(4..=24),
            key_pad: 0,
            large_value_every: u32::MAX,
            value_len: 40..41,
            operations_max: 1,
            reads_percent: 0,
            rollbacks_percent: 0,
            snapshots_percent: 0,
            drops_tables: false,
            is_uniform: true,
            ..self
        }
    }
}

/// Steady or jittery, fast or slow.
fn latency(random: &mut Random) -> Range<Duration> {
    let fastest = Duration::from_micros(random.u64(10..=200));
    fastest..fastest * [2, 2, 20][random.usize(0..3)]
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (log, load) = (&self.log, &self.load);
        write!(
            f,
            "{} protection, pages of {} bytes, {} frames, log {log:?} of {} KiB, {}, locks released {}, {} clients, \
             {} tables of {} keys, {} rounds",
            self.protection,
            self.page_size,
            self.pool_pages,
            self.log_bytes >> 10,
            if self.is_serializable { "serializable" } else { "snapshot isolation" },
            if self.early_lock_release { "early" } else { "when durable" },
            load.clients,
            load.tables,
            load.keys,
            self.rounds,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_reach_every_protection() {
        let all: std::collections::BTreeSet<_> = (0..50).map(|seed| Config::new(seed).protection).collect();
        assert_eq!(all.len(), 3);
        assert_eq!("double-write".parse(), Ok(Protection::DoubleWrite));
        assert!("none".parse::<Protection>().is_err());
    }
}
