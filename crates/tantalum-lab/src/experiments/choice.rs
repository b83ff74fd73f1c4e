//! Does the probe choose well? TPC-C with each page store and log layout on every kind of drive, the best beside what is
//! recommended.

use tantalum::{LogLayout, StoreKind};
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings},
    probe::Advice,
    published,
    server::{Suited, SuitedServer},
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment { id: CHOICE, profiles: DRIVES, run: choice }];

const CHOICE: &str = "now.probe_choice";

/// All but raw flash, which leaves no choice.
const DRIVES: &[&str] = &[
    "usb-a",
    "usb-b",
    "usb-c",
    "mtron",
    "mtron-p35",
    "intel-x25e",
    "ocz-vertex-ex",
    "ssd-2008",
    "ssd-a",
    "ssd-b",
    "durassd",
    "nvme-plp",
    "hdd-7200",
    "hdd-10k",
    "hdd-15k",
    "hdd-10k-cached",
    "cloud-volume",
];

const STORES: [StoreKind; 3] = [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging];
const LOGS: [(LogLayout, u32); 4] =
    [(LogLayout::FlashLogging, 1), (LogLayout::FlashLogging, 4), (LogLayout::FlashLogging, 8), (LogLayout::Single, 1)];

const WAREHOUSES: u32 = 5;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 10_000, districts: 10, customers: 300, new_orders: 90 };
const USERS: usize = 16;
const WARM_UP: u64 = 800;
const COUNTED: u64 = 800;

/// What the probe says of a drive, as a way to set up a database.
fn recommended(drive: &'static str, advice: &Advice) -> Suited {
    let value = |setting: &str| advice.value(setting).map(|value| value.trim_matches('"').to_owned());
    Suited {
        drive,
        // What was not measured is left as it is by default.
        store: value("page_store").and_then(|store| store.parse().ok()).unwrap_or_default(),
        page_bytes: value("page_size").and_then(|bytes| bytes.parse().ok()).unwrap_or(4096),
        layout: LogLayout::FlashLogging,
        partitions: value("log_partitions").and_then(|count| count.parse().ok()).unwrap_or(1),
    }
}

/// All that is tried on a drive: what is recommended first. In-page logging is loaded anew for each run, so it is tried with one
/// log only.
fn candidates(recommended: Suited) -> Vec<Suited> {
    let mut all = vec![recommended];
    let logs = LOGS.into_iter().chain([(recommended.layout, recommended.partitions)]);
    for (layout, partitions) in logs {
        for store in STORES {
            let one = Suited { store, layout, partitions, ..recommended };
            let is_tried = store != StoreKind::InPageLogging
                || (layout, partitions) == (recommended.layout, recommended.partitions);
            if is_tried && !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

fn choice(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let contents = Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed: settings.seed };
    let server = SuitedServer::new(contents, USERS, WARM_UP, COUNTED);
    let (published, advice) = (published::of(CHOICE), server.advice(DRIVES, progress)?);
    let rows: Vec<Vec<Suited>> =
        DRIVES.iter().zip(&advice).map(|(&drive, advice)| candidates(recommended(drive, advice))).collect();
    let rates = server.run(&rows.concat(), progress)?;
    let loaded = server.database_bytes(StoreKind::LogStructured, 4096, progress)?;
    let mut findings = Findings::new(vec![
            format!("TPC-C, {WAREHOUSES} warehouses of a tenth of the rows, {} MiB; {}", loaded >> 20, server.describe()),
            "barriers where the drive needs them, torn pages prevented by the drive where it says that it can, else by double writes; pages \
             of the size that is recommended"
                .into(),
        ]);
    let (mut left, mut reached, mut worst) = (&rates[..], 0, (f64::INFINITY, ""));
    let (mut recommended_rates, mut best_of) = (Vec::new(), STORES.map(|_| Vec::new()));
    for ((row, &drive), advice) in rows.iter().zip(DRIVES).zip(&advice) {
        let (of_row, rest) = left.split_at(row.len());
        left = rest;
        let best = of_row.iter().copied().fold(0.0, f64::max);
        let share = of_row[0] / best;
        reached += usize::from(share >= published.number());
        if share < worst.0 {
            worst = (share, drive);
        }
        let chosen = format!(
            "{drive}: recommended ({}, {}, pages of {})",
            row[0].store,
            row[0].describe_log(),
            row[0].page_bytes
        );
        let compared =
            |what, bound, measured, unit: &str| Comparison::new(what, bound, measured, unit, Basis::Predicted);
        findings.comparisons.push(compared(format!("{chosen} over the best"), published.bound(), share, "ratio"));
        if let Some(costs) = &advice.costs {
            let of_stores = [costs.in_place_ns, costs.log_structured_ns, costs.in_page_logging_ns];
            for (store, nanoseconds) in STORES.iter().zip(of_stores) {
                let what = format!("{drive}: a page written back, by the probe, {store}");
                findings.comparisons.push(compared(what, Bound::Unpublished, nanoseconds / 1e3, "us"));
            }
        }
        for (suited, &rate) in row.iter().zip(of_row) {
            let what = format!("{drive}: {}, {}", suited.store, suited.describe_log());
            findings.comparisons.push(compared(what, Bound::Unpublished, rate, "transactions/s"));
        }
        recommended_rates.push(of_row[0] / best);
        for (store, bars) in STORES.iter().zip(&mut best_of) {
            let of_store = row.iter().zip(of_row).filter(|(suited, _)| suited.store == *store);
            bars.push(of_store.map(|(_, rate)| rate / best).fold(0.0, f64::max));
        }
    }
    findings.states(
        format!("what is recommended reaches {:.0} % of the best on every drive", 100.0 * published.number()),
        reached == DRIVES.len(),
        format!("on {reached} of {}; worst on {}, {:.0} %", DRIVES.len(), worst.1, 100.0 * worst.0),
    );
    let mut series: Vec<Series> =
        STORES.iter().zip(best_of).map(|(store, bars)| Series::bars(format!("{store}, best log"), bars)).collect();
    series.push(Series::bars("recommended", recommended_rates));
    findings.plots.push(Plot::new(
        "Transactions, over those of the best way to set up the database",
        Axis::names("", DRIVES.iter().copied()),
        Axis::linear("ratio", Unit::Number),
        series,
    ));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recommended_is_tried_once_and_first() {
        let odd = Suited {
            drive: DRIVES[0],
            store: StoreKind::LogStructured,
            page_bytes: 8192,
            layout: LogLayout::FlashLogging,
            partitions: 2,
        };
        for recommended in [odd, Suited { partitions: 4, store: StoreKind::InPageLogging, ..odd }] {
            let all = candidates(recommended);
            assert_eq!(all[0], recommended);
            assert!(all.iter().enumerate().all(|(place, one)| !all[..place].contains(one)), "{all:?}");
            assert!(STORES.iter().all(|store| all.iter().any(|one| one.store == *store)), "{all:?}");
            assert!(all.iter().any(|one| one.layout == LogLayout::Single), "{all:?}");
        }
    }
}
