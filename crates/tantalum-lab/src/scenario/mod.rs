//! A scenario: what a database holds, on which emulated devices it lies, how it is set up and what its clients do, in virtual
//! time. All experiments that need the engine run scenarios ([`run`]); each gives the same [`Outcome`] for the same seed.
//!
//! A database is loaded once ([`image`]); runs go on from copies of it, several side by side ([`side_by_side`]). [`log_alone`] and
//! [`documents`] run the log and the append-only tree without a database.

mod buffered_file;
mod clients;
mod devices;
pub(crate) mod documents;
mod file;
mod image;
pub(crate) mod innodb;
mod log;
pub(crate) mod log_alone;
mod nilfs2;
mod outcome;
pub(crate) mod paced;
mod page_cache;
mod rows;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use tantalum::{Barriers, LogLayout, PageCleaning, PageCompression, PageStreams, TornPageProtection};
use tantalum_flash::Profile;
use tantalum_rt::{Mutex, simulation::LockCharges};
use tantalum_workloads::{
    linkbench, map_by_tasks,
    tpcc::{self, Mix},
    ycsb,
};

use self::image::{Image, Load};
pub(crate) use self::{
    buffered_file::{BufferedFile, DurableBy, FileSystem},
    clients::{VOLUME, in_use},
    log::{FlushSizes, LogSetup, Writer},
    outcome::Outcome,
    rows::{Operation, Through},
};
use crate::error::Result;

/// One run of clients on a database.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    pub contents: Contents,
    /// Of TPC-C's transactions.
    pub mix: Mix,
    pub page_bytes: u32,
    pub buffer_pool_bytes: u64,
    /// While the database is loaded.
    pub load_pool_bytes: u64,
    /// Whether each run loads the database on its own devices, so that these are as the load leaves them.
    pub loads_itself: bool,
    pub pages: Pages,
    pub barriers: Barriers,
    pub cleaning: PageCleaning,
    pub early_lock_release: bool,
    pub data: Data,
    pub log: Log,
    /// Without think time.
    pub clients: usize,
    /// What a client waits for the network before each attempt at a transaction.
    pub round_trip: Duration,
    pub cores: usize,
    /// If each core has two hardware threads: what both do together, in percent of what one does alone.
    pub two_threads_percent: Option<u32>,
    pub cpu: Cpu,
    /// What locks take once the database is loaded; with `None` they are not watched.
    pub locks: Option<LockCharges>,
    pub length: Length,
    pub trace: Trace,
    /// For the clients' choices.
    pub seed: u64,
}

/// What a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    Tpcc(tpcc::Parameters),
    LinkBench(linkbench::Parameters),
    /// YCSB's records, and mix A with these favourites.
    Ycsb {
        records: ycsb::Parameters,
        chooser: ycsb::Chooser,
    },
    /// Small rows, and what clients do with them.
    Rows {
        count: u64,
        operation: Operation,
    },
}

/// How pages are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    InPlace { protection: TornPageProtection, durable_writes: bool },
    LogStructured(Segments),
    InPageLogging,
}

/// How a log-structured store is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    pub bytes: u32,
    pub fill_percent: u32,
    pub compression: PageCompression,
    pub streams: PageStreams,
    /// Whether the drive is told of segments that are free.
    pub discards: bool,
}

/// What pages lie on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    /// A device of so many bytes that takes no time.
    Instant(u64),
    /// A disk below a database that is in memory: pages are there without being read, and written in the disk's time.
    ///
    /// FlashLogging's runs begin with a scan of every table (section 5.2). Here a page comes from the image when it is first
    /// touched, in no time: the pool holds all pages, so that none is read twice.
    Resident(Profile),
    Drive(Drive),
}

/// What the log lies on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Log {
    /// A device of so many bytes that takes no time.
    Instant(u64),
    /// A volume that answers each request after this time, and any number of them at once.
    Volume(Duration),
    Drive {
        drive: Box<Drive>,
        layout: LogLayout,
        partitions: u32,
    },
    /// A log of FlashLogging's experiments.
    Setup(LogSetup),
}

/// An emulated drive.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drive {
    pub profile: Profile,
    pub filled: Filled,
    /// Whether a file system tells the drive to flush.
    pub has_barriers: bool,
    pub file: FileUse,
    /// Bytes that are used, from its begin; `None` for all.
    pub used_bytes: Option<u64>,
}

