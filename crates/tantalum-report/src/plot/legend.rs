//! Which series is which: labels at the ends of lines where there is room for them, or a legend above the plot.

use super::{Mark, Plot, axis::text_width, style::COLOURS};

/// An entry of the legend.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// What it says.
    pub text: String,
    /// The class of its colour; empty for the colour of the text.
    pub class: String,
    /// What stands before it.
    pub sample: Sample,
}

/// A piece of a series as it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub mark: Mark,
    /// Of its points.
    pub shape: usize,
    pub is_published: bool,
}

/// Where the names of a plot's series stand.
#[derive(Debug)]
pub(super) struct Legend {
    /// Entries above the plot.
    pub entries: Vec<Entry>,
    /// Whether the ends of lines bear the series' names.
    pub labels_ends: bool,
}

/// Pixels of a sample and the distance to its text and to the next entry.
pub(super) const SAMPLE: f64 = 24.0;
const GAP: f64 = 18.0;
/// Pixels from one row of entries to the next.
pub(super) const ROW: f64 = 19.0;
/// The widest label beside the plot.
const LABEL_MOST: f64 = 240.0;
/// Pixels between labels beside the plot.
const LABEL_STEP: f64 = 15.0;

impl Legend {
    pub fn of(plot: &Plot, width: f64, height: f64) -> Self {
        let names = names(plot);
        let published = plot.series.iter().filter(|series| series.is_published).count();
        let are_both = published > 0 && published < plot.series.len();
        let widest = names.iter().map(|&(name, _)| text_width(name)).fold(0.0, f64::max);
        let labels_ends = names.len() > 1
            && plot.series.iter().all(|series| series.mark == Mark::Line)
            && width >= 600.0
            && widest <= LABEL_MOST
            && names.len() as f64 * LABEL_STEP <= height;
        let mut entries = Vec::new();
        if names.len() > 1 && !labels_ends {
            entries.extend(names.iter().map(|&(name, mark)| {
                let place = colour(plot, name);
                // What only a paper has is drawn as such.
                let is_published = plot.series.iter().all(|series| series.name != name || series.is_published);
                let sample = Sample { mark, shape: place, is_published };
                Entry { text: name.to_owned(), class: class(place), sample }
            }));
        }
        if are_both {
            let mark = plot.series.iter().find(|series| series.is_published).map_or(Mark::Line, |series| series.mark);
            let class = if names.len() == 1 { class(0) } else { String::new() };
            for (text, is_published) in [("measured", false), ("published", true)] {
                let sample = Sample { mark, shape: 0, is_published };
                entries.push(Entry { text: text.to_owned(), class: class.clone(), sample });
            }
        }
        Self { entries, labels_ends }
    }

    /// Entries in rows of this width, each with its horizontal place; texts too long for a row are cut.
    pub fn rows(&self, width: f64) -> Vec<Vec<(f64, Entry)>> {
        let mut rows: Vec<Vec<(f64, Entry)>> = Vec::new();
        let mut end = f64::INFINITY;
        for entry in &self.entries {
            let entry = Entry { text: cut(&entry.text, width - SAMPLE), ..entry.clone() };
            let wide = SAMPLE + text_width(&entry.text);
            if end + wide > width {
                rows.push(Vec::new());
                end = 0.0;
            }
            if let Some(row) = rows.last_mut() {
                row.push((end, entry));
            }
            end += wide + GAP;
        }
        rows
    }
}

/// The class of the colour in this place.
pub(super) fn class(place: usize) -> String {
    format!("c{}", place % COLOURS)
}

/// The place of a name among the plot's names, by which it is coloured.
pub(super) fn colour(plot: &Plot, name: &str) -> usize {
    names(plot).iter().position(|&(other, _)| other == name).unwrap_or(0)
}

/// Each name once, with how its first series is drawn.
pub(super) fn names(plot: &Plot) -> Vec<(&str, Mark)> {
    let mut names: Vec<(&str, Mark)> = Vec::new();
    for series in &plot.series {
        if names.iter().all(|&(name, _)| name != series.name) {
            names.push((&series.name, series.mark));
        }
    }
    names
}

/// A text that is no wider, its end left out if need be.
pub(super) fn cut(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let most = (width / text_width("m")).floor().max(2.0) as usize;
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Moves heights apart, in the order given to the same order, so that none is nearer than a step to the next and, if there
/// is room, all lie between top and bottom. The heights are in order.
pub(super) fn spread(heights: &mut [f64], top: f64, bottom: f64) {
    for place in 0..heights.len() {
        let least = if place == 0 { top } else { heights[place - 1] + LABEL_STEP };
        heights[place] = heights[place].max(least);
    }
    for place in (0..heights.len()).rev() {
        let most = heights.get(place + 1).map_or(bottom, |below| below - LABEL_STEP);
        heights[place] = heights[place].min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Series, Unit};
    use super::*;

    fn plot(series: Vec<Series>) -> Plot {
        Plot::new("", Axis::linear("", Unit::Number), Axis::linear("", Unit::Number), series)
    }

    fn texts(legend: &Legend) -> Vec<&str> {
        legend.entries.iter().map(|entry| entry.text.as_str()).collect()
    }

    #[test]
    fn lines_are_named_at_their_ends_where_there_is_room() {
        let lines = plot(["a", "b"].map(|name| Series::line(name, vec![(0.0, 1.0)])).to_vec());
        let wide = Legend::of(&lines, 700.0, 300.0);
        assert!(wide.labels_ends && wide.entries.is_empty());
        let narrow = Legend::of(&lines, 358.0, 300.0);
        assert!(!narrow.labels_ends);
        assert_eq!(texts(&narrow), ["a", "b"]);
    }

    #[test]
    fn published_is_told_from_measured_where_both_are_drawn() {
        let bars = |name: &str| Series::bars(name, [1.0]);
        assert_eq!(texts(&Legend::of(&plot(vec![bars("a")]), 700.0, 300.0)), [""; 0], "the title says it");
        let one = Legend::of(&plot(vec![bars("a"), bars("a").published()]), 700.0, 300.0);
        assert_eq!(texts(&one), ["measured", "published"]);
        let two = Legend::of(&plot(vec![bars("a"), bars("b"), bars("a").published()]), 700.0, 300.0);
        assert_eq!(texts(&two), ["a", "b", "measured", "published"]);
    }

    #[test]
    fn long_legends_take_several_rows() {
        let names = (0..9).map(|number| Series::dots(format!("a rather long name {number}"), vec![(0.0, 1.0)]));
        let rows = Legend::of(&plot(names.collect()), 358.0, 300.0).rows(358.0);
        assert!(rows.len() > 3 && rows.iter().all(|row| row.len() < 3), "{rows:?}");
        assert_eq!(cut(&"m".repeat(100), 67.0), "mmmmmmmmm…");
    }

    #[test]
    fn labels_are_moved_apart() {
        let mut heights = [10.0, 11.0, 12.0, 100.0];
        spread(&mut heights, 0.0, 100.0);
        assert_eq!(heights, [10.0, 25.0, 40.0, 100.0]);
        let mut heights = [95.0, 96.0, 97.0];
        spread(&mut heights, 0.0, 100.0);
        assert_eq!(heights, [70.0, 85.0, 100.0]);
    }
}
