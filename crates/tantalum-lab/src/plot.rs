//! Results as SVG: lines or points over one or two logarithmic axes.

use std::ops::Range;

use plotters::{coord::Shift, prelude::*};

/// A plot of some series.
///
/// ```
/// use tantalum_lab::plot::{Chart, Mark, Series};
///
/// let line = Series { name: "sequential".into(), mark: Mark::Line, points: vec![(512.0, 8.0), (4096.0, 60.0)] };
/// let chart = Chart { title: "usb-a".into(), x: "request (bytes)".into(), y: "MB/s".into(), x_is_log: true, series: vec![line] };
/// assert!(chart.to_svg().expect("two points can be drawn").starts_with("<svg"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above the plot.
    pub title: String,
    /// What the horizontal axis shows, with its unit.
    pub x: String,
    /// What the vertical axis shows, with its unit. It is logarithmic.
    pub y: String,
    /// Whether the horizontal axis is logarithmic.
    pub x_is_log: bool,
    /// What is drawn. Points that a logarithm does not have are left out.
    pub series: Vec<Series>,
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
        let y = span(points().map(|(_, y)| y))?;
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            // Writing into a string does not fail.
            if self.x_is_log { self.draw(&area, x.log_scale(), y) } else { self.draw(&area, x, y) }.ok()?;
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
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(x, y.log_scale())?;
        let label = |value: &f64| short(*value);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&label)
            .y_label_formatter(&label)
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
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()
    }
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
    let text = format!("{scaled:.2}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x_is_log: bool, points: Vec<(f64, f64)>) -> Option<String> {
        let series = |mark| Series { name: format!("{mark:?} <1>"), mark, points: points.clone() };
        let series = vec![series(Mark::Line), series(Mark::Dots)];
        Chart { title: "a & b".into(), x: "x".into(), y: "y".into(), x_is_log, series }.to_svg()
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
    fn labels_are_short() {
        assert_eq!([0.05, 12.0, 4096.0, 2e6, 100.0].map(short), ["0.05", "12", "4.1k", "2M", "100"]);
    }
}
