//! One SSD, whole and cut into partitions: Figure 17.

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    disk::{DISK, IDEAL},
    tpcc_server::{MANY, TpccServer},
};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    published,
    scenario::LogSetup,
};

pub(super) const SSD: &str = "fl.fig17.ssd";

pub(super) const PROFILE: &str = "ssd-2008";

const PARTITIONS: [u32; 5] = [1, 2, 4, 8, 10];

pub(super) fn partitions(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let mut logs = vec![LogSetup::original(PROFILE)];
    logs.extend(PARTITIONS.map(|count| LogSetup::paper(PROFILE, 1).in_partitions(count)));
    logs.push(LogSetup::ours(PROFILE, 1));
    let mut runs = vec![server.on_disk(DISK, &[MANY])?, server.on_disk(IDEAL, &[MANY])?];
    runs.extend(server.grid(&logs, &[MANY])?);
    let rates: Vec<f64> = runs.iter().map(|runs| runs[0].new_orders_per_minute()).collect();
    let [disk, _ideal, naive, one, two, four, eight, ten, _ours] = rates[..] else {
        unreachable!("a rate for each log")
    };
    let best = [one, two, four, eight, ten].into_iter().fold(0.0, f64::max);
    let ratios = [naive / disk, two / one, four / two, best / disk];
    let table = published::of(SSD).table();
    let mut comparisons: Vec<Comparison> = table
        .iter()
        .zip(ratios)
        .map(|((texts, published), ratio)| {
            Comparison::new(texts[0], Bound::Value(published[0]), ratio, "ratio", Basis::Predicted)
        })
        .collect();
    let names = ["disk", "ideal", "ssd naive", "1 part", "2 parts", "4 parts", "8 parts", "10 parts", "Tantalum's"];
    for (name, rate) in names.iter().zip(&rates) {
        comparisons.push(Comparison::new(*name, Bound::Unpublished, *rate, "NOTPM", Basis::Predicted));
    }
    Ok(Findings {
        configuration: server.configuration()?,
        comparisons,
        statements: vec![Statement::new(
            "gains fade beyond 4 partitions",
            eight.max(ten) < 1.12 * four,
            format!("8 over 4: {:.2}, 10 over 4: {:.2}", eight / four, ten / four),
        )],
        plots: vec![Plot::new(
            "One SSD as several log devices, 32 clients",
            Axis::names("log", names),
            Axis::linear("new orders a minute", Unit::Number),
            vec![Series::bars("measured", rates)],
        )],
    })
}
