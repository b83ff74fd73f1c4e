//! Where the values of an axis lie in pixels, and which of them are marked.

use super::{Axis, Scale, Unit};
use crate::units;

/// An axis over the values of a plot and a row of pixels.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    axis: &'a Axis,
    /// First and last value, as [`transformed`].
    from: f64,
    to: f64,
    /// Pixels of the two.
    begin: f64,
    end: f64,
    /// The values that are marked.
    pub marks: Vec<f64>,
}

impl<'a> Placed<'a> {
    /// A horizontal axis: the values and little more. `values` holds at least one that the axis has.
    pub fn horizontal(axis: &'a Axis, values: &[f64], begin: f64, end: f64) -> Self {
        let (low, high) = span(values);
        let (low, high) = match &axis.scale {
            // A name stands in the middle of its share of the axis.
            Scale::Names(names) => (-0.5, names.len() as f64 - 0.5),
            Scale::Log if low == high => (low / 2.0, high * 2.0),
            Scale::Log => (low, high),
            Scale::Linear if low == high => (low - low.abs().max(1.0), high + high.abs().max(1.0)),
            // Zero is shown where it is near.
            Scale::Linear if low > 0.0 && low < 0.2 * high => (0.0, high),
            Scale::Linear => (low, high),
        };
        let mut placed = Self::new(axis, (low, high), begin, end);
        placed.marks = match &axis.scale {
            Scale::Names(names) => (0..names.len()).map(|place| place as f64).collect(),
            Scale::Log => log_marks(low, high, values),
            Scale::Linear => linear_marks(low, high, ((end - begin) / 80.0).max(2.0), axis.unit),
        };
        placed.thin();
        placed
    }

    /// A vertical axis: from zero, or from one round number to another. `values` holds at least one that the axis has.
    pub fn vertical(axis: &'a Axis, values: &[f64], bottom: f64, top: f64) -> Self {
        let (low, high) = span(values);
        let count = ((bottom - top) / 48.0).max(2.0);
        match &axis.scale {
            Scale::Names(names) => {
                let mut placed = Self::new(axis, (-0.5, names.len() as f64 - 0.5), bottom, top);
                placed.marks = (0..names.len()).map(|place| place as f64).collect();
                placed
            }
            Scale::Log => {
                let (low, high) = (round_down(low * 0.95), round_down(high * 1.05 * 2.4));
                let mut placed = Self::new(axis, (low, high), bottom, top);
                placed.marks = log_marks(low, high, &[]);
                while placed.marks.len() as f64 > 1.6 * count {
                    placed.marks = placed.marks.into_iter().step_by(2).collect();
                }
                placed
            }
            Scale::Linear => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                let high = if low == high { 1.0 } else { high };
                let step = step((high - low) * 1.04 / count, axis.unit);
                let (low, high) = ((low / step).floor() * step, (high * 1.02 / step).ceil() * step);
                let mut placed = Self::new(axis, (low, high), bottom, top);
                placed.marks = linear_marks(low, high, count, axis.unit);
                placed
            }
        }
    }

    fn new(axis: &'a Axis, (low, high): (f64, f64), begin: f64, end: f64) -> Self {
        Self { axis, from: transformed(axis, low), to: transformed(axis, high), begin, end, marks: Vec::new() }
    }

    /// The pixel of a value.
    pub fn place(&self, value: f64) -> f64 {
        self.begin + (transformed(self.axis, value) - self.from) / (self.to - self.from) * (self.end - self.begin)
    }

    /// The pixel from which bars grow: zero, or the low end where zero is not shown.
    pub fn base(&self) -> f64 {
        match self.axis.scale {
            Scale::Linear if self.from <= 0.0 && self.to >= 0.0 => self.place(0.0),
            _ => self.begin,
        }
    }

    /// Leaves marks out until their labels do not touch. Names are all needed.
    fn thin(&mut self) {
        if matches!(self.axis.scale, Scale::Names(_)) {
            return;
        }
        let overlap = |marks: &[f64]| {
            marks.windows(2).any(|pair| {
                let room = self.place(pair[1]) - self.place(pair[0]);
                let label = |value| text_width(&self.axis.write(value));
                room < (label(pair[0]) + label(pair[1])) / 2.0 + 10.0
            })
        };
        let mut marks = self.marks.clone();
        while marks.len() > 2 && overlap(&marks) {
            marks = marks.into_iter().step_by(2).collect();
        }
        self.marks = marks;
    }
}

impl Unit {
    /// A number as it stands beside an axis.
    pub(super) fn write(self, value: f64) -> String {
        match self {
            Self::Number => short(value),
            Self::Bytes => units::bytes(value.round() as u64),
            Self::Nanoseconds => units::duration_ns(value.round() as u64),
        }
    }
}

/// About how wide a text is in pixels: the program does not know the reader's font.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.7
}

fn transformed(axis: &Axis, value: f64) -> f64 {
    match axis.scale {
        Scale::Log => value.log10(),
        Scale::Linear | Scale::Names(_) => value,
    }
}

