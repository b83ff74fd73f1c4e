//! Names and texts: last names of clause 4.3.2.3, random strings of clause 4.3.2.2.

use tantalum_rt::Random;

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name with a number in 0..=999.
pub(super) fn last_name(number: u32) -> Vec<u8> {
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    digits.map(|digit| SYLLABLES[digit as usize]).concat().into_bytes()
}

/// A random text of `low..=high` letters and digits ("a-string").
pub(super) fn text(random: &mut Random, low: usize, high: usize) -> Vec<u8> {
    (0..random.usize(low..=high)).map(|_| random.alphanumeric() as u8).collect()
}

/// A random text of `length` digits ("n-string").
pub(super) fn digits(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.u8(b'0'..=b'9')).collect()
}

/// A zip code (clause 4.3.2.7).
pub(super) fn zip(random: &mut Random) -> Vec<u8> {
    [digits(random, 4), b"11111".to_vec()].concat()
}

/// I_DATA and S_DATA: one in ten holds "ORIGINAL" at a random place.
pub(super) fn data(random: &mut Random) -> Vec<u8> {
    const ORIGINAL: &[u8] = b"ORIGINAL";
    let mut data = text(random, 26, 50);
    if random.u8(0..10) == 0 {
        let at = random.usize(0..=data.len() - ORIGINAL.len());
        data[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    data
}

/// Street, street, city, state and zip of clause 4.3.3.1.
pub(super) struct Address {
    pub(super) street_1: Vec<u8>,
    pub(super) street_2: Vec<u8>,
    pub(super) city: Vec<u8>,
    pub(super) state: Vec<u8>,
    pub(super) zip: Vec<u8>,
}

impl Address {
    pub(super) fn random(random: &mut Random) -> Self {
        Self {
            street_1: text(random, 10, 20),
            street_2: text(random, 10, 20),
            city: text(random, 10, 20),
            state: text(random, 2, 2),
            zip: zip(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_follow_the_clause() {
        assert_eq!(last_name(371), b"PRICALLYOUGHT");
        assert_eq!(last_name(0), b"BARBARBAR");
        assert_eq!(last_name(999), b"EINGEINGEING");
    }

    #[test]
    fn one_text_in_ten_is_original() {
        let mut random = Random::with_seed(1);
        let original = (0..10_000).filter(|_| data(&mut random).windows(8).any(|part| part == b"ORIGINAL")).count();
        assert!((900..1100).contains(&original), "{original}");
    }
}
