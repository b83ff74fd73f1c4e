//! Drawing: what stands where, as SVG.

use std::collections::HashSet;

use super::{
    Mark, Plot, Scale, Series, Size,
    axis::{Placed, text_width},
    legend::{self, Legend, ROW, SAMPLE, Sample},
    svg::Svg,
};
use crate::html::escape;

/// Points of a line that are marked one by one; a line of more is its own mark.
const MARKED: usize = 40;

/// The widest bar.
const BAR_MOST: f64 = 44.0;

/// Beside the names at the ends of lines: the leads to them, and what a short name is wider than reckoned.
const LABEL_ROOM: f64 = 30.0;

/// Pixels of a line of text.
const LINE: f64 = 15.0;

/// The plot in this size. `None` if none of its points can be drawn.
pub(super) fn svg(plot: &Plot, size: Size, is_alone: bool) -> Option<String> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = plot.points().map(|(_, point)| point).unzip();
    if xs.is_empty() {
        return None;
    }
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let title = if is_alone { 26.0 } else { 0.0 };
    let legend = Legend::of(plot, width, height - 100.0);
    let rows = legend.rows(width);
    let top = title + rows.len() as f64 * ROW + 24.0;
    // Labels at the left tell how wide the plot is, and names below how high: neither depends on the other.
    let probe = Placed::vertical(&plot.y, &ys, height - 50.0, top);
    let label = |&mark: &f64| text_width(&plot.y.write(mark));
    let left = probe.marks.iter().map(label).fold(0.0, f64::max).min(width / 3.0) + 10.0;
    let right = width - if legend.labels_ends { widest_name(plot) + LABEL_ROOM } else { 16.0 };
    let x = Placed::horizontal(&plot.x, &xs, left, right);
    let below = Below::of(plot, (right - left) / x.marks.len().max(1) as f64);
    let bottom = height - below.height - 20.0;
    let y = Placed::vertical(&plot.y, &ys, bottom, top);
    let mut drawing = Drawing {
        plot,
        x,
        y,
        left,
        right,
        top,
        bottom,
        width,
        svg: Svg::new(size.width, height, &plot.title, is_alone),
    };
    drawing.legend(&rows, title);
    drawing.grid(&below);
    drawing.bars();
    plot.series.iter().filter(|series| series.mark != Mark::Bars).for_each(|series| drawing.series(series));
    if legend.labels_ends {
        drawing.labels();
    }
    Some(drawing.svg.end())
}

/// The labels below the plot.
struct Below {
    /// The lines of each; one, if it is slanted.
    lines: Vec<Vec<String>>,
    is_slanted: bool,
    height: f64,
}

impl Below {
    /// Numbers stand in a row; names are broken into lines that are no wider than their share of the axis, or slanted.
    fn of(plot: &Plot, share: f64) -> Self {
        let Scale::Names(names) = &plot.x.scale else {
            return Self { lines: Vec::new(), is_slanted: false, height: LINE + 6.0 };
        };
        let lines: Vec<Vec<String>> = names.iter().map(|name| broken(name, share - 6.0)).collect();
        let most = lines.iter().map(Vec::len).max().unwrap_or(1);
        let widest = lines.iter().flatten().map(|line| text_width(line)).fold(0.0, f64::max);
        if widest <= share && most <= 4 {
            return Self { lines, is_slanted: false, height: most as f64 * LINE + 6.0 };
        }
        let lines: Vec<_> = names.iter().map(|name| vec![legend::cut(name, 150.0)]).collect();
        let widest = lines.iter().flatten().map(|line| text_width(line)).fold(0.0, f64::max);
        Self { lines, is_slanted: true, height: widest * 0.71 + LINE }
    }
}

/// A text in lines of this width, broken between words.
fn broken(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + text_width(" ") <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn widest_name(plot: &Plot) -> f64 {
    legend::names(plot).iter().map(|&(name, _)| text_width(name)).fold(0.0, f64::max)
}

struct Drawing<'a> {
    plot: &'a Plot,
    x: Placed<'a>,
    y: Placed<'a>,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    width: f64,
    svg: Svg,
}

