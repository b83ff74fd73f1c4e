//! File systems on SSD (NAS 2010), section IV: TPC-C with its pages in place and log-structured, on three SSDs, as two database
//! servers wrote them.

use std::{sync::Arc, time::Duration};

use tantalum::TornPageProtection;
use tantalum_flash::{Kind as Device, Profile};
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::tpcc::{Kind, Mix, Parameters, Scale};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Bound, Findings},
    published,
    scenario::{
        self, BufferedFile, Contents, Cpu, Data, Drive, DurableBy, FileSystem, FileUse, Filled, Length, Log, Outcome,
        Pages, Scenario, Segments, Trace,
    },
    trace::requests::{Analysis, DeviceAnalysis, plots},
};

/// What runs of section IV.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: MIX, profiles: &[MTRON], run: mixes },
    Experiment { id: GAINS, profiles: &[MTRON, OCZ], run: gains },
    Experiment { id: "fs.fig9.intel", profiles: &[INTEL], run: on_intel },
    Experiment { id: SIZES, profiles: &[MTRON, INTEL, OCZ], run: write_sizes },
    Experiment { id: "fs.fig11.workloads", profiles: &[MTRON], run: workloads },
    Experiment { id: BUFFER, profiles: &[MTRON], run: buffers },
    Experiment { id: AMPLIFICATION, profiles: &[MTRON, INTEL, OCZ], run: amplification },
];

const MIX: &str = "fs.table1.mix";
const GAINS: &str = "fs.fig9.log_structured_over_in_place";
const SIZES: &str = "fs.sec4b.write_sizes";
const BUFFER: &str = "fs.fig13.buffer";
const AMPLIFICATION: &str = "fs.fig15.write_amplification";

const MTRON: &str = "mtron";
const INTEL: &str = "intel-x25e";
const OCZ: &str = "ocz-vertex-ex";
const DRIVES: [(&str, &str); 3] = [("mtron", MTRON), ("intel", INTEL), ("ocz", OCZ)];

/// By what the sizes of the database, of the drives and of the Mtron's buffer are divided; and the granularity of times in NILFS2, so that
/// as large a part of its metadata has changed at each checkpoint.
const SCALE: u32 = 10;
/// A tenth of the paper's 32 GB.
const DRIVE_BYTES: u64 = 3200 << 20;
/// Of NILFS2 in the paper: 2K blocks of 4 KiB.
const SEGMENT_BYTES: u32 = 8 << 20;
const WAREHOUSES: u32 = 30;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 10_000, districts: 10, customers: 300, new_orders: 90 };
/// A tenth of the paper's data file of 5.5 GB, in whole blocks of the file system.
const FILE_BYTES: u64 = 550_000_000 / 4096 * 4096;
const USERS: usize = 30;
const TRANSACTIONS: u64 = 3000;

/// A database server of section IV-A.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dbms {
    Commercial,
    Mysql,
}

const SERVERS: [Dbms; 2] = [Dbms::Commercial, Dbms::Mysql];

impl Dbms {
    fn name(self) -> &'static str {
        match self {
            Self::Commercial => "commercial",
            Self::Mysql => "mysql",
        }
    }

    fn page_bytes(self) -> u32 {
        match self {
            Self::Commercial => 4 << 10,
            Self::Mysql => 16 << 10,
        }
    }

    /// So many pages, that the commits of 30 users fit.
    fn buffer_pool_bytes(self) -> u64 {
        POOL_PAGES * u64::from(self.page_bytes())
    }

    /// InnoDB writes pages twice, whatever the file system, and makes them durable by `fsync`; the commercial server opens its file with
    /// `O_SYNC` ("All the IOs were set to be synchronous", section IV-A).
    fn durable_by(self) -> DurableBy {
        match self {
            Self::Commercial => DurableBy::Write,
            Self::Mysql => DurableBy::Fsync,
        }
    }
}

/// With fewer, the commits of 30 users would wait for each other's frames most of the time.
const POOL_PAGES: u64 = 256;

/// Where a server's pages lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ext2,
    Nilfs2,
    /// In Tantalum's log-structured store, in a file on EXT2 that takes all of the drive.
    LogStructured,
}

