//! Emulated devices: which there are, what they are made of, and their micro benchmarks in virtual time.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use serde::Serialize;
use tantalum_device::Device;
use tantalum_flash::{EmulatedDevice, EmulatedSpec, Kind, Profile};
use tantalum_lab::micro::{self, Benchmark, FlashLayout, Results, Suite};
use tantalum_report::{Table, units};
use tantalum_rt::Simulation;

use crate::error::{Error, Out, Result};

/// A profile, and what it is called on the command line.
#[derive(Clone)]
pub struct Emulated {
    /// Its name or its file.
    pub name: String,
    profile: Profile,
    /// What holds the contents of a device that is measured, if it is not memory.
    pub file: Option<PathBuf>,
}

/// The JSON output of `device list` (a list of these, without the text) and of `device show`.
#[derive(Serialize)]
struct Shown {
    /// The profile.
    name: String,
    /// What it is like.
    description: String,
    /// The size of a device.
    capacity_bytes: u64,
    /// Which of its parameters were fitted to published results, and how.
    fitted: Vec<String>,
    /// The profile itself, TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// The profile that is meant, if one is: `emulated:PROFILE[:FILE]`, or a profile's name where no file has it.
pub fn find(path: &Path) -> Result<Option<Emulated>> {
    let Some(text) = path.to_str() else { return Ok(None) };
    let spec = match EmulatedSpec::parse(text) {
        Some(spec) => spec?,
        None if !path.exists() && Profile::names().any(|name| name == text) => {
            EmulatedSpec { profile_name: text.to_owned(), file: None }
        }
        None => return Ok(None),
    };
    Ok(Some(Emulated { profile: spec.profile()?, name: spec.profile_name, file: spec.file }))
}

/// Runs `device list`.
pub fn list(json: bool) -> Result<ExitCode> {
    let shown = |name: &str| -> Result<Shown> { Ok(Shown::new(name, &Profile::named(name)?, None)) };
    let all = Profile::names().map(shown).collect::<Result<Vec<_>>>()?;
    if json {
        tantalum_report::print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["profile", "capacity", "what"]);
    for profile in all {
        table.row([profile.name, units::bytes(profile.capacity_bytes), profile.description]);
    }
    Out::new().line(table)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `device show` for a profile.
pub fn show(emulated: &Emulated, json: bool) -> Result<ExitCode> {
    let Emulated { name, profile, .. } = emulated;
    let text = Profile::text(name)?;
    if json {
        tantalum_report::print_json(&Shown::new(name, profile, Some(text)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let capabilities = emulated.device()?.capabilities();
    let mut out = Out::new();
    out.line(format_args!("{name}: {}, {}", profile.description, units::bytes(profile.capacity_bytes)))?;
    out.line(capabilities)?;
    if profile.fitted.is_empty() {
        out.line("fitted to no published number")?;
    }
    profile.fitted.iter().try_for_each(|id| out.line(format_args!("fitted to {id}")))?;
    out.line(format_args!("\n{}", text.trim_end()))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a profile as it is.
pub fn print_text(emulated: &Emulated) -> Result<ExitCode> {
    Out::new().print(Profile::text(&emulated.name)?)?;
    Ok(ExitCode::SUCCESS)
}

impl Shown {
    fn new(name: &str, profile: &Profile, text: Option<String>) -> Self {
        let Profile { description, capacity_bytes, fitted, .. } = profile.clone();
        Self { name: name.to_owned(), description, capacity_bytes, fitted, text }
    }
}

impl Emulated {
    /// A new device in memory, in the caller's world.
    pub fn device(&self) -> Result<Arc<dyn Device>> {
        Ok(EmulatedDevice::new(&self.name, self.profile.build()?))
    }

    /// How it is divided, if it is raw flash.
    pub fn flash_layout(&self) -> Option<FlashLayout> {
        match &self.profile.device {
            Kind::RawFlash(flash) => Some(FlashLayout::of(flash, self.profile.capacity_bytes)),
            _ => None,
        }
    }

    /// Runs a benchmark on a new device, filled, in virtual time.
    pub fn measure(&self, suite: &Suite, seed: u64, benchmark: &Benchmark) -> Result<Results> {
        let (emulated, suite, benchmark) = (self.clone(), suite.clone(), benchmark.clone());
        let run = move || {
            let device = emulated.new_device()?;
            suite.prepare(&device, &|_| ())?;
            Ok(micro::execute(&device, &benchmark, &|_, _| ())?)
        };
        Simulation::new(seed).run(run).expect_finished()
    }

    /// A new device to be measured, in its file if it has one.
    pub fn new_device(&self) -> Result<Arc<dyn Device>> {
        let Some(file) = &self.file else { return self.device() };
        if file.exists() {
            std::fs::remove_file(file).map_err(|error| Error::file("replace", file, error))?;
        }
        Ok(EmulatedDevice::new(&self.name, self.profile.open_file(file)?))
    }
}