impl Drawing<'_> {
    fn legend(&mut self, rows: &[Vec<(f64, legend::Entry)>], top: f64) {
        for (number, row) in rows.iter().enumerate() {
            let y = top + number as f64 * ROW + 13.0;
            for (x, entry) in row {
                self.svg.write(format_args!("<g class=\"{}\">", entry.class));
                self.sample(entry.sample, *x, y - 4.0);
                self.svg.write(format_args!("</g>"));
                self.svg.text("", x + SAMPLE, y, "start", &entry.text);
            }
        }
    }

    fn sample(&mut self, Sample { mark, shape, is_published }: Sample, x: f64, y: f64) {
        match mark {
            Mark::Line => {
                let dashed = if is_published { " dashed" } else { "" };
                self.svg.write(format_args!("<path class=\"line{dashed}\" d=\"M{x:.1} {y:.1}h18\"/>"));
                self.point(shape, is_published, x + 9.0, y, "");
            }
            Mark::Dots => self.point(0, is_published, x + 9.0, y, ""),
            Mark::Bars => {
                let class = if is_published { "hollow" } else { "bar" };
                let y = y - 5.0;
                self.svg.write(format_args!(
                    "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"11\" height=\"11\"/>",
                    x + 4.0
                ));
            }
        }
    }

    /// One of four shapes, filled or hollow, that says what it is when it is pointed at.
    fn point(&mut self, shape: usize, is_hollow: bool, x: f64, y: f64, says: &str) {
        let class = if is_hollow { "hollow" } else { "mark" };
        let outline = match shape % 4 {
            0 => format!("M{:.1} {y:.1}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", x - 3.0),
            1 => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
            2 => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.0),
            _ => format!("M{x:.1} {:.1}l4 4l-4 4l-4 -4z", y - 4.0),
        };
        if says.is_empty() {
            self.svg.write(format_args!("<path class=\"{class}\" d=\"{outline}\"/>"));
        } else {
            let says = escape(says);
            self.svg.write(format_args!("<path class=\"{class}\" d=\"{outline}\"><title>{says}</title></path>"));
        }
    }

    fn grid(&mut self, below: &Below) {
        let (left, right, top, bottom) = (self.left, self.right, self.top, self.bottom);
        let plot = self.plot;
        for value in self.y.marks.clone() {
            let y = self.y.place(value);
            self.svg.write(format_args!("<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"));
            self.svg.text("soft", left - 7.0, y + 4.0, "end", &plot.y.write(value));
        }
        for (number, value) in self.x.marks.clone().into_iter().enumerate() {
            let x = self.x.place(value);
            match below.lines.get(number) {
                None => {
                    self.svg.write(format_args!("<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>"));
                    let text = plot.x.write(value);
                    self.svg.text("soft", self.within(x, &text), bottom + LINE + 1.0, "middle", &text);
                }
                Some(lines) if below.is_slanted => {
                    // A name that slants down to the left must not reach beyond the side.
                    let room = (x - 8.0) * std::f64::consts::SQRT_2;
                    let (y, text) = (bottom + 14.0, escape(&legend::cut(&lines.concat(), room)));
                    self.svg.write(format_args!(
                        "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" \
                         transform=\"rotate(-45 {x:.1} {y:.1})\">{text}</text>"
                    ));
                }
                Some(lines) => {
                    for (line, text) in lines.iter().enumerate() {
                        let y = bottom + LINE * (line + 1) as f64 + 1.0;
                        self.svg.text("soft", self.within(x, text), y, "middle", text);
                    }
                }
            }
        }
        let base = self.y.base();
        self.svg.write(format_args!("<path class=\"base\" d=\"M{left:.1} {base:.1}H{right:.1}\"/>"));
        let all = self.width;
        self.svg.text("", 0.0, top - 10.0, "start", &legend::cut(&plot.y.title, all));
        let title = legend::cut(&plot.x.title, all);
        self.svg.text(
            "",
            self.within(f64::midpoint(left, right), &title),
            bottom + below.height + 14.0,
            "middle",
            &title,
        );
    }

    /// The middle of a text that is to be at `x`, unless it would reach beyond the sides.
    fn within(&self, x: f64, text: &str) -> f64 {
        let (half, all) = (text_width(text) / 2.0, self.width);
        x.clamp(half.min(all / 2.0), (all - half).max(all / 2.0))
    }

    fn says(&self, series: &Series, (x, y): (f64, f64)) -> String {
        let published = if series.is_published { " (published)" } else { "" };
        format!("{}{published}: {}, {}", series.name, self.plot.x.write(x), self.plot.y.write(y))
    }

    fn bars(&mut self) {
        let plot = self.plot;
        let bars: Vec<&Series> = plot.series.iter().filter(|series| series.mark == Mark::Bars).collect();
        let places: HashSet<u64> =
            bars.iter().flat_map(|series| &series.points).map(|point| point.0.to_bits()).collect();
        let groups = match &plot.x.scale {
            Scale::Names(names) => names.len(),
            Scale::Linear | Scale::Log => places.len() + 1,
        };
        let wide = ((self.right - self.left) / groups.max(1) as f64 * 0.8 / bars.len().max(1) as f64).min(BAR_MOST);
        let base = self.y.base();
        for (number, series) in bars.iter().enumerate() {
            let offset = (number as f64 - bars.len() as f64 / 2.0) * wide;
            let colour = legend::class(legend::colour(plot, &series.name));
            self.svg.write(format_args!("<g class=\"{colour}\">"));
            for &(x, value) in series.points.iter().filter(|point| plot.x.has(point.0) && plot.y.has(point.1)) {
                let (x, y) = (self.x.place(x) + offset, self.y.place(value));
                let (class, inset) = if series.is_published { ("hollow", 1.5) } else { ("bar", 1.0) };
                let (top, high) = (y.min(base), (y - base).abs());
                let says = escape(&self.says(series, (x, value)));
                self.svg.write(format_args!(
                    "<rect class=\"{class}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{high:.1}\">\
                     <title>{says}</title></rect>",
                    x + inset,
                    (wide - 2.0 * inset).max(1.0),
                ));
                let label = plot.y.write(value);
                if text_width(&label) <= wide + 6.0 {
                    self.svg.text("", x + wide / 2.0, top - 4.0, "middle", &label);
                }
            }
            self.svg.write(format_args!("</g>"));
        }
    }

    fn series(&mut self, series: &Series) {
        let plot = self.plot;
        let shape = legend::colour(plot, &series.name);
        let points: Vec<(f64, f64)> =
            series.points.iter().copied().filter(|&(x, y)| plot.x.has(x) && plot.y.has(y)).collect();
        let places: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (self.x.place(x), self.y.place(y))).collect();
        self.svg.write(format_args!("<g class=\"{}\">", legend::class(shape)));
        if series.mark == Mark::Line {
            let dashed = if series.is_published { " dashed" } else { "" };
            self.svg.write(format_args!("<path class=\"line{dashed}\" d=\""));
            for (number, (x, y)) in places.iter().enumerate() {
                let step = if number == 0 { 'M' } else { 'L' };
                self.svg.write(format_args!("{step}{x:.1} {y:.1}"));
            }
            self.svg.write(format_args!("\"/>"));
        }
        if points.len() <= MARKED {
            for (&point, &(x, y)) in points.iter().zip(&places) {
                let says = self.says(series, point);
                self.point(shape, series.is_published, x, y, &says);
            }
        } else if series.mark == Mark::Dots {
            self.svg.write(format_args!("<path class=\"dots\" d=\""));
            // Dots on the same pixel are one.
            let mut drawn = HashSet::new();
            for (x, y) in places {
                let (x, y) = (x.round() as i64, y.round() as i64);
                if drawn.insert((x, y)) {
                    self.svg.write(format_args!("M{x} {y}h0"));
                }
            }
            self.svg.write(format_args!("\"/>"));
        }
        self.svg.write(format_args!("</g>"));
    }

    /// Names at the ends of lines, moved apart, and joined with their ends where they had to move.
    fn labels(&mut self) {
        let plot = self.plot;
        let mut ends: Vec<(&str, f64, f64)> = Vec::new();
        for (name, _) in legend::names(plot) {
            // What was measured has the say over what was published of it.
            let mut series: Vec<&Series> = plot.series.iter().filter(|series| series.name == name).collect();
            series.sort_by_key(|series| series.is_published);
            let points = series.iter().flat_map(|series| series.points.iter().rev());
            if let Some(&(x, y)) = points.clone().find(|&&(x, y)| plot.x.has(x) && plot.y.has(y)) {
                ends.push((name, self.x.place(x), self.y.place(y)));
            }
        }
        ends.sort_by(|one, other| one.2.total_cmp(&other.2));
        let mut heights: Vec<f64> = ends.iter().map(|end| end.2).collect();
        legend::spread(&mut heights, self.top, self.bottom);
        for ((name, x, y), height) in ends.into_iter().zip(heights) {
            let from = self.right + 18.0;
            self.svg.write(format_args!("<g class=\"{}\">", legend::class(legend::colour(plot, name))));
            if (y - height).abs() > 3.0 || self.right - x > 3.0 {
                let (x, bend) = (x + 5.0, self.right + 8.0);
                self.svg.write(format_args!(
                    "<path class=\"lead\" d=\"M{x:.1} {y:.1}L{bend:.1} {y:.1}L{from:.1} {height:.1}\"/>"
                ));
            }
            self.svg.text("", from + 3.0, height + 4.0, "start", name);
            self.svg.write(format_args!("</g>"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Unit};
    use super::*;

    fn plot(x: Axis, mark: Mark, points: Vec<(f64, f64)>) -> Plot {
        let series =
            |name: &str, is_published| Series { name: name.to_owned(), mark, is_published, points: points.clone() };
        let series = vec![series("here <1>", false), series("here <1>", true), series("\"there\"", false)];
        Plot::new("a & b", x, Axis::log("y", Unit::Nanoseconds), series)
    }

    fn axes() -> [Axis; 3] {
        [
            Axis::linear("x", Unit::Bytes),
            Axis::log("x", Unit::Number),
            Axis::names("x", ["usb-a", "disk, write cache on"]),
        ]
    }

    #[test]
    fn points_are_drawn_and_names_escaped() {
        let hostile = [(0.0, 1.0), (5.0, 0.0), (5.0, f64::NAN), (f64::INFINITY, 2.0), (1e300, 1.0), (-1.0, 1.0)];
        for x in axes() {
            for mark in [Mark::Line, Mark::Dots, Mark::Bars] {
                let points = [(1.0, 10.0), (100.0, 1e6)].into_iter().chain(hostile).collect();
                let plot = plot(x.clone(), mark, points);
                for size in [Size::WIDE, Size::NARROW] {
                    let svg = plot.to_inline_svg(size).unwrap();
                    assert!(svg.contains("a &amp; b") && svg.contains("&lt;1&gt;") && !svg.contains("<1>"), "{svg}");
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                }
            }
        }
    }

    #[test]
    fn one_point_is_enough_and_none_is_not() {
        for x in axes() {
            assert!(plot(x.clone(), Mark::Line, vec![(1.0, 4.0)]).to_svg().is_some());
            assert_eq!(plot(x.clone(), Mark::Line, vec![(1.0, 0.0)]).to_svg(), None);
            assert_eq!(plot(x, Mark::Bars, Vec::new()).to_svg(), None);
        }
    }

    #[test]
    fn dots_on_one_pixel_are_drawn_once() {
        let many = (0..100_000).map(|number| (f64::from(number), 1e6)).collect();
        let svg = plot(Axis::linear("x", Unit::Number), Mark::Dots, many).to_svg().unwrap();
        assert!(svg.len() < 50_000, "{}", svg.len());
    }

    #[test]
    fn names_are_broken_between_words_or_slanted() {
        assert_eq!(broken("two drives and an archive", 80.0), ["two drives", "and an", "archive"]);
        let names = Axis::names("x", ["an-unbreakable-name-that-is-long", "b", "c", "d", "e", "f", "g", "h"]);
        let svg = plot(names, Mark::Bars, vec![(0.0, 5.0), (7.0, 9.0)]).to_svg().unwrap();
        assert!(svg.contains("rotate(-45"), "{svg}");
    }
}
