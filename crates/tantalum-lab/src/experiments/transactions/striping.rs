//! The conventional array: Figure 13.

use tantalum_log::LogLayout;
use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::tpcc_server::{DRIVES, MANY, TpccServer};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    published,
    scenario::LogSetup,
};

pub(super) const LOSS: &str = "fl.fig13.striping_loss";

/// The paper's stripe units.
const UNITS: [u32; 10] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];

pub(super) fn loss(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let mut logs = Vec::new();
    for (_, profile) in DRIVES {
        let two = LogSetup::paper(profile, 2);
        logs.push(two);
        logs.extend(UNITS.map(|unit_bytes| two.with_layout(LogLayout::Striped { unit_bytes })));
    }
    let runs = server.grid(&logs, &[MANY])?;
    let mut losses = Vec::new();
    for runs in runs.chunks(1 + UNITS.len()) {
        let rate = |at: usize| runs[at][0].new_orders_per_minute();
        losses.push((1..=UNITS.len()).map(|at| 1.0 - rate(at) / rate(0)).collect::<Vec<f64>>());
    }
    let at = |unit_bytes: u32| UNITS.iter().position(|&unit| unit == unit_bytes).expect("one of the units");
    let worst_large = |loss: &[f64]| loss[at(64 << 10)].max(loss[at(128 << 10)]);
    let up_to = published::of(LOSS).column("loss_up_to");
    let mut comparisons = vec![
        Comparison::new(
            "usb-a, units of 64 to 128 KiB",
            Bound::Max(up_to[0]),
            worst_large(&losses[0]),
            "loss",
            Basis::Predicted,
        ),
        Comparison::new(
            "usb-c, units of 64 to 128 KiB",
            Bound::Max(up_to[1]),
            worst_large(&losses[2]),
            "loss",
            Basis::Predicted,
        ),
    ];
    let worst = losses.iter().flatten().copied().fold(0.0, f64::max);
    comparisons.push(Comparison::new("any drive, any unit", Bound::Max(up_to[2]), worst, "loss", Basis::Predicted));
    for ((_, profile), loss) in DRIVES.iter().zip(&losses) {
        for (unit, loss) in UNITS.iter().zip(loss) {
            let what = format!("{profile}, units of {}", tantalum_report::units::bytes((*unit).into()));
            comparisons.push(Comparison::new(what, Bound::Unpublished, *loss, "loss", Basis::Predicted));
        }
    }
    let least = losses.iter().flatten().copied().fold(1.0, f64::min);
    // Two runs of one configuration differ by less than this.
    let never_better = least > -0.02;
    let middle_is_best = losses.iter().all(|loss| {
        let best = loss.iter().copied().fold(1.0, f64::min);
        loss[at(64 << 10)].min(loss[at(128 << 10)]) <= best + 0.02
    });
    let plot = Plot::new(
        "What striping loses against FlashLogging, two drives",
        Axis::log("stripe unit", Unit::Bytes),
        Axis::linear("rate over FlashLogging's", Unit::Number),
        DRIVES
            .iter()
            .zip(&losses)
            .map(|((name, _), loss)| {
                Series::line(
                    *name,
                    UNITS.iter().map(|&unit| f64::from(unit)).zip(loss.iter().map(|loss| 1.0 - loss)).collect(),
                )
            })
            .collect(),
    );
    Ok(Findings {
        configuration: server.configuration()?,
        comparisons,
        statements: vec![
            Statement::new("striping is never better", never_better, format!("least loss {:.1}%", least * 100.0)),
            Statement::new(
                "units of 64 to 128 KiB are best",
                middle_is_best,
                losses
                    .iter()
                    .zip(DRIVES)
                    .map(|(loss, (name, _))| {
                        format!("{name} {:.1}%", 100.0 * loss[at(64 << 10)].min(loss[at(128 << 10)]))
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        ],
        plots: vec![plot],
    })
}
