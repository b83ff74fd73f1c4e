//! Appends: a record's space, its place in the active group, and the group's end when it is sealed.
//!
//! Invariants:
//! - a record is copied into the active group outside any lock, after its space was taken;
//! - the active group starts where the newest request ends, and is replaced only under the state's lock;
//! - a group takes no more than the largest request of any device: that grows and shrinks with the log ([`growth`](super::growth)).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tantalum_device::AppendRefused;

use super::{Scheduler, State};
use crate::format::request::{FRAME_BYTES, encode_frame};
use crate::group::{Group, Request, Source};
use crate::space::GROUP_CHARGE;
use crate::{Error, ErrorKind, Lsn, LsnRange, Result};

impl Scheduler {
    /// Adds one record if `takes` takes the space that it needs at most; see [`Log::append`](crate::Log::append).
    pub(crate) fn append_if(&self, parts: &[&[u8]], takes: impl FnOnce(u64) -> bool) -> Result<LsnRange> {
        let bytes = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        let charge = self.charge(bytes)?;
        self.check_fits_devices(bytes)?;
        if !takes(charge) {
            self.check_running()?;
            return Err(Error::log_full(charge));
        }
        let frame = encode_frame(bytes as u32);
        let guard = self.poison_unless_ended("a record was being appended");
        loop {
            // Looked up again each time: the group is replaced under the state's lock, which `replace_group` waits for.
            let group = Arc::clone(&self.active.read());
            if let Err(stopped) = self.check_running() {
                self.give_back(charge);
                guard.end();
                return Err(stopped);
            }
            // The archive's bound is as it was when this group became the active one, or newer.
            if self.feed.is_attached() && self.feed.is_behind(group.end()) {
                self.give_back(charge);
                guard.end();
                return Err(Error::log_full(charge));
            }
            match group.records.append(&frame, parts) {
                Ok(offset) => {
                    // The first record pays for the group, the others only for themselves.
                    if offset != 0 {
                        self.give_back(GROUP_CHARGE);
                    }
                    self.records.fetch_add(1, Ordering::Relaxed);
                    let start = Lsn::new(group.base.get() + offset as u64);
                    let end = Lsn::new(start.get() + (frame.len() + bytes) as u64);
                    if self.feed.is_attached() {
                        self.feed.appended(end);
                    }
                    guard.end();
                    return Ok(LsnRange { start, end });
                }
                Err(refused) => {
                    self.replace_group(&group, refused);
                    // The log may be about to shrink: then no group takes a large record.
                    if let Err(too_small) = self.check_fits_devices(bytes) {
                        self.give_back(charge);
                        guard.end();
                        return Err(too_small);
                    }
                }
            }
        }
    }

    /// The space that a record of `bytes` bytes takes at most.
    pub(crate) fn charge(&self, bytes: usize) -> Result<u64> {
        let limit = self.max_record_bytes();
        if bytes > limit {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "a record of {bytes} bytes exceeds the log's limit of {limit} bytes; split it, or create the log with larger sections and buffers"
                ),
            ));
        }
        Ok((bytes + FRAME_BYTES) as u64 + GROUP_CHARGE)
    }

    fn give_back(&self, charge: u64) {
        if self.space.give_back(charge) {
            self.serve_space(&mut self.state.lock());
        }
    }

    /// The error that stops appends, if there is one.
    fn check_running(&self) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) { self.state.lock().check_running() } else { Ok(()) }
    }

    /// After `group` refused an append: makes sure that it is no longer the active one, unless the log stopped.
    fn replace_group(&self, group: &Arc<Group>, refused: AppendRefused) {
        let mut state = self.state.lock();
        let is_active = Arc::ptr_eq(group, &self.active.read());
        if refused == AppendRefused::Full && is_active && !self.stopped.load(Ordering::Acquire) {
            self.seal(&mut state);
            self.wake_writers(&mut state);
        }
    }

    /// Makes the active group, unless it is empty, a request, and gives appends a new group.
    pub(super) fn seal(&self, state: &mut State) {
        let mut active = self.active.write();
        let limit = self.request_payload();
        if active.records.is_empty() && !state.closed && active.limit == limit {
            return;
        }
        let Some(bytes) = active.records.seal() else {
            assert!(state.closed, "only a closed log keeps a sealed group active");
            return;
        };
        if bytes == 0 {
            if !state.closed {
                // It took less than the devices do by now.
                *active = self.pool.group(active.base, limit);
            }
            return;
        }
        let end = Lsn::new(active.base.get() + bytes as u64);
        state.commits.push(Request { start: active.base, end, source: Source::Sealed(Arc::clone(&active)) });
        if state.archive.is_some() {
            self.request_sealed(state, end, bytes);
        }
        if !state.closed {
            *active = self.pool.group(end, limit);
        }
    }
}