const WAYS: [Way; 3] = [Way::Ext2, Way::Nilfs2, Way::LogStructured];

/// A part of the servers' model that can be left out, to show what is due to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    PageCache,
    /// A page writer that waits for each write.
    OneWriter,
    DoubleWritesOnNilfs2,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::PageCache => "without the page cache",
            Self::OneWriter => "with several page writers",
            Self::DoubleWritesOnNilfs2 => "without double writes on NILFS2",
        }
    }
}

fn pages(dbms: Dbms, way: Way, without: Option<Part>) -> Pages {
    let protection = match (dbms, way) {
        (Dbms::Mysql, Way::Nilfs2) if without == Some(Part::DoubleWritesOnNilfs2) => TornPageProtection::TrustDevice,
        (Dbms::Mysql, _) => TornPageProtection::DoubleWrite,
        (Dbms::Commercial, _) => TornPageProtection::TrustDevice,
    };
    match way {
        Way::Ext2 | Way::Nilfs2 => Pages::InPlace { protection, durable_writes: dbms.durable_by() == DurableBy::Write },
        Way::LogStructured => Pages::LogStructured(Segments::new(SEGMENT_BYTES, 80)),
    }
}

fn file(dbms: Dbms, way: Way, without: Option<Part>) -> BufferedFile {
    let file_system = match way {
        Way::Ext2 | Way::LogStructured => FileSystem::Ext2,
        Way::Nilfs2 => FileSystem::Nilfs2 { time_granularity: Duration::from_secs(1) / SCALE },
    };
    BufferedFile {
        file_system,
        bytes: if way == Way::LogStructured { DRIVE_BYTES } else { FILE_BYTES },
        durable_by: dbms.durable_by(),
        has_page_cache: without != Some(Part::PageCache),
        has_one_writer: without != Some(Part::OneWriter),
    }
}

fn scenario(drive: &str, dbms: Dbms, way: Way, settings: Settings) -> Result<Scenario> {
    scenario_without(None, drive, dbms, way, settings)
}

/// The paper's file systems sent no barriers, and its drives cached writes.
fn scenario_without(without: Option<Part>, drive: &str, dbms: Dbms, way: Way, settings: Settings) -> Result<Scenario> {
    let mut profile = Profile::named(drive)?.with_capacity(DRIVE_BYTES);
    if let Device::BlockSsd(drive) = &mut profile.device {
        drive.buffer_kib /= SCALE;
    }
    let contents = Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed: settings.seed };
    Ok(Scenario {
        page_bytes: dbms.page_bytes(),
        buffer_pool_bytes: dbms.buffer_pool_bytes(),
        pages: pages(dbms, way, without),
        data: Data::Drive(Drive {
            filled: Filled::All,
            has_barriers: false,
            file: FileUse::Buffered(file(dbms, way, without)),
            ..Drive::new(profile)
        }),
        log: Log::Instant(4 << 30),
        clients: USERS,
        cpu: Cpu::PerAttempt(Duration::from_micros(100)),
        length: Length::Transactions { warm_up: TRANSACTIONS, counted: TRANSACTIONS, with_checkpoints: false },
        trace: Trace::Requests,
        ..Scenario::new(Contents::Tpcc(contents), settings.seed)
    })
}

fn configuration() -> Vec<String> {
    vec![
        format!(
            "TPC-C, {WAREHOUSES} warehouses of a tenth of the rows, {USERS} users without think time, {TRANSACTIONS} transactions after as \
             many of warm-up; drives of {} MiB, written once before, the Mtron's buffer a tenth of its profile's",
            DRIVE_BYTES >> 20
        ),
        format!(
            "commercial: pages of 4 KiB, {POOL_PAGES} frames, the file opened with O_SYNC; mysql: pages of 16 KiB, {POOL_PAGES} frames, double \
             writes on both file systems, fsync (a tenth of the paper's buffers would be 200 and 26 frames: too few for the commits of \
             {USERS} users)"
        ),
        format!(
            "a file of {} MB below a page cache that holds all of it and is empty at first; one page writer, which waits for each write; \
             NILFS2 without garbage collection, the granularity of its times a tenth of a second; log-structured: our store, in a file on \
             EXT2; no barriers, write caches on; the log on a device that takes no time",
            FILE_BYTES / 1_000_000
        ),
    ]
}

