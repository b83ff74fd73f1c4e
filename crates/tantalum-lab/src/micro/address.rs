//! Where the next request goes.
//!
//! Invariant: every address is within the job's range with all of the request, and a multiple of the device's block.

use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_rt::Random;

use super::job::{Job, Pattern};

/// The streams of a job, shared by its threads.
pub(super) struct Addresses {
    pattern: Pattern,
    request_bytes: u64,
    /// Begin of each stream, and how many requests fit before it starts over.
    begins: [u64; 2],
    slots: u64,
    /// From one request of a stream to the next.
    step: u64,
    next: [AtomicU64; 2],
}

impl Addresses {
    /// `None` if not even one request fits.
    pub(super) fn new(job: &Job) -> Option<Self> {
        let request_bytes = u64::from(job.request_bytes);
        let len = job.range.end.checked_sub(job.range.start)?;
        let step = match job.pattern {
            Pattern::Overlapping(bytes) => request_bytes.checked_sub(u64::from(bytes)).filter(|&step| step > 0)?,
            _ => request_bytes,
        };
        let stream_bytes = match job.pattern {
            Pattern::TwoStreams { .. } => len / 2,
            _ => len,
        };
        let slots = stream_bytes.checked_sub(request_bytes)?.checked_div(step)? + 1;
        let begins = [job.range.start, job.range.start + slots * step];
        Some(Self { pattern: job.pattern, request_bytes, begins, slots, step, next: Default::default() })
    }

    /// The address of the next request, and the stream it belongs to.
    pub(super) fn next(&self, random: &mut Random) -> (u64, u8) {
        match self.pattern {
            Pattern::Random => (self.begins[0] + random.u64(..self.slots) * self.request_bytes, 0),
            Pattern::Sequential | Pattern::Overlapping(_) => (self.advance(0), 0),
            Pattern::TwoStreams { second_percent } => {
                let stream = u8::from(random.u8(..100) < second_percent);
                (self.advance(stream.into()), stream)
            }
        }
    }

    fn advance(&self, stream: usize) -> u64 {
        let number = self.next[stream].fetch_add(1, Ordering::Relaxed);
        self.begins[stream] + number % self.slots * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(pattern: Pattern, count: usize) -> Vec<(u64, u8)> {
        let job = Job { pattern, ..Job::writes(4096, 1, 8192..8192 + 16384) };
        let mut random = Random::with_seed(1);
        let addresses = Addresses::new(&job).unwrap();
        (0..count).map(|_| addresses.next(&mut random)).collect()
    }

    #[test]
    fn sequential_requests_start_over_at_the_end() {
        let expected = [8192, 12288, 16384, 20480, 8192].map(|address| (address, 0));
        assert_eq!(addresses(Pattern::Sequential, 5), expected);
    }

    #[test]
    fn overlapping_requests_begin_before_the_last_ones_end() {
        let found = addresses(Pattern::Overlapping(512), 5);
        assert_eq!(found[..4], [8192, 11776, 15360, 18944].map(|address| (address, 0)));
        assert_eq!(found[4], (8192, 0), "a fifth would end at 26624, past the range");
    }

    #[test]
    fn random_requests_reach_every_place_and_no_other() {
        let mut found: Vec<u64> = addresses(Pattern::Random, 200).into_iter().map(|(address, _)| address).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [8192, 12288, 16384, 20480]);
    }

    #[test]
    fn two_streams_keep_to_their_halves() {
        let found = addresses(Pattern::TwoStreams { second_percent: 30 }, 1000);
        assert!(found.iter().all(|&(address, stream)| (address >= 16384) == (stream == 1)));
        let second = found.iter().filter(|&&(_, stream)| stream == 1).count();
        assert!((250..350).contains(&second), "{second}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Addresses::new(&Job::writes(4096, 1, 0..4095)).is_none());
        let job = Job { pattern: Pattern::Overlapping(4096), ..Job::writes(4096, 1, 0..8192) };
        assert!(Addresses::new(&job).is_none(), "no request would follow the first");
        let job = Job { pattern: Pattern::TwoStreams { second_percent: 1 }, ..Job::writes(4096, 1, 0..4096) };
        assert!(Addresses::new(&job).is_none());
    }
}
