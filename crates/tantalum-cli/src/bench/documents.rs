//! `tantalum bench ycsb --store append-only`: YCSB's reads and updates on an append-only tree, to compare the engine with.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use serde::Serialize;
use tantalum::DeviceUse;
use tantalum_device::{Access, AlignedBuffer, Device, FileDevice};
use tantalum_lab::trace::{Header, Totals};
use tantalum_report::units;
use tantalum_workloads::{
    append_only::{AppendOnlyTree, BLOCK_BYTES, Options as TreeOptions, Stats},
    driver::RunReport,
    ycsb::{Documents, Mix, Parameters},
};

use super::{
    benchmark::{JSON_FORMAT, Running, print_kinds},
    counted, rate,
    simulate::{World, clock_line},
};
use crate::{
    error::{Error, Out, Result},
    progress::Watch,
};

/// The tree's file in a directory.
const FILE: &str = "append-only";

/// What is asked for beside what all benchmarks have.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub load: Parameters,
    pub mix: Mix,
    /// Updates from one flush to the next.
    pub batch_size: u64,
    /// Of a file that is made.
    pub tree_bytes: u64,
}

/// The JSON output.
#[derive(Serialize)]
struct Outcome {
    /// `ycsb`.
    benchmark: &'static str,
    /// Raised when a field changes its meaning or goes away.
    format: u32,
    /// What was asked for.
    configuration: Configuration,
    /// What the device says of itself.
    device: String,
    /// Absent if the tree was there.
    load_seconds: Option<f64>,
    /// What the clients did.
    run: RunReport,
    /// What the tree did.
    tree: TreeReport,
    /// Whether every document was found after the tree was opened again.
    is_consistent: bool,
}

/// What a benchmark of the append-only tree was asked for.
#[derive(Serialize)]
struct Configuration {
    /// What was loaded.
    parameters: Parameters,
    /// `append-only`.
    store: &'static str,
    /// The core workload.
    workload: Mix,
    /// Updates among its operations.
    updates_percent: u8,
    /// Updates from one flush to the next.
    batch_size: u64,
    /// Clients at the same time.
    clients: usize,
    /// Real or virtual time.
    world: World,
}

/// What the tree did in the run, and what is in it after it was opened again.
#[derive(Serialize)]
struct TreeReport {
    /// Levels of the tree.
    levels: u32,
    /// Updates in the run.
    updates: u64,
    /// Flushes in the run.
    flushes: u64,
    /// Bytes appended in the run.
    appended_bytes: u64,
    /// Bytes of the device in use.
    used_bytes: u64,
    /// Documents found after the tree was opened again.
    documents: u64,
}

/// A device with or for a tree.
pub struct Place {
    pub device: Arc<dyn Device>,
    /// Whether there may be a tree already.
    pub may_hold_tree: bool,
}

impl Place {
    /// A device of fixed size, which is taken if it is blank or holds a tree.
    pub fn on(device: Arc<dyn Device>) -> Result<Self> {
        const LOOKED_AT: u64 = 128 << 10;
        let mut start =
            AlignedBuffer::zeroed(LOOKED_AT.min(device.capacity_bytes()) as usize / BLOCK_BYTES * BLOCK_BYTES);
        device.read(0, &mut start)?;
        let may_hold_tree = start.iter().any(|byte| *byte != 0);
        Ok(Self { device, may_hold_tree })
    }

    /// The tree's file in a directory, made with so many bytes if it is not there.
    pub fn in_directory(directory: &Path, bytes: u64) -> Result<Self> {
        let path = directory.join(FILE);
        if path.exists() {
            return Ok(Self { device: Arc::new(FileDevice::open(&path, Access::ReadWrite)?), may_hold_tree: true });
        }
        let bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
        Ok(Self { device: Arc::new(FileDevice::create(&path, bytes, None)?), may_hold_tree: false })
    }
}

/// The part of the workload's operations that are updates.
fn updates_percent(mix: Mix) -> Result<u8> {
    match mix {
        Mix::A => Ok(50),
        Mix::B => Ok(5),
        Mix::C => Ok(0),
        Mix::D | Mix::E | Mix::F => Err(Error::Other(format!(
            "workload {mix:?} inserts, scans or reads what it writes; --store append-only does the reads and updates of A, B and C"
        ))),
    }
}

/// Loads the documents if need be, runs, opens the tree again and checks it.
pub fn run(wanted: Wanted, running: Running) -> Result<ExitCode> {
    let percent = updates_percent(wanted.mix)?;
    let common = running.common.clone();
    common.database.check_for_documents()?;
    running.check()?;
    common.run(move |watch| execute(&wanted, percent, &running, watch), print, |outcome| outcome.is_consistent)
}

