//! Numbers as people read them.

/// What a number counts, and so how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, written by [`count`].
    Things,
    /// Bytes, written by [`bytes`].
    Bytes,
}

impl Unit {
    /// Writes a number of this unit.
    ///
    /// ```
    /// use tantalum_report::Unit;
    ///
    /// assert_eq!(Unit::Things.format(4096), "4,096");
    /// assert_eq!(Unit::Bytes.format(4096), "4 KiB");
    /// ```
    pub fn format(self, number: u64) -> String {
        match self {
            Unit::Things => count(number),
            Unit::Bytes => bytes(number),
        }
    }
}

/// A number with its thousands apart: `12,345,678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A measured number with three significant digits, or all before the point: `0.123`, `12.3`, `1,235`.
pub fn number(number: f64) -> String {
    match number.abs() {
        // From here on every number is whole in 64 bits, and no reader wants its digits.
        huge if huge >= 1e15 => format!("{number:.2e}"),
        large if large >= 999.5 => format!("{}{}", if number < 0.0 { "-" } else { "" }, count(large.round() as u64)),
        large if large >= 99.95 => format!("{number:.0}"),
        middle if middle >= 9.995 => format!("{number:.1}"),
        small if small >= 0.9995 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// Bytes in binary units, with three significant digits where the number is not whole: `512 B`, `4 KiB`, `1.46 MiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    scaled(number, 1024, &UNITS)
}

/// A time given in nanoseconds: `850 ns`, `12.5 us`, `1.46 ms`, `59.9 s`, and from a minute on `2 min 5 s`, `3 h 12 min`.
pub fn duration_ns(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..60 => scaled(nanoseconds, 1000, &["ns", "us", "ms", "s"]),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// `number` in the largest of `units` that it reaches; each is `step` times the one before.
fn scaled(number: u64, step: u64, units: &[&str]) -> String {
    let mut scale = 1;
    let mut unit = 0;
    while unit + 1 < units.len() && number / scale >= step {
        scale *= step;
        unit += 1;
    }
    let value = number as f64 / scale as f64;
    let decimals = match value {
        _ if number.is_multiple_of(scale) => 0,
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")];
        for (number, text) in cases {
            assert_eq!(count(number), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn measured_numbers() {
        let cases = [
            (0.0, "0.000"),
            (0.1234, "0.123"),
            (0.9999, "1.00"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.99, "100"),
            (-1234.5, "-1,235"),
            (49009.4, "49,009"),
            (1e15, "1.00e15"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn byte_sizes() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (10_000, "9.77 KiB"),
            (10_239, "10.0 KiB"),
            (1_536_000, "1.46 MiB"),
            (150 << 20, "150 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (number, text) in cases {
            assert_eq!(bytes(number), text, "{number}");
        }
    }

    #[test]
    fn durations() {
        let cases = [
            (0, "0 ns"),
            (850, "850 ns"),
            (12_500, "12.5 us"),
            (1_460_000, "1.46 ms"),
            (2_000_000_000, "2 s"),
            (59_900_000_000, "59.9 s"),
            (125_000_000_000, "2 min 5 s"),
            (11_520_000_000_000, "3 h 12 min"),
            (u64::MAX, "5124095 h 34 min"),
        ];
        for (number, text) in cases {
            assert_eq!(duration_ns(number), text, "{number}");
        }
    }
}
