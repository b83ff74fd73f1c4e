//! Results as SVG: lines, dots and bars over two axes, each linear, logarithmic or a list of names; and ratios in rows.
//!
//! Nothing in the SVG comes from outside, and its colours follow the reader's light or dark scheme.

mod axis;
mod draw;
mod legend;
mod ratios;
mod style;
mod svg;

use serde::{Deserialize, Serialize};

pub use ratios::{Ratio, Ratios};
pub use style::STYLE;

/// A plot of some series.
///
/// ```
/// use tantalum_report::plot::{Axis, Plot, Series, Unit};
///
/// let x = Axis::log("request", Unit::Bytes);
/// let y = Axis::linear("bandwidth in MB/s", Unit::Number);
/// let here = Series::line("usb-a", vec![(512.0, 8.0), (4096.0, 60.0)]);
/// let paper = Series::line("usb-a", vec![(512.0, 9.0), (4096.0, 50.0)]).published();
/// let plot = Plot::new("Sequential writes", x, y, vec![here, paper]);
/// assert!(plot.to_svg().expect("there are points to draw").starts_with("<svg"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Above the plot.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn. Points that an axis does not have (zero on a logarithmic one, beyond the last name, not finite)
    /// are left out.
    pub series: Vec<Series>,
}

/// One of the two directions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Beside the axis: what it shows, and in which unit if the numbers do not say it.
    pub title: String,
    /// How its numbers are written.
    pub unit: Unit,
    /// Where its numbers lie.
    pub scale: Scale,
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// As they are, large ones short: `4.1k`.
    Number,
    /// As bytes: `4 KiB`.
    Bytes,
    /// As a time: `1.50 ms`.
    Nanoseconds,
}

/// Where numbers lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal steps add; a vertical axis begins at zero.
    Linear,
    /// Equal steps multiply. Marks are powers of two where all points are, else of ten.
    Log,
    /// No numbers but these names, side by side: a point's value is the name's place in the list, from 0.
    Names(Vec<String>),
}

/// A named list of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend. Series of the same name have the same colour: what was measured, and what was published of it.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// Whether these are a paper's numbers, which are drawn dashed or hollow, and not measured ones.
    pub is_published: bool,
    /// Horizontal and vertical value of each.
    #[serde(deserialize_with = "some_points")]
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As a line from point to point.
    Line,
    /// As dots.
    Dots,
    /// As bars from zero; those of several series stand side by side.
    Bars,
}

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// From left to right.
    pub width: u32,
    /// From top to bottom.
    pub height: u32,
}

impl Size {
    /// For a screen.
    pub const WIDE: Self = Self { width: 800, height: 420 };
    /// For a phone.
    pub const NARROW: Self = Self { width: 358, height: 320 };
}

impl Plot {
    /// A plot of these series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { title: title.into(), x, y, series }
    }

    /// The plot as the text of an SVG file, title and style sheet in it; `None` if there is nothing to draw.
    pub fn to_svg(&self) -> Option<String> {
        draw::svg(self, Size::WIDE, true)
    }

    /// The plot as an element of a page that has [`STYLE`] and shows the title itself; `None` if there is nothing to draw.
    pub fn to_inline_svg(&self, size: Size) -> Option<String> {
        draw::svg(self, size, false)
    }

    /// The points that can be drawn, with their series' place in the list.
    fn points(&self) -> impl Iterator<Item = (usize, (f64, f64))> {
        let all = self.series.iter().enumerate();
        let all = all.flat_map(|(number, series)| series.points.iter().map(move |&point| (number, point)));
        all.filter(|&(_, (x, y))| self.x.has(x) && self.y.has(y))
    }
}

impl Axis {
    /// An axis on which equal steps add.
    pub fn linear(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, scale: Scale::Linear }
    }

    /// An axis on which equal steps multiply.
    pub fn log(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, scale: Scale::Log }
    }

    /// An axis of names: devices, configurations.
    pub fn names<T: Into<String>>(title: impl Into<String>, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { title: title.into(), unit: Unit::Number, scale: Scale::Names(names) }
    }

    /// A value as it stands beside the axis.
    pub fn write(&self, value: f64) -> String {
        match &self.scale {
            Scale::Names(names) => names.get(value as usize).cloned().unwrap_or_default(),
            Scale::Linear | Scale::Log => self.unit.write(value),
        }
    }

    /// Whether the axis has a place for this value.
    fn has(&self, value: f64) -> bool {
        // Beyond this arithmetic on pixels and marks would overflow; nothing that is measured lies there.
        let is_sane = |value: f64| (1e-100..1e100).contains(&value);
        match &self.scale {
            Scale::Linear => value == 0.0 || is_sane(value.abs()),
            Scale::Log => is_sane(value),
            Scale::Names(names) => value >= 0.0 && value.fract() == 0.0 && value < names.len() as f64,
        }
    }
}

impl Series {
    /// A line of what was measured.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), mark: Mark::Line, is_published: false, points }
    }

    /// Dots of what was measured.
    pub fn dots(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Dots, ..Self::line(name, points) }
    }

    /// Bars of what was measured, over the names of the horizontal axis.
    pub fn bars(name: impl Into<String>, heights: impl IntoIterator<Item = f64>) -> Self {
        let points = (0u32..).map(f64::from).zip(heights).collect();
        Self { mark: Mark::Bars, ..Self::line(name, points) }
    }

    /// The same, as a paper's numbers.
    pub fn published(self) -> Self {
        Self { is_published: true, ..self }
    }
}

/// JSON has no number that is not finite: what was written for one is left out.
fn some_points<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<(f64, f64)>, D::Error> {
    let points = Vec::<(Option<f64>, Option<f64>)>::deserialize(deserializer)?;
    Ok(points.into_iter().filter_map(|(x, y)| Some((x?, y?))).collect())
}
