//! What a log-structured store counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters, as they are counted.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $($(#[$doc])* pub(super) $name: AtomicU64,)*
            /// The longest wait for a free segment, in microseconds.
            pub(super) longest_wait_us: AtomicU64,
        }

        /// What a log-structured store has done since it was opened, and its segments as they are.
        ///
        /// ```
        /// let now = tantalum_store::LogStructuredStats { pages_stored: 50, bytes_written: 300 << 12, ..Default::default() };
        /// let before = tantalum_store::LogStructuredStats { pages_stored: 30, bytes_written: 260 << 12, ..Default::default() };
        /// assert_eq!(now.since(&before).write_amplification(4096), Some(2.0));
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct LogStructuredStats {
            $($(#[$doc])* pub $name: u64,)*
            /// The longest wait for a free segment, in microseconds.
            pub longest_wait_us: u64,
            /// Segments.
            pub segments: u64,
            /// Of them, free.
            pub free_segments: u64,
            /// Of them, open.
            pub open_segments: u64,
            /// Of them, those that the next checkpoint of the map frees: nothing in them is live.
            pub empty_segments: u64,
            /// Of them, those with pages that cannot be read, and so not moved.
            pub stuck_segments: u64,
            /// Bytes of pages, and of the map, that are live.
            pub live_bytes: u64,
            /// Bytes in written segments that are not: what cleaning can win.
            pub dead_bytes: u64,
        }

        impl LogStructuredStats {
            /// What was done since the counters were `before`. What is no counter stays as it is.
            #[must_use]
            pub fn since(self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* ..self }
            }
        }

        impl Counters {
            /// The counters, and nothing else yet.
            pub(super) fn read(&self) -> LogStructuredStats {
                LogStructuredStats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    longest_wait_us: self.longest_wait_us.load(Ordering::Relaxed),
                    ..LogStructuredStats::default()
                }
            }
        }
    };
}

counters! {
    /// Pages read for the engine.
    pages_loaded,
    /// Pages stored for the engine.
    pages_stored,
    /// Appends of pages, those of cleaning included.
    appends,
    /// Bytes written, whatever for.
    bytes_written,
    /// Of them, those that only take room, as NILFS2's metadata did.
    filler_bytes_written,
    /// Of them, those of the map and its roots.
    map_bytes_written,
    /// Checkpoints of the map.
    checkpoints,
    /// Pages that cleaning moved.
    pages_moved,
    /// Segments that cleaning emptied.
    segments_cleaned,
    /// Their bytes.
    bytes_cleaned,
    /// Bytes in them that were live.
    live_bytes_cleaned,
    /// Bytes that cleaning read.
    bytes_read_to_clean,
    /// Waits for a free segment.
    waits,
    /// How long all those waits took, in microseconds.
    waited_us,
    /// Appends that recovery found behind the newest checkpoint.
    appends_rolled_forward,
    /// Segments of which the device was told that they are not needed.
    segments_discarded,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl LogStructuredStats {
    /// Bytes written for each byte of pages stored; `None` if none were.
    pub fn write_amplification(&self, page_bytes: u32) -> Option<f64> {
        let stored = self.pages_stored * u64::from(page_bytes);
        (stored > 0).then(|| self.bytes_written as f64 / stored as f64)
    }

    /// How much of the segments that were cleaned was live, from 0 to 1; `None` if none were.
    pub fn cleaned_fill(&self) -> Option<f64> {
        (self.bytes_cleaned > 0).then(|| self.live_bytes_cleaned as f64 / self.bytes_cleaned as f64)
    }
}
