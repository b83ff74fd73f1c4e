//! Which pages go together: those that are expected to be stored again at about the same time, so that their segment dies at once and is
//! not cleaned while half of it is live ("Separating Data via Block Invalidation Time Inference for Write Amplification Reduction in
//! Log-Structured Storage", Wang et al., FAST 2022).
//!
//! A page that is stored is expected to live as long as the copy that it replaces has. Short is what is shorter than segments of such
//! pages last. A page that cleaning moves has lived for a while, and is expected to live the longer the longer that is. When a page was
//! stored is known of its segment only, which remembers the youngest of its pages; time is counted in blocks of pages stored.

use super::summary::Stream;

/// The mean life of segments is about that of the last so many that were freed.
const RECENT_SEGMENTS: u64 = 16;
/// A page older than so many times the mean life of a segment of short-lived pages goes to the next of the cold streams.
const AGE_STEP: u64 = 4;

#[derive(Debug, Default)]
pub struct Lifetimes {
    /// How long segments of [`Stream::Hot`] last, from when they are opened to when they are free, in the mean; `None` until one
    /// was freed.
    of_segments: Option<u64>,
}

impl Lifetimes {
    /// A segment of [`Stream::Hot`] has become free.
    pub fn note_freed(&mut self, lasted: u64) {
        let mean = self.of_segments.unwrap_or(lasted);
        self.of_segments = Some((mean * (RECENT_SEGMENTS - 1) + lasted) / RECENT_SEGMENTS);
    }

    /// Where a page goes that is stored, if its last copy has lived so long; `None` if there is none.
    pub fn stream_of_new_page(&self, lived: Option<u64>) -> Stream {
        match (lived, self.of_segments) {
            (Some(_), None) => Stream::Hot,
            (Some(lived), Some(short)) if lived < short => Stream::Hot,
            _ => Stream::Lasting,
        }
    }

    /// Where a page goes that cleaning moves, if it was stored so long ago and lies in a segment of a stream, which may not be known.
    pub fn stream_of_moved_page(&self, from: Option<Stream>, age: u64) -> Stream {
        if from == Some(Stream::Hot) {
            return Stream::Cold;
        }
        let short = self.of_segments.unwrap_or(u64::MAX);
        match age / AGE_STEP {
            age if age < short => Stream::Cold1,
            age if age / AGE_STEP < short => Stream::Cold2,
            _ => Stream::Cold3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_where_the_time_is_that_they_are_expected_to_live() {
        let mut lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.stream_of_new_page(Some(1 << 40)), Stream::Hot, "what is short is not known");
        assert_eq!(lifetimes.stream_of_new_page(None), Stream::Lasting);
        assert_eq!(lifetimes.stream_of_moved_page(None, 1 << 40), Stream::Cold1);
        (0..40).for_each(|_| lifetimes.note_freed(100));
        lifetimes.note_freed(260);
        assert_eq!(lifetimes.of_segments, Some(110));
        let new = [Some(109), Some(110), None].map(|lived| lifetimes.stream_of_new_page(lived));
        assert_eq!(new, [Stream::Hot, Stream::Lasting, Stream::Lasting]);
        let moved = [439, 440, 1759, 1760].map(|age| lifetimes.stream_of_moved_page(Some(Stream::Cold3), age));
        assert_eq!(moved, [Stream::Cold1, Stream::Cold2, Stream::Cold2, Stream::Cold3]);
        assert_eq!(lifetimes.stream_of_moved_page(Some(Stream::Hot), 1 << 40), Stream::Cold);
    }
}
