//! Many ratios at a glance: a row of dots for each subject.

use super::{Size, axis::text_width, legend, svg::Svg};

/// Ratios beyond this factor are arrows at the edge.
const EDGE: f64 = 10.0;
/// Pixels of a row.
const ROW: f64 = 20.0;
/// Pixels of the title, in a file of its own.
const TITLE: f64 = 26.0;
/// Pixels above the rows: the legend.
const LEGEND: f64 = 26.0;
/// Pixels below the rows: the scale.
const SCALE: f64 = 38.0;
/// Shares around 1 that are shaded.
const BANDS: [f64; 2] = [0.25, 0.1];

/// Ratios on a logarithmic scale from a tenth to ten, one row of dots below the other, with bands of 10 % and 25 % around 1.
///
/// ```
/// use tantalum_report::plot::{Ratio, Ratios};
///
/// let mut ratios = Ratios::new("FlashLogging", "measured / published");
/// ratios.row("Figure 3", vec![Ratio::new(1.02), Ratio::new(0.7).hollow()]);
/// assert!(ratios.to_svg().expect("there are ratios").starts_with("<svg"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Ratios {
    title: String,
    axis: String,
    rows: Vec<(String, Vec<Ratio>)>,
}

/// A dot: solid for a number that was predicted, hollow for one that was fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    value: f64,
    is_hollow: bool,
}

impl Ratio {
    /// A solid dot. What is no positive number is an arrow at the left edge.
    pub fn new(value: f64) -> Self {
        Self { value, is_hollow: false }
    }

    /// The same, hollow.
    #[must_use]
    pub fn hollow(self) -> Self {
        Self { is_hollow: true, ..self }
    }
}

impl Ratios {
    /// Without rows yet; the second text stands below the scale.
    pub fn new(title: impl Into<String>, axis: impl Into<String>) -> Self {
        Self { title: title.into(), axis: axis.into(), rows: Vec::new() }
    }

    /// Adds a row; one without ratios is left out.
    pub fn row(&mut self, label: impl Into<String>, ratios: Vec<Ratio>) {
        if !ratios.is_empty() {
            self.rows.push((label.into(), ratios));
        }
    }

    /// As the text of an SVG file, title and style sheet in it; `None` if there are no ratios.
    pub fn to_svg(&self) -> Option<String> {
        self.svg(Size::WIDE.width, true)
    }

    /// As an element of a page that has [`STYLE`](super::STYLE) and shows the title itself, so many pixels wide; `None` if there are no
    /// ratios.
    pub fn to_inline_svg(&self, width: u32) -> Option<String> {
        self.svg(width, false)
    }

    fn svg(&self, width: u32, is_alone: bool) -> Option<String> {
        if self.rows.is_empty() {
            return None;
        }
        let top = if is_alone { TITLE } else { 0.0 } + LEGEND;
        let bottom = top + self.rows.len() as f64 * ROW;
        let height = bottom + SCALE;
        let widest = self.rows.iter().map(|(label, _)| text_width(label)).fold(0.0, f64::max);
        let left = widest.min(f64::from(width) * 0.45) + 12.0;
        let svg = Svg::new(width, height, &self.title, is_alone);
        let mut drawing = Drawing { left, right: f64::from(width) - 12.0, top, bottom, svg };
        drawing.legend();
        drawing.scale(&self.axis);
        for (number, (label, ratios)) in self.rows.iter().enumerate() {
            let middle = top + (number as f64 + 0.5) * ROW;
            drawing.svg.text("", left - 12.0, middle + 4.0, "end", &legend::cut(label, left - 12.0));
            for ratio in ratios {
                drawing.dot(*ratio, middle);
            }
        }
        Some(drawing.svg.end())
    }
}

struct Drawing {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    svg: Svg,
}

impl Drawing {
    /// Where a ratio lies.
    fn place(&self, ratio: f64) -> f64 {
        let middle = f64::midpoint(self.left, self.right);
        middle + ratio.ln() / EDGE.ln() * (self.right - self.left - 12.0) / 2.0
    }

    fn legend(&mut self) {
        let y = self.top - LEGEND + 12.0;
        let mut x = self.left;
        for (name, is_hollow) in [("predicted", false), ("fitted", true)] {
            self.disc(x + 4.0, y - 4.0, is_hollow);
            self.svg.text("soft", x + 12.0, y, "start", name);
            x += 12.0 + text_width(name) + 16.0;
        }
        self.svg.text("soft", self.right, y, "end", "bands: 10 % and 25 %");
    }

    fn scale(&mut self, axis: &str) {
        let (top, bottom) = (self.top, self.bottom);
        for share in BANDS {
            let (from, to) = (self.place(1.0 - share), self.place(1.0 + share));
            self.svg.write(format_args!(
                "<rect fill=\"currentColor\" fill-opacity=\"0.08\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                to - from,
                bottom - top
            ));
        }
        for (mark, says) in [(0.1, "0.1"), (0.2, "0.2"), (0.5, "0.5"), (1.0, "1"), (2.0, "2"), (5.0, "5"), (10.0, "10")]
        {
            let (x, class) = (self.place(mark), if mark == 1.0 { "base" } else { "grid" });
            self.svg.write(format_args!("<path class=\"{class}\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>"));
            self.svg.text("soft", x, bottom + 15.0, "middle", says);
        }
        self.svg.text("soft", f64::midpoint(self.left, self.right), bottom + 31.0, "middle", axis);
    }

    fn dot(&mut self, Ratio { value, is_hollow }: Ratio, middle: f64) {
        let edge = |left: f64, tip: f64| format!("M{left:.1} {:.1}l{tip} 4l{} 4z", middle - 4.0, -tip);
        let arrow = if value > EDGE {
            edge(self.right - 5.0, 6.0)
        } else if value >= 1.0 / EDGE {
            return self.disc(self.place(value), middle, is_hollow);
        } else {
            edge(self.left + 5.0, -6.0)
        };
        let class = if is_hollow { "hollow" } else { "mark" };
        self.svg.write(format_args!("<path class=\"{class}\" d=\"{arrow}\"/>"));
    }

    fn disc(&mut self, x: f64, y: f64, is_hollow: bool) {
        let class = if is_hollow { "hollow" } else { "mark" };
        // Those that lie on each other are darker.
        self.svg.write(format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" opacity=\"0.7\"/>"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ratio_has_its_place_and_rows_without_any_have_none() {
        let mut ratios = Ratios::new("<t>", "measured / published");
        let values = [1.0, 0.0, -2.0, 30.0, f64::INFINITY, f64::NAN];
        ratios.row("<a>", values.map(Ratio::new).to_vec());
        ratios.row("none", Vec::new());
        ratios.row("b", vec![Ratio::new(0.5).hollow()]);
        let svg = ratios.to_svg().unwrap();
        // The legend has one of each.
        let drawn = |class: &str| svg.matches(&format!("class=\"{class}\"")).count() - 1;
        assert_eq!((drawn("mark"), drawn("hollow")), (values.len(), 1));
        assert!(svg.contains("&lt;a&gt;") && svg.contains("&lt;t&gt;") && !svg.contains(">none<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(Ratios::new("", "").to_inline_svg(300), None);
    }

    #[test]
    fn equal_factors_are_as_far_from_one() {
        let drawing =
            Drawing { left: 100.0, right: 500.0, top: 0.0, bottom: 10.0, svg: Svg::new(600, 50.0, "", false) };
        let [half, one, two] = [0.5, 1.0, 2.0].map(|ratio| drawing.place(ratio));
        assert!((one - half - (two - one)).abs() < 1e-9 && one == 300.0, "{half} {one} {two}");
    }
}
