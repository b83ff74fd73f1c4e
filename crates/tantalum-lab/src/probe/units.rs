//! What the device erases at once, and how many such units it can write to in turn.
//!
//! A unit is seen where it matters at which multiple a chunk begins. A chunk that fills a unit from its begin to its end needs
//! nothing to be copied; one that lies across two leaves both of them in parts. Chunks of two units do not mind where they are
//! shifted by one. So the unit is the largest chunk whose alignment matters. A disk's arm takes time too, but the same
//! wherever a chunk begins.

use tantalum_report::units::{bytes, number};

use super::{
    budget::{Phase, PhaseBudget},
    found::{Align, Claims, EraseUnit, OpenUnits},
    prober::Prober,
};
use crate::error::Result;

/// Chunks from the largest to the smallest.
const CHUNKS: std::ops::RangeInclusive<u32> = 16..=24;
/// Bytes of a request within a chunk, and of one to a unit among others.
const REQUEST: u64 = 64 << 10;
const TURN: u64 = 16 << 10;
/// Alignment matters from this ratio on.
const MATTERS: f64 = 1.3;
/// Each is measured twice, by turns, so that a change of the device's mood is no alignment.
const ROUNDS: usize = 2;
/// Places for chunks at least: fewer lie in the cache.
const PLACES_MIN: u64 = 8;
/// Chunks of a measurement at least.
const CHUNKS_MIN: u64 = 3;
/// Chunks of half a unit mind too, but half as much.
const MATTERS_BELOW: f64 = 1.1;
/// Units in turn at most; rates below this share of the best mean that there are too many.
const TURNS_MAX: u32 = 64;
const TOO_SLOW: f64 = 0.6;

impl Prober<'_> {
    pub(super) fn units(&mut self, claims: &Claims) -> Result<(EraseUnit, OpenUnits)> {
        let budget = self.begin(Phase::Units);
        let none = |why: &str| OpenUnits { limit: None, why: why.to_owned(), rates: Vec::new() };
        if claims.erase_block_bytes > 0 {
            let why = "the device says so; it is erased by discards of as much".to_owned();
            let unit = EraseUnit { bytes: Some(claims.erase_block_bytes.into()), why, aligns: Vec::new() };
            return Ok((unit, none("raw flash has none: blocks may be programmed in any order")));
        }
        if claims.zone_bytes > 0 {
            let why = "the device says so: a zone, which is reset as a whole".to_owned();
            let unit = EraseUnit { bytes: Some(claims.zone_bytes), why, aligns: Vec::new() };
            let most = "the device says so: zones that may be partly written at a time".to_owned();
            return Ok((unit, OpenUnits { limit: Some(claims.active_zones), why: most, rates: Vec::new() }));
        }
        if !self.plan.writes() {
            let why = "only writes show it, and nothing may be written";
            return Ok((EraseUnit { bytes: None, why: why.into(), aligns: Vec::new() }, none(why)));
        }
        let unit = self.erase_unit(&budget)?;
        let open = match unit.bytes {
            Some(bytes) => self.open_units(bytes, &budget)?,
            None => none("no erase unit was seen, so that there are none to be open"),
        };
        self.device.flush()?;
        Ok((unit, open))
    }

    fn erase_unit(&self, budget: &PhaseBudget) -> Result<EraseUnit> {
        let range_bytes = self.plan.range_bytes();
        let chunks: Vec<u64> =
            CHUNKS.rev().map(|shift| 1 << shift).filter(|chunk| chunk * PLACES_MIN <= range_bytes).collect();
        let mut aligns: Vec<Align> = Vec::new();
        for (done, &chunk) in chunks.iter().enumerate() {
            let Some(align) = self.align(chunk, budget, chunks.len() - done)? else { continue };
            aligns.push(align);
            // The one after the unit is measured too: there, half of what is shifted lies across two units.
            if aligns.len() >= 2 && matters(&aligns, aligns.len() - 2) {
                break;
            }
        }
        let unit = (0..aligns.len()).find(|&place| matters(&aligns, place));
        let (bytes, why) = verdict(&aligns, unit);
        Ok(EraseUnit { bytes, why, aligns })
    }

    /// `None` if nothing was left for it.
    fn align(&self, chunk: u64, budget: &PhaseBudget, count: usize) -> Result<Option<Align>> {
        let places = self.plan.range_bytes() / chunk - 1;
        // Aligned as the device counts, not the range.
        let begin = self.plan.range.start.next_multiple_of(chunk);
        let places = if begin == self.plan.range.start { places } else { places - 1 };
        // A step without a common divisor visits every place before it comes back, far from the last one.
        let stride = (places * 3 / 8..).find(|&stride| stride > 0 && is_coprime(stride, places)).unwrap_or(1);
        let mut best = Align { bytes: chunk, aligned: 0.0, shifted: 0.0, ratio: f64::INFINITY };
        for round in 0..ROUNDS {
            let mut rates = [0.0; 2];
            for (half, rate) in rates.iter_mut().enumerate() {
                let allowance = self.next(budget, (count * ROUNDS - round) * 2 - half + 6);
                if !self.has_time_for(CHUNKS_MIN * chunk, allowance) {
                    return Ok(None);
                }
                // A cache full of parts of units would still be busy with them.
                self.device.flush()?;
                let place = |number: u64| begin + number * stride % places * chunk + half as u64 * chunk / 2;
                match self.write_chunks(chunk, REQUEST, place, allowance)? {
                    Some(found) => *rate = found,
                    None => return Ok(None),
                }
            }
            best.aligned = best.aligned.max(rates[0]);
            best.shifted = best.shifted.max(rates[1]);
            best.ratio = best.ratio.min(rates[0] / rates[1]);
        }
        Ok(Some(best))
    }

    fn open_units(&self, unit: u64, budget: &PhaseBudget) -> Result<OpenUnits> {
        let places = (self.plan.range.end - self.plan.range.start.next_multiple_of(unit)) / unit;
        let most = TURNS_MAX.min((places / 2) as u32);
        let mut rates: Vec<(u32, f64)> = Vec::new();
        let (mut good, mut bad) = (0, None);
        // By doubling to the first number that is too many, then by halves between the two.
        let mut units = 1;
        while units <= most && good + 1 < bad.unwrap_or(u32::MAX) {
            let Some(rate) = self.turns(unit, units, places, budget)? else { break };
            rates.push((units, rate));
            let best = rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
            if rate < TOO_SLOW * best {
                bad = Some(units);
            } else {
                good = units;
            }
            units = match bad {
                Some(bad) => good.midpoint(bad),
                None => units * 2,
            };
            if units == good {
                break;
            }
        }
        rates.sort_unstable_by_key(|rate| rate.0);
        let (limit, why) = match bad {
            Some(bad) if good > 0 && bad == good + 1 => {
                (Some(good), format!("up to {good} written in turn are about as fast as one, {bad} are not"))
            }
            Some(bad) => (None, format!("it lies below {bad}; nothing was left to find it")),
            None => (None, format!("none was seen up to {good} units in turn")),
        };
        Ok(OpenUnits { limit, why, rates })
    }

    /// So many units, each written from begin to end in order, a little at a time in turn.
    fn turns(&self, unit: u64, units: u32, places: u64, budget: &PhaseBudget) -> Result<Option<f64>> {
        let mut allowance = self.next(budget, 6);
        let (units, turns) = (u64::from(units), unit / TURN);
        let round = units * unit;
        // Whole units only: the rest of one would be another's begin.
        allowance.bytes = allowance.bytes / round * round;
        let begin = self.plan.range.start.next_multiple_of(unit);
        let sets = (places / units).max(1);
        let place = |number: u64| {
            let (set, within) = (number / (units * turns), number % (units * turns));
            begin + (set % sets * units + within % units) * unit + within / units * TURN
        };
        self.device.flush()?;
        self.write_chunks(TURN, TURN, place, allowance)
    }
}

