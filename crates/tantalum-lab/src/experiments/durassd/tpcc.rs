//! Table 4: TPC-C on a commercial server, which writes each page durably.

use tantalum::TornPageProtection;
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::scaled_server::{PAGES, ScaledServer, Sizes, has_barriers, kilobytes};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Findings},
    published,
    scenario::{Contents, Data, Drive, FileUse, Pages, Scenario},
};

pub(super) const TPCC: &str = "ds.table4.tpcc";

/// By what sizes are divided.
const SCALE: u64 = 100;

/// Of the paper's server, in GB.
const BUFFER_GB: u64 = 2;

/// More than clients, so that they do not wait for each other more than with the paper's 1000, each smaller for that.
const WAREHOUSES: u32 = 250;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 4000, districts: 10, customers: 150, new_orders: 45 };

fn sizes(settings: Settings) -> Sizes {
    let parameters = Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed: settings.seed };
    Sizes {
        contents: Contents::Tpcc(parameters),
        what: format!("TPC-C of {parameters}"),
        scale: SCALE,
        buffer_gb: BUFFER_GB,
        cpu_per_attempt: std::time::Duration::from_micros(100),
        transactions: 6_000,
    }
}

pub(super) fn tpcc(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = ScaledServer::new(sizes(settings), settings, progress);
    let pages = Pages::InPlace { protection: TornPageProtection::TrustDevice, durable_writes: true };
    let setup = |has_barriers, page| -> Result<Scenario> {
        let scenario = Scenario { pages, ..server.paper(has_barriers, false, page)? };
        let Data::Drive(drive) = scenario.data else { unreachable!("pages are on a drive") };
        let data = Data::Drive(Drive { file: FileUse::WrittenDurably, ..drive });
        Ok(Scenario { data, ..scenario })
    };
    let setups = [true, false].iter().flat_map(|&barriers| PAGES.map(|page| setup(barriers, page)));
    let setups = setups.collect::<Result<Vec<_>>>()?;
    let runs = server.run(&setups)?;
    let mut findings = Findings::new(server.configuration()?);
    findings.configuration.push("each page is written durably by itself (O_DSYNC), and the file's inode is held meanwhile (ext4); one file; no double writes".into());
    let rates: Vec<f64> = runs.iter().map(|run| run.new_orders_per_minute()).collect();
    let table = published::of(TPCC).table();
    let published: Vec<f64> = table.iter().flat_map(|row| row.1.iter().copied()).collect();
    let mut row = |what: String, published, measured, unit: &str| {
        findings.compared(what, Bound::Value(published), measured, unit);
    };
    let [on, off] = [0, 1].map(|at| (&rates[at * PAGES.len()..][..PAGES.len()], &table[at].1[..]));
    for (name, (measured, published)) in [("on", on), ("off", off)] {
        for ((&page, measured), published) in PAGES.iter().zip(measured).zip(published) {
            row(format!("barrier {name}, {}", kilobytes(page)), *published, *measured, "tpmC");
        }
    }
    for (at, &page) in PAGES.iter().enumerate() {
        row(format!("{}: barrier off over on", kilobytes(page)), off.1[at] / on.1[at], off.0[at] / on.0[at], "ratio");
    }
    for (name, (measured, published)) in [("on", on), ("off", off)] {
        let ratio = |of: &[f64]| of[PAGES.len() - 1] / of[0];
        row(format!("barrier {name}: 4KB over 16KB"), ratio(published), ratio(measured), "ratio");
    }
    let shared: Vec<Scenario> = setups.iter().map(sharing_flushes).collect();
    for (setup, run) in shared.iter().zip(server.run(&shared)?) {
        let barrier = if has_barriers(setup) { "on" } else { "off" };
        let what = format!("without the inode's lock, barrier {barrier}, {}", kilobytes(setup.page_bytes));
        findings.measured(what, run.new_orders_per_minute(), "tpmC");
    }
    let order = |of: &[f64]| {
        let mut places: Vec<usize> = (0..of.len()).collect();
        places.sort_by(|&a, &b| of[a].total_cmp(&of[b]));
        places
    };
    let names = |places: &[usize]| {
        let name = |&at: &usize| {
            let barrier = if has_barriers(&setups[at]) { "on" } else { "off" };
            format!("{barrier} {}", kilobytes(setups[at].page_bytes))
        };
        places.iter().map(name).collect::<Vec<_>>().join(" < ")
    };
    findings.states(
        format!("the order of all six cells: {}", names(&order(&published))),
        order(&rates) == order(&published),
        names(&order(&rates)),
    );
    let bars = |name: &str, (measured, published): (&[f64], &[f64])| {
        let name = format!("barrier {name}");
        [Series::bars(&*name, measured.to_vec()), Series::bars(&*name, published.to_vec()).published()]
    };
    findings.plots.push(Plot::new(
        "TPC-C by page size",
        Axis::names("", PAGES.map(kilobytes)),
        Axis::log("new orders a minute", Unit::Number),
        [bars("on", on), bars("off", off)].concat(),
    ));
    Ok(findings)
}

/// The same, on a file system whose writers of one file share flushes.
fn sharing_flushes(setup: &Scenario) -> Scenario {
    let Data::Drive(drive) = setup.data.clone() else { unreachable!("pages are on a drive") };
    Scenario { data: Data::Drive(Drive { file: FileUse::Overwritten, ..drive }), ..setup.clone() }
}