/// The runs of one drive: for each server on EXT2, on NILFS2, and in the log-structured store.
fn runs_on(drive: &'static str, settings: Settings, progress: &dyn Fn(&str)) -> Result<Vec<[Arc<Outcome>; 3]>> {
    let ways = |dbms: Dbms| WAYS.map(|way| scenario(drive, dbms, way, settings));
    let all = SERVERS.into_iter().flat_map(ways).collect::<Result<Vec<Scenario>>>()?;
    let runs = scenario::run(&all, progress)?;
    Ok(runs.chunks_exact(3).map(|runs| [0, 1, 2].map(|at| Arc::clone(&runs[at]))).collect())
}

/// Adds what was measured on one drive; `published` are the ratios of both servers.
fn compare_on(
    findings: &mut Findings,
    (name, drive): (&str, &'static str),
    published: [Bound; 2],
    settings: Settings,
    progress: &dyn Fn(&str),
) -> Result<[[f64; 3]; 2]> {
    let mut rates = [[0.0; 3]; 2];
    for (at, runs) in runs_on(drive, settings, progress)?.iter().enumerate() {
        let dbms = SERVERS[at].name();
        rates[at] = [0, 1, 2].map(|way| Outcome::new_orders_per_minute(&runs[way]));
        let [in_place, nilfs2, own] = rates[at];
        findings.compared(
            format!("{name}, {dbms}: as NILFS2 over in place"),
            published[at],
            nilfs2 / in_place,
            "ratio",
        );
        let what = format!("{name}, {dbms}: log-structured over in place");
        findings.measured(what, own / in_place, "ratio");
        for (way, rate) in ["in place", "as NILFS2", "log-structured"].into_iter().zip(rates[at]) {
            findings.measured(format!("{name}, {dbms}, {way}"), rate, "tpmC");
        }
    }
    Ok(rates)
}

fn gains(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    let [mtron, ocz] =
        [0, 2].map(|at| [0, 1].map(|dbms| Bound::Value(published::of(GAINS).column("ratio")[at + dbms])));
    let [mtron_commercial, mtron_mysql] = compare_on(&mut findings, ("mtron", MTRON), mtron, settings, progress)?;
    let [ocz_commercial, ocz_mysql] = compare_on(&mut findings, ("ocz", OCZ), ocz, settings, progress)?;
    let ratio = |rates: [f64; 3]| rates[1] / rates[0];
    let gains = [mtron_commercial, mtron_mysql, ocz_commercial, ocz_mysql].map(ratio);
    let most = gains.iter().skip(1).all(|gain| gains[0] > *gain);
    let found = gains.map(|gain| format!("{gain:.2}")).join(", ");
    findings.states("the Mtron with small pages gains most", most, found);
    let says = "larger pages gain less on both";
    findings.states(
        says,
        gains[0] > gains[1] && gains[2] > gains[3],
        format!("{:.2} and {:.2} times as much", gains[0] / gains[1], gains[2] / gains[3]),
    );
    parts(&mut findings, settings, progress)?;
    let bars = |at: usize| [mtron_commercial, mtron_mysql, ocz_commercial, ocz_mysql].map(|rates| rates[at]).to_vec();
    findings.plots.push(Plot::new(
        "New orders a minute",
        Axis::names("", ["mtron, commercial", "mtron, mysql", "ocz, commercial", "ocz, mysql"].map(str::to_owned)),
        Axis::linear("new orders a minute", Unit::Number),
        vec![
            Series::bars("in place", bars(0)),
            Series::bars("as NILFS2", bars(1)),
            Series::bars("log-structured", bars(2)),
        ],
    ));
    Ok(findings)
}

/// Adds what the gains on the Mtron would be without parts of the servers' model.
fn parts(findings: &mut Findings, settings: Settings, progress: &dyn Fn(&str)) -> Result<()> {
    const LEFT_OUT: [(Dbms, Part); 5] = [
        (Dbms::Commercial, Part::PageCache),
        (Dbms::Commercial, Part::OneWriter),
        (Dbms::Mysql, Part::PageCache),
        (Dbms::Mysql, Part::OneWriter),
        (Dbms::Mysql, Part::DoubleWritesOnNilfs2),
    ];
    let both =
        |(dbms, part)| [Way::Ext2, Way::Nilfs2].map(|way| scenario_without(Some(part), MTRON, dbms, way, settings));
    let all = LEFT_OUT.into_iter().flat_map(both).collect::<Result<Vec<_>>>()?;
    let runs = scenario::run(&all, progress)?;
    for ((dbms, part), runs) in LEFT_OUT.into_iter().zip(runs.chunks_exact(2)) {
        let gain = Outcome::new_orders_per_minute(&runs[1]) / Outcome::new_orders_per_minute(&runs[0]);
        let what = format!("mtron, {}, {}: as NILFS2 over in place", dbms.name(), part.name());
        findings.measured(what, gain, "ratio");
    }
    Ok(())
}

fn on_intel(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    let rates = compare_on(&mut findings, ("intel", INTEL), [Bound::Unpublished; 2], settings, progress)?;
    for (dbms, [in_place, nilfs2, _]) in SERVERS.into_iter().zip(rates) {
        let says = format!("{}: NILFS2 is slower than in place", dbms.name());
        findings.states(says, nilfs2 < in_place, format!("{:.2} times", nilfs2 / in_place));
    }
    Ok(findings)
}

fn write_sizes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let published = published::of(SIZES).column("bytes");
    let mut findings = Findings::new(configuration());
    let (mut grows, mut orders) = (true, Orders::default());
    for ((name, drive), published) in DRIVES.into_iter().zip(published.chunks_exact(2)) {
        let runs = runs_on(drive, settings, progress)?;
        let mut sizes = [0.0; 2];
        for (at, ([in_place, nilfs2, _], dbms)) in runs.iter().zip(SERVERS).enumerate() {
            let size = |run: &Outcome| run.data.host_written_bytes as f64 / run.data.host_writes.max(1) as f64;
            sizes[at] = size(nilfs2);
            let what = format!("{name}, {}", dbms.name());
            findings.compared(what.clone(), Bound::Value(published[at]), sizes[at], "bytes");
            findings.measured(format!("{what}: in place"), size(in_place), "bytes");
            orders.add(&mut findings, &what, in_place, nilfs2);
            if (drive, dbms) == (INTEL, Dbms::Commercial) {
                findings.plots.extend(figure_12("in place", in_place));
                findings.plots.extend(figure_12("as NILFS2", nilfs2));
            }
        }
        grows &= sizes[1] > sizes[0];
    }
    let says = "the server with larger pages makes larger requests on every drive";
    findings.states(says, grows, if grows { "it does" } else { "not on all" });
    orders.conclude(&mut findings);
    Ok(findings)
}