/// Whether a file system lies on a drive, and what is done to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    None,
    /// Past the page cache ([`file`]).
    Overwritten,
    /// The same, and the file grows.
    Growing,
    /// Each write is durable and holds the inode of its file, as on ext4.
    WrittenDurably {
        file_bytes: u64,
    },
    /// Through the page cache ([`buffered_file`]).
    Buffered(BufferedFile),
}

/// What of a drive was written once before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    Nothing,
    /// As much as the database takes.
    Database,
    All,
}

/// What takes time of a core, beside locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cpu {
    PerAttempt(Duration),
    PerCall(Duration),
}

/// How long a run is. What is counted follows the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Time {
        warm_up: Duration,
        counted: Duration,
    },
    /// Transactions of all clients.
    Transactions {
        warm_up: u64,
        counted: u64,
        /// Before what is counted, and at its end.
        with_checkpoints: bool,
    },
    /// So many transactions, after the drive of the pages was written so many bytes.
    AfterWrites {
        bytes: u64,
        counted: u64,
    },
    /// As long as so many transactions took at the rate of the warm-up.
    TimeOf {
        warm_up: u64,
        counted: u64,
    },
    /// Until the trace has so many changes of pages.
    Changes {
        warm_up: u64,
        counted: u64,
    },
}

/// What is traced of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Nothing,
    /// Page changes and writes, under this label.
    Pages(&'static str),
    /// The requests to the drive of the pages, below its file system.
    Requests,
}

/// Of a server, where an experiment does not say otherwise.
const CORES: usize = 4;

/// Stacks of tasks; only what a task touches takes memory.
const STACK_BYTES: usize = 1 << 20;

impl Scenario {
    /// A database on devices that take no time; what differs in an experiment is said there.
    pub fn new(contents: Contents, seed: u64) -> Self {
        Self {
            contents,
            mix: Mix::Normal,
            page_bytes: 4 << 10,
            buffer_pool_bytes: 64 << 20,
            load_pool_bytes: 64 << 20,
            loads_itself: false,
            pages: Pages::InPlace { protection: TornPageProtection::Auto, durable_writes: false },
            barriers: Barriers::On,
            cleaning: PageCleaning::default(),
            early_lock_release: true,
            data: Data::Instant(8 << 30),
            log: Log::Instant(8 << 30),
            clients: 1,
            round_trip: Duration::ZERO,
            cores: CORES,
            two_threads_percent: None,
            cpu: Cpu::PerAttempt(Duration::from_micros(100)),
            locks: None,
            length: Length::Transactions { warm_up: 0, counted: 1000, with_checkpoints: false },
            trace: Trace::Nothing,
            seed,
        }
    }

