//! The server of these experiments: TPC-C with 20 warehouses in memory, the paper's numbers of clients, and the one free parameter.

use std::{sync::Arc, time::Duration};

use tantalum_flash::Profile;
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::disk::DISK;
use crate::{
    error::Result,
    experiments::Settings,
    scenario::{self, Contents, Cpu, Data, Length, Log, LogSetup, Outcome, Scenario},
};

/// The paper's USB drives: its names, and the profiles.
pub(super) const DRIVES: [(&str, &str); 3] = [("flash-a", "usb-a"), ("flash-b", "usb-b"), ("flash-c", "usb-c")];

/// Clients, from 1 to 128 in powers of two, as in the paper.
pub(super) const CLIENTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Where the paper shows one number of clients only.
pub(in crate::experiments) const MANY: usize = 32;

/// What a call to the engine takes of a hardware thread whose core does nothing else. The one free parameter: fitted on `fl.fig11.disk_over_ideal`, and
/// on nothing else, by the test `fit_cpu`.
const CPU_PER_CALL: Duration = Duration::from_micros(36);

/// Enough for group commit to settle.
const WARM_UP: Duration = Duration::from_secs(2);
const COUNTED: Duration = Duration::from_secs(6);

const WAREHOUSES: u32 = 20;
const POOL_BYTES: u64 = 2 << 30;
/// Bytes of the data disk that are used, the double-write area among them: the database and what a run adds.
const DATA_BYTES: u64 = 8 << 30;

/// What the paper's server may have been.
pub(in crate::experiments) struct Reading {
    pub says: &'static str,
    cores: usize,
    /// If each core has two hardware threads: what both do together, in percent of what one does alone.
    two_threads_percent: Option<u32>,
    /// Between the clients, which ran on another machine, and the server.
    round_trip: Duration,
}

/// Two hardware threads of a core did 21 % more than one on online transactions, with one processor and with two (D. Marr et al.,
/// "Hyper-Threading Technology Architecture and Microarchitecture", Intel Technology Journal 6(1), 2002).
const TWO_THREADS_PERCENT: u32 = 121;

/// A request and its answer over Gigabit Ethernet of the time: the driver of Intel's adapters let 125 us pass between interrupts
/// (E. Jones, "Gigabit Ethernet Latency with Intel's 1000/Pro Adapters", 2008, where a round trip takes as long).
pub(in crate::experiments) const GIGABIT_ROUND_TRIP: Duration = Duration::from_micros(125);

/// That of all experiments, in the paper's words (section 5.1): "dual core, two hardware threads per core", and clients on another
/// machine, "connected through 1Gbps Ethernet".
const AS_THE_PAPER_SAYS: Reading = Reading {
    says: "two cores of two threads",
    cores: 2,
    two_threads_percent: Some(TWO_THREADS_PERCENT),
    round_trip: GIGABIT_ROUND_TRIP,
};

/// The blade takes two such processors.
pub(super) const FOUR_CORES: Reading =
    Reading { says: "four cores", cores: 4, two_threads_percent: None, ..AS_THE_PAPER_SAYS };

/// By Intel's data sheet, the Xeon 5160 has two cores without hyper-threading.
pub(super) const AS_THE_DATA_SHEET_HAS: Reading = Reading { says: "two cores", cores: 2, ..FOUR_CORES };

/// Four cores, and clients on the same machine.
pub(in crate::experiments) const FOUR_CORES_WITHOUT_NETWORK: Reading =
    Reading { says: "four cores, no network", round_trip: Duration::ZERO, ..FOUR_CORES };

pub(super) const READINGS: [Reading; 6] = [
    AS_THE_PAPER_SAYS,
    Reading { says: "two cores of two threads, no network", round_trip: Duration::ZERO, ..AS_THE_PAPER_SAYS },
    FOUR_CORES,
    FOUR_CORES_WITHOUT_NETWORK,
    AS_THE_DATA_SHEET_HAS,
    Reading { says: "two cores, no network", round_trip: Duration::ZERO, ..AS_THE_DATA_SHEET_HAS },
];

/// The server of an experiment.
pub(in crate::experiments) struct TpccServer<'a> {
    seed: u64,
    cpu_per_call: Duration,
    reading: &'a Reading,
    progress: &'a dyn Fn(&str),
}

impl<'a> TpccServer<'a> {
    pub(in crate::experiments) fn new(settings: Settings, progress: &'a dyn Fn(&str)) -> Self {
        Self { seed: settings.seed, cpu_per_call: CPU_PER_CALL, reading: &AS_THE_PAPER_SAYS, progress }
    }

    /// The same server, if it was that.
    pub(in crate::experiments) fn read_as(&self, reading: &'a Reading) -> Self {
        Self { reading, ..*self }
    }

