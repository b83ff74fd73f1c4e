//! The results on the terminal.

use tantalum_report::{Table, units};

use crate::{
    results::{Machine, Measured, Results, Spread},
    workload::{Shape, Workload},
};

/// A figure as people read it; a dash for one that is absent.
fn median(spread: Option<Spread>, write: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| write(spread.median))
}

/// Microseconds.
pub fn time(us: f64) -> String {
    units::duration_ns((us * 1e3) as u64)
}

/// Bytes.
pub fn bytes(number: f64) -> String {
    units::bytes(number.round() as u64)
}

/// What a column shows of a case.
pub type Column = (&'static str, fn(&Measured) -> String);

/// The columns of a workload's table.
pub fn columns(workload: Workload) -> Vec<Column> {
    let range = |measured: &Measured| match measured.per_second {
        Some(Spread { min, max, .. }) => format!("{}..{}", units::number(min), units::number(max)),
        None => "-".to_owned(),
    };
    let mut columns: Vec<Column> = vec![("clients", |m| m.clients.to_string()), ("engine", |m| m.engine.to_owned())];
    match workload.shape() {
        Shape::Clients => columns.extend::<[Column; 5]>([
            ("per second", |m| median(m.per_second, units::number)),
            ("min..max", range),
            ("p50", |m| median(m.p50_us, time)),
            ("p99", |m| median(m.p99_us, time)),
            ("p99.9", |m| median(m.p999_us, time)),
        ]),
        Shape::Once => {
            columns.remove(0);
            columns.push(("time", |m| median(m.p50_us, time)));
            if workload != Workload::Reopen {
                columns.push(("rows per second", |m| median(m.per_second, units::number)));
            }
        }
    }
    columns.push(("CPU s per 1000", |m| median(m.cpu_seconds_per_1000, |seconds| format!("{seconds:.4}"))));
    if workload.writes() {
        columns.push(("written each", |m| median(m.written_bytes_per_operation, bytes)));
    } else {
        columns.push(("fetched each", |m| median(m.read_bytes_per_operation, bytes)));
    }
    if workload.has_transactions() {
        columns.push(("conflicts each", |m| median(m.conflicts_per_operation, |number| format!("{number:.3}"))));
    }
    columns.push(("space", |m| median(m.space_bytes, bytes)));
    columns.push(("peak memory", |m| median(m.peak_memory_bytes, bytes)));
    columns.push(("load", |m| median(m.load_average, |load| format!("{load:.2}"))));
    columns
}

/// Where it ran, and how, in sentences.
pub fn introduction(results: &Results) -> Vec<String> {
    let Machine { kernel, processors, processor, has_device_counter } = &results.machine;
    let arguments = &results.arguments;
    let loads = results.results.iter().filter_map(|measured| measured.load_average);
    let busiest = loads.map(|load| load.max).fold(0.0, f64::max);
    let counter = match has_device_counter {
        true => {
            "Bytes written are by the block device's counter: the file system's metadata is in them, and what others wrote meanwhile."
        }
        false => "Bytes written are by the process's counter, without the file system's metadata: the device has none.",
    };
    vec![
        format!("{processors} processors ({processor}), Linux {kernel}; load of the machine up to {busiest:.2}"),
        format!(
            "Medians of {} rounds of {} s each; cache {} MiB, log {} MiB",
            arguments.rounds, arguments.seconds, arguments.cache_mib, arguments.log_mib
        ),
        counter.to_owned(),
    ]
}

/// How far ahead Tantalum is, in a sentence; `None` if it was not compared.
pub fn lead(part: &[Measured]) -> Option<String> {
    let leads = Results::leads(part);
    let each = leads.iter().map(|(clients, peer, ratio)| format!("{ratio:.2} of {peer} x {clients}"));
    let each = each.collect::<Vec<_>>().join(", ");
    (!leads.is_empty()).then(|| format!("tantalum over the fastest peer: {each}"))
}

/// Prints all tables.
pub fn print(results: &Results) {
    introduction(results).iter().for_each(|line| println!("{line}"));
    for (workload, part) in results.by_workload() {
        println!("\n{}: {}", workload.name(), workload.description());
        let columns = columns(workload);
        let mut table = Table::new(columns.iter().map(|(title, _)| title));
        for measured in part {
            table.row(columns.iter().map(|(_, write)| write(measured)));
        }
        println!("{table}");
        if let Some(lead) = lead(part) {
            println!("{lead}");
        }
    }
}
