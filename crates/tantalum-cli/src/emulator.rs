//! Names of devices that are not paths: `emulated:PROFILE` and `emulated:PROFILE:FILE`; and `stalled:STALL/PERIOD:DEVICE`, a device
//! that stands still for a while in every period, to see what a slow log device costs and what hiding saves.
//!
//! Promise: a database that is meant to stay never gets a device whose contents go with the process.

use std::{path::Path, sync::Arc, time::Duration};

use tantalum::{DeviceOpener, DeviceRequest};
use tantalum_device::{Device, FileDevice, StallingDevice};
use tantalum_flash::{EmulatedDevice, EmulatedSpec, Profile};
use tantalum_rt::Mutex;

use crate::{
    bench::parse_duration,
    error::{Error, Result},
};

/// Opens emulated devices, and remembers them.
#[derive(Clone)]
pub struct Emulator {
    opened: Arc<Mutex<Vec<Arc<EmulatedDevice>>>>,
    takes_memory: bool,
}

impl Emulator {
    /// For what stays when the program ends: each device needs a file.
    pub fn for_keeps() -> Self {
        Self { opened: Arc::default(), takes_memory: false }
    }

    /// For what goes when the program ends.
    pub fn for_this_run() -> Self {
        Self { opened: Arc::default(), takes_memory: true }
    }

    /// The device that `name` stands for, if it is that of an emulated one. Relative paths in it start at `directory`.
    pub fn open(&self, name: &str, directory: &Path, may_create: bool) -> Result<Option<Arc<EmulatedDevice>>> {
        let Some(spec) = EmulatedSpec::parse(name) else { return Ok(None) };
        let mut spec = spec?;
        if !self.takes_memory && spec.file.is_none() {
            return Err(Error::Other(format!(
                "its contents are in memory and gone when the program ends, and the database with them; give them a \
                 file: {name}:FILE"
            )));
        }
        let named = directory.join(&spec.profile_name);
        if !is_built_in(&spec.profile_name) && named.is_file() {
            spec.profile_name = named.display().to_string();
        }
        if let Some(file) = &mut spec.file {
            *file = directory.join(&*file);
            if !may_create && !file.exists() {
                let file = file.display();
                return Err(Error::Other(format!("{file} is missing, which holds its contents; put it back")));
            }
        }
        let mut opened = self.opened.lock();
        // Devices in memory may share a name.
        let same = opened.iter().filter(|device| without_number(device.name()) == name).count();
        let name = if same == 0 { name.to_owned() } else { format!("{name} #{}", same + 1) };
        let profile = spec.profile()?;
        let model = match &spec.file {
            Some(file) => profile.open_file(file)?,
            None => profile.build()?,
        };
        let device = EmulatedDevice::new(name, model);
        opened.push(Arc::clone(&device));
        Ok(Some(device))
    }

    /// All devices that were opened, in order.
    pub fn opened(&self) -> Vec<Arc<EmulatedDevice>> {
        self.opened.lock().clone()
    }
}

impl Emulator {
    fn open_any(&self, request: &DeviceRequest<'_>) -> Result<Option<Arc<dyn Device>>> {
        let DeviceRequest { name, directory, may_create, .. } = *request;
        let Some(stalled) = Stalled::parse(name).transpose()? else {
            return Ok(self.open(name, directory, may_create)?.map(|device| device as Arc<dyn Device>));
        };
        let device = match self.open(stalled.device, directory, may_create)? {
            Some(device) => device,
            None => open_file(&directory.join(stalled.device), request)?,
        };
        Ok(Some(stalled.wrap(device)))
    }
}

impl DeviceOpener for Emulator {
    fn open(
        &self,
        request: DeviceRequest<'_>,
    ) -> Option<Result<Arc<dyn Device>, Box<dyn std::error::Error + Send + Sync>>> {
        self.open_any(&request).map_err(|error| error.to_string().into()).transpose()
    }
}

/// A name as it is given on the command line, with a profile's path that holds wherever the database lies.
pub fn with_absolute_profile(name: &Path) -> std::path::PathBuf {
    let spec = name.to_str().and_then(EmulatedSpec::parse).and_then(Result::ok);
    let Some(mut spec) = spec.filter(|spec| !is_built_in(&spec.profile_name)) else { return name.to_owned() };
    if let Ok(path) = std::path::absolute(&spec.profile_name)
        && path.is_file()
        && let Some(path) = path.to_str().filter(|path| !path.contains(':'))
    {
        spec.profile_name = path.to_owned();
    }
    spec.to_string().into()
}

fn is_built_in(profile_name: &str) -> bool {
    Profile::names().any(|name| name == profile_name)
}

fn without_number(name: &str) -> &str {
    name.rsplit_once(" #").map_or(name, |(name, _)| name)
}

const STALLED: &str = "stalled:";

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
        let rest = name.strip_prefix(STALLED)?;
        let parsed = parse_stalled(rest).map_err(|what| {
            Error::Other(format!("{name}: {what}; give {STALLED}STALL/PERIOD:DEVICE, such as {STALLED}200ms/1s:log-b"))
        });
        Some(parsed)
    }

    /// Makes `device` stall.
    pub fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(StallingDevice::new(device, self.stall, self.period))
    }
}

fn parse_stalled(text: &str) -> Result<Stalled<'_>, String> {
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

/// The file that stalls; made, with as many bytes as are used, if it does not exist and may be made.
fn open_file(path: &Path, request: &DeviceRequest<'_>) -> Result<Arc<dyn Device>> {
    match request.bytes {
        Some(bytes) if request.may_create && !path.exists() => Ok(Arc::new(FileDevice::create(path, bytes, None)?)),
        _ => Ok(Arc::new(FileDevice::open(path, request.access)?)),
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
