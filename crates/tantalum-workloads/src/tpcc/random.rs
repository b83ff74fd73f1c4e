//! Random inputs: NURand, the non-uniform random numbers of clause 2.1.6; last names of clause 4.3.2.3, and random strings of
//! clause 4.3.2.2.

use tantalum_rt::Random;

use super::population::Scale;

const A_LAST_NAME: u32 = 255;
const A_CUSTOMER: u32 = 1023;
const A_ITEM: u32 = 8191;

/// NURand(a, low, high) with constant `c`.
fn non_uniform(random: &mut Random, a: u32, c: u32, low: u32, high: u32) -> u32 {
    (((random.u32(0..=a) | random.u32(low..=high)) + c) % (high - low + 1)) + low
}

/// The constants C for each use of NURand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Constants {
    pub(super) last_name: u32,
    pub(super) customer: u32,
    pub(super) item: u32,
}

impl Constants {
    /// For the load.
    pub(super) fn for_load(random: &mut Random) -> Self {
        Self {
            last_name: random.u32(0..=A_LAST_NAME),
            customer: random.u32(0..=A_CUSTOMER),
            item: random.u32(0..=A_ITEM),
        }
    }

    /// For a run against a database loaded with `load` for last names: clause 2.1.6.1 asks for a difference of 65 to
    /// 119 that is neither 96 nor 112.
    pub(super) fn for_run(random: &mut Random, load: u32) -> Self {
        let constants = Self::for_load(random);
        if Self::are_far_enough(constants.last_name, load) { constants } else { Self::for_run(random, load) }
    }

    fn are_far_enough(run: u32, load: u32) -> bool {
        let difference = run.abs_diff(load);
        (65..=119).contains(&difference) && difference != 96 && difference != 112
    }

    /// The number of a last name.
    pub(super) fn last_name_number(&self, random: &mut Random, scale: &Scale) -> u32 {
        non_uniform(random, A_LAST_NAME, self.last_name, 0, scale.last_names() - 1)
    }

    /// A customer number.
    pub(super) fn customer(&self, random: &mut Random, scale: &Scale) -> u32 {
        non_uniform(random, A_CUSTOMER, self.customer, 1, scale.customers)
    }

    /// An item number.
    pub(super) fn item(&self, random: &mut Random, scale: &Scale) -> u32 {
        non_uniform(random, A_ITEM, self.item, 1, scale.items)
    }
}

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
    fn numbers_stay_in_range_and_are_skewed() {
        let (mut random, scale) = (Random::with_seed(1), Scale::full());
        let constants = Constants::for_load(&mut random);
        let mut counts = vec![0u32; scale.items as usize + 1];
        for _ in 0..1_000_000 {
            counts[constants.item(&mut random, &scale) as usize] += 1;
            assert!((1..=3000).contains(&constants.customer(&mut random, &scale)));
            assert!(constants.last_name_number(&mut random, &scale) < 1000);
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable();
        let hottest: u32 = counts.iter().rev().take(10_000).sum();
        assert!(hottest > 400_000, "a tenth of the items takes {hottest} of a million draws");
    }

    #[test]
    fn the_run_constant_keeps_its_distance_from_every_load_constant() {
        let mut random = Random::with_seed(2);
        for load in 0..=255 {
            let run = Constants::for_run(&mut random, load).last_name;
            let difference = run.abs_diff(load);
            assert!((65..=119).contains(&difference) && difference != 96 && difference != 112);
        }
    }

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
