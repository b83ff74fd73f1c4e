//! Tells the operator about devices of the log that were set aside, and when two copies are no longer kept.

use tantalum_log::{Log, LogStats};

/// Remembers what was told.
#[derive(Debug, Default)]
pub(super) struct Watch {
    told: Vec<u64>,
    aside: Vec<u64>,
    told_of_one_copy: bool,
}

impl Watch {
    /// Logs an error for each device that was set aside since the last time, with what to do about it.
    /// `changed` hears of it first.
    pub fn look(&mut self, log: &Log, changed: &mut impl FnMut(&LogStats)) {
        let stats = log.stats();
        let aside = stats.devices.iter().filter(|device| device.set_aside.is_some());
        let aside: Vec<u64> = aside.map(|device| device.device_id).collect();
        if aside != self.aside {
            changed(&stats);
            self.aside = aside;
        }
        if stats.keeps_copies == self.told_of_one_copy {
            self.told_of_one_copy = !stats.keeps_copies;
            match stats.keeps_copies {
                true => tantalum_rt::tracing::info!("the log keeps two copies again"),
                false => tantalum_rt::tracing::error!(
                    "the log keeps one copy only: one piece of hardware is left, and losing it would lose commits. Add or \
                     replace a device"
                ),
            }
        }
        let devices = stats.devices;
        self.told.retain(|id| devices.iter().any(|device| device.device_id == *id));
        for device in devices {
            if let Some(cause) = device.set_aside
                && !self.told.contains(&device.device_id)
            {
                let number = device.ordinal;
                tantalum_rt::tracing::error!(
                    device = %device.name,
                    number,
                    reason = %cause,
                    "a device of the log was set aside; the log goes on without it. {}",
                    remedy(number)
                );
                self.told.push(device.device_id);
            }
        }
    }
}

/// What to do about a device that was set aside.
pub(crate) fn remedy(number: u32) -> String {
    format!(
        "Replace it with `tantalum log replace-device DIR {number} NEW`, once it is repaired by itself with its path as NEW; \
         or take it out of the log with `tantalum log remove-device DIR {number}`"
    )
}
