//! Figures 5 and 6 and what section 4.3.1 says beside them: LinkBench on MySQL.

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    mysql,
    scaled_server::{PAGES, ScaledServer, Sizes, cleaned_ahead, kilobytes, notation},
};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Findings},
    published,
    scenario::{
        Scenario,
        innodb::{self, Served, Server},
    },
};

pub(super) const THROUGHPUT: &str = "ds.fig5.linkbench";
pub(super) const ANOMALY: &str = "ds.fig5.anomaly";
pub(super) const MISSES: &str = "ds.fig6.miss_ratio";
pub(super) const WRITTEN: &str = "ds.abstract.written_data";

/// Write barriers and double writes, in the order of Figure 5.
const SETTINGS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

const SMALL: u32 = 4 << 10;
const LARGE: u32 = 16 << 10;

/// All cells of Figure 5: for each page size the four settings, and the operations a second.
struct Grid {
    cells: Vec<(Server, f64)>,
    /// As a share of all: InnoDB begins to write pages for that alone at three quarters.
    most_dirty: f64,
}

impl Grid {
    fn run(settings: Settings, progress: &dyn Fn(&str)) -> Result<Self> {
        let cell =
            |page| SETTINGS.map(|(barriers, double_writes)| mysql::server(settings, barriers, double_writes, page));
        let servers = PAGES.into_iter().flat_map(cell).collect::<Result<Vec<Server>>>()?;
        let runs = innodb::run(&servers, progress)?;
        let rates = runs.iter().map(|run| run.per_second());
        let most_dirty = runs.iter().map(|run| run.dirty).fold(0.0, f64::max);
        Ok(Self { cells: servers.into_iter().zip(rates).collect(), most_dirty })
    }

    /// Operations a second.
    fn rate(&self, has_barriers: bool, double_writes: bool, page: u32) -> f64 {
        let is_it = |(server, _): &&(Server, f64)| {
            (server.data.has_barriers, server.double_writes, server.page_bytes) == (has_barriers, double_writes, page)
        };
        self.cells.iter().find(is_it).expect("a cell of the grid").1
    }
}

pub(super) fn throughput(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let grid = Grid::run(settings, progress)?;
    let mut findings = Findings::new(mysql::configuration());
    let published = published::of(THROUGHPUT).column("ratio");
    let published = |row: usize| published[row];
    let value = |row: usize| Bound::Value(published(row));
    let rate = |barriers, double_writes, page| grid.rate(barriers, double_writes, page);
    for (double_writes, what) in [(true, "on"), (false, "off")] {
        let ratio = rate(false, double_writes, SMALL) / rate(true, double_writes, SMALL);
        findings.compared(format!("4KB, double write {what}: barrier off over on"), value(0), ratio, "ratio");
    }
    for (at, barriers, what) in [(1, true, "on"), (2, false, "off")] {
        let ratio = rate(barriers, false, SMALL) / rate(barriers, true, SMALL);
        findings.compared(format!("4KB, barrier {what}: double write off over on"), value(at), ratio, "ratio");
    }
    let best = rate(false, false, SMALL);
    let pages = best / rate(false, false, LARGE);
    findings.compared("OFF/OFF: 4KB over 16KB", Bound::Min(published(3)), pages, "ratio");
    let all = best / rate(true, true, LARGE);
    findings.compared("4KB OFF/OFF over 16KB ON/ON", Bound::Min(published(4)), all, "ratio");
    for (server, rate) in &grid.cells {
        let what = format!("{}, {}", mysql::notation(server), kilobytes(server.page_bytes));
        findings.measured(what, *rate, "operations/s");
    }
    findings.measured("most dirty frames at the end of a run", grid.most_dirty, "share");
    let tantalum = ScaledServer::new(Sizes::linkbench(settings), settings, progress);
    findings.configuration.extend(tantalum.configuration()?.into_iter().map(|line| format!("Tantalum: {line}")));
    let on_demand = PAGES
        .into_iter()
        .flat_map(|page| SETTINGS.map(|(barriers, double_writes)| tantalum.paper(barriers, double_writes, page)));
    let on_demand = on_demand.collect::<Result<Vec<Scenario>>>()?;
    let ahead = on_demand.iter().cloned().map(cleaned_ahead).collect();
    for (how, setups) in [("on demand", on_demand), ("ahead", ahead)] {
        for (setup, run) in setups.iter().zip(tantalum.run(&setups)?) {
            let what = format!("Tantalum, cleaning {how}, {}, {}", notation(setup), kilobytes(setup.page_bytes));
            findings.measured(what, run.per_second(), "operations/s");
        }
    }
    let lowest = grid.cells.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
    let highest = grid.cells.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    findings.states(
        "the best is OFF/OFF with the smallest page, the worst ON/ON with the largest",
        best == highest && rate(true, true, LARGE) == lowest,
        format!(
            "{best:.0} and {:.0} operations a second; of all, {highest:.0} and {lowest:.0}",
            rate(true, true, LARGE)
        ),
    );
    let settings = [0, 1, 2, 3].map(|at: usize| mysql::notation(&grid.cells[at].0));
    let bars = |page| {
        let rates = SETTINGS.map(|(barriers, double_writes)| rate(barriers, double_writes, page));
        Series::bars(kilobytes(page), rates)
    };
    findings.plots.push(Plot::new(
        "LinkBench by write barriers / double writes and page size",
        Axis::names("", settings),
        Axis::log("operations per second", Unit::Number),
        PAGES.map(bars).into(),
    ));
    Ok(findings)
}

