//! In-Page Logging (SIGMOD 2007), sections 2.1, 2.2 and 4.1: a disk and a flash drive under the same queries; and section 4.2
//! ([`traces`]): its simulator on traces of TPC-C, and beside it the engine ([`engine`]).

mod access;
mod engine;
mod server;
mod traces;

use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_rt::Simulation;

use self::server::{CHANGE_A_PAGE, Query, READ_A_PAGE, Server, TABLE_PAGES, TOGETHER};
use super::device_under_test::DeviceUnderTest;
use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings},
    published,
};

/// What runs of section 3.2.
pub(super) const ENGINE: &[Experiment] = engine::EXPERIMENTS;

/// What runs of section 4.2.
pub(super) const TRACES: &[Experiment] = traces::EXPERIMENTS;

/// What runs of the sections before it.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: access::ID, profiles: access::PROFILES, run: access::access_times },
    Experiment { id: RATIOS, profiles: &[DISK, FLASH], run: random_over_sequential },
    Experiment { id: QUERIES, profiles: &[DISK, FLASH], run: queries },
    Experiment { id: ERASES, profiles: &[FLASH], run: erases },
];

const DISK: &str = "hdd-7200";
const FLASH: &str = "mtron-p35";

const RATIOS: &str = "ipl.table2.random_over_sequential";

const QUERIES: &str = "ipl.table3.queries";

const ERASES: &str = "ipl.table3.erases";

/// The queries, by the row of Table 3.
const ALL: [Query; 6] =
    [Query::Scan, Query::Groups, Query::Strides(16), Query::Updates(1), Query::Updates(16), Query::Updates(128)];

/// The cells that decided what the paper leaves open of its server: the processor's time for a page, and where on the
/// disk the table lies.
const CHOSEN_BY: &[(&str, &str)] = &[("Q1", "flash"), ("Q4", "flash"), ("Q6", "disk")];

/// What came out of a query.
struct Ran {
    seconds: f64,
    erases: u64,
}

/// Runs queries one after the other on a new device.
fn run(profile: &'static str, queries: &'static [Query], settings: Settings) -> Result<Vec<Ran>> {
    let model = Profile::named(profile)?.build()?;
    let measure = move || {
        let device = EmulatedDevice::new(profile, model);
        let mut server = Server::new(device.clone(), settings.seed)?;
        let mut ran = Vec::new();
        for &query in queries {
            let before = device.counters().erases;
            let seconds = server.run(query)?.as_secs_f64();
            ran.push(Ran { seconds, erases: device.counters().erases - before });
        }
        Ok(ran)
    };
    Simulation::new(settings.seed).run(measure).expect_finished()
}

fn configuration() -> Vec<String> {
    let micros = |duration: std::time::Duration| duration.as_micros();
    vec![
        format!(
            "{TABLE_PAGES} pages of 8 KiB and an index behind them, in the middle of the device (not published); a pool of 20 MB"
        ),
        format!(
            "scans, and lookups of the first column, read {TOGETHER} pages with a request; each lookup reads its index page"
        ),
        format!(
            "the processor takes {} us for a page that is read and {} us for one that is changed (not published: chosen by Q1 and Q4 on flash)",
            micros(READ_A_PAGE),
            micros(CHANGE_A_PAGE)
        ),
        "updates only write: Q5 on disk is published as faster than Q3, which reads the same pages in the same order"
            .into(),
    ]
}

fn queries(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    progress(DISK);
    let disk = run(DISK, &ALL, settings)?;
    progress(FLASH);
    let flash = run(FLASH, &ALL, settings)?;
    let table = published::of(QUERIES).table();
    for ((row, published), (on_disk, on_flash)) in table.iter().zip(disk.iter().zip(&flash)) {
        for (column, profile, &published, ran) in
            [("disk", DISK, &published[0], on_disk), ("flash", FLASH, &published[1], on_flash)]
        {
            let basis = match CHOSEN_BY.contains(&(row[0], column)) {
                true => Basis::Fitted,
                false => DeviceUnderTest::new(profile, settings.seed).basis_of_cell(QUERIES, row[0], column)?,
            };
            let what = format!("{}, {column}", row[0]);
            findings.comparisons.push(Comparison::new(what, Bound::Value(published), ran.seconds, "s", basis));
        }
    }
    let seconds = |ran: &[Ran]| ran.iter().map(|ran| ran.seconds).collect();
    let published = [0, 1].map(|column| table.iter().map(|row| row.1[column]).collect());
    let names = table.iter().map(|row| row.0[0]);
    findings.plots.push(bars("Time of the queries", names, "seconds", [seconds(&disk), seconds(&flash)], published));
    let [on_disk, on_flash] = [&disk, &flash].map(|ran| ran[5].seconds);
    let says = "Q6 takes longer on flash than on disk, all others less";
    let others = disk.iter().zip(&flash).take(5).all(|(disk, flash)| flash.seconds < disk.seconds);
    let found = format!("Q6: {on_flash:.0} s on flash, {on_disk:.0} s on disk");
    findings.states(says, others && on_flash > on_disk, found);
    Ok(findings)
}

