//! Table 4: TPC-C on a commercial server, which writes each page durably.

use tantalum::TornPageProtection;
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::scaled_server::{PAGES, ScaledServer, Sizes, has_barriers, kilobytes};
use crate::{
    error::Result,
    experiments::{Settings, transactions::GIGABIT_ROUND_TRIP},
    finding::{Basis, Bound, Comparison, Findings},
    published,
    scenario::{Contents, Data, Drive, FileUse, Pages, Scenario},
};

pub(super) const TPCC: &str = "ds.table4.tpcc";

/// By what sizes are divided.
const SCALE: u64 = 100;

/// Of the paper's server, in GB.
const BUFFER_GB: u64 = 2;

/// The paper's, each smaller for that.
const WAREHOUSES: u32 = 1000;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 1000, districts: 10, customers: 38, new_orders: 11 };

/// How many terminals the paper's had is not published: chosen by the rate without barriers with pages of 16 KB. Each works on a
/// warehouse of its own, so that they decide how much of the database is in use.
const CLIENTS: usize = 38;

/// Statements of a transaction, the mean of the mix (clause 5.2.3): by clauses 2.4 to 2.8, 46 for a new order of ten lines, 7 for a payment,
/// 3 for an order's status, 70 for a delivery, 2 for a stock level.
const STATEMENTS: f64 = 0.45 * 46.0 + 0.43 * 7.0 + 0.04 * (3.0 + 70.0 + 2.0);

/// Pages of a file, where the server has several: as many as Oracle's has at most ("Physical Database Limits" in its reference). Which server
/// the paper's was is not published.
const PAGES_OF_A_FILE: u64 = 1 << 22;

fn sizes(settings: Settings) -> Sizes {
    let parameters = Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed: settings.seed };
    Sizes {
        contents: Contents::Tpcc(parameters),
        what: format!("TPC-C of {parameters}"),
        scale: SCALE,
        buffer_gb: BUFFER_GB,
        clients: CLIENTS,
        cpu_per_attempt: std::time::Duration::from_micros(100),
        transactions: 6_000,
    }
}

pub(super) fn tpcc(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = ScaledServer::new(sizes(settings), settings, progress);
    let pages = Pages::InPlace { protection: TornPageProtection::TrustDevice, durable_writes: true };
    let setup = |has_barriers, page| -> Result<Scenario> {
        let scenario = Scenario { pages, round_trip: GIGABIT_ROUND_TRIP, ..server.paper(has_barriers, false, page)? };
        Ok(with_file(&scenario, FileUse::WrittenDurably { file_bytes: u64::MAX }))
    };
    let setups = [true, false].iter().flat_map(|&barriers| PAGES.map(|page| setup(barriers, page)));
    let setups = setups.collect::<Result<Vec<_>>>()?;
    let runs = server.run(&setups)?;
    let mut findings = Findings::new(server.configuration()?);
    findings.configuration.push(format!("each page is written durably by itself (O_DSYNC), and the file's inode is held meanwhile (ext4); one file; no double writes; a round trip of {} us for each transaction", GIGABIT_ROUND_TRIP.as_micros()));
    let rates: Vec<f64> = runs.iter().map(|run| run.new_orders_per_minute()).collect();
    let table = published::of(TPCC).table();
    let published: Vec<f64> = table.iter().flat_map(|row| row.1.iter().copied()).collect();
    let [on, off] = [0, 1].map(|at| (&rates[at * PAGES.len()..][..PAGES.len()], &table[at].1[..]));
    for (name, (measured, published)) in [("on", on), ("off", off)] {
        for ((&page, measured), published) in PAGES.iter().zip(measured).zip(published) {
            let basis = if (name, page) == ("off", PAGES[0]) { Basis::Fitted } else { Basis::Predicted };
            let what = format!("barrier {name}, {}", kilobytes(page));
            findings.comparisons.push(Comparison::new(what, Bound::Value(*published), *measured, "tpmC", basis));
        }
    }
    let mut row = |what: String, published, measured, unit: &str| {
        findings.compared(what, Bound::Value(published), measured, unit);
    };
    for (at, &page) in PAGES.iter().enumerate() {
        row(format!("{}: barrier off over on", kilobytes(page)), off.1[at] / on.1[at], off.0[at] / on.0[at], "ratio");
    }
    for (name, (measured, published)) in [("on", on), ("off", off)] {
        let ratio = |of: &[f64]| of[PAGES.len() - 1] / of[0];
        row(format!("barrier {name}: 4KB over 16KB"), ratio(published), ratio(measured), "ratio");
    }
    let changed = (0..WHAT_IFS).flat_map(|at| setups.iter().map(move |setup| what_ifs(setup)[at].clone()));
    let (names, changed): (Vec<&str>, Vec<Scenario>) = changed.unzip();
    for ((name, setup), run) in names.iter().zip(&changed).zip(server.run(&changed)?) {
        let barrier = if has_barriers(setup) { "on" } else { "off" };
        let what = format!("{name}, barrier {barrier}, {}", kilobytes(setup.page_bytes));
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

const WHAT_IFS: usize = 4;

/// What may have been otherwise, each by itself.
fn what_ifs(setup: &Scenario) -> [(&'static str, Scenario); WHAT_IFS] {
    let file_bytes = PAGES_OF_A_FILE * u64::from(setup.page_bytes) / SCALE;
    let round_trip = GIGABIT_ROUND_TRIP.mul_f64(STATEMENTS);
    [
        ("without the inode's lock", with_file(setup, FileUse::Overwritten)),
        ("files of 2^22 pages", with_file(setup, FileUse::WrittenDurably { file_bytes })),
        ("128 clients", Scenario { clients: 128, ..setup.clone() }),
        ("a round trip for each statement", Scenario { round_trip, ..setup.clone() }),
    ]
}

fn with_file(setup: &Scenario, file: FileUse) -> Scenario {
    let Data::Drive(drive) = setup.data.clone() else { unreachable!("pages are on a drive") };
    Scenario { data: Data::Drive(Drive { file, ..drive }), ..setup.clone() }
}
