//! Section 4.2: TPC-C as the paper's six traces, and what its simulator makes of them.

use tantalum_workloads::tpcc::{Parameters, Scale};

use super::{
    super::{Experiment, Settings},
    engine,
};
use crate::{
    error::Result,
    finding::{Bound, Findings},
    published,
    scenario::{self, Contents, Length, Scenario, Trace as Traced},
    trace::{
        Reader,
        pages::{Analysis, Operations, REGION_BYTES, WINDOW, plots},
    },
};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: RECORDS, profiles: &[], run: log_records },
    Experiment { id: LOCALITY, profiles: &[], run: locality },
    Experiment { id: SECTORS, profiles: &[], run: sector_writes },
    Experiment { id: "ipl.fig5.merges", profiles: &[], run: merges },
    Experiment {
        id: CONVENTIONAL,
        profiles: &[engine::CHIP, engine::UNITS, engine::MAPPED, engine::DISK],
        run: against_conventional,
    },
];

const RECORDS: &str = "ipl.table4.log_records";
const LOCALITY: &str = "ipl.fig4.locality";
const SECTORS: &str = "ipl.table5.sector_writes";
const CONVENTIONAL: &str = "ipl.fig7.against_conventional";

/// A trace of the paper: its name says the database, the buffer pool and the users.
#[derive(Clone, Copy)]
struct Trace {
    label: &'static str,
    warehouses: u32,
    pool_mb: u64,
    users: usize,
    changes: u64,
}

/// The published number of changes, and for those without one that of their neighbours.
const CHANGES: u64 = 785_535;
const SMALL: Trace = Trace { label: "100M.20M.10u", warehouses: 1, pool_mb: 20, users: 10, changes: 79_136 };
const LARGE: [Trace; 5] = [
    large("1G.20M.100u", 20, CHANGES),
    large("1G.40M.100u", 40, 784_278),
    large("1G.60M.100u", 60, CHANGES),
    large("1G.80M.100u", 80, CHANGES),
    large("1G.100M.100u", 100, CHANGES),
];

const fn large(label: &'static str, pool_mb: u64, changes: u64) -> Trace {
    Trace { label, warehouses: 10, pool_mb, users: 100, changes }
}

/// The paper's page (section 3.2).
const PAGE_BYTES: u32 = 8 << 10;
/// Transactions of all users before the trace begins: what fills the pool.
const WARM_UP: u64 = 2000;

/// Records that a sector takes in the paper, whose records have 48.7 bytes on average.
const PAPERS_RECORDS_PER_SECTOR: u32 = 10;

/// A trace, analysed with its own records per sector and with the paper's.
struct Traces {
    own: Analysis,
    papers: Analysis,
}

fn analysed(trace: Trace, settings: Settings, progress: &dyn Fn(&str)) -> Result<Traces> {
    let Trace { label, warehouses, pool_mb, users, changes } = trace;
    let contents = Parameters { warehouses, scale: Scale::full(), seed: settings.seed };
    let scenario = Scenario {
        page_bytes: PAGE_BYTES,
        buffer_pool_bytes: pool_mb << 20,
        load_pool_bytes: 1 << 30,
        cores: 2,
        clients: users,
        length: Length::Changes { warm_up: WARM_UP, counted: changes },
        trace: Traced::Pages(label),
        ..Scenario::new(Contents::Tpcc(contents), settings.seed)
    };
    let outcome = scenario::run(&[scenario], progress)?.remove(0);
    let open = || Reader::new(label, &outcome.page_trace[..]);
    Ok(Traces { own: Analysis::of(open, None)?, papers: Analysis::of(open, Some(PAPERS_RECORDS_PER_SECTOR))? })
}

fn configuration(traces: &[&Traces]) -> Vec<String> {
    let line = |Traces { own, .. }: &&Traces| {
        format!(
            "{}: {} page writes, {} pages of {} KiB ({} MB), {} records of {:.1} bytes a sector",
            own.label,
            own.page_writes,
            own.pages,
            own.page_bytes >> 10,
            own.pages * u64::from(own.page_bytes) / 1_000_000,
            own.records_per_sector,
            own.changes().average_bytes()
        )
    };
    let how = "TPC-C on Tantalum's in-place store, in a simulation on devices that take no time: 10 warehouses for 1 GB, one for \
               100 MB; a trace ends after as many changes as the paper's";
    std::iter::once(how.to_owned()).chain(traces.iter().map(line)).collect()
}

fn log_records(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let traces = analysed(LARGE[0], settings, progress)?;
    let trace = &traces.own;
    let mut findings = Findings::new(configuration(&[&traces]));
    let table = published::of(RECORDS).table();
    let total: f64 = table.iter().filter(|row| row.0 != ["total"]).map(|row| row.1[0]).sum();
    let all = trace.changes();
    let measured = [trace.inserts, trace.deletes, trace.updates, all];
    for ((name, published), measured) in table.iter().zip(measured) {
        if *name != ["total"] {
            // To a hundredth of a percent.
            let share = Bound::Value((published[0] / total * 1e4).round() / 1e4);
            findings.compared(format!("{}, share", name[0]), share, share_of(measured, all), "share");
        }
        let bytes = Bound::Value(published[1]);
        findings.compared(format!("{}, average length", name[0]), bytes, measured.average_bytes(), "bytes");
    }
    findings.measured("whole page, share", share_of(trace.wholes, all), "share");
    findings.compared("page writes", Bound::Value(625_527.0), trace.page_writes as f64, "writes");
    findings.states(
        "a change is far smaller than its page",
        all.average_bytes() < f64::from(trace.page_bytes) / 20.0,
        format!("{:.1} of {} bytes", all.average_bytes(), trace.page_bytes),
    );
    Ok(findings)
}

