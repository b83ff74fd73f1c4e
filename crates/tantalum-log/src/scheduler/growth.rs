//! Growth: whether the log is too small, and the tasks that wait until it is not.
//!
//! A log may begin on small devices. Its owner then waits here until the log should grow, puts larger devices in the place of the
//! small ones, as in any log ([`membership`](super::membership)), and reports what came of it. No append waits for that but one of a
//! record that is too large for the present devices.
//!
//! The log should grow when such a record waits, and when it fills so soon that its size is what checkpoints come from.
//!
//! Invariant: no request is larger than what each healthy device takes. What requests may have rises with the devices, since a
//! device that joins takes as much as those that are there, and falls only when the log [shrinks](super::shrinking).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tantalum_rt::{Instant, may_wait, now};

use super::admission::is_half_full;
use super::{Scheduler, State};
use crate::format::request::FRAME_BYTES;
use crate::layout::Layout;
use crate::{Error, ErrorKind, Result};

/// A log that fills by half twice within this time is too small: at this pace, checkpoints cost hardly anything.
const FILL_TIME: Duration = Duration::from_secs(60);
/// After a failure the log is not said to be too small for so long; doubled by each failure. Large records do not wait for it.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// After the log has shrunk it is not said to be too small for so long, unless a large record waits: what it was shrunk after, such
/// as a compaction, fills it too.
const PAUSE_AFTER_SHRINKING: Duration = Duration::from_secs(10);

/// Whether the log is too small. Guarded by the state's lock.
pub(super) struct Growth {
    /// The log's owner lets it grow.
    is_possible: bool,
    /// The owner listens.
    has_owner: bool,
    /// The log fills too soon.
    fills: bool,
    /// It is half full.
    is_filled: bool,
    /// When it was half full the last time, or could grow last.
    filled_at: Instant,
    /// Record bytes, with the frame, of the largest record that waits; 0 if none does.
    wanted: usize,
    /// What the last attempt failed by, and how many have.
    failure: Option<Error>,
    failures: u64,
    /// Smaller devices are about to take the place of larger ones.
    is_shrinking: bool,
    /// Until when the log is not said to fill too soon, after a failure or after it has shrunk, and how long the pause after the last
    /// failure was.
    not_before: Option<Instant>,
    pause: Duration,
}

impl Growth {
    pub(super) fn new(is_possible: bool) -> Growth {
        Growth {
            is_possible,
            has_owner: false,
            fills: false,
            is_filled: false,
            filled_at: now(),
            wanted: 0,
            failure: None,
            failures: 0,
            is_shrinking: false,
            not_before: None,
            pause: Duration::ZERO,
        }
    }

    /// The log is no longer said to fill too soon. No record waits: each that did fits by now.
    pub(super) fn begin_shrinking(&mut self) {
        (self.is_shrinking, self.fills, self.wanted) = (true, false, 0);
    }

    /// Smaller devices have taken the place of larger ones, if it `has_shrunk`, or will not.
    pub(super) fn end_shrinking(&mut self, has_shrunk: bool) {
        (self.is_shrinking, self.filled_at) = (false, now());
        if has_shrunk {
            (self.is_filled, self.not_before) = (false, Some(now() + PAUSE_AFTER_SHRINKING));
        }
    }

    /// Whether a record waits that requests of `bytes` bytes do not take.
    pub(super) fn is_wanted_beyond(&self, bytes: usize) -> bool {
        self.wanted > bytes
    }
}

impl Scheduler {
    /// Record bytes, with frames, that the largest request has at present.
    pub(super) fn request_payload(&self) -> usize {
        self.request_payload.load(Ordering::Acquire)
    }

    /// Whether a record of `bytes` bytes fits none of the requests that the devices take at present.
    pub(crate) fn must_grow_for(&self, bytes: usize) -> bool {
        let payload = bytes.saturating_add(FRAME_BYTES);
        payload > self.request_payload() && payload <= self.max_payload_bytes
    }

    /// Whether devices of so many bytes take the largest record.
    pub(crate) fn takes_all_on(&self, device_bytes: u64) -> bool {
        Layout::default_payload_bytes(device_bytes) >= self.max_payload_bytes
    }