/// Whether the alignment of these chunks matters, by more than what larger ones deviate, which should not mind.
fn matters(aligns: &[Align], place: usize) -> bool {
    let noise = aligns[..place].iter().map(|align| align.ratio.max(1.0 / align.ratio)).fold(1.0, f64::max);
    let below = aligns.get(place + 1).is_none_or(|below| below.ratio >= MATTERS_BELOW);
    aligns[place].ratio >= MATTERS * noise && below
}

/// The unit, and why one thinks so or why it cannot be seen.
fn verdict(aligns: &[Align], unit: Option<usize>) -> (Option<u64>, String) {
    let (Some(most), Some(least)) = (aligns.first(), aligns.last()) else {
        return (None, "neither time nor bytes were left to look for it".to_owned());
    };
    match unit {
        // Half a unit would look like that too.
        Some(0) => {
            let most = bytes(most.bytes);
            (
                None,
                format!(
                    "it has at least {most}: where a chunk of as much begins matters, and larger ones took too long"
                ),
            )
        }
        Some(place) => {
            let (chunk, ratio) = (aligns[place].bytes, number(aligns[place].ratio));
            let why = format!(
                "chunks of {} are written {ratio} times as fast where they begin at their multiples, and larger ones do not mind",
                bytes(chunk)
            );
            (Some(chunk), why)
        }
        None => {
            let why = format!(
                "it cannot be seen: from {} to {} it makes no clear difference where a chunk begins. A drive that maps pages hides \
                 its units, a disk has none, and a cache larger than what was written hides them too",
                bytes(least.bytes),
                bytes(most.bytes)
            );
            (None, why)
        }
    }
}

fn is_coprime(mut a: u64, mut b: u64) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 8 MiB down, by halves.
    fn found(ratios: &[f64]) -> (Option<u64>, String) {
        let align =
            |(step, &ratio): (u32, &f64)| Align { bytes: (8 << 20) >> step, aligned: ratio, shifted: 1.0, ratio };
        let aligns: Vec<Align> = (0..).zip(ratios).map(align).collect();
        verdict(&aligns, (0..aligns.len()).find(|&place| matters(&aligns, place)))
    }

    #[test]
    fn the_unit_is_the_largest_chunk_that_minds() {
        assert_eq!(found(&[1.0, 1.02, 2.1, 1.5]).0, Some(2 << 20));
        assert_eq!(found(&[1.0, 0.98, 1.01]).0, None);
    }

    #[test]
    fn noise_is_no_unit() {
        assert_eq!(found(&[0.71, 0.67, 0.53, 1.34]).0, None, "as much as larger chunks deviate");
        assert_eq!(found(&[1.0, 1.4, 1.0]).0, None, "half of it does not mind");
        let (unit, why) = found(&[1.5, 1.2]);
        assert!(unit.is_none() && why.contains("at least 8 MiB"), "{why}");
    }
}