fn share_of(operations: Operations, all: Operations) -> f64 {
    operations.count as f64 / all.count.max(1) as f64
}

fn locality(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let traces = analysed(LARGE[0], settings, progress)?;
    let locality = &traces.own.locality;
    let mut findings = Findings::new(configuration(&[&traces]));
    let [share, pages, units] = published::of(LOCALITY).table()[0].1[..] else {
        unreachable!("three numbers are published")
    };
    let window = WINDOW as f64;
    let top = locality.writes.share_of_top;
    findings.compared("writes to the 2000 most written pages", Bound::Value(share), top, "share");
    let distinct = locality.distinct_pages / window;
    findings.compared("of 16 writes in a row, to different pages", Bound::Value(pages), distinct, "share");
    let what = "of 16 writes in a row, to different erase units";
    findings.compared(what, Bound::Value(units), locality.distinct_units, "units");
    for (what, share) in [
        ("all of 16 writes to different pages", locality.all_pages_distinct),
        ("all of 16 writes to different erase units", locality.all_units_distinct),
        ("changes of the 2000 most changed pages", locality.changes.share_of_top),
    ] {
        findings.measured(what, share, "share");
    }
    findings.states(
        "writes have no temporal locality: those in a row go to different erase units",
        locality.distinct_units > 0.9 * window,
        format!("{:.2} of 16", locality.distinct_units),
    );
    findings.plots = plots(std::slice::from_ref(&traces.own)).into_iter().take(3).collect();
    Ok(findings)
}

fn three(settings: Settings, progress: &dyn Fn(&str)) -> Result<[Traces; 3]> {
    let [twenty, forty, ..] = LARGE;
    let analysed = |trace| analysed(trace, settings, progress);
    Ok([analysed(SMALL)?, analysed(forty)?, analysed(twenty)?])
}

fn sector_writes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let traces = three(settings, progress)?;
    let mut findings = Findings::new(configuration(&traces.each_ref()));
    for ((name, published), trace) in published::of(SECTORS).table().into_iter().zip(&traces) {
        let (own, papers) = (&trace.own, &trace.papers);
        assert_eq!(
            (own.label.as_str(), own.changes().count as f64),
            (name[0], published[0]),
            "traces end as the paper's"
        );
        let sectors = own.by_count.sector_writes as f64;
        findings.compared(format!("{}, sector writes", own.label), Bound::Value(published[1]), sectors, "sectors");
        let what = format!("{}, the same with 10 records a sector", own.label);
        findings.measured(what, papers.by_count.sector_writes as f64, "sectors");
        let what = format!("{}, the same with the bytes that a sector has", own.label);
        findings.measured(what, own.by_bytes.sector_writes as f64, "sectors");
        findings.states(
            format!("{}: fewer sector writes than changes", own.label),
            sectors < own.changes().count as f64,
            format!("{:.2} for a change", sectors / own.changes().count as f64),
        );
    }
    Ok(findings)
}

fn merges(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let traces = three(settings, progress)?;
    let mut findings = Findings::new(configuration(&traces.each_ref()));
    for trace in &traces {
        let own = &trace.own;
        let regions = &own.by_count.regions;
        for region in regions {
            let what = format!("{}, {} KiB", own.label, region.region_bytes >> 10);
            findings.measured(what, region.merges as f64, "merges");
        }
        let (first, last) = (&regions[0], &regions[REGION_BYTES.len() - 1]);
        findings.states(
            format!("{}: merges fall with each step of the log region, at the cost of space", own.label),
            regions.windows(2).all(|pair| pair[1].merges < pair[0].merges),
            format!(
                "to 1/{:.1} from 8 to 64 KiB, with {:.1} times the space",
                first.merges as f64 / last.merges.max(1) as f64,
                own.database_bytes(last) as f64 / own.database_bytes(first) as f64
            ),
        );
    }
    let own: Vec<Analysis> = traces.iter().map(|trace| trace.own.clone()).collect();
    // Figure 5, and Figure 6 beside it; the last three are by the buffer pool.
    findings.plots = plots(&own).into_iter().skip(3).take(3).collect();
    Ok(findings)
}

fn against_conventional(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let traces: Vec<Traces> = LARGE.iter().map(|&trace| analysed(trace, settings, progress)).collect::<Result<_>>()?;
    let all: Vec<&Traces> = traces.iter().collect();
    let mut findings = Findings::new(configuration(&all));
    findings.configuration.push(
        "t_Conv over t_IPL by the paper's formulas, with a log region of 8 KiB; the paper's Figure 7(c) says at least 10 where \
         9 of 10 page writes, or half of them, have an erase unit copied and erased"
            .to_owned(),
    );
    let mut ratios = Vec::new();
    for Traces { own, papers } in all {
        for alpha in [0.9, 0.5] {
            let ratio = |trace: &Analysis| {
                let region = trace.by_count.smallest().expect("pages of 8 KiB lie beside a log region of 8 KiB");
                trace.conventional_seconds(alpha) / trace.by_count.seconds(region)
            };
            let what = format!("{}, alpha {alpha}", own.label);
            findings.compared(what.clone(), published::of(CONVENTIONAL).bound(), ratio(own), "ratio");
            findings.measured(format!("{what}, 10 records a sector"), ratio(papers), "ratio");
            ratios.push(ratio(own));
        }
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    findings.states(
        "in-page logging takes less time for its writes, whatever the buffer pool",
        least > 1.0,
        format!("1/{least:.1} of the conventional time at most"),
    );
    let own: Vec<Analysis> = traces.iter().map(|trace| trace.own.clone()).collect();
    findings.plots = plots(&own).into_iter().skip(6).collect();
    engine::compare(&mut findings, settings, progress)?;
    Ok(findings)
}
