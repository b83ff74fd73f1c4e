//! What parameters of a profile may be.

/// The key that is wrong, and what it should be.
pub(crate) type Problem = (&'static str, String);

/// Finds the first value that is not within its range: key, value, least and most. One that is no number is not.
pub(crate) fn check_ranges(ranges: &[(&'static str, f64, f64, f64)]) -> Result<(), Problem> {
    match ranges.iter().find(|(_, value, from, to)| !(from..=to).contains(&value)) {
        Some((key, value, from, to)) => Err((key, format!("{value} is not within {from} to {to}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_out_of_its_range_is_named() {
        assert_eq!(check_ranges(&[("a", 1.0, 1.0, 2.0), ("b", 2.0, 1.0, 2.0)]), Ok(()));
        let not_a_number = check_ranges(&[("a", 1.0, 1.0, 2.0), ("b", f64::NAN, 1.0, 2.0), ("c", 9.0, 0.0, 1.0)]);
        assert_eq!(not_a_number.unwrap_err().0, "b");
    }
}