fn execute(wanted: &Wanted, percent: u8, running: &Running, watch: &Watch) -> Result<Outcome> {
    const CPU_PER_OPERATION: Duration = Duration::from_micros(20);
    let (database, simulate) = (&running.common.database, &running.common.simulate);
    // The directory goes at the end, if it is for this run only.
    let (place, _directory) = database.place_for_documents(simulate.is_on(), wanted.tree_bytes)?;
    let io_trace = database.io_trace()?;
    let device = match &io_trace {
        Some(io_trace) => io_trace.wrap_device(DeviceUse::Data, place.device),
        None => place.device,
    };
    let named = format!("{}: {}", device.name(), device.capabilities());
    let cached_nodes = database.buffer_pool_bytes().map_or(TreeOptions::default().cached_nodes, |bytes| {
        usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX).max(2)
    });
    let tree_options = TreeOptions { updates_per_flush: wanted.batch_size, cached_nodes };
    let open = || AppendOnlyTree::open(Arc::clone(&device), tree_options);
    let started = tantalum_rt::now();
    let mut is_loaded = place.may_hold_tree;
    if is_loaded {
        let (found, expected) = (open()?.warm_up()?, wanted.load.records);
        // A load that did not end has fewer.
        is_loaded = found == expected;
        if !is_loaded && found > expected {
            return Err(Error::Other(format!(
                "{} holds {found} documents, and --records says {expected}; name another directory or device, or say {found}",
                device.name()
            )));
        }
    }
    if !is_loaded {
        database.may_load()?;
        watch.label("loading documents");
        AppendOnlyTree::create(&device)?;
        Documents::load(&open()?, wanted.load)?;
    }
    let load_seconds = (!is_loaded).then(|| started.elapsed().as_secs_f64());
    let tree = Arc::new(open()?);
    tree.warm_up()?;
    let before = tree.stats();
    if let Some(io_trace) = &io_trace {
        let name = format!("YCSB workload {:?} on an append-only tree", wanted.mix);
        let label = format!("{name}, {}, {}", wanted.load, running.clients());
        io_trace.begin(&Header::new(label))?;
    }
    let documents = Arc::new(Documents::new(Arc::clone(&tree), wanted.load, percent));
    let run = running.drive(&documents, CPU_PER_OPERATION, watch)?;
    tree.flush()?;
    if let Some(io_trace) = &io_trace {
        io_trace.end(Totals { transactions: Some(run.ended), ..Totals::default() })?;
    }
    let Stats { levels, sequence, appended_bytes, flushes, .. } = tree.stats();
    drop((tree, documents));
    watch.label("opening the tree again and checking it");
    let again = open()?;
    let documents = again.check()?;
    let tree = TreeReport {
        levels,
        updates: sequence - before.sequence,
        flushes: flushes - before.flushes,
        appended_bytes: appended_bytes - before.appended_bytes,
        used_bytes: again.stats().used_bytes,
        documents,
    };
    Ok(Outcome {
        benchmark: "ycsb",
        format: JSON_FORMAT,
        configuration: Configuration {
            parameters: wanted.load,
            store: "append-only",
            workload: wanted.mix,
            updates_percent: percent,
            batch_size: wanted.batch_size,
            clients: run.clients,
            world: simulate.world(CPU_PER_OPERATION),
        },
        device: named,
        load_seconds,
        run,
        // What the last flush covers is all that was put.
        is_consistent: documents == wanted.load.records,
        tree,
    })
}

fn print(out: &mut Out, outcome: &Outcome) -> Result<()> {
    let Outcome { configuration, run, tree, .. } = outcome;
    out.line(format_args!(
        "YCSB workload {:?} on an append-only tree, a flush for each {}, {}, {}",
        configuration.workload,
        counted(usize::try_from(configuration.batch_size).unwrap_or(usize::MAX), "update"),
        configuration.parameters,
        counted(run.clients, "client")
    ))?;
    out.line(clock_line(&configuration.world))?;
    out.line(format_args!("device: {}", outcome.device))?;
    match outcome.load_seconds {
        Some(seconds) => out.line(format_args!("loaded in {seconds:.1} s"))?,
        None => out.line("the tree was loaded before")?,
    }
    out.line(format_args!("{} operations a second in {:.1} s", rate(run.total.per_second), run.seconds))?;
    print_kinds(out, run)?;
    let each = tree.appended_bytes.checked_div(tree.updates).unwrap_or_default();
    out.line(format_args!(
        "{} updates of {} each in a tree of {}, {} flushes; {} of the device in use",
        units::count(tree.updates),
        units::bytes(each),
        counted(tree.levels as usize, "level"),
        units::count(tree.flushes),
        units::bytes(tree.used_bytes)
    ))?;
    let verdict = if outcome.is_consistent { "ok" } else { "BROKEN" };
    out.line(format_args!(
        "opened again: {} documents of {}; consistency: {verdict}",
        units::count(tree.documents),
        units::count(configuration.parameters.records)
    ))
}
