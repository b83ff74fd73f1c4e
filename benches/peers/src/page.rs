//! The results as an HTML page in one file.

use tantalum_report::{
    html::{self, Column, Html, Page, element},
    plot::{Axis, Plot, Series, Unit},
};

use crate::{
    engine::Kind,
    results::{Measured, Results, Spread},
    table::{columns, introduction, lead},
    workload::{Shape, Workload},
};

/// A figure that is plotted: its axis, and where it is.
type Figure = (&'static str, Unit, f64, fn(&Measured) -> Option<Spread>);

/// The page as text.
pub fn html(results: &Results) -> String {
    let mut page = Page::new("Tantalum and its peers");
    page.add(element("h1").with("Tantalum and its peers"));
    introduction(results).into_iter().for_each(|line| page.add(element("p").with(line)));
    page.add(element("h2").with("Configurations"));
    let rows = results.engines.iter().map(|engine| vec![Html::from(engine.name), Html::from(engine.configuration)]);
    page.add(html::table(&[("engine", Column::Text), ("configuration", Column::Text)], rows));
    for (workload, part) in results.by_workload() {
        page.add(element("h2").with(workload.name()));
        page.add(element("p").with(workload.description()));
        page.add(lead(part).map(|lead| element("p").with(lead)));
        plots(workload, part).iter().for_each(|plot| page.add(html::figure(plot)));
        page.add(table(workload, part));
        for error in part.iter().flat_map(|measured| measured.errors.iter().map(move |error| (measured, error))) {
            let (Measured { engine, clients, .. }, error) = error;
            page.add(element("p").with(format!("{engine} x {clients} failed: {error}")));
        }
    }
    page.to_html()
}

fn table(workload: Workload, part: &[Measured]) -> html::Element {
    let columns = columns(workload);
    let kind = |title: &str| if title == "engine" { Column::Text } else { Column::Number };
    let titles: Vec<_> = columns.iter().map(|(title, _)| (*title, kind(title))).collect();
    html::table(
        &titles,
        part.iter().map(|measured| columns.iter().map(|(_, write)| Html::from(write(measured))).collect()),
    )
}

fn plots(workload: Workload, part: &[Measured]) -> Vec<Plot> {
    const US: f64 = 1e3;
    let time: Figure = ("time", Unit::Nanoseconds, US, |m| m.p50_us);
    let written: Figure = ("bytes written for each", Unit::Bytes, 1.0, |m| m.written_bytes_per_operation);
    let mut figures: Vec<Figure> = match workload.shape() {
        Shape::Once => vec![time],
        Shape::Clients => vec![
            ("operations a second", Unit::Number, 1.0, |m| m.per_second),
            ("99th percentile of latency", Unit::Nanoseconds, US, |m| m.p99_us),
            ("CPU time for each", Unit::Nanoseconds, 1e6, |m| m.cpu_seconds_per_1000),
        ],
    };
    if workload.writes() {
        figures.push(written);
    }
    let plot = |figure: Figure| match workload.shape() {
        Shape::Clients => lines(workload, part, figure),
        Shape::Once => bars(workload, part, figure),
    };
    figures.into_iter().map(plot).collect()
}

/// Over the number of clients, a line for each engine.
fn lines(workload: Workload, part: &[Measured], (title, unit, scale, figure): Figure) -> Plot {
    let line = |kind: Kind| {
        let of_kind = part.iter().filter(|measured| measured.case.engine == kind);
        let points = of_kind.filter_map(|measured| Some((measured.clients as f64, figure(measured)?.median * scale)));
        let points: Vec<_> = points.collect();
        // A line of one point would be invisible.
        if points.len() == 1 { Series::dots(kind.name(), points) } else { Series::line(kind.name(), points) }
    };
    let series = Kind::ALL.into_iter().map(line).filter(|series| !series.points.is_empty()).collect();
    let clients = Axis::log("clients, or commits under way", Unit::Number);
    Plot::new(format!("{}: {title}", workload.name()), clients, Axis::log(title, unit), series)
}

/// A bar for each engine.
fn bars(workload: Workload, part: &[Measured], (title, unit, scale, figure): Figure) -> Plot {
    let height = |measured: &Measured| figure(measured).map_or(0.0, |spread| spread.median * scale);
    let engines = Axis::names("", part.iter().map(|measured| measured.engine));
    let series = Series::bars("median", part.iter().map(height));
    Plot::new(format!("{}: {title}", workload.name()), engines, Axis::linear(title, unit), vec![series])
}
