//! Integers in 7-bit groups, least significant first; a set high bit means that more follow.

/// Appends `value`.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The bytes that `value` takes.
pub fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes an integer off the front of `bytes`; `None` when there is none, or one that 64 bits do not hold.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        if shift == 63 && group > 1 {
            return None;
        }
        value |= group << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_is_taken(value: u64, tail: Vec<u8>) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            out.extend_from_slice(&tail);
            let mut rest = out.as_slice();
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(rest, tail.as_slice());
        }
    }

    #[test]
    fn an_integer_that_does_not_end_or_fit_is_none() {
        assert_eq!(take(&mut [0x80, 0x80].as_slice()), None);
        assert_eq!(take(&mut [0xff; 11].as_slice()), None);
        assert_eq!(take(&mut [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02].as_slice()), None);
    }
}
