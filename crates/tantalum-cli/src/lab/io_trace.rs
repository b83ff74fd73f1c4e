//! `tantalum lab io-trace`: what the devices of a run were asked for.

use std::{collections::BTreeSet, path::PathBuf};

use tantalum_lab::trace::{
    Reader,
    requests::{self, Analysis, DeviceAnalysis, Latencies, Operation, OperationAnalysis, Order},
};
use tantalum_report::{Table, units};

use super::trace::{Output, analyse};
use crate::error::{Out, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// What `tantalum bench ... --io-trace` wrote; several to compare them.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let traces = analyse("lab io-trace", &arguments.files, |file| Ok(Analysis::of(Reader::open(file)?)?))?;
    let mut out = Out::new();
    traces.iter().try_for_each(|trace| show(&mut out, trace))?;
    for (number, trace) in traces.iter().enumerate() {
        let prefix = if traces.len() > 1 { format!("{}-", number + 1) } else { String::new() };
        arguments.output.draw(&prefix, || requests::plots(trace))?;
    }
    arguments.output.write(&traces)
}

fn show(out: &mut Out, trace: &Analysis) -> Result<()> {
    let transactions = match trace.totals.transactions {
        Some(transactions) => format!(", {} transactions", units::count(transactions)),
        None => String::new(),
    };
    out.line(format_args!("\n{}: {:.1} s{transactions}", trace.label, trace.seconds))?;
    // A device that nothing was asked of, such as an area that is not used, says nothing.
    let devices: Vec<_> = trace.devices.iter().filter(|device| !device.operations.is_empty()).collect();
    for device in &devices {
        let capacity = units::bytes(device.device.capacity_bytes);
        out.line(format_args!("{}: {}, {capacity}", device.label, device.device.name))?;
    }
    out.line(operations(&devices))?;
    out.line(sizes(&devices))?;
    out.line(orders(&devices))?;
    relations(out, trace)
}

fn operations(devices: &[&DeviceAnalysis]) -> Table {
    let mut table = Table::new([
        "device",
        "operation",
        "requests",
        "bytes",
        "average",
        "p50",
        "p99",
        "max",
        "failed",
        "end unknown",
    ]);
    each_operation(devices, |device, operation| {
        let latency = |value: fn(&Latencies) -> f64| match &operation.latency {
            Some(latencies) => units::duration_ns((value(latencies) * 1e3) as u64),
            None => "-".to_owned(),
        };
        table.row([
            device.label.clone(),
            operation.operation.to_string(),
            units::count(operation.requests),
            units::bytes(operation.bytes),
            units::bytes(operation.average_bytes() as u64),
            latency(|latencies| latencies.p50_us),
            latency(|latencies| latencies.p99_us),
            latency(|latencies| latencies.max_us),
            units::count(operation.failed),
            units::count(operation.unknown),
        ]);
    });
    table
}

/// Which part of the requests is of each size.
fn sizes(devices: &[&DeviceAnalysis]) -> Table {
    let mut classes = BTreeSet::new();
    each_operation(devices, |_, operation| classes.extend(operation.sizes.iter().map(|class| class.up_to_bytes)));
    let header = ["device".to_owned(), "% of".to_owned()];
    let header = header.into_iter().chain(classes.iter().map(|&bytes| format!("<= {}", units::bytes(bytes))));
    let mut table = Table::new(header.collect::<Vec<_>>());
    each_operation(devices, |device, operation| {
        let share = |bytes: &u64| match operation.sizes.iter().find(|class| class.up_to_bytes == *bytes) {
            Some(class) => format!("{:.1}", 100.0 * class.requests as f64 / operation.requests as f64),
            None => String::new(),
        };
        if operation.operation != Operation::Flush {
            let row = [device.label.clone(), format!("{}s", operation.operation)];
            table.row(row.into_iter().chain(classes.iter().map(share)).collect::<Vec<_>>());
        }
    });
    table
}

/// In which order the addresses come.
fn orders(devices: &[&DeviceAnalysis]) -> Table {
    let mut table = Table::new(["device", "requests", "begin where the last ended", "there or higher"]);
    let percent = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
    for device in devices {
        for (name, order) in [("reads", &device.reads), ("writes", &device.writes)] {
            let Order { requests, .. } = *order;
            if requests > 0 {
                let [sequential, ascending] = [order.sequential_share(), order.ascending_share()].map(percent);
                let count = format!("{} {name}", units::count(requests));
                table.row([device.label.clone(), count, sequential, ascending]);
            }
        }
    }
    table
}

fn each_operation<'a>(devices: &[&'a DeviceAnalysis], mut of: impl FnMut(&'a DeviceAnalysis, &'a OperationAnalysis)) {
    for device in devices {
        device.operations.iter().for_each(|operation| of(device, operation));
    }
}

/// What requests come to for a transaction, a change and a page.
fn relations(out: &mut Out, trace: &Analysis) -> Result<()> {
    if let Some(each) = &trace.per_transaction {
        let issued = |pages: Option<f64>| pages.map_or_else(String::new, |pages| format!(" for {pages:.2} pages"));
        out.line(format_args!(
            "a transaction takes {:.2} reads{}, {:.2} writes of {} in all{}, and {:.2} flushes",
            each.reads,
            issued(each.pages_read),
            each.writes,
            units::bytes(each.written_bytes as u64),
            issued(each.pages_stored),
            each.flushes
        ))?;
    }
    for (written, times) in [
        ("written with pages, over the pages that the engine stored", trace.written_over_stored),
        ("written to all devices, over the changes in the log", trace.written_over_changed),
        ("written by emulated drives to their media, over the changes in the log", trace.media_over_changed),
    ] {
        if let Some(times) = times {
            out.line(format_args!("{times:.2} times: {written}"))?;
        }
    }
    for medium in &trace.totals.media {
        if let Some(times) = medium.amplification() {
            let (inside, host) = (units::bytes(medium.medium_bytes), units::bytes(medium.host_bytes));
            let commands = units::count(medium.writes);
            out.line(format_args!(
                "{times:.2} times: {} wrote {inside} to its medium for {commands} write commands of {host} in all",
                medium.name
            ))?;
        }
    }
    Ok(())
}
