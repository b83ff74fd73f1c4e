//! What readers of the running log ask the scheduler ([`LogReader`](crate::LogReader)).

use std::time::Duration;

use tantalum_rt::now;

use super::{Scheduler, State};
use crate::format::slot::EpochStart;
use crate::log_device::LogDevice;
use crate::recovery::members::Member;
use crate::{ArchiveTarget, Lsn, Result, error};

impl Scheduler {
    /// The areas of all devices that the log has now, healthy or not: main areas first.
    pub(crate) fn readable_areas(&self) -> Vec<Member> {
        let state = self.lock();
        let present = || state.placement.devices.iter().filter(|device| device.is_present());
        let member = |device: &LogDevice, layout, is_hiding| {
            Member::of_running(self.log_id, device.device_id, device.device(), layout, is_hiding)
        };
        let main = present().map(|device| member(device, device.main.layout, false));
        let hiding = present().filter_map(|device| Some(member(device, device.hiding.as_ref()?.layout, true)));
        main.chain(hiding).collect()
    }

    /// The epochs that are remembered, oldest first.
    pub(crate) fn epochs(&self) -> Vec<EpochStart> {
        self.slots.lock().epochs().to_vec()
    }

    /// The archive, whether or not it is written to.
    pub(crate) fn archive_target(&self) -> Option<ArchiveTarget> {
        let attached = self.lock().archive.as_ref().map(|archive| archive.target().clone());
        attached.or_else(|| self.options.archive.as_ref().map(|archive| archive.target.clone()))
    }

    /// Blocks until more than what lies before `at` is durable, and returns true; or false after `timeout`.
    pub(crate) fn wait_until_durable_beyond(&self, at: Lsn, timeout: Duration) -> Result<bool> {
        let deadline = now() + timeout;
        let mut state = self.lock();
        loop {
            if self.durable() > at {
                return Ok(true);
            }
            state.check_running()?;
            if state.stopping {
                return Err(error::closed());
            }
            let rest = deadline - now();
            if rest.is_zero() {
                return Ok(false);
            }
            state.followers += 1;
            self.followed.wait_for(&mut state, rest);
            state.followers -= 1;
        }
    }

    /// Lets waiting readers look again.
    pub(super) fn wake_followers(&self, state: &State) {
        if state.followers > 0 {
            self.followed.notify_all();
        }
    }
}
