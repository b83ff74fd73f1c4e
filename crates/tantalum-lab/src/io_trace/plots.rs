//! The study's Figure 12, for each device, and how large requests are.

use std::collections::{BTreeMap, BTreeSet};

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{Analysis, DeviceAnalysis, device::Direction};

/// Where each device's reads, writes and discards go, by time (Figure 12), and which part of all requests is no larger than so many
/// bytes.
///
/// ```
/// use tantalum_lab::io_trace::{Analysis, Reader, Summary, Writer, plots};
///
/// let bytes = Writer::new(Vec::new(), "nothing happened")?.finish(&Summary::default())?;
/// let plots = plots(&Analysis::of(Reader::new("example", &bytes[..])?)?);
/// assert!(plots.iter().all(|plot| plot.to_svg().is_none()), "without requests there is nothing to draw");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plots(trace: &Analysis) -> Vec<Plot> {
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
fn sizes(trace: &Analysis) -> Plot {
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
