//! Tells the operator about devices of the log that were set aside.

use tantalum_log::{DeviceState, Log};

/// Remembers what was told.
#[derive(Debug, Default)]
pub(super) struct Watch {
    told: Vec<u64>,
}

impl Watch {
    /// Logs an error for each device that was set aside since the last time, with what to do about it.
    pub fn look(&mut self, log: &Log) {
        let devices = log.stats().devices;
        self.told.retain(|id| devices.iter().any(|device| device.device_id == *id));
        for device in devices {
            if let DeviceState::SetAside { reason } = device.state
                && !self.told.contains(&device.device_id)
            {
                let number = device.ordinal;
                tracing::error!(
                    device = %device.name,
                    number,
                    %reason,
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
