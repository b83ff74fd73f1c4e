//! What protection against torn pages costs, on drives of then and of today: bytes and throughput, by page size.

use std::time::Duration;

use tantalum::{Barriers, PageCleaning, TornPageProtection};
use tantalum_flash::Profile;
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::linkbench::Parameters;

use super::{Experiment, Settings, durassd::on_two_drives};
use crate::{
    error::Result,
    finding::Findings,
    micro::Fsync,
    scenario::{self, Contents, Cpu, Drive, FileUse, Length, Outcome, Pages, Scenario},
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment { id: PROTECTIONS, profiles: DRIVES, run: protections }];

const PROTECTIONS: &str = "now.protections";

const DRIVES: &[&str] =
    &["durassd", "ssd-a", "ssd-b", "ssd-2008", "intel-x25e", "ocz-vertex-ex", "mtron", "mtron-p35", "nvme-plp"];

const PAGES: [u32; 3] = [4 << 10, 8 << 10, 16 << 10];

const WAYS: [(&str, TornPageProtection); 3] = [
    ("double write", TornPageProtection::DoubleWrite),
    ("full page images", TornPageProtection::FullPageImages),
    ("device", TornPageProtection::TrustDevice),
];

const NODES: u64 = 40_000;
const BUFFER_BYTES: u64 = 4 << 20;
const LOG_BYTES: u64 = 16 << 20;
const CLIENTS: usize = 32;

fn scenario(drive: &str, page_bytes: u32, protection: TornPageProtection, settings: Settings) -> Result<Scenario> {
    let contents = Contents::LinkBench(Parameters { nodes: NODES, seed: settings.seed });
    let drive = |bytes| -> Result<Drive> {
        let profile = Profile::named(drive)?.with_capacity(bytes);
        Ok(Drive { file: FileUse::Overwritten, ..Drive::new(profile) })
    };
    Ok(on_two_drives(
        Scenario {
            page_bytes,
            buffer_pool_bytes: BUFFER_BYTES,
            pages: Pages::InPlace { protection, durable_writes: false },
            barriers: Barriers::Auto,
            cleaning: PageCleaning::Ahead,
            clients: CLIENTS,
            cpu: Cpu::PerAttempt(Duration::from_micros(30)),
            length: Length::TimeOf { warm_up: 6000, counted: 6000 },
            ..Scenario::new(contents, settings.seed)
        },
        drive(256 << 20)?,
        drive(LOG_BYTES + Fsync::JOURNAL_BYTES)?,
    ))
}

/// Bytes that the engine wrote to both drives for an operation.
fn written(run: &Outcome) -> f64 {
    (run.data.host_written_bytes + run.log.host_written_bytes) as f64 / run.report.total.committed as f64
}

fn rate(run: &Outcome) -> f64 {
    run.per_second()
}

fn protections(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let cells = |page, drive| WAYS.map(|(_, protection)| scenario(drive, page, protection, settings));
    let scenarios = PAGES.iter().flat_map(|&page| DRIVES.iter().flat_map(move |drive| cells(page, drive)));
    let scenarios = scenarios.collect::<Result<Vec<_>>>()?;
    let runs = scenario::run(&scenarios, progress)?;
    let mib = |bytes: u64| tantalum_report::units::bytes(bytes.next_multiple_of(1 << 20));
    let mut findings = Findings::new(vec![
        format!(
            "LinkBench, a graph of {NODES} nodes ({}), a buffer pool of {}, {} clients; two drives of the kind, one of them \
                 for a log of {}, so that there are checkpoints",
            mib(scenario::database_bytes(&scenarios[0], progress)?),
            mib(BUFFER_BYTES),
            CLIENTS,
            mib(LOG_BYTES)
        ),
        "barriers where the drive needs them; pages cleaned ahead".into(),
        "device: pages are written once, on the user's word; only durassd and nvme-plp say that they write them whole"
            .into(),
    ]);
    let mut row = |what: String, measured, unit: &str| {
        findings.measured(what, measured, unit);
    };
    let of_page = runs.chunks(DRIVES.len() * WAYS.len());
    for (page, runs) in PAGES.iter().zip(of_page.clone()) {
        for (drive, runs) in DRIVES.iter().zip(runs.chunks(WAYS.len())) {
            for ((way, _), run) in WAYS.iter().zip(runs) {
                let what = format!("{drive}: {} KiB, {way}", page >> 10);
                row(what.clone(), rate(run), "operations/s");
                row(what, written(run) / 1024.0, "KiB/operation");
            }
        }
    }
    let least_by_device =
        runs.chunks(WAYS.len()).all(|ways| written(&ways[2]) < written(&ways[0]).min(written(&ways[1])));
    let found = if least_by_device { "on all drives, with all pages" } else { "not everywhere" };
    let says = "leaving it to the device writes least";
    findings.states(says, least_by_device, found);
    // Two runs of one configuration differ by less than this.
    let fastest = |ways: &&[std::sync::Arc<Outcome>]| rate(&ways[2]) >= 0.98 * rate(&ways[0]).max(rate(&ways[1]));
    let count = runs.chunks(WAYS.len()).filter(fastest).count();
    let all = DRIVES.len() * PAGES.len();
    let says = "leaving it to the device is never slower";
    findings.states(says, count == all, format!("{count} of {all} times"));
    let bars = |of: &dyn Fn(&Outcome) -> f64, runs: &[std::sync::Arc<Outcome>]| -> Vec<Series> {
        let way = |at: usize| Series::bars(WAYS[at].0, runs.chunks(WAYS.len()).map(|ways| of(&ways[at])));
        (0..WAYS.len()).map(way).collect()
    };
    for (page, runs) in PAGES.iter().zip(of_page) {
        let title = format!("Throughput with pages of {} KiB", page >> 10);
        let y = Axis::log("operations per second", Unit::Number);
        let drives = Axis::names("", DRIVES.iter().copied());
        findings.plots.push(Plot::new(title, drives, y, bars(&rate, runs)));
    }
    let on_first: Vec<_> =
        runs.chunks(DRIVES.len() * WAYS.len()).flat_map(|runs| runs[..WAYS.len()].to_vec()).collect();
    findings.plots.push(Plot::new(
        format!("Bytes written for an operation, on {}", DRIVES[0]),
        Axis::names("", PAGES.map(|page| format!("{} KiB", page >> 10))),
        Axis::linear("bytes", Unit::Bytes),
        bars(&written, &on_first),
    ));
    Ok(findings)
}