pub(super) fn anomaly(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let grid = Grid::run(settings, progress)?;
    let mut findings = Findings::new(mysql::configuration());
    for (double_writes, what) in [(true, "ON/ON"), (false, "ON/OFF")] {
        let [eight, four] = [8 << 10, SMALL].map(|page| grid.rate(true, double_writes, page));
        findings.measured(format!("{what}: 4KB over 8KB"), four / eight, "ratio");
        findings.states(
            format!("{what}: 4 KB pages are a little slower than 8 KB ones"),
            four < eight,
            format!("{four:.0} and {eight:.0} operations a second"),
        );
    }
    Ok(findings)
}

/// Of Figure 6, in GB.
const BUFFERS_GB: [u64; 5] = [2, 4, 6, 8, 10];

pub(super) fn misses(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(mysql::configuration());
    let server = |page, gb| -> Result<Server> {
        let buffer_pool_bytes = mysql::GB * gb;
        Ok(Server { buffer_pool_bytes, ..mysql::server(settings, false, false, page)? })
    };
    let servers = PAGES.iter().flat_map(|&page| BUFFERS_GB.map(|gb| server(page, gb))).collect::<Result<Vec<_>>>()?;
    let runs = innodb::run(&servers, progress)?;
    let lines = |of: &dyn Fn(&Served) -> f64| -> Vec<Vec<f64>> {
        runs.chunks(BUFFERS_GB.len()).map(|line| line.iter().map(|run| of(run)).collect()).collect()
    };
    let ratios = lines(&|run| run.misses as f64 / run.uses as f64);
    let rates = lines(&|run| run.per_second());
    for (&page, (ratios, rates)) in PAGES.iter().zip(ratios.iter().zip(&rates)) {
        for (gb, (ratio, rate)) in BUFFERS_GB.iter().zip(ratios.iter().zip(rates)) {
            let what = format!("{}, buffer of {gb} GB", kilobytes(page));
            findings.measured(format!("{what}: misses"), *ratio, "share");
            findings.measured(what, *rate, "operations/s");
        }
    }
    let fall = |line: &Vec<f64>| line[line.len() - 1] / line[0];
    let falls: Vec<f64> = ratios.iter().map(fall).collect();
    let found: Vec<String> =
        PAGES.iter().zip(&falls).map(|(&page, fall)| format!("{} to {:.0} %", kilobytes(page), fall * 100.0)).collect();
    findings.states(
        "the miss ratio decreases more quickly with 4 KB pages as the buffer grows",
        falls[2] < falls[1] && falls[2] < falls[0],
        format!("from the smallest buffer to the largest it falls to: {}", found.join(", ")),
    );
    let gap = |at: usize| rates[2][at] - rates[0][at];
    let last = BUFFERS_GB.len() - 1;
    findings.states(
        "the throughput gap among page sizes widens as the buffer grows",
        gap(last) > gap(0),
        format!(
            "from 16 KB to 4 KB {:.0} operations a second with the smallest buffer, {:.0} with the largest",
            gap(0),
            gap(last)
        ),
    );
    let plot = |title, y, lines: &[Vec<f64>]| {
        let line = |(&page, line): (&u32, &Vec<f64>)| {
            let points = BUFFERS_GB.iter().zip(line).map(|(&gb, &value)| (gb as f64, value)).collect();
            Series::line(kilobytes(page), points)
        };
        let x = Axis::linear("buffer pool in GB", Unit::Number);
        Plot::new(title, x, y, PAGES.iter().zip(lines).map(line).collect())
    };
    findings.plots = vec![
        plot("Buffer misses", Axis::linear("share of page requests", Unit::Number), &ratios),
        plot("Throughput", Axis::linear("operations per second", Unit::Number), &rates),
    ];
    Ok(findings)
}

pub(super) fn written(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(mysql::configuration());
    let cells = [(true, true, LARGE), (true, false, LARGE), (false, false, LARGE), (false, false, SMALL)];
    let servers = cells.map(|(barriers, double_writes, page)| mysql::server(settings, barriers, double_writes, page));
    let servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
    let runs = innodb::run(&servers, progress)?;
    let kib = |bytes: u64, operations: u64| bytes as f64 / operations as f64 / 1024.0;
    let flash: Vec<f64> = runs.iter().map(|run| kib(run.flash_written_bytes, run.report.total.committed)).collect();
    let reduction = 1.0 - flash[3] / flash[0];
    findings.compared("ON/ON, 16KB to OFF/OFF, 4KB: reduction", published::of(WRITTEN).bound(), reduction, "share");
    for ((server, run), flash) in servers.iter().zip(&runs).zip(flash) {
        let what = format!("{}, {}", mysql::notation(server), kilobytes(server.page_bytes));
        findings.measured(format!("{what}: to flash, of pages"), flash, "KiB/operation");
        let host = kib(run.host_written_bytes, run.report.total.committed);
        findings.measured(format!("{what}: pages, by the server"), host, "KiB/operation");
    }
    let tantalum = ScaledServer::new(Sizes::linkbench(settings), settings, progress);
    let setups = cells.map(|(barriers, double_writes, page)| tantalum.paper(barriers, double_writes, page));
    let setups = setups.into_iter().collect::<Result<Vec<_>>>()?;
    for (setup, run) in setups.iter().zip(tantalum.run(&setups)?) {
        let what = format!("Tantalum, {}, {}", notation(setup), kilobytes(setup.page_bytes));
        let operations = run.report.total.committed;
        findings.measured(
            format!("{what}: to flash"),
            kib(run.data.media_written_bytes + run.log.media_written_bytes, operations),
            "KiB/operation",
        );
        let pages = kib(run.data.host_written_bytes, operations);
        findings.measured(format!("{what}: pages, by the engine"), pages, "KiB/operation");
        let log = kib(run.log.host_written_bytes, operations);
        findings.measured(format!("{what}: log, by the engine"), log, "KiB/operation");
    }
    Ok(findings)
}
