//! Whether what the device says of its write cache can be true.
//!
//! From outside, a memory that survives a power cut looks like one that does not; only a cut tells ([`power_cut`](super::power_cut)).
//! But what was acknowledged as durable faster than the medium takes it cannot be there yet.

use serde::Serialize;
use tantalum_report::units::{bytes, duration_ns};

use super::found::{Cache, Flushed, Found};

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The device says that what it has completed survives, and acknowledges from memory: only a power cut can tell.
    Claimed,
    /// Response times are those of a device that does what it says.
    Consistent,
    /// Response times are impossible for what it says.
    Contradicted,
}

/// The verdict, and why.
///
/// ```
/// use tantalum_lab::probe::{PowerSafe, Verdict};
/// let safe = PowerSafe { verdict: Verdict::Consistent, why: "a flush takes as long as the medium needs".into() };
/// assert_eq!(safe.to_string(), "consistent: a flush takes as long as the medium needs");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PowerSafe {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, with what was measured.
    pub why: String,
}

/// What is durable may come this much faster than the best rate that lasted, which was measured at another time.
const FASTER: f64 = 2.0;
/// As much faster than small random writes that went on, a burst of them is not if its flush waits for the medium.
const SCATTERED_FASTER: f64 = 5.0;
/// A flush of a lot must take this much longer than one of nothing to be said to do something.
const LONGER: f64 = 2.0;
/// Less than this is no burst to judge by.
const BURST_BYTES: u64 = 1 << 20;
/// No flash is programmed in less, and no disk turns as far as it must on average.
const PROGRAM_NS: f64 = 100_000.0;
const TURN_NS: f64 = 1_000_000.0;

impl PowerSafe {
    /// Judges what was found; `None` if nothing was written.
    pub fn of(found: &Found) -> Option<Self> {
        let cache = found.cache.as_ref()?;
        let says_none = found.claims.write_cache == "none";
        let (verdict, why) = if says_none { says_safe(found, cache) } else { says_volatile(found, cache) };
        Some(Self { verdict, why })
    }
}

impl std::fmt::Display for PowerSafe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = match self.verdict {
            Verdict::Claimed => "claimed",
            Verdict::Consistent => "consistent",
            Verdict::Contradicted => "contradicted",
        };
        write!(f, "{verdict}: {}", self.why)
    }
}

/// It has, or may have, a cache that must be flushed. Does a flush do that?
fn says_volatile(found: &Found, cache: &Cache) -> (Verdict, String) {
    let too_fast = |flushed: &&Flushed| {
        let sustained = found.sustained_write().unwrap_or(f64::INFINITY);
        flushed.dirty_bytes >= BURST_BYTES && rate(flushed) > FASTER * sustained
    };
    let said = match found.claims.write_cache {
        "unknown" => "the kernel does not know of a cache",
        _ => "it says that its cache must be flushed",
    };
    if let Some(flushed) = cache.flushed.iter().rfind(too_fast) {
        let (dirty, took) = (bytes(flushed.dirty_bytes), time((flushed.write_ns + flushed.flush_ns) as f64));
        let sustained = bytes(found.sustained_write().unwrap_or_default() as u64);
        let why = format!(
            "{said}; but {dirty} were written and flushed in {took}, and it never keeps up more than {sustained}/s: the flush came \
             back before they were on the medium"
        );
        return (Verdict::Contradicted, why);
    }
    let empty = cache.empty_flush.mean_ns;
    let steady = found.steady.as_ref().and_then(|steady| steady.rounds.last().copied());
    // Both: a drive may have a fast part of its medium for bursts, but then a flush has something to do.
    if let (Some(scattered), Some(steady)) = (&cache.scattered, steady)
        && rate(scattered) > SCATTERED_FASTER * steady
        && scattered.flush_ns as f64 <= LONGER * empty
    {
        let why = format!(
            "{said}; but {} written anywhere were flushed in {}, no longer than nothing, where such writes go on at {}/s only: the flush \
             does nothing",
            bytes(scattered.dirty_bytes),
            time(scattered.flush_ns as f64),
            bytes(steady as u64)
        );
        return (Verdict::Contradicted, why);
    }
    let why = match cache.flushed.last() {
        Some(most) if most.flush_ns as f64 > LONGER * empty => format!(
            "{said}, and a flush takes {} with nothing and {} with {} written before: it does something",
            time(empty),
            time(most.flush_ns as f64),
            bytes(most.dirty_bytes)
        ),
        _ => format!(
            "{said}; nothing became durable faster than it can keep up, though a flush takes {} whatever was written before",
            time(empty)
        ),
    };
    (Verdict::Consistent, why)
}

/// It says that a completed write survives. Is it on the medium then, or in memory?
fn says_safe(found: &Found, cache: &Cache) -> (Verdict, String) {
    let write_ns = found.ways.map(|ways| ways.durable.p50_ns as f64);
    let said = "it says that a completed write survives";
    let cut = "whether that memory outlives a power cut shows only in one (tantalum probe powercut-write)";
    let (least_ns, medium) = match found.claims.rotational {
        Some(true) => (TURN_NS, "a disk that turns (if it does)"),
        _ => (PROGRAM_NS, "flash"),
    };
    if let Some(write_ns) = write_ns.filter(|&time| time < least_ns) {
        let why = format!("{said}, and completes one in {}, less than {medium} takes; {cut}", time(write_ns));
        return (Verdict::Claimed, why);
    }
    if let Some(knee) = cache.knee_bytes {
        let why =
            format!("{said}, but takes {} much faster than what follows: it answers from memory; {cut}", bytes(knee));
        return (Verdict::Claimed, why);
    }
    let empty = cache.empty_flush.mean_ns.max(1.0);
    if let Some(most) = cache.flushed.last()
        && most.flush_ns as f64 > LONGER * empty
        && most.flush_ns as f64 > PROGRAM_NS
    {
        let (flush, dirty) = (time(most.flush_ns as f64), bytes(most.dirty_bytes));
        let why = format!(
            "{said}, but a flush after {dirty} takes {flush} and one of nothing {}: something was in memory; {cut}",
            time(empty)
        );
        return (Verdict::Claimed, why);
    }
    let why = match write_ns {
        Some(write_ns) => {
            format!("{said}; one takes {}, flushes cost nothing more, and no burst is faster", time(write_ns))
        }
        None => format!("{said}; flushes cost nothing, and no burst is faster"),
    };
    (Verdict::Consistent, why)
}

/// Bytes a second until they were durable.
fn rate(flushed: &Flushed) -> f64 {
    flushed.dirty_bytes as f64 * 1e9 / (flushed.write_ns + flushed.flush_ns).max(1) as f64
}

fn time(nanoseconds: f64) -> String {
    duration_ns(nanoseconds.round() as u64)
}
