//! What all these experiments share: the server, loaded once, the paper's numbers of clients, and the one free parameter.

use std::sync::Arc;

use tantalum_rt::Mutex;

use super::disk::DISK;
use crate::{
    error::Result,
    experiments::Settings,
    server::{CPU_PER_CALL, Cell, HARDWARE_THREADS, LogSetup, Run, Server, Size},
};

/// The paper's USB drives: its names, and the profiles.
pub(super) const DRIVES: [(&str, &str); 3] = [("flash-a", "usb-a"), ("flash-b", "usb-b"), ("flash-c", "usb-c")];

/// Where the paper shows one number of clients only.
pub(in crate::experiments) const MANY: usize = 32;

/// The server of an experiment.
pub(in crate::experiments) struct Bed<'a> {
    server: Arc<Server>,
    seed: u64,
    progress: &'a dyn Fn(&str),
}

/// The servers that were loaded, by seed.
static SERVERS: Mutex<Vec<(u64, Arc<Server>)>> = Mutex::new(Vec::new());

impl<'a> Bed<'a> {
    /// Loads the server, unless an experiment before has.
    pub(in crate::experiments) fn new(settings: Settings, progress: &'a dyn Fn(&str)) -> Result<Self> {
        let Settings { seed } = settings;
        let mut servers = SERVERS.lock();
        let server = match servers.iter().find(|(of, _)| *of == seed) {
            Some((_, server)) => Arc::clone(server),
            None => {
                let server = Arc::new(Server::load(Size::PAPER, seed, progress)?);
                // One is enough for memory.
                *servers = vec![(seed, Arc::clone(&server))];
                server
            }
        };
        Ok(Self { server, seed, progress })
    }

    /// A run of the paper's kind.
    pub(in crate::experiments) fn cell(&self, log: LogSetup, clients: usize) -> Cell {
        Cell::of_paper(log, clients, self.seed)
    }

    /// Tells what is measured now.
    pub(super) fn progress(&self, what: &str) {
        (self.progress)(what);
    }

    /// Runs cells.
    pub(in crate::experiments) fn run(&self, cells: &[Cell]) -> Result<Vec<Arc<Run>>> {
        self.server.run(cells, self.progress)
    }

    /// Runs each log at each number of clients: for each log its runs, in the order of the clients.
    pub(in crate::experiments) fn grid(&self, logs: &[LogSetup], clients: &[usize]) -> Result<Vec<Vec<Arc<Run>>>> {
        let cells: Vec<Cell> = logs
            .iter()
            .flat_map(|&log| clients.iter().map(move |&clients| (log, clients)))
            .map(|(log, clients)| self.cell(log, clients))
            .collect();
        let runs = self.run(&cells)?;
        Ok(runs.chunks(clients.len()).map(<[_]>::to_vec).collect())
    }

    /// The log on a disk at each number of clients: [`Server::run_on_disk`].
    pub(super) fn on_disk(&self, profile: &'static str, clients: &[usize]) -> Result<Vec<Arc<Run>>> {
        let cell = |&clients: &usize| self.cell(LogSetup::original(profile), clients);
        self.server.run_on_disk(profile, &clients.iter().map(cell).collect::<Vec<_>>(), self.progress)
    }

    /// How it is set up, a line each.
    pub(in crate::experiments) fn configuration(&self) -> Vec<String> {
        let cell = self.cell(LogSetup::original(DISK), 1);
        let (megabytes, warm_up, measured) =
            (self.server.database_bytes() / 1_000_000, cell.warm_up.as_secs(), cell.measured.as_secs());
        vec![
            format!(
                "TPC-C, {} warehouses ({megabytes} MB) in a pool of 2 GiB, pages of 16 KiB, serializable (locks until the commit \
                 is durable), no think time, data on a disk of its own, 900 MiB of log",
                Size::PAPER.warehouses
            ),
            format!(
                "{HARDWARE_THREADS} hardware threads, {} us of one for each call to the engine (fitted on \
                 fl.fig11.disk_over_ideal)",
                CPU_PER_CALL.as_nanos() as f64 / 1e3
            ),
            format!("{measured} virtual seconds after {warm_up} of warm-up (the paper: 60 minutes)"),
        ]
    }
}