/// Which part of the writes begins where the one before ended, over all drives and servers (section IV-D, Figure 12).
#[derive(Default)]
struct Orders {
    in_place: Vec<f64>,
    nilfs2: Vec<f64>,
}

impl Orders {
    fn add(&mut self, findings: &mut Findings, what: &str, in_place: &Outcome, nilfs2: &Outcome) {
        for (way, run, shares) in [("in place", in_place, &mut self.in_place), ("as NILFS2", nilfs2, &mut self.nilfs2)]
        {
            let order = at_drive(run).writes;
            let [sequential, ascending] =
                [order.sequential_share(), order.ascending_share()].map(Option::unwrap_or_default);
            let what = format!("{what}, {way}: writes that begin where the one before ended");
            findings.measured(what.clone(), 100.0 * sequential, "%");
            findings.measured(format!("{what}, or higher"), 100.0 * ascending, "%");
            shares.push(sequential);
        }
    }

    fn conclude(&self, findings: &mut Findings) {
        let (in_place, nilfs2) = (self.in_place.iter(), self.nilfs2.iter());
        let most = in_place.fold(0.0f64, |most, share| most.max(*share));
        let least = nilfs2.fold(1.0f64, |least, share| least.min(*share));
        findings.states("log-structured, the addresses of writes are in sequence (most begin where the one before ended), and in place they are not", least > 0.5 && most < 0.5, format!("at least {:.1} % log-structured, at most {:.1} % in place", 100.0 * least, 100.0 * most));
    }
}

