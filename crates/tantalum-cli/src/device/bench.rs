//! `tantalum device bench`.

use std::{ops::Range, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum_device::Device;
use tantalum_lab::micro::{self, Benchmark, Data, FlashPlan, Plan, Results, Suite};
use tantalum_report::{Progress, Unit, units};

use super::{
    emulated::{self, Emulated},
    place,
};
use crate::{
    bench::parse_bytes,
    error::{Error, Out, Result},
};

#[derive(Args)]
pub struct Arguments {
    /// A profile of `device list`, or emulated:PROFILE:FILE; or a file that does not exist (it is made, and gone
    /// afterwards), or a directory (the same, in it); with --destroy-contents also an existing file or block device.
    #[arg(value_name = "PATH|PROFILE")]
    path: PathBuf,
    /// Bytes of the device to use: how large the file is made.
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    size: u64,
    /// Only this benchmark; may be given again. An unknown name lists them.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Requests of each measurement; of those above 32 KiB each, a tenth.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    /// No measurement takes longer than this, on a real device.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Decides addresses, mixes and data.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Overwrite PATH, which exists. All that it holds is lost. What is mounted or in use, or holds a file system, a partition table
    /// or a database, is refused all the same.
    #[arg(long)]
    destroy_contents: bool,
    /// Write the results as JSON; docs/use/json.md explains its fields.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results as SVG files into this directory.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// The JSON output.
#[derive(Serialize)]
struct Report {
    /// `device`.
    benchmark: &'static str,
    /// Raised when a field changes its meaning or goes away.
    format: u32,
    /// What was measured.
    device: Measured,
    /// What was asked for.
    configuration: Suite,
    /// What each job measured.
    results: Vec<Results>,
}

/// What was measured.
#[derive(Serialize)]
struct Measured {
    /// The file or device.
    name: String,
    /// Whether it is emulated.
    emulated: bool,
    /// Its size.
    capacity_bytes: u64,
    /// Requests are multiples of this.
    logical_block_bytes: u32,
    /// Smaller writes read first.
    physical_block_bytes: u32,
    /// `none`, `volatile` or `unknown`.
    write_cache: &'static str,
    /// Whether it takes writes that are durable at once.
    fua: Option<bool>,
    /// Whether it is a disk.
    rotational: Option<bool>,
    /// Whether the page cache can be avoided.
    direct_io: bool,
}

/// Version of the JSON output; raised when a field changes its meaning or goes away, not when one is added.
const JSON_FORMAT: u32 = 1;

/// What is measured: a device, or for each benchmark a new one.
enum Subject {
    Real(Arc<dyn Device>),
    Emulated(Box<Emulated>),
}

/// Runs `device bench`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seconds = arguments.seconds;
    let time_limit = Duration::try_from_secs_f64(seconds)
        .map_err(|error| Error::Other(format!("--seconds {seconds} is not possible: {error}")))?;
    let size_bytes = arguments.size - arguments.size % 4096;
    let found = emulated::find(&arguments.path)?;
    let file = found.as_ref().and_then(|emulated| emulated.file.clone());
    let _file = file.map(|file| place::Contents::of(file, arguments.destroy_contents)).transpose()?;
    let (subject, device) = match found {
        Some(emulated) => (Subject::Emulated(Box::new(emulated.clone())), emulated.device()?),
        None => {
            // Names are checked before anything is opened; they are the same for every range.
            choose(&Suite::Blocks(Plan::new(4096, 0..1 << 30)), &arguments.only)?;
            let device = place::open(&arguments.path, size_bytes, arguments.destroy_contents)?;
            (Subject::Real(Arc::clone(&device)), device)
        }
    };
    let suite = subject.suite(arguments, &*device, size_bytes, time_limit)?;
    let benchmarks = choose(&suite, &arguments.only)?;
    let mut out = Out::new();
    introduce(&mut out, &arguments.path, &*device, &suite)?;
    subject.prepare(&mut out, &suite)?;
    let mut results = Vec::new();
    for benchmark in benchmarks {
        let found = subject.measure(&suite, arguments.seed, &benchmark)?;
        show(&mut out, &found)?;
        results.push(found);
    }
    let device = describe(&arguments.path, &*device, matches!(subject, Subject::Emulated(_)));
    if let Some(directory) = &arguments.svg {
        draw(directory, &device.name, &results)?;
    }
    if let Some(path) = &arguments.json {
        let report = Report { benchmark: "device", format: JSON_FORMAT, device, configuration: suite, results };
        tantalum_report::to_json_file(path, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Subject {
    /// Real devices are given random bytes and little time; emulated ones zeros, which take no memory, and all the time
    /// that they need.
    fn suite(
        &self,
        &Arguments { operations, seed, .. }: &Arguments,
        device: &dyn Device,
        size_bytes: u64,
        time_limit: Duration,
    ) -> Result<Suite> {
        if let Self::Emulated(emulated) = self
            && let Some(layout) = emulated.flash_layout()
        {
            return Ok(Suite::Flash(FlashPlan { layout, operations, seed }));
        }
        let plan = Plan::new(device.capabilities().logical_block, range(device, size_bytes)?);
        let plan = Plan { operations, seed, ..plan };
        Ok(Suite::Blocks(match self {
            Self::Real(_) => Plan { time_limit: Some(time_limit), ..plan },
            Self::Emulated(_) => Plan { data: Data::Zeros, ..plan },
        }))
    }

    fn prepare(&self, out: &mut Out, suite: &Suite) -> Result<()> {
        match (self, suite) {
            (Self::Emulated(_), Suite::Flash(_)) => out.line(
                "emulated, in virtual time; each benchmark on a new chip, of which what is used is erased before",
            ),
            (Self::Emulated(_), Suite::Blocks(_)) => {
                out.line("emulated, in virtual time; each benchmark on a new device, written once before")
            }
            (Self::Real(device), suite) => {
                let megabytes = suite.fill_bytes() >> 20;
                let bar = Progress::bar("filling, MiB", megabytes, Unit::Things);
                suite.prepare(device, &|done| bar.set(done))?;
                bar.finish();
                Ok(())
            }
        }
    }

    fn measure(&self, suite: &Suite, seed: u64, benchmark: &Benchmark) -> Result<Results> {
        let most = benchmark.jobs.iter().map(|(_, load)| load.operations()).max().unwrap_or_default();
        match self {
            Self::Real(device) => {
                let bar = Progress::bar(benchmark.name, most, Unit::Things);
                let results = micro::execute(device, benchmark, &|label, begun| {
                    bar.remark(label);
                    bar.set(begun);
                })?;
                bar.finish();
                Ok(results)
            }
            Self::Emulated(emulated) => {
                // A simulation's tasks must not wait for a lock of the world outside: it is silent until its end.
                let bar = Progress::open_ended(benchmark.name, Unit::Things);
                let results = emulated.measure(suite, seed, benchmark)?;
                bar.finish();
                Ok(results)
            }
        }
    }
}

fn choose(suite: &Suite, only: &[String]) -> Result<Vec<Benchmark>> {
    let mut benchmarks = suite.benchmarks();
    let names: Vec<_> = benchmarks.iter().map(|benchmark| benchmark.name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Error::Other(format!("there is no benchmark {unknown:?}; there are {}", names.join(", "))));
    }
    benchmarks.retain(|benchmark| only.is_empty() || only.iter().any(|name| name == benchmark.name));
    Ok(benchmarks)
}

/// What to use of the device.
fn range(device: &dyn Device, size_bytes: u64) -> Result<Range<u64>> {
    const LEAST: u64 = 8 << 20;
    let end = size_bytes.min(device.capacity_bytes());
    if end < LEAST {
        let (end, least) = (units::bytes(end), units::bytes(LEAST));
        return Err(Error::Other(format!(
            "{end} of {} are too few to measure; give it at least {least}",
            device.name()
        )));
    }
    Ok(0..end - end % 4096)
}

fn introduce(out: &mut Out, path: &std::path::Path, device: &dyn Device, suite: &Suite) -> Result<()> {
    out.line(format_args!("{}: {}", path.display(), device.capabilities()))?;
    match suite {
        Suite::Blocks(plan) => {
            let limit = plan.time_limit.map_or(String::new(), |limit| format!(" or {} s", limit.as_secs_f64()));
            let (used, requests) = (units::bytes(plan.range.end - plan.range.start), units::count(plan.operations));
            out.line(format_args!("{used} used, {requests} requests{limit} a measurement, seed {}", plan.seed))
        }
        Suite::Flash(FlashPlan { layout, operations, seed }) => out.line(format_args!(
            "{} planes of {}, blocks of {}, pages of {} programmed in parts of {}, {} requests a measurement, seed {seed}",
            layout.planes,
            units::bytes(layout.plane_bytes),
            units::bytes(layout.block_bytes.into()),
            units::bytes(layout.page_bytes.into()),
            units::bytes(layout.sector_bytes.into()),
            units::count(*operations),
        )),
    }
}

fn show(out: &mut Out, results: &Results) -> Result<()> {
    out.line(format_args!("\n{}: {}", results.name, results.what))?;
    let (table, notes) = results.table();
    out.line(table)?;
    notes.iter().try_for_each(|note| out.line(note))
}

fn draw(directory: &PathBuf, device: &str, results: &[Results]) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| Error::file("create", directory, error))?;
    for result in results {
        if let Some(svg) = result.plot(device).and_then(|plot| plot.to_svg()) {
            let path = directory.join(format!("{}.svg", result.name));
            std::fs::write(&path, svg).map_err(|error| Error::file("write", &path, error))?;
        }
    }
    Ok(())
}

fn describe(path: &std::path::Path, device: &dyn Device, emulated: bool) -> Measured {
    let found = device.capabilities();
    Measured {
        name: path.display().to_string(),
        emulated,
        capacity_bytes: device.capacity_bytes(),
        logical_block_bytes: found.logical_block,
        physical_block_bytes: found.physical_block,
        write_cache: found.write_cache.name(),
        fua: found.fua,
        rotational: found.rotational,
        direct_io: found.direct,
    }
}