/// Bars of disk and flash, what was measured and what was published.
fn bars<'a>(
    title: &str,
    names: impl IntoIterator<Item = &'a str>,
    unit: &str,
    measured: [Vec<f64>; 2],
    published: [Vec<f64>; 2],
) -> Plot {
    let series = ["disk", "flash"].into_iter().zip(measured.into_iter().zip(published));
    let series = series.flat_map(|(medium, (measured, published))| {
        [Series::bars(medium, measured), Series::bars(medium, published).published()]
    });
    Plot::new(title, Axis::names("", names), Axis::linear(unit, Unit::Number), series.collect())
}

fn random_over_sequential(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    const WHAT: [&str; 4] = ["Q2 over Q1", "Q3 over Q1", "Q5 over Q4", "Q6 over Q4"];
    let mut findings = Findings::new(configuration());
    let table = published::of(RATIOS).table();
    for ((row, published), profile) in table.iter().zip([DISK, FLASH]) {
        progress(profile);
        let ran = run(profile, &ALL, settings)?;
        let over = |random: usize, sequential: usize| ran[random].seconds / ran[sequential].seconds;
        let measured = [over(1, 0), over(2, 0), over(4, 3), over(5, 3)];
        let basis = DeviceUnderTest::new(profile, settings.seed).basis(RATIOS)?;
        for ((what, &published), measured) in WHAT.into_iter().zip(published).zip(measured) {
            let what = format!("{}, {what}", row[0]);
            findings.comparisons.push(Comparison::new(what, Bound::Value(published), measured, "ratio", basis));
        }
    }
    let measured: Vec<f64> = findings.comparisons.iter().map(|comparison| comparison.measured).collect();
    let (on_disk, on_flash) = measured.split_at(WHAT.len());
    let published = [0, 1].map(|row| table[row].1.clone());
    let measured_bars = [on_disk.to_vec(), on_flash.to_vec()];
    findings.plots.push(bars("Random over sequential queries", WHAT, "ratio of times", measured_bars, published));
    let [disk_reads, flash_reads] = [measured[1], measured[5]];
    findings.states(
        "queries that read do not care on flash where pages are",
        flash_reads < 1.5 && disk_reads > 4.0,
        format!("{flash_reads:.2} on flash, {disk_reads:.1} on disk"),
    );
    let [disk_writes, flash_writes] = [measured[3], measured[7]];
    findings.states(
        "queries that write care even more on flash than on disk",
        flash_writes > disk_writes,
        format!("{flash_writes:.1} on flash, {disk_writes:.1} on disk"),
    );
    Ok(findings)
}

fn erases(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    const UPDATES: &[Query] = ALL.split_at(3).1;
    progress(FLASH);
    let mut findings = Findings::new(vec![
        "a table of 64,000 pages of 8 KiB, every page changed once; erases as the drive counts them",
        "at a query's end what is in the drive's memory is flushed",
    ]);
    let tested = DeviceUnderTest::new(FLASH, settings.seed);
    for ((row, published), ran) in published::of(ERASES).table().into_iter().zip(run(FLASH, UPDATES, settings)?) {
        let (published, basis) = (Bound::Value(published[0]), tested.basis_of_cell(ERASES, row[0], "erases")?);
        findings.comparisons.push(Comparison::new(row[0], published, ran.erases as f64, "erases", basis));
    }
    let exact = findings.comparisons.iter().all(|erases| erases.deviation() == Some(0.0));
    let found = if exact { "all of them" } else { "not all of them" };
    findings.states("the counts are exact", exact, found);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erases_are_exact_times_within_a_quarter_and_the_last_query_slower_on_flash() {
        let settings = Settings::default();
        for run in [access::access_times, erases, queries, random_over_sequential] {
            let findings = run(settings, &|_| ()).unwrap();
            for comparison in &findings.comparisons {
                let deviation = comparison.deviation().unwrap_or(0.0);
                assert!(deviation.abs() <= 0.25, "{deviation:+.3}: {comparison:?}");
            }
            for statement in &findings.statements {
                assert!(statement.holds, "{statement:?}");
            }
        }
    }
}
