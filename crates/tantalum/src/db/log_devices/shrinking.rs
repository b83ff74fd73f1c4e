//! The log's file becomes small again, when that is asked for: a file of the size with which logs begin takes its place.
//!
//! That is growth with a smaller file ([`growth`](super::growth)), and what a crash leaves is put right in the same way: the larger
//! file stays. The log says when the smaller one may come ([`Log::shrink_devices`]); then it grows again as any log.

use std::sync::atomic::{AtomicBool, Ordering};

use tantalum_log::Log;

use super::{
    LogDevices,
    change::UnderWay,
    growth::{Attempt, LogFile},
};
use crate::error::Result;

impl LogDevices {
    /// Puts a file of the initial size in the place of the log's, if that is larger. Waits for the end of a change of the devices, and
    /// for a checkpoint. Returns how many bytes are given back: 0 where the log has no file that grows, where a record needs its size,
    /// and where it is larger than the settings allow by now, so that it could not take all records again.
    pub fn shrink(&self, log: &Log) -> Result<u64> {
        if self.directory.is_none() {
            return Ok(0);
        }
        let settings = &self.settings;
        let (Some(bytes), Some(sections)) = (settings.initial_log_bytes(), settings.initial_section_bytes()) else {
            return Ok(0);
        };
        let _operator = self.operator.lock();
        self.operator_waits.store(true, Ordering::Release);
        let opener = self.opener.lock();
        self.operator_waits.store(false, Ordering::Release);
        let change = UnderWay { own: self, log, opener: opener.as_deref() };
        let file = LogFile { change, stop: &AtomicBool::new(false) };
        file.tidy()?;
        file.remove_partial(|_| true)?;
        file.shrink(bytes, sections)
    }
}

impl LogFile<'_> {
    fn shrink(&self, bytes: u64, section_bytes: u32) -> Result<u64> {
        let (log, settings, full) = (self.change.log, &self.change.own.settings, self.places().file_bytes());
        let Some((current, old)) = self.present()?.pop() else { return Ok(0) };
        if current <= bytes || !log.takes_all_on(full / u64::from(settings.log_partitions())) {
            return Ok(0);
        }
        let shrink = |old: &[u32], new: &[_]| log.shrink_devices(old, new, section_bytes);
        let shrunk =
            self.put_in_place(&old, bytes, &shrink).map_err(|error| error.context("the log could not shrink"))?;
        let returned = match shrunk {
            Attempt::Done => current - bytes,
            Attempt::Interrupted => 0,
        };
        tantalum_rt::tracing::debug!(returned, "the log has shrunk");
        Ok(returned)
    }
}
