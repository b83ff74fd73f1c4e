//! Figures 3 to 6 of "Early Experience and Evaluation of File Systems on SSD" for the device, and what else says more as a curve.

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::found::{Found, Gap, Pattern};

/// Those for which there are points.
pub(super) fn plots(found: &Found) -> Vec<Plot> {
    let mut plots = vec![
        rates(
            found,
            "Sequential access by request size (Figure 3)",
            &[Pattern::SequentialRead, Pattern::SequentialWrite],
        ),
        rates(
            found,
            "Random access by request size (Figure 4)",
            &[Pattern::RandomRead, Pattern::RandomWrite, Pattern::RandomMixed],
        ),
        gaps(found),
        distribution(found),
    ];
    plots.extend(found.responses.iter().map(|row| {
        let points = (0u32..).zip(&row.each_ns).map(|(number, &time)| (f64::from(number), time as f64)).collect();
        let title = format!("Each response time: {} (Figure 6)", row.pattern.name());
        let (x, y) = (Axis::linear("request", Unit::Number), Axis::log("response time", Unit::Nanoseconds));
        Plot::new(title, x, y, vec![Series::dots(row.pattern.name(), points)])
    }));
    plots.extend([durable(found), flushes(found), burst(found), aligns(found), tasks(found)]);
    plots.retain(|plot| plot.series.iter().any(|series| !series.points.is_empty()));
    plots
}

fn rates(found: &Found, title: &str, patterns: &[Pattern]) -> Plot {
    let series = patterns.iter().map(|&pattern| {
        let points = found
            .sizes
            .iter()
            .filter_map(|row| Some((f64::from(row.bytes), row.rate(pattern)?.bytes_per_second / 1e6)));
        Series::line(pattern.name(), points.collect())
    });
    Plot::new(title, Axis::log("request", Unit::Bytes), Axis::linear("MB/s", Unit::Number), series.collect())
}

fn gaps(found: &Found) -> Plot {
    let line = |name: &str, gaps: Vec<Gap>| {
        Series::line(name, gaps.into_iter().map(|gap| (f64::from(gap.bytes), gap.ratio)).collect())
    };
    let series = vec![line("reads", found.read_gaps()), line("writes", found.write_gaps())];
    let (x, y) = (Axis::log("request", Unit::Bytes), Axis::linear("sequential over random", Unit::Number));
    Plot::new("Gap by request size (section III-B)", x, y, series)
}

fn distribution(found: &Found) -> Plot {
    let curve = |times: &[u64]| (0u32..).zip(times).map(|(percent, &time)| (time as f64, f64::from(percent))).collect();
    let series = found.responses.iter().map(|row| Series::line(row.pattern.name(), curve(&row.percentiles_ns)));
    let (x, y) = (Axis::log("response time", Unit::Nanoseconds), Axis::linear("percent of requests", Unit::Number));
    Plot::new("Response times of small random requests (Figure 5)", x, y, series.collect())
}

fn durable(found: &Found) -> Plot {
    let line = |name: &str, y: &dyn Fn(&super::found::Durable) -> f64| {
        Series::line(name, found.durable.iter().map(|row| (f64::from(row.bytes), y(row))).collect())
    };
    let series = vec![
        line("p50", &|row| row.latency.p50_ns as f64),
        line("p99", &|row| row.latency.p99_ns as f64),
        line("max", &|row| row.latency.max_ns as f64),
    ];
    let (x, y) = (Axis::log("write", Unit::Bytes), Axis::log("response time", Unit::Nanoseconds));
    Plot::new("Durable sequential writes", x, y, series)
}

fn flushes(found: &Found) -> Plot {
    let flushed = found.cache.iter().flat_map(|cache| &cache.flushed);
    let points = flushed.map(|row| (row.dirty_bytes as f64, row.flush_ns as f64)).collect();
    let (x, y) = (Axis::log("written before", Unit::Bytes), Axis::log("flush", Unit::Nanoseconds));
    Plot::new("Flushes against what was written before", x, y, vec![Series::line("flush", points)])
}

fn burst(found: &Found) -> Plot {
    let burst = found.cache.iter().flat_map(|cache| &cache.burst);
    let points = burst.map(|&(bytes, mean_ns)| (bytes as f64, mean_ns)).collect();
    let (x, y) =
        (Axis::linear("written since the device rested", Unit::Bytes), Axis::log("response time", Unit::Nanoseconds));
    Plot::new("A burst of small random writes", x, y, vec![Series::line("mean of a step", points)])
}

fn aligns(found: &Found) -> Plot {
    let line = |name: &str, y: &dyn Fn(&super::found::Align) -> f64| {
        Series::line(name, found.erase_unit.aligns.iter().map(|row| (row.bytes as f64, y(row) / 1e6)).collect())
    };
    let series = vec![line("at multiples", &|row| row.aligned), line("half a chunk later", &|row| row.shifted)];
    let (x, y) = (Axis::log("chunk", Unit::Bytes), Axis::linear("MB/s", Unit::Number));
    Plot::new("Where chunks begin", x, y, series)
}

fn tasks(found: &Found) -> Plot {
    let reads = found.tasks.iter().map(|row| (f64::from(row.tasks), row.reads_per_second)).collect();
    let streams = found.tasks.iter().filter_map(|row| Some((f64::from(row.tasks), row.streams?.per_second))).collect();
    let series = vec![Series::line("random reads", reads), Series::line("durable writes in order", streams)];
    let (x, y) = (Axis::log("tasks at once", Unit::Number), Axis::log("requests per second", Unit::Number));
    Plot::new("Many at once", x, y, series)
}
