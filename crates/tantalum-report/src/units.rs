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