fn span(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

/// The greatest of 1, 2 and 5 times a power of ten that is no greater.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|digit| digit * power).into_iter().find(|&round| round <= value * (1.0 + 1e-9)).unwrap_or(power)
}

/// A round distance of about this much.
fn step(about: f64, unit: Unit) -> f64 {
    if unit == Unit::Bytes { about.log2().ceil().exp2() } else { round_down(about * 2.4) }
}

fn linear_marks(low: f64, high: f64, count: f64, unit: Unit) -> Vec<f64> {
    let step = step((high - low) / count, unit);
    let (first, last) = ((low / step - 1e-6).ceil(), (high / step + 1e-6).floor());
    // No more than asked for by far, whatever rounding does.
    (0..=((last - first).clamp(0.0, 100.0) as u32)).map(|number| (first + f64::from(number)) * step).collect()
}

/// Powers of two if all values are, and else of ten, with what is between if those are few.
fn log_marks(low: f64, high: f64, values: &[f64]) -> Vec<f64> {
    let powers = |base: f64| {
        let (first, last) = ((low.log(base) - 1e-6).ceil() as i32, (high.log(base) + 1e-6).floor() as i32);
        (first..=last).map(move |power| base.powi(power))
    };
    if !values.is_empty() && values.iter().all(|value| value.log2().fract() == 0.0) {
        return powers(2.0).collect();
    }
    if powers(10.0).count() >= 3 {
        return powers(10.0).collect();
    }
    let begin = low.log10().floor() as i32;
    let rounds = (begin..=begin + 3).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    rounds.filter(|&round| round >= low * (1.0 - 1e-9) && round <= high * (1.0 + 1e-9)).collect()
}

/// A number with few digits: `0.05`, `12`, `4.1k`, `2M`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // One digit of what is smaller than a hundredth, and two places at most of the rest.
    let places = match scaled.abs() {
        zero if zero < 1e-12 => 0,
        small if small < 0.01 => (-small.log10()).ceil() as usize,
        _ => 2,
    };
    let text = format!("{scaled:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(axis: &Axis, values: &[f64]) -> Vec<String> {
        let placed = Placed::horizontal(axis, values, 0.0, 700.0);
        placed.marks.iter().map(|&mark| axis.write(mark)).collect()
    }

    #[test]
    fn marks_are_round_and_few() {
        let clients = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        assert_eq!(marks(&Axis::log("", Unit::Number), &clients), ["1", "2", "4", "8", "16", "32", "64", "128"]);
        assert_eq!(marks(&Axis::log("", Unit::Bytes), &[512.0, 2048.0]), ["512 B", "1 KiB", "2 KiB"]);
        assert_eq!(marks(&Axis::log("", Unit::Number), &[3.0, 2000.0]), ["10", "100", "1k"]);
        assert_eq!(marks(&Axis::log("", Unit::Number), &[3.0, 70.0]), ["5", "10", "20", "50"]);
        assert_eq!(marks(&Axis::linear("", Unit::Number), &[0.0, 5000.0]).last().unwrap(), "5k");
        assert_eq!(marks(&Axis::names("", ["a", "b"]), &[0.0]), ["a", "b"]);
    }

    #[test]
    fn vertical_axes_end_at_round_numbers_around_the_values() {
        let axis = Axis::linear("", Unit::Number);
        let placed = Placed::vertical(&axis, &[30.0, 97.0], 300.0, 0.0);
        assert_eq!((placed.place(0.0), placed.base()), (300.0, 300.0), "from zero");
        assert!(placed.place(97.0) > 0.0 && placed.place(100.0) <= 1e-9, "to a round number");
        let axis = Axis::log("", Unit::Nanoseconds);
        let placed = Placed::vertical(&axis, &[3e5, 7e8], 300.0, 0.0);
        assert!(placed.place(3e5) < 300.0 && placed.place(7e8) > 0.0);
        assert_eq!(placed.marks.first().map(|&mark| axis.write(mark)).unwrap(), "1 ms");
    }

    #[test]
    fn one_value_has_an_axis_too() {
        for axis in [Axis::linear("", Unit::Bytes), Axis::log("", Unit::Number), Axis::names("", ["a"])] {
            for value in [0.0, 1.0, 1e-90, 1e99].into_iter().filter(|&value| axis.has(value)) {
                for placed in
                    [Placed::horizontal(&axis, &[value], 0.0, 300.0), Placed::vertical(&axis, &[value], 300.0, 0.0)]
                {
                    assert!((0.0..=300.0).contains(&placed.place(value)), "{axis:?} {value}");
                    assert!(placed.marks.len() < 20, "{axis:?} {value}: {:?}", placed.marks);
                }
            }
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([0.05, 12.0, 4096.0, 2e6, 100.0].map(short), ["0.05", "12", "4.1k", "2M", "100"]);
        assert_eq!([0.001, 0.0, -0.3, 0.5].map(short), ["0.001", "0", "-0.3", "0.5"]);
    }
}
