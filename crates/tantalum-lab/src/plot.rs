//! Results as SVG: lines or points over one or two logarithmic axes.

use std::ops::Range;

use plotters::{
    coord::{Shift, combinators::BindKeyPoints},
    prelude::*,
};
use tantalum_report::units;

/// A plot of some series.
///
/// ```
/// use tantalum_lab::plot::{Axis, Chart, Mark, Series, Unit};
///
/// let line = Series { name: "sequential".into(), mark: Mark::Line, points: vec![(512.0, 8.0), (4096.0, 60.0)] };
/// let (x, y) = (Axis::new("request", Unit::Bytes), Axis::new("MB/s", Unit::Number));
/// let chart = Chart { title: "usb-a".into(), x, x_is_log: true, y, series: vec![line] };
/// assert!(chart.to_svg().expect("two points can be drawn").starts_with("<svg"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above the plot.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// Whether it is logarithmic; from one mark to the next it then doubles.
    pub x_is_log: bool,
    /// The vertical axis, logarithmic by powers of ten.
    pub y: Axis,
    /// What is drawn. Points that a logarithm does not have are left out.
    pub series: Vec<Series>,
}

/// What an axis shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Beside the axis.
    pub title: String,
    /// How its numbers are written.
    pub unit: Unit,
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// As they are, large ones short: `4.1k`.
    Number,
    /// As bytes: `4 KiB`.
    Bytes,
    /// As a time: `1.5 ms`.
    Nanoseconds,
}

/// A named list of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// Horizontal and vertical value of each.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// As a line from point to point.
    Line,
    /// As dots.
    Dots,
}

/// Width and height in pixels.
const SIZE: (u32, u32) = (860, 520);

impl Chart {
    /// The plot as the text of an SVG file; `None` if there is nothing to draw.
    pub fn to_svg(&self) -> Option<String> {
        let points =
            || self.series.iter().flat_map(|series| &series.points).copied().filter(|&(x, y)| self.shows(x, y));
        let x = span(points().map(|(x, _)| x))?;
        let y = decades(&span(points().map(|(_, y)| y))?);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            // Writing into a string does not fail.
            if self.x_is_log {
                let marks = marks(&x, 2.0);
                self.draw(&area, x.log_scale().with_key_points(marks), y)
            } else {
                self.draw(&area, x, y)
            }
            .ok()?;
            area.present().ok()?;
        }
        Some(svg)
    }

    fn shows(&self, x: f64, y: f64) -> bool {
        x.is_finite() && y.is_finite() && y > 0.0 && (x > 0.0 || !self.x_is_log)
    }

    fn draw<'a, X>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        x: X,
        y: Range<f64>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>
    where
        X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        X::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(12)
            .margin_right(30)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(x, y.clone().log_scale().with_key_points(marks(&y, 10.0)))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(&self.x.title)
            .y_desc(&self.y.title)
            .x_label_formatter(&|value| self.x.unit.write(*value))
            .y_label_formatter(&|value| self.y.unit.write(*value))
            .draw()?;
        for (number, series) in self.series.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let points = series.points.iter().copied().filter(|&(x, y)| self.shows(x, y));
            let drawn = match series.mark {
                Mark::Line => chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?,
                Mark::Dots => chart.draw_series(points.map(|point| Circle::new(point, 1, color.filled())))?,
            };
            drawn
                .label(&series.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 2), (x + 14, y + 2)], color.filled()));
        }
        if self.series.len() == 1 {
            return Ok(());
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()
    }
}

impl Axis {
    /// An axis with this title and unit.
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit }
    }
}

impl Unit {
    fn write(self, value: f64) -> String {
        match self {
            Self::Number => short(value),
            Self::Bytes => units::bytes(value.round() as u64),
            Self::Nanoseconds => units::duration_ns(value.round() as u64),
        }
    }
}

/// The powers of ten around a span, which lies well within.
fn decades(span: &Range<f64>) -> Range<f64> {
    let power = |value: f64| 10f64.powf(value);
    power((span.start * 0.9).log10().floor())..power((span.end * 1.05).log10().ceil())
}

/// The powers of `base` within a span.
fn marks(span: &Range<f64>, base: f64) -> Vec<f64> {
    // Half a percent more: powers are not exact.
    let (first, last) = ((span.start * 0.995).log(base).ceil() as i32, (span.end * 1.005).log(base).floor() as i32);
    (first..=last).map(|power| base.powi(power)).collect()
}

/// From the least to the greatest, and somewhat wider if they are the same.
fn span(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return None;
    }
    Some(if low == high { low * 0.5..high * 2.0 + f64::MIN_POSITIVE } else { low..high * 1.05 })
}

/// A number with few digits: `0.05`, `12`, `4.1k`, `2M`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // One digit of what is smaller than a hundredth.
    let digits = if scaled > 0.0 { (-scaled.log10()).ceil().max(2.0) as usize } else { 2 };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x_is_log: bool, points: Vec<(f64, f64)>) -> Option<String> {
        let series = |mark| Series { name: format!("{mark:?} <1>"), mark, points: points.clone() };
        let series = vec![series(Mark::Line), series(Mark::Dots)];
        let (x, y) = (Axis::new("x", Unit::Bytes), Axis::new("y", Unit::Nanoseconds));
        Chart { title: "a & b".into(), x, x_is_log, y, series }.to_svg()
    }

    #[test]
    fn points_are_drawn_and_names_escaped() {
        for x_is_log in [false, true] {
            let svg =
                chart(x_is_log, vec![(1.0, 10.0), (100.0, 1e6), (0.0, 1.0), (5.0, 0.0), (5.0, f64::NAN)]).unwrap();
            assert!(svg.contains("a &amp; b") && svg.contains("&lt;1&gt;") && svg.contains("<circle"), "{svg}");
        }
    }

    #[test]
    fn one_point_is_enough_and_none_is_not() {
        assert!(chart(true, vec![(4.0, 4.0)]).is_some());
        assert_eq!(chart(false, Vec::new()), None);
        assert_eq!(chart(false, vec![(1.0, 0.0)]), None);
    }

    #[test]
    fn a_range_within_a_decade_has_its_marks() {
        let span = decades(&(20.0..70.0));
        assert_eq!((span.clone(), marks(&span, 10.0)), (10.0..100.0, vec![10.0, 100.0]));
        assert_eq!(decades(&(100.0..1000.0)), 10.0..10_000.0, "not on the edge");
        assert_eq!(marks(&(512.0..4096.0 * 1.05), 2.0), [512.0, 1024.0, 2048.0, 4096.0]);
        assert!(chart(true, vec![(1024.0, 2e6), (2048.0, 3e6)]).unwrap().contains("10 ms"));
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([0.05, 12.0, 4096.0, 2e6, 100.0].map(short), ["0.05", "12", "4.1k", "2M", "100"]);
        assert_eq!([0.001, 0.0].map(short), ["0.001", "0"]);
    }
}
