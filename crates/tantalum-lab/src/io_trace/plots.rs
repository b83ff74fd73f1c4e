//! The study's Figure 12, for each device, and how large requests are.

use std::collections::BTreeMap;

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{Analysis, DeviceAnalysis};

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
    let series = device.places.iter().map(|(direction, places)| {
        let name = match places.step() {
            1 => direction.name().to_owned(),
            step => format!("{}, one of {step}", direction.name()),
        };
        Series::dots(name, places.points().collect())
    });
    let time = Axis::linear("time since the trace began", Unit::Nanoseconds);
    let address = Axis::linear(format!("address on {}", device.device.name), Unit::Bytes);
    Plot::new(format!("Addresses of {}", device.label), time, address, series.collect())
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
    let series = by_use.into_iter().map(|((used_for, operation), classes)| {
        let (all, mut so_far): (u64, _) = (classes.values().sum(), 0);
        let points = classes.into_iter().map(|(up_to_bytes, requests)| {
            so_far += requests;
            (up_to_bytes as f64, 100.0 * so_far as f64 / all as f64)
        });
        Series::line(format!("{used_for}: {operation}"), points.collect())
    });
    let size = Axis::log("size of a request", Unit::Bytes);
    let share = Axis::linear("requests up to it, in %", Unit::Number);
    Plot::new("Request sizes", size, share, series.filter(|series| !series.points.is_empty()).collect())
}
