//! What a log-structured store counts.

use std::sync::atomic::{AtomicU64, Ordering};

tantalum_rt::statistics! {
    /// What a log-structured store has done since it was opened, and its segments as they are.
    ///
    /// ```
    /// use tantalum_store::LogStructuredStats;
    ///
    /// let now = LogStructuredStats { pages_stored: 50, bytes_written: 300 << 12, ..Default::default() };
    /// let before = LogStructuredStats { pages_stored: 30, bytes_written: 260 << 12, ..Default::default() };
    /// assert_eq!(now.since(&before).write_amplification(4096), Some(2.0));
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct LogStructuredStats {
        counted by Counters {
            /// Pages read for the engine.
            pages_loaded,
            /// Bytes read for them: of a compressed page, the blocks of the device that it touches.
            bytes_loaded,
            /// Pages stored for the engine.
            pages_stored,
            /// Bytes that they took, which compression makes fewer.
            bytes_stored,
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
            /// Segments that compaction emptied.
            segments_packed,
            /// Segments that compaction cut off the end of the file.
            segments_cut_off,
            /// Free segments of which the space on disk was given back, each time that it was.
            segments_released,
        }
        peaks {
            /// The longest wait for a free segment, in microseconds.
            longest_wait_us,
        }
        now {
            /// Segments.
            segments: u64,
            /// Of them, free.
            free_segments: u64,
            /// Of them, open.
            open_segments: u64,
            /// Streams that pages are appended to: those that are stored, and those that cleaning moved, by how long they are expected to
            /// live.
            page_streams: u64,
            /// Of them, those that the next checkpoint of the map frees: nothing in them is live.
            empty_segments: u64,
            /// Of them, those with pages that cannot be read, and so not moved.
            stuck_segments: u64,
            /// Bytes of pages, and of the map, that are live.
            live_bytes: u64,
            /// Bytes in written segments that are not: what cleaning can win.
            dead_bytes: u64,
        }
    }
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

    /// The part of their bytes that pages took when they were stored: 1 without compression; `None` if none were.
    pub fn stored_share(&self, page_bytes: u32) -> Option<f64> {
        let pages = self.pages_stored * u64::from(page_bytes);
        (pages > 0).then(|| self.bytes_stored as f64 / pages as f64)
    }

    /// How much of the segments that were cleaned was live, from 0 to 1; `None` if none were.
    pub fn cleaned_fill(&self) -> Option<f64> {
        (self.bytes_cleaned > 0).then(|| self.live_bytes_cleaned as f64 / self.bytes_cleaned as f64)
    }
}