fn requests(run: &Outcome) -> &Analysis {
    run.requests.as_ref().expect("the requests of these scenarios are traced")
}

/// What the kernel asked of the drive.
fn at_drive(run: &Outcome) -> &DeviceAnalysis {
    let [drive] = &requests(run).devices[..] else { unreachable!("one drive is traced") };
    drive
}

/// The addresses of requests by time, thinned out so far that a page of results does not get too long.
fn figure_12(way: &str, run: &Outcome) -> Option<Plot> {
    const MOST_DOTS: usize = 2000;
    let mut plot = plots(requests(run)).into_iter().next()?;
    plot.title = format!("Addresses on the Intel, commercial, {way}");
    for series in &mut plot.series {
        let step = series.points.len().div_ceil(MOST_DOTS).max(1);
        series.points = series.points.iter().copied().step_by(step).collect();
        // The step in the name was that of the trace's own plot.
        series.name = series.name.split(',').next().unwrap_or_default().to_owned();
    }
    Some(plot)
}

fn mixes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    for (at, (name, mix)) in MIXES.into_iter().enumerate() {
        let run = scenario(MTRON, Dbms::Commercial, Way::Nilfs2, settings)?;
        let runs = scenario::run(&[Scenario { mix, ..run }], progress)?;
        let done = |kind: usize| runs[0].report.kinds[kind].committed + runs[0].report.kinds[kind].rolled_back;
        let all: u64 = (0..runs[0].report.kinds.len()).map(done).sum();
        for (texts, published) in published::of(MIX).table() {
            let kind = Kind::NAMES.iter().position(|name| *name == texts[0]).expect("a type of transaction");
            let share = 100.0 * done(kind) as f64 / all.max(1) as f64;
            findings.compared(format!("{name}: {}", texts[0]), Bound::Value(published[at]), share, "%");
        }
    }
    Ok(findings)
}

const MIXES: [(&str, Mix); 3] =
    [("normal", Mix::Normal), ("read intensive", Mix::ReadIntensive), ("write intensive", Mix::WriteIntensive)];

fn workloads(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    let mut curves = Vec::new();
    for dbms in SERVERS {
        let all = MIXES.map(|(_, mix)| {
            [Way::Ext2, Way::Nilfs2].map(|way| scenario(MTRON, dbms, way, settings).map(|run| Scenario { mix, ..run }))
        });
        let all = all.into_iter().flatten().collect::<Result<Vec<_>>>()?;
        let runs = scenario::run(&all, progress)?;
        let gains: Vec<f64> = runs
            .chunks_exact(2)
            .map(|pair| Outcome::new_orders_per_minute(&pair[1]) / Outcome::new_orders_per_minute(&pair[0]))
            .collect();
        for ((name, _), gain) in MIXES.into_iter().zip(&gains) {
            findings.measured(format!("mtron, {}, {name}", dbms.name()), *gain, "ratio");
        }
        let [normal, reads, writes] = gains[..] else { unreachable!("a gain for each mix") };
        findings.states(
            format!(
                "{}: the gain rises with the write-intensive mix and falls with the read-intensive one",
                dbms.name()
            ),
            writes > normal && reads < normal,
            format!("{reads:.2}, {normal:.2}, {writes:.2} times"),
        );
        curves.push(Series::bars(dbms.name(), vec![reads, normal, writes]));
    }
    findings.plots.push(Plot::new(
        "NILFS2 over in place on the Mtron",
        Axis::names("", ["read intensive", "normal", "write intensive"].map(str::to_owned)),
        Axis::linear("ratio of new orders a minute", Unit::Number),
        curves,
    ));
    Ok(findings)
}

/// Shares of the data file that the buffer has.
const BUFFERS: [f64; 6] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2];

