//! The operator task, which changes the log's devices while clients are at work, and replaces devices that are gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum::{Db, Error, ErrorKind};
use tantalum_device::Device;
use tantalum_rt::{Random, sleep};

use crate::{
    history::Recorder,
    stop::{Stop, is_closed},
};

/// Adds, removes and replaces devices at random.
pub(crate) struct Operator {
    pub db: Db,
    /// All devices that the log may have.
    pub devices: Vec<Arc<dyn Device>>,
    /// Whether devices come and go for no reason.
    pub changes: bool,
    pub random: Random,
    /// How long it rests at most between changes.
    pub pause: Duration,
    /// Whether a device that joins may fail.
    pub may_fail: bool,
    pub recorder: Recorder,
    pub stop: Arc<AtomicBool>,
}

impl Operator {
    /// Changes devices until `stop` is set, or until a change fails as no sound device lets it.
    pub fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            sleep(self.pause.mul_f64(self.random.f64()));
            match self.repair().and_then(|repaired| if repaired.is_some() { Ok(repaired) } else { self.change() }) {
                Ok(Some(name)) => self.recorder.count(name, 1),
                Ok(None) => return,
                // The last one stays, and the last two of a mirror; one that hung must not be used while its write may still
                // land.
                Err(error) if is_refusal(&error) => {
                    self.recorder.count("changes of log devices refused", 1);
                }
                Err(error) if self.may_fail && is_failure(&error) => {
                    self.recorder.count("changes of log devices that failed", 1);
                }
                Err(error) if is_closed(&error) => return,
                Err(error) => return self.recorder.record(Stop::from(error).into_event()),
            }
        }
    }

    /// Puts a device in the place of one that is gone.
    fn repair(&mut self) -> tantalum::Result<Option<&'static str>> {
        let listed = self.db.stats()?.log.devices;
        let Some(gone) = listed.iter().find(|device| device.name.is_empty()) else { return Ok(None) };
        let is_free = |device: &&Arc<dyn Device>| listed.iter().all(|other| other.name != device.name());
        let Some(free) = self.devices.iter().find(is_free) else { return Ok(None) };
        self.db.replace_log_device(&gone.ordinal.to_string(), Arc::clone(free))?;
        Ok(Some("log devices that were lost replaced"))
    }

    /// Changes devices for no reason; `None` if they are to stay.
    fn change(&mut self) -> tantalum::Result<Option<&'static str>> {
        if !self.changes {
            return Ok(None);
        }
        self.change_one().map(Some)
    }

    fn change_one(&mut self) -> tantalum::Result<&'static str> {
        let devices = self.db.stats()?.log.devices;
        let present: Vec<String> =
            devices.into_iter().map(|device| device.name).filter(|name| !name.is_empty()).collect();
        let is_present = |device: &&Arc<dyn Device>| present.iter().any(|name| name == device.name());
        let spare: Vec<_> = self.devices.iter().filter(|device| !is_present(device)).cloned().collect();
        let victim = present[self.random.usize(0..present.len())].clone();
        match self.random.u8(0..4) {
            0 if !spare.is_empty() => {
                self.db.add_log_device(spare[self.random.usize(0..spare.len())].clone())?;
                Ok("log devices added")
            }
            1 if !spare.is_empty() => {
                self.db.replace_log_device(&victim, spare[self.random.usize(0..spare.len())].clone())?;
                Ok("log devices replaced")
            }
            2 => {
                let Some(own) = self.devices.iter().find(|device| device.name() == victim) else {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!("log device {victim} is none of the machine's"),
                    ));
                };
                self.db.replace_log_device(&victim, Arc::clone(own))?;
                Ok("log devices formatted anew")
            }
            _ => {
                self.db.remove_log_device(&victim)?;
                Ok("log devices removed")
            }
        }
    }
}

/// A device that must not leave, or be used yet. That another change is under way is none: there is no other operator.
fn is_refusal(error: &Error) -> bool {
    error.kind() == ErrorKind::InUse || error.kind() == ErrorKind::Busy && error.about().is_some()
}

/// A device failed, or the checkpoint that a device waited for.
fn is_failure(error: &Error) -> bool {
    use ErrorKind::{NoSpace, OutOfRange, PowerLost, StoreFull, TimedOut, Truncated, WritesLost};
    let kind = error.kind();
    error.is_io() || matches!(kind, NoSpace | OutOfRange | PowerLost | StoreFull | TimedOut | Truncated | WritesLost)
}

#[cfg(test)]
mod tests {
    use tantalum_log::error::{change_under_way, still_writing};

    use super::*;

    #[test]
    fn a_device_with_a_write_under_way_is_refused_and_a_second_change_is_odd() {
        assert!(is_refusal(&still_writing("log-0")));
        assert!(!is_refusal(&change_under_way()) && !is_failure(&change_under_way()));
    }
}
