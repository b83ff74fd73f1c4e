//! Figures of traces: 4 to 7 of "In-Page Logging", and 12 of "Early Experience and Evaluation of File Systems on SSD".

use std::collections::{BTreeMap, BTreeSet};

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    device::{DeviceAnalysis, Direction},
    locality::Shares,
    pages::{Analysis, Region},
    requests,
};

/// The shares of page writes that "In-Page Logging" supposes to have an erase unit copied and erased (Figure 7c).
const ALPHAS: [f64; 2] = [0.9, 0.5];

/// Update locality (Figure 4), merges, time and space by the size of the log region (Figures 5 and 6), and, where there are several
/// sizes of the buffer pool, all by that (Figure 7), with the smallest log region.
///
/// ```
/// assert!(tantalum_lab::trace::pages::plots(&[]).iter().all(|plot| plot.to_svg().is_none()), "without a trace there is nothing to draw");
/// ```
pub fn of_pages(traces: &[Analysis]) -> Vec<Plot> {
    let mut plots = vec![
        ranked(traces, "Changes of pages", "page, by its changes", "changes", |trace| &trace.locality.changes),
        ranked(traces, "Writes of pages", "page, by its writes", "writes", |trace| &trace.locality.writes),
        ranked(traces, "Erases without log sectors", "erase unit, by its writes", "writes", |trace| {
            &trace.locality.unit_writes
        }),
        by_region(traces, "Merges", "merges", Unit::Number, |_, region| region.merges as f64),
        by_region(traces, "Estimated time of writes", "seconds", Unit::Number, |trace, region| {
            trace.by_count.seconds(region)
        }),
        by_region(traces, "Space of the database", "space", Unit::Bytes, |trace, region| {
            trace.database_bytes(region) as f64
        }),
    ];
    let mut pools: Vec<u64> = traces.iter().map(|trace| trace.buffer_pool_bytes).collect();
    pools.sort_unstable();
    pools.dedup();
    if pools.len() > 1 {
        plots.extend(by_pool(traces));
    }
    plots
}

/// How much each of the places with most has.
fn ranked(traces: &[Analysis], title: &str, x: &str, y: &str, shares: fn(&Analysis) -> &Shares) -> Plot {
    let series = traces.iter().map(|trace| {
        let top = shares(trace).top.iter().enumerate();
        Series::line(&trace.label, top.map(|(rank, &count)| ((rank + 1) as f64, count as f64)).collect())
    });
    Plot::new(title, Axis::linear(x, Unit::Number), Axis::linear(y, Unit::Number), series.collect())
}

fn by_region(traces: &[Analysis], title: &str, y: &str, unit: Unit, value: impl Fn(&Analysis, &Region) -> f64) -> Plot {
    let series = traces.iter().map(|trace| {
        let regions = trace.by_count.regions.iter();
        let points = regions.map(|region| (f64::from(region.region_bytes), value(trace, region)));
        Series::line(&trace.label, points.collect())
    });
    let x = Axis::linear("log region of an erase unit of 128 KiB", Unit::Bytes);
    Plot::new(title, x, Axis::linear(y, unit), series.collect())
}

fn by_pool(traces: &[Analysis]) -> [Plot; 3] {
    let points = |value: &dyn Fn(&Analysis) -> Option<f64>| {
        let mut points: Vec<(f64, f64)> =
            traces.iter().filter_map(|trace| Some((trace.buffer_pool_bytes as f64, value(trace)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let x = || Axis::linear("buffer pool", Unit::Bytes);
    let alone = |title: &str, y: &str, points| {
        Plot::new(title, x(), Axis::linear(y, Unit::Number), vec![Series::line(y, points)])
    };
    let conventional = ALPHAS.map(|alpha| {
        let seconds = points(&|trace| Some(trace.conventional_seconds(alpha)));
        Series::line(format!("conventional, {alpha} of the writes erase"), seconds)
    });
    let in_page = points(&|trace| Some(trace.by_count.seconds(trace.by_count.smallest()?)));
    let series = conventional.into_iter().chain([Series::line("in-page logging", in_page)]);
    [
        alone(
            "Sector writes by buffer pool",
            "sector writes",
            points(&|trace| Some(trace.by_count.sector_writes as f64)),
        ),
        alone("Merges by buffer pool", "merges", points(&|trace| Some(trace.by_count.smallest()?.merges as f64))),
        Plot::new("Estimated time of writes by buffer pool", x(), Axis::log("seconds", Unit::Number), series.collect()),
    ]
}

/// Where each device's reads, writes and discards go, by time (Figure 12), and which part of all requests is no larger than so many
/// bytes.
///
/// ```
/// use tantalum_lab::trace::{Header, Reader, Summary, Writer, requests::{Analysis, plots}};
///
/// let bytes = Writer::new(Vec::new(), &Header::new("nothing happened"))?.finish(&Summary::default())?;
/// let plots = plots(&Analysis::of(Reader::new("example", &bytes[..])?)?);
/// assert!(plots.iter().all(|plot| plot.to_svg().is_none()), "without requests there is nothing to draw");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn of_requests(trace: &requests::Analysis) -> Vec<Plot> {
    trace.devices.iter().map(addresses).chain([sizes(trace)]).collect()
}

fn addresses(device: &DeviceAnalysis) -> Plot {
    let series = |direction: Direction| match device.places.get(&direction) {
        Some(places) if places.step() > 1 => {
            let name = format!("{}, one of {}", direction.name(), places.step());
            Series::dots(name, places.points().collect())
        }
        Some(places) => Series::dots(direction.name(), places.points().collect()),
        None => Series::dots(direction.name(), Vec::new()),
    };
    // Reads and writes have their place in the legend, and so their colours, whether there are any or not.
    let mut all = vec![series(Direction::Reads), series(Direction::Writes)];
    all.extend(device.places.contains_key(&Direction::Discards).then(|| series(Direction::Discards)));
    let time = Axis::linear("time since the trace began", Unit::Nanoseconds);
    let address = Axis::linear(format!("address on {}", device.device.name), Unit::Bytes);
    Plot::new(format!("Addresses of {}", device.label), time, address, all)
}

/// Devices of one use together.
fn sizes(trace: &requests::Analysis) -> Plot {
    let mut by_use: BTreeMap<_, BTreeMap<u64, u64>> = BTreeMap::new();
    for device in &trace.devices {
        for operation in &device.operations {
            let classes = by_use.entry((&device.device.used_for, operation.operation)).or_default();
            for class in &operation.sizes {
                *classes.entry(class.up_to_bytes).or_default() += class.requests;
            }
        }
    }
    // Each line has a point for each size that occurs, so that none slopes where there is nothing.
    let all_sizes: BTreeSet<u64> = by_use.values().flat_map(BTreeMap::keys).copied().collect();
    let series = by_use.into_iter().filter(|(_, classes)| !classes.is_empty());
    let series = series.map(|((used_for, operation), classes)| {
        let (all, mut so_far): (u64, _) = (classes.values().sum(), 0);
        let points = all_sizes.iter().map(|up_to_bytes| {
            so_far += classes.get(up_to_bytes).copied().unwrap_or_default();
            (*up_to_bytes as f64, 100.0 * so_far as f64 / all as f64)
        });
        Series::line(format!("{used_for}: {operation}"), points.collect())
    });
    let size = Axis::log("size of a request", Unit::Bytes);
    let share = Axis::linear("requests up to it, in %", Unit::Number);
    Plot::new("Request sizes", size, share, series.collect())
}
