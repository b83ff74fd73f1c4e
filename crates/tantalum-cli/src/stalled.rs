//! `stalled:STALL/PERIOD:DEVICE`: a device that stands still for a while in every period, to see what a slow log
//! device costs and what hiding saves.

use std::{path::Path, sync::Arc, time::Duration};

use tantalum_device::{Access, Device, FileDevice, StallingDevice};

use crate::{
    bench::parse_duration,
    error::{Error, Result},
};

const PREFIX: &str = "stalled:";

/// What such a name says.
#[derive(Debug, PartialEq, Eq)]
pub struct Stalled<'a> {
    /// How long the device stands still in each period.
    stall: Duration,
    period: Duration,
    /// The device's own name.
    pub device: &'a str,
}

impl<'a> Stalled<'a> {
    /// What `name` says, if it is such a name.
    pub fn parse(name: &'a str) -> Option<Result<Self>> {
        let rest = name.strip_prefix(PREFIX)?;
        let parsed = parse(rest).map_err(|what| {
            Error::Other(format!("{name}: {what}; give {PREFIX}STALL/PERIOD:DEVICE, such as {PREFIX}200ms/1s:log-b"))
        });
        Some(parsed)
    }

    /// Makes `device` stall.
    pub fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(StallingDevice::new(device, self.stall, self.period))
    }
}

fn parse(text: &str) -> Result<Stalled<'_>, String> {
    let (times, device) = text.split_once(':').ok_or("the device is missing")?;
    let (stall, period) = times.split_once('/').ok_or("the period is missing")?;
    let [stall, period] = [parse_duration(stall)?, parse_duration(period)?];
    if stall >= period {
        return Err("a stall must be shorter than its period, or nothing is ever written".to_owned());
    }
    if device.is_empty() {
        return Err("the device is missing".to_owned());
    }
    Ok(Stalled { stall, period, device })
}

/// The file that stalls; made, with `bytes` bytes, if it does not exist and may be made.
pub fn open_file(path: &Path, bytes: Option<u64>, may_create: bool) -> Result<Arc<dyn Device>> {
    match bytes {
        Some(bytes) if may_create && !path.exists() => Ok(Arc::new(FileDevice::create(path, bytes, None)?)),
        _ => Ok(Arc::new(FileDevice::open(path, Access::ReadWrite)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let expected = Stalled { stall: Duration::from_millis(200), period: Duration::from_secs(1), device: "a:b" };
        assert_eq!(Stalled::parse("stalled:200ms/1s:a:b").unwrap().unwrap(), expected);
        assert!(Stalled::parse("log-b").is_none());
        for bad in ["", "200ms", "200ms:b", "200ms/1s", "200ms/1s:", "1s/1s:b", "x/1s:b", "0s/1s:b"] {
            let error = Stalled::parse(&format!("stalled:{bad}")).unwrap().unwrap_err().to_string();
            assert!(error.contains("stalled:STALL/PERIOD:DEVICE"), "{bad}: {error}");
        }
    }
}
