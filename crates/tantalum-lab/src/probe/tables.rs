//! What was found, for a terminal.

use tantalum_report::{
    Table,
    units::{bytes, count, duration_ns, number},
};

use super::found::{Found, Gap, Pattern};

/// A table under its title each; what was not measured has none.
pub fn tables(found: &Found) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    let mut add = |title: &str, table: Option<Table>| tables.extend(table.map(|table| (title.to_owned(), table)));
    add("Throughput by request size, MB/s; writes cached", sizes(found));
    add("Response times, requests anywhere", responses(found));
    add("Durable writes, one after the other", durable(found));
    add("Ways to make a small write durable", ways(found));
    add("Flushes", flushes(found));
    add("Chunks at multiples of their size, and half a chunk later, MB/s", aligns(found));
    add("Erase units written in turn", open_units(found));
    add("Many at once", tasks(found));
    add("As page stores write: time for a page", stores(found));
    tables
}

fn some(table: Table, is_empty: bool) -> Option<Table> {
    (!is_empty).then_some(table)
}

fn sizes(found: &Found) -> Option<Table> {
    let header = ["request"].into_iter().chain(Pattern::ALL.map(Pattern::name)).chain(["gap, read", "gap, write"]);
    let mut table = Table::new(header);
    let (reads, writes) = (found.read_gaps(), found.write_gaps());
    for row in &found.sizes {
        let rate = |pattern| row.rate(pattern).map_or("-".to_owned(), |rate| number(rate.bytes_per_second / 1e6));
        let gap = |gaps: &[Gap]| {
            let gap = gaps.iter().find(|gap| gap.bytes == row.bytes);
            gap.map_or("-".to_owned(), |gap| number(gap.ratio))
        };
        let cells = [bytes(row.bytes.into())].into_iter().chain(Pattern::ALL.map(rate));
        table.row(cells.chain([gap(&reads), gap(&writes)]));
    }
    some(table, found.sizes.iter().all(|row| row.rates.is_empty()))
}

fn responses(found: &Found) -> Option<Table> {
    let mut table = Table::new(["requests", "size", "mean", "p50", "p99", "p99.9", "max"]);
    for row in &found.responses {
        let latency = &row.latency;
        let times = [latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns].map(duration_ns);
        let first = [row.pattern.name().to_owned(), bytes(row.bytes.into()), time(latency.mean_ns)];
        table.row(first.into_iter().chain(times));
    }
    some(table, found.responses.is_empty())
}

fn durable(found: &Found) -> Option<Table> {
    let mut table = Table::new(["write", "writes", "mean", "p50", "p99", "max", "outliers", "times normal", "one in"]);
    for row in &found.durable {
        let (latency, outliers) = (&row.latency, &row.outliers);
        let often = if outliers.count == 0 { "-".to_owned() } else { number(1.0 / outliers.share) };
        table.row([
            bytes(row.bytes.into()),
            count(latency.count),
            time(latency.mean_ns),
            duration_ns(latency.p50_ns),
            duration_ns(latency.p99_ns),
            duration_ns(latency.max_ns),
            count(outliers.count),
            if outliers.count == 0 { "-".to_owned() } else { number(outliers.times_normal) },
            often,
        ]);
    }
    some(table, found.durable.is_empty())
}

fn ways(found: &Found) -> Option<Table> {
    let ways = found.ways?;
    let how = match found.claims.fua {
        Some(true) => "O_DSYNC, by FUA",
        Some(false) => "O_DSYNC, by a write and a flush",
        None => "O_DSYNC",
    };
    let mut table = Table::new(["way", "size", "mean", "p50", "p99", "max"]);
    let mut add = |name: &str, latency: &crate::micro::Latency| {
        let times = [latency.p50_ns, latency.p99_ns, latency.max_ns].map(duration_ns);
        table.row([name.to_owned(), bytes(ways.bytes.into()), time(latency.mean_ns)].into_iter().chain(times));
    };
    add(how, &ways.durable);
    add("write and fdatasync", &ways.write_and_flush);
    add("cached: not durable", &ways.cached);
    if let Some(streams) = found.two_streams {
        add("O_DSYNC, one stream", &streams.one);
        add("O_DSYNC, two streams 99/1", &streams.both);
        add("  of these, the second", &streams.second);
    }
    Some(table)
}

fn flushes(found: &Found) -> Option<Table> {
    let cache = found.cache.as_ref()?;
    let mut table = Table::new(["written before", "writing took", "flush took"]);
    table.row(["nothing".to_owned(), "-".to_owned(), time(cache.empty_flush.mean_ns)]);
    for row in &cache.flushed {
        table.row([bytes(row.dirty_bytes), duration_ns(row.write_ns), duration_ns(row.flush_ns)]);
    }
    if let Some(row) = &cache.scattered {
        let what = format!("{}, anywhere", bytes(row.dirty_bytes));
        table.row([what, duration_ns(row.write_ns), duration_ns(row.flush_ns)]);
    }
    Some(table)
}

fn aligns(found: &Found) -> Option<Table> {
    let mut table = Table::new(["chunk", "at multiples", "half a chunk later", "ratio"]);
    for row in &found.erase_unit.aligns {
        let rates = [row.aligned, row.shifted].map(|rate| number(rate / 1e6));
        table.row([bytes(row.bytes)].into_iter().chain(rates).chain([number(row.ratio)]));
    }
    some(table, found.erase_unit.aligns.is_empty())
}

fn open_units(found: &Found) -> Option<Table> {
    let mut table = Table::new(["units", "MB/s"]);
    for (units, rate) in &found.open_units.rates {
        table.row([units.to_string(), number(rate / 1e6)]);
    }
    some(table, found.open_units.rates.is_empty())
}

fn tasks(found: &Found) -> Option<Table> {
    let mut table = Table::new(["tasks", "random reads/s", "durable writes/s", "each takes"]);
    for row in &found.tasks {
        let streams = row.streams.as_ref();
        table.row([
            row.tasks.to_string(),
            number(row.reads_per_second),
            streams.map_or("-".to_owned(), |streams| number(streams.per_second)),
            streams.map_or("-".to_owned(), |streams| time(streams.mean_ns)),
        ]);
    }
    some(table, found.tasks.is_empty())
}

fn stores(found: &Found) -> Option<Table> {
    let stores = found.stores.as_ref()?;
    let mut table = Table::new(["page", "read", "written anywhere", "appended", "written twice"]);
    for page in &stores.pages {
        let times = [page.read_ns, page.write_ns, page.append_ns, page.double_write_ns].map(time);
        table.row([bytes(page.bytes.into())].into_iter().chain(times));
    }
    Some(table)
}

pub(super) fn time(nanoseconds: f64) -> String {
    duration_ns(nanoseconds.round() as u64)
}