    /// Clients on a table of small rows, all of it in memory; what is measured is the engine and its log device.
    pub fn of_rows(count: u64, operation: Operation, seed: u64) -> Self {
        Self {
            buffer_pool_bytes: 256 << 20,
            loads_itself: true,
            data: Data::Instant(1 << 30),
            locks: Some(LockCharges::default()),
            ..Self::new(Contents::Rows { count, operation }, seed)
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let log = match &self.log {
            Log::Setup(log) => format!(", log on {} {}", log.drives, log.profile),
            Log::Drive { layout, partitions, .. } => format!(", log {layout} in {partitions}"),
            Log::Instant(_) | Log::Volume(_) => String::new(),
        };
        let data = match &self.data {
            Data::Drive(drive) => format!(" on {}", drive.profile.description),
            Data::Instant(_) | Data::Resident(_) => String::new(),
        };
        format!("{:?}{data}{log}, {} clients", self.pages, self.clients)
    }

    /// What is loaded for it.
    fn load(&self) -> Load {
        Load {
            contents: self.contents,
            page_bytes: self.page_bytes,
            pool_bytes: self.load_pool_bytes,
            pages: match self.pages {
                // Full page images are in a log from its begin or never, and a double-write area is given up at an open and not
                // gained.
                Pages::InPlace { protection: TornPageProtection::FullPageImages, .. } => {
                    Pages::InPlace { protection: TornPageProtection::FullPageImages, durable_writes: false }
                }
                Pages::InPlace { .. } => {
                    Pages::InPlace { protection: TornPageProtection::DoubleWrite, durable_writes: false }
                }
                Pages::LogStructured(Segments { bytes, fill_percent, compression, .. }) => {
                    Pages::LogStructured(Segments { compression, ..Segments::new(bytes, fill_percent) })
                }
                Pages::InPageLogging => Pages::InPageLogging,
            },
            data_bytes: self.data.bytes(),
        }
    }
}

impl Segments {
    /// As the engine has it.
    pub const fn new(bytes: u32, fill_percent: u32) -> Self {
        let (compression, streams) = (PageCompression::None, PageStreams::Two);
        Self { bytes, fill_percent, compression, streams, discards: false }
    }
}

impl Data {
    /// Bytes that pages may take.
    fn bytes(&self) -> u64 {
        match self {
            Self::Instant(bytes) => *bytes,
            Self::Resident(disk) => disk.capacity_bytes,
            Self::Drive(drive) => drive.bytes(),
        }
    }
}

/// Loaded databases: those of the contents and of the size of the device that were asked for last, since more may not fit into memory.
static LOADED: Mutex<Vec<(Load, Arc<Image>)>> = Mutex::new(Vec::new());
/// What was measured, for experiments that share runs.
static KNOWN: Mutex<Vec<(Scenario, Arc<Outcome>)>> = Mutex::new(Vec::new());

fn image(load: Load, progress: &dyn Fn(&str)) -> Result<Arc<Image>> {
    let mut loaded = LOADED.lock();
    if let Some((_, image)) = loaded.iter().find(|(of, _)| *of == load) {
        return Ok(Arc::clone(image));
    }
    loaded.retain(|(of, _)| (of.contents, of.data_bytes) == (load.contents, load.data_bytes));
    let image = Arc::new(Image::load(load, progress)?);
    loaded.push((load, Arc::clone(&image)));
    Ok(image)
}

/// Bytes of the pages of a scenario's database, once it is loaded.
pub(crate) fn database_bytes(scenario: &Scenario, progress: &dyn Fn(&str)) -> Result<u64> {
    Ok(image(scenario.load(), progress)?.bytes)
}

/// Runs all that have not run before, several at a time, and gives the outcomes in the order asked for.
///
/// # Errors
/// The first of a run: as the engine and the devices fail, a defect.
pub(crate) fn run(wanted: &[Scenario], progress: &dyn Fn(&str)) -> Result<Vec<Arc<Outcome>>> {
    let known = |of: &Scenario| KNOWN.lock().iter().find(|(other, _)| other == of).map(|(_, run)| Arc::clone(run));
    let mut missing: Vec<(Scenario, Option<Arc<Image>>)> = Vec::new();
    for scenario in wanted {
        if known(scenario).is_none() && !missing.iter().any(|(other, _)| other == scenario) {
            let image = if scenario.loads_itself { None } else { Some(image(scenario.load(), progress)?) };
            missing.push((scenario.clone(), image));
        }
    }
    let describe = |(scenario, _): &(Scenario, Option<Arc<Image>>)| scenario.describe();
    let simulate = |(scenario, image): &(Scenario, Option<Arc<Image>>)| scenario.simulate(image.clone());
    let outcomes = side_by_side(missing.clone(), describe, simulate, progress)?;
    KNOWN.lock().extend(missing.into_iter().map(|(scenario, _)| scenario).zip(outcomes.into_iter().map(Arc::new)));
    Ok(wanted.iter().map(|scenario| known(scenario).expect("each has run or failed")).collect())
}

/// Runs all, as many at a time as the machine has cores, and gives the results in their order. `progress` is called for each that ends.
///
/// # Errors
/// The first of a run.
pub(crate) fn side_by_side<C: Send + Sync + 'static, R: Send + 'static>(
    cells: Vec<C>,
    describe: impl Fn(&C) -> String,
    run: impl Fn(&C) -> Result<R> + Send + Sync + 'static,
    progress: &dyn Fn(&str),
) -> Result<Vec<R>> {
    const LOOK: Duration = Duration::from_millis(20);
    let names: Vec<String> = cells.iter().map(describe).collect();
    let (sender, ended) = mpsc::channel();
    let (started, mut done, workers) = (tantalum_rt::now(), 0, tantalum_rt::available_cores().min(cells.len()));
    let mut show = || {
        for place in ended.try_iter() {
            done += 1;
            let left = started.elapsed().as_secs_f64() / done as f64 * (names.len() - done) as f64;
            let name: &String = &names[place];
            progress(&format!("{done} of {} runs ({name}), {left:.0} s left", names.len()));
        }
        LOOK
    };
    let run = move |place, cell: &C| {
        let result = run(cell);
        // The receiver stays until all have ended.
        let _ = sender.send(place);
        result
    };
    let results = map_by_tasks("lab", workers, cells, run, &mut show)?;
    show();
    Ok(results)
}
