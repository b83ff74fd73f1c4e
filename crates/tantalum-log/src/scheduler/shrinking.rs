//! Shrinking: smaller devices take the place of larger ones, while the log runs.
//!
//! In the order in which a crash is survived at each moment, as with any change of devices ([`membership`](super::membership)):
//!
//! 1. From now on appends refuse records that the smaller devices would not take: these wait for growth.
//! 2. A checkpoint covers everything that was appended before.
//! 3. The smaller devices join, and the larger ones leave.
//!
//! A record that waits for growth while the log waits for that checkpoint ends the attempt: the log's size is needed.
//!
//! Invariant: no request that recovery may need is larger than what each listed device takes. So what a crash leaves with one copy
//! fits every device that may get the second one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tantalum_device::Device;

use super::membership::Newcomer;
use super::{Scheduler, State};
use crate::layout::Layout;
use crate::{Lsn, Result, error};

impl Scheduler {
    /// Puts smaller devices in the place of others; see [`Log::shrink_devices`](crate::Log::shrink_devices).
    pub(crate) fn shrink_devices(
        &self,
        old: &[u32],
        new: &[Arc<dyn Device>],
        section_bytes: u32,
    ) -> Result<Option<Vec<u32>>> {
        let _change = self.begin_change()?;
        self.check_listed(old)?;
        if self.check_newcomers(new, old, Some(section_bytes))? {
            return Err(error::change_in_place());
        }
        let newcomers = self.enlist(new, Some(section_bytes))?;
        let shrunk = self.take_place(old, newcomers);
        let mut state = self.lock();
        state.membership.awaited_checkpoint = None;
        // As much as the devices take that are there by now.
        self.rebalance_devices(&mut state);
        state.growth.end_shrinking(matches!(shrunk, Ok(Some(_))));
        shrunk
    }

    fn take_place(&self, old: &[u32], newcomers: Vec<Newcomer>) -> Result<Option<Vec<u32>>> {
        let payloads = newcomers.iter().map(|newcomer| Layout::of(&newcomer.superblock).max_payload_bytes());
        let Some(end) = self.lower_request_payload(payloads.min().unwrap_or(0))? else { return Ok(None) };
        if !self.wait_until_covered(end)? {
            return Ok(None);
        }
        let ordinals = self.join(newcomers)?;
        self.leave(old)?;
        Ok(Some(ordinals))
    }

    /// Lets no request be larger than `bytes` any more that is appended from now on. Returns where those appended before end;
    /// `None` if a record waits for growth.
    fn lower_request_payload(&self, bytes: usize) -> Result<Option<Lsn>> {
        let mut state = self.lock();
        state.check_running()?;
        if state.growth.is_wanted_beyond(self.request_payload()) {
            return Ok(None);
        }
        state.growth.begin_shrinking();
        // The active group ends here. An append that looked at the size before finds the next one, and looks again.
        self.request_payload.fetch_min(bytes, Ordering::AcqRel);
        self.seal(&mut state);
        let end = state.commits.sealed_end;
        assert!(self.active.read().limit <= bytes, "no append adds to a group of the former size");
        state.membership.awaited_checkpoint = Some(end);
        state.membership.failed_checkpoint = None;
        state.commits.want(end);
        self.wake_writers(&mut state);
        self.pressure.notify_all();
        Ok(Some(end))
    }

    /// Blocks until a checkpoint covers everything before `end`. False if a record waits for growth.
    fn wait_until_covered(&self, end: Lsn) -> Result<bool> {
        let mut state = self.lock();
        loop {
            state.check_running()?;
            if state.checkpoint >= end {
                return Ok(true);
            }
            if state.growth.is_wanted_beyond(self.request_payload()) {
                return Ok(false);
            }
            if let Some(cause) = state.membership.failed_checkpoint.take() {
                return Err(error::checkpoint_failed("the log keeps its size: what it holds", cause));
            }
            self.pressure.notify_all();
            self.leaving.wait(&mut state);
        }
    }
}

impl State {
    /// Whether smaller devices wait for a checkpoint above the present one.
    pub(super) fn shrinking_awaits_checkpoint(&self) -> bool {
        self.membership.awaited_checkpoint.is_some_and(|end| end > self.checkpoint)
    }
}