    /// A run of the paper's kind.
    pub(in crate::experiments) fn cell(&self, log: LogSetup, clients: usize) -> Result<Scenario> {
        let contents = Parameters { warehouses: WAREHOUSES, scale: Scale::full(), seed: self.seed };
        Ok(Scenario {
            // InnoDB's.
            page_bytes: 16 << 10,
            buffer_pool_bytes: POOL_BYTES,
            load_pool_bytes: POOL_BYTES,
            early_lock_release: false,
            data: Data::Resident(Profile::named(DISK)?.with_capacity(DATA_BYTES)),
            log: Log::Setup(log),
            clients,
            round_trip: self.reading.round_trip,
            cores: self.reading.cores,
            two_threads_percent: self.reading.two_threads_percent,
            cpu: Cpu::PerCall(self.cpu_per_call),
            length: Length::Time { warm_up: WARM_UP, counted: COUNTED },
            ..Scenario::new(Contents::Tpcc(contents), self.seed)
        })
    }

    /// Tells what is measured now.
    pub(super) fn progress(&self, what: &str) {
        (self.progress)(what);
    }

    /// Runs cells.
    pub(in crate::experiments) fn run(&self, cells: &[Scenario]) -> Result<Vec<Arc<Outcome>>> {
        scenario::run(cells, self.progress)
    }

    /// Runs each log at each number of clients: for each log its runs, in the order of the clients.
    pub(super) fn grid(&self, logs: &[LogSetup], clients: &[usize]) -> Result<Vec<Vec<Arc<Outcome>>>> {
        let cells = logs.iter().flat_map(|&log| clients.iter().map(move |&clients| self.cell(log, clients)));
        let runs = self.run(&cells.collect::<Result<Vec<_>>>()?)?;
        Ok(runs.chunks(clients.len()).map(<[_]>::to_vec).collect())
    }

    /// The log on a disk at each number of clients, as the paper reports it (section 4): the better of the original server's log
    /// and of the paper's own with the disk as its only device.
    pub(super) fn on_disk(&self, profile: &'static str, clients: &[usize]) -> Result<Vec<Arc<Outcome>>> {
        let both = self.grid(&[LogSetup::original(profile), LogSetup::paper(profile, 1)], clients)?;
        let better = |(one, other): (&Arc<Outcome>, &Arc<Outcome>)| {
            let is_first = one.new_orders_per_minute() >= other.new_orders_per_minute();
            Arc::clone(if is_first { one } else { other })
        };
        Ok(both[0].iter().zip(&both[1]).map(better).collect())
    }

    /// How it is set up, a line each.
    pub(super) fn configuration(&self) -> Result<Vec<String>> {
        let database = scenario::database_bytes(&self.cell(LogSetup::original(DISK), 1)?, self.progress)?;
        let (megabytes, warm_up, counted) = (database / 1_000_000, WARM_UP.as_secs(), COUNTED.as_secs());
        Ok(vec![
            format!(
                "TPC-C, {WAREHOUSES} warehouses ({megabytes} MB) in a pool of 2 GiB, pages of 16 KiB, serializable (locks until the \
                 commit is durable), no think time, data on a disk of its own, 900 MiB of log"
            ),
            format!(
                "2 cores of 2 hardware threads that do {TWO_THREADS_PERCENT} % of the work of one; {} us of one that works alone \
                 for each call to the engine (fitted on fl.fig11.disk_over_ideal); a network round trip of {} us for each \
                 transaction",
                CPU_PER_CALL.as_micros(),
                GIGABIT_ROUND_TRIP.as_micros()
            ),
            format!("{counted} virtual seconds after {warm_up} of warm-up (the paper: 60 minutes)"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::{super::disk::IDEAL, *};
    use crate::published;

    /// Fits the one free parameter. The paper publishes the least and the greatest share that the disk reaches of the ideal
    /// (section 5.2), and nothing between. The best number is the one whose least and greatest share are, as ratios, the nearest to
    /// the published ones: the square root of the sum of the squares of both logarithms is smallest.
    ///
    /// `cargo test --release -p tantalum-lab fit_cpu -- --ignored --nocapture`
    #[test]
    #[ignore = "it takes ten minutes, and only prints"]
    fn fit_cpu() {
        let published = published::of("fl.fig11.disk_over_ideal");
        let [from, to] = [published.from, published.to].map(Option::unwrap);
        for us in [32, 34, 36, 38, 40, 44, 50] {
            let cpu_per_call = Duration::from_micros(us);
            let server = TpccServer { cpu_per_call, ..TpccServer::new(Settings::default(), &|_| ()) };
            let [disk, ideal] = [DISK, IDEAL].map(|profile| -> Vec<f64> {
                let runs = server.on_disk(profile, &CLIENTS).unwrap();
                runs.iter().map(|run| run.new_orders_per_minute()).collect()
            });
            let shares: Vec<f64> = disk.iter().zip(&ideal).map(|(disk, ideal)| disk / ideal).collect();
            let [least, most] =
                [shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max)];
            let off = (least / from).ln().hypot((most / to).ln());
            println!("{us} us: {least:.3} to {most:.3}, off by {off:.3}: {shares:.3?}");
        }
    }
}