fn buffers(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    let dbms = Dbms::Commercial;
    let sized = |share: f64, way| -> Result<Scenario> {
        let run = scenario(MTRON, dbms, way, settings)?;
        let bytes = (share * FILE_BYTES as f64) as u64 / u64::from(run.page_bytes) * u64::from(run.page_bytes);
        // Large buffers take longer to fill.
        let warm_up = if share > 0.02 { 3 * TRANSACTIONS } else { TRANSACTIONS };
        let length = Length::Transactions { warm_up, counted: TRANSACTIONS, with_checkpoints: false };
        Ok(Scenario { buffer_pool_bytes: bytes.max(run.buffer_pool_bytes), length, ..run })
    };
    let all = BUFFERS.into_iter().flat_map(|share| [sized(share, Way::Ext2), sized(share, Way::Nilfs2)]);
    let all = all.collect::<Result<Vec<_>>>()?;
    let runs = scenario::run(&all, progress)?;
    let rates: Vec<[f64; 2]> = runs
        .chunks_exact(2)
        .map(|pair| [Outcome::new_orders_per_minute(&pair[0]), Outcome::new_orders_per_minute(&pair[1])])
        .collect();
    let shares = BUFFERS.map(|share| share.max(all[0].buffer_pool_bytes as f64 / FILE_BYTES as f64));
    let most = rates.iter().map(|rate| rate[1]).fold(0.0, f64::max);
    let saturates =
        shares.into_iter().zip(&rates).find(|(_, rate)| rate[1] >= 0.9 * most).map_or(1.0, |(share, _)| share);
    findings.compared(
        "smallest buffer with nine tenths of the most throughput, as NILFS2",
        published::of(BUFFER).bound(),
        saturates,
        "share of the data file",
    );
    for (share, [in_place, nilfs2]) in shares.into_iter().zip(&rates) {
        let buffer = format!("buffer of {:.2} % of the file", 100.0 * share);
        findings.measured(format!("{buffer}, in place"), *in_place, "tpmC");
        findings.measured(format!("{buffer}, as NILFS2"), *nilfs2, "tpmC");
        findings.measured(format!("{buffer}, gain"), nilfs2 / in_place, "ratio");
    }
    let gain = |at: usize| rates[at][1] / rates[at][0];
    let last = rates.len() - 1;
    findings.states(
        "throughput rises with the buffer, in place and log-structured",
        (0..2).all(|way| rates[last][way] > rates[0][way]),
        format!("{:.1} and {:.1} times", rates[last][0] / rates[0][0], rates[last][1] / rates[0][1]),
    );
    findings.states(
        "the gain shrinks as the buffer grows",
        gain(last) < gain(0),
        format!("from {:.2} to {:.2} times", gain(0), gain(last)),
    );
    let curve = |way: usize| shares.into_iter().zip(&rates).map(|(share, rate)| (100.0 * share, rate[way])).collect();
    findings.plots.push(Plot::new(
        "New orders a minute by buffer, Mtron, commercial",
        Axis::log("buffer, % of the data file", Unit::Number),
        Axis::linear("new orders a minute", Unit::Number),
        vec![Series::line("in place", curve(0)), Series::line("as NILFS2", curve(1))],
    ));
    Ok(findings)
}

fn amplification(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    for (name, drive) in DRIVES {
        for ([in_place, nilfs2, own], dbms) in runs_on(drive, settings, progress)?.iter().zip(SERVERS) {
            // The paper counts double writes as issued.
            let written = |run: &Outcome| {
                let issued = run.done.store.pages_stored + run.done.store.pages_double_written;
                run.data.host_written_bytes as f64 / (issued * u64::from(dbms.page_bytes())).max(1) as f64
            };
            let what = format!("{name}, {}", dbms.name());
            findings.compared(
                format!("{what}: as NILFS2"),
                published::of(AMPLIFICATION).bound(),
                written(nilfs2),
                "ratio",
            );
            findings.measured(format!("{what}: in place"), written(in_place), "ratio");
            findings.measured(format!("{what}: log-structured"), written(own), "ratio");
            for (way, run) in [("in place", in_place), ("as NILFS2", nilfs2)] {
                let done = run.report.total.committed.max(1) as f64;
                for (io, issued, at_drive) in [
                    ("reads", run.done.store.pages_loaded, run.data.host_reads),
                    ("writes", run.done.store.pages_stored, run.data.host_writes),
                ] {
                    let what = format!("{what}, {way}: {io} a transaction");
                    findings.measured(format!("{what}, by the engine"), issued as f64 / done, "IOs");
                    findings.measured(format!("{what}, at the drive"), at_drive as f64 / done, "IOs");
                }
            }
        }
    }
    Ok(findings)
}