    /// Refuses a record that must wait until the log has grown.
    pub(super) fn check_fits_devices(&self, bytes: usize) -> Result<()> {
        if self.must_grow_for(bytes) { Err(self.too_small(bytes, None)) } else { Ok(()) }
    }

    fn too_small(&self, bytes: usize, cause: Option<Error>) -> Error {
        let most = self.request_payload() - FRAME_BYTES;
        let why = cause.as_ref().map_or_else(String::new, |cause| format!(", which failed: {cause}"));
        let what = format!(
            "a record of {bytes} bytes exceeds the {most} bytes that the log's devices take at present; the log must grow first{why}"
        );
        match cause {
            Some(cause) => Error::new(cause.kind(), what).with_source(cause),
            None => Error::new(ErrorKind::TooLarge, what),
        }
    }

    /// Blocks until a record of `bytes` bytes fits; see [`Log::wait_until_grown`](crate::Log::wait_until_grown).
    pub(crate) fn wait_until_grown(&self, bytes: usize) -> Result<()> {
        may_wait("space in the log");
        let mut state = self.lock();
        let failures = state.growth.failures;
        loop {
            state.check_running()?;
            if !self.must_grow_for(bytes) {
                return Ok(());
            }
            if !state.growth.has_owner {
                return Err(self.too_small(bytes, None));
            }
            if state.growth.failures > failures {
                return Err(self.too_small(bytes, state.growth.failure.clone()));
            }
            state.growth.wanted = state.growth.wanted.max(bytes + FRAME_BYTES);
            self.growing.notify_all();
            self.leaving.notify_all();
            self.growing.wait(&mut state);
        }
    }

    /// Takes note of how full the log is.
    pub(super) fn note_filling(&self, state: &mut State, spare: i64) {
        if !state.growth.is_possible || state.growth.is_shrinking {
            return;
        }
        let is_filled = is_half_full(state, spare);
        let was_filled = std::mem::replace(&mut state.growth.is_filled, is_filled);
        if is_filled && !was_filled {
            let (growth, now) = (&mut state.growth, now());
            let since = now.duration_since(std::mem::replace(&mut growth.filled_at, now));
            if since < FILL_TIME && growth.not_before.is_none_or(|not_before| now >= not_before) {
                growth.fills = true;
                self.growing.notify_all();
            }
        }
    }

    /// The log's owner begins, or ends, to let the log grow.
    pub(crate) fn set_growth_owner(&self, is_there: bool) {
        self.lock().growth.has_owner = is_there;
        self.growing.notify_all();
    }

    /// Blocks until the log should grow; see [`Log::wait_for_growth`](crate::Log::wait_for_growth).
    pub(crate) fn wait_for_growth(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.failure.is_some() || state.closed || !state.growth.has_owner {
                return None;
            }
            let wanted = state.growth.wanted;
            if wanted > self.request_payload() {
                return Some(wanted);
            }
            state.growth.wanted = 0;
            if state.growth.fills {
                return Some(0);
            }
            self.growing.wait(&mut state);
        }
    }

    /// Blocks for `pause`, or until a record waits for growth; see
    /// [`Log::pause_growth`](crate::Log::pause_growth).
    pub(crate) fn pause_growth(&self, pause: Duration) {
        let until = now() + pause;
        let mut state = self.lock();
        while state.failure.is_none()
            && !state.closed
            && state.growth.has_owner
            && state.growth.wanted <= self.request_payload()
        {
            let rest = until.duration_since(now());
            if rest.is_zero() {
                return;
            }
            self.growing.wait_for(&mut state, rest);
        }
    }

    /// What came of an attempt to let the log grow; see [`Log::report_growth`](crate::Log::report_growth).
    pub(crate) fn report_growth(&self, result: Result<()>) {
        let mut state = self.lock();
        let growth = &mut state.growth;
        growth.fills = false;
        match result {
            Ok(()) => {
                growth.filled_at = now();
                growth.not_before = None;
                growth.pause = Duration::ZERO;
            }
            Err(error) => {
                growth.failure = Some(error);
                growth.failures += 1;
                growth.wanted = 0;
                growth.pause = (growth.pause * 2).clamp(PAUSE.0, PAUSE.1);
                growth.not_before = Some(now() + growth.pause);
            }
        }
        self.growing.notify_all();
    }
}
