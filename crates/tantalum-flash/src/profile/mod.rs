//! Profiles: what makes a model the device that it is, as TOML.
//!
//! Each parameter's source stands in a comment beside it, and a profile lists the published numbers that were used to
//! fit it; everything else that it gives is a prediction.

mod flash;

use std::path::Path;
use std::sync::Arc;

pub use flash::{RawFlash, SolidStateDrive};
use serde::Deserialize;

use crate::block_mapped::{BlockMapped, BlockMappedParameters};
use crate::block_ssd::{BlockSsd, BlockSsdParameters};
use crate::cloud::{CloudParameters, CloudVolume};
use crate::disk::{DiskParameters, HardDisk};
use crate::faults::{FaultLog, FaultyModel, Plan};
use crate::file_backed::{self, InFile, MediumFile};
use crate::usb::{UsbParameters, UsbStick};
use crate::{Contents, Error, ErrorKind, Model, Result};

/// The profiles that come with the crate: name and text.
const BUILT_IN: &[(&str, &str)] = &[
    ("cloud-volume", include_str!("../../profiles/cloud-volume.toml")),
    ("durassd", include_str!("../../profiles/durassd.toml")),
    ("hdd-10k", include_str!("../../profiles/hdd-10k.toml")),
    ("hdd-10k-cached", include_str!("../../profiles/hdd-10k-cached.toml")),
    ("hdd-15k", include_str!("../../profiles/hdd-15k.toml")),
    ("hdd-7200", include_str!("../../profiles/hdd-7200.toml")),
    ("intel-x25e", include_str!("../../profiles/intel-x25e.toml")),
    ("mtron", include_str!("../../profiles/mtron.toml")),
    ("mtron-p35", include_str!("../../profiles/mtron-p35.toml")),
    ("nand-k9wag08u1a", include_str!("../../profiles/nand-k9wag08u1a.toml")),
    ("nvme-fdp", include_str!("../../profiles/nvme-fdp.toml")),
    ("nvme-plp", include_str!("../../profiles/nvme-plp.toml")),
    ("nvme-zns", include_str!("../../profiles/nvme-zns.toml")),
    ("ocz-vertex-ex", include_str!("../../profiles/ocz-vertex-ex.toml")),
    ("ssd-2008", include_str!("../../profiles/ssd-2008.toml")),
    ("ssd-a", include_str!("../../profiles/ssd-a.toml")),
    ("ssd-b", include_str!("../../profiles/ssd-b.toml")),
    ("usb-a", include_str!("../../profiles/usb-a.toml")),
    ("usb-b", include_str!("../../profiles/usb-b.toml")),
    ("usb-c", include_str!("../../profiles/usb-c.toml")),
];

/// A device's parameters.
///
/// ```
/// use tantalum_flash::Profile;
/// let profile = Profile::named("durassd")?;
/// assert!(profile.fitted.iter().any(|id| id.starts_with("ds.table1")));
/// let model = profile.with_capacity(64 << 20).build()?;
/// assert_eq!(model.describe().capacity_bytes, 64 << 20);
/// # Ok::<(), tantalum_flash::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the device is.
    pub description: String,
    /// Bytes that the host can address.
    pub capacity_bytes: u64,
    /// The published numbers, by their identifiers, that parameters were fitted to.
    #[serde(default)]
    pub fitted: Vec<String>,
    /// The kind of device.
    pub device: Kind,
    /// What goes wrong with it.
    pub faults: Option<Plan>,
    /// The profile's name or file, for messages.
    #[serde(skip)]
    name: String,
}

/// A device's kind, with its parameters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A solid-state drive with a page-mapped translation layer.
    SolidState(SolidStateDrive),
    /// Flash without a translation layer.
    RawFlash(RawFlash),
    /// A disk with a spinning medium.
    HardDisk(DiskParameters),
    /// A USB stick, with a hybrid log-block translation layer.
    UsbDrive(UsbParameters),
    /// A solid-state drive with a hybrid log-block translation layer.
    BlockSsd(BlockSsdParameters),
    /// A solid-state drive whose units are rewritten whole.
    BlockMapped(BlockMappedParameters),
    /// A network volume.
    CloudVolume(CloudParameters),
}

impl Profile {
    /// The names of the profiles that come with the crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|&(name, _)| name)
    }

    /// A profile that comes with the crate, or a TOML file.
    ///
    /// # Errors
    /// Those of [`Profile::text`] and [`Profile::parse`].
    pub fn named(name: &str) -> Result<Self> {
        Self::parse(name, &Self::text(name)?)
    }

    /// Reads a profile from TOML. `name` is used in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut profile: Self = toml::from_str(text).map_err(|error| {
            let what = format!("profile {name}{}: {}", line_of(&error, text), error.message());
            Error::new(ErrorKind::InvalidInput, what)
        })?;
        name.clone_into(&mut profile.name);
        Ok(profile)
    }

    /// The text of a profile that comes with the crate, or of a TOML file, with its comments.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is neither; [`ErrorKind::Io`] if the file cannot be read.
    pub fn text(name: &str) -> Result<String> {
        if let Some((_, text)) = BUILT_IN.iter().find(|&&(built_in, _)| built_in == name) {
            return Ok((*text).to_owned());
        }
        let path = Path::new(name);
        if !path.is_file() {
            let known = Self::known();
            let what = format!("there is no profile {name:?}; known are {known}, or give the path of a TOML file");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        std::fs::read_to_string(path).map_err(|source| file_backed::file_error(path, "read", source))
    }

    /// The names that come with the crate, for messages.
    pub(crate) fn known() -> String {
        Self::names().collect::<Vec<_>>().join(", ")
    }

    /// The same device, of another size.
    pub fn with_capacity(mut self, capacity_bytes: u64) -> Self {
        self.capacity_bytes = capacity_bytes;
        self
    }

    /// A device made by the profile, new, with its contents in memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub fn build(&self) -> Result<Box<dyn Model>> {
        Ok(self.build_logged()?.0)
    }

    /// As [`Profile::build`], with the log of the profile's faults that happen.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub fn build_logged(&self) -> Result<(Box<dyn Model>, Arc<FaultLog>)> {
        let model = self.build_on(Contents::in_memory)?;
        FaultyModel::wrap(&self.name, model, self.faults.clone().unwrap_or_default())
    }

    /// The device whose medium lies in a file. If the file is not there, or is empty, the device is made by the profile,
    /// new. Otherwise it is powered on, and its firmware recovers as after a power cut; its time begins when it is ready.
    ///
    /// The file is sparse: it takes the room that was written to. A program that drops the device shuts it down in good
    /// order; one that dies leaves what a drive promises when its host dies: all that has ended if there is no volatile
    /// cache, and all that was flushed if there is one.
    ///
    /// ```
    /// # use tantalum_flash::Profile;
    /// # let directory = tempfile::tempdir()?;
    /// let profile = Profile::named("usb-c")?.with_capacity(8 << 20);
    /// let path = directory.path().join("stick");
    /// profile.open_file(&path)?.write(0, 4096, &[7; 512], true).result?;
    /// let mut read = [0; 512];
    /// profile.open_file(&path)?.read(0, 4096, &mut read).result?;
    /// assert_eq!(read, [7; 512]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]; [`ErrorKind::InUse`] if the file is in use; [`ErrorKind::Mismatch`] and
    /// [`ErrorKind::Corrupt`] if it holds something else or is damaged, and then it stays as it is; [`ErrorKind::Io`].
    pub fn open_file(&self, path: &Path) -> Result<Box<dyn Model>> {
        self.check()?;
        let file = MediumFile::open(path, &self.identity())?;
        let mut model = self.build_on(|len| Contents::in_file(&file, len))?;
        file.complete()?;
        let ready = if file.is_new() { 0 } else { model.power_on(0) };
        let model = Box::new(InFile::new(model, ready));
        match &self.faults {
            None => Ok(model),
            // Damage goes to the file when the device is shut down.
            Some(plan) => Ok(Box::new(InFile::new(FaultyModel::wrap(&self.name, model, plan.clone())?.0, 0))),
        }
    }

    /// What a file must be made for to hold this device: the device and how its medium is divided, but not its speed.
    fn identity(&self) -> String {
        let size = self.capacity_bytes;
        let division = match &self.device {
            Kind::SolidState(drive) => drive.identity(size),
            Kind::RawFlash(flash) => format!("{:?}", flash.whole_geometry(size)),
            Kind::HardDisk(_) | Kind::CloudVolume(_) => "sectors".to_owned(),
            Kind::BlockMapped(parameters) => format!("{:?}", parameters.whole_geometry(size)),
            Kind::UsbDrive(UsbParameters { ftl, .. }) | Kind::BlockSsd(BlockSsdParameters { ftl, .. }) => {
                format!("{:?}", ftl.whole_geometry(size))
            }
        };
        let description: String = self.description.chars().take(200).collect();
        format!("{description:?}, {size} bytes as {division}")
    }

    /// Whether it describes a possible device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub fn check(&self) -> Result<()> {
        let size = self.capacity_bytes;
        let checked = match &self.device {
            Kind::SolidState(drive) => drive.check(size),
            Kind::RawFlash(flash) => flash.check(size),
            Kind::HardDisk(parameters) => parameters.check(size),
            Kind::UsbDrive(parameters) => parameters.check(size),
            Kind::BlockSsd(parameters) => parameters.check(size),
            Kind::BlockMapped(parameters) => parameters.check(size),
            Kind::CloudVolume(parameters) => parameters.check(size),
        };
        checked.map_err(|(key, problem)| {
            Error::new(ErrorKind::InvalidInput, format!("profile {}, key {key}: {problem}", self.name))
        })
    }

    /// Builds the device on contents that `contents` makes of the size that it is given.
    fn build_on(&self, contents: impl Fn(u64) -> Contents) -> Result<Box<dyn Model>> {
        self.check()?;
        let size = self.capacity_bytes;
        Ok(match &self.device {
            Kind::SolidState(drive) => drive.build(size, contents),
            Kind::RawFlash(flash) => Box::new(flash.build(size, contents)),
            Kind::HardDisk(parameters) => Box::new(HardDisk::new(parameters.clone(), size, contents)),
            Kind::UsbDrive(parameters) => Box::new(UsbStick::new(parameters.clone(), size, contents)),
            Kind::BlockSsd(parameters) => Box::new(BlockSsd::new(parameters.clone(), size, contents)),
            Kind::BlockMapped(parameters) => Box::new(BlockMapped::new(parameters.clone(), size, contents)),
            Kind::CloudVolume(parameters) => Box::new(CloudVolume::new(parameters.clone(), size, contents)),
        })
    }
}

/// ", line N" for a mistake in `text` whose place is known.
pub(crate) fn line_of(error: &toml::de::Error, text: &str) -> String {
    let line = |span: std::ops::Range<usize>| 1 + text[..span.start.min(text.len())].matches('\n').count();
    error.span().map(|span| format!(", line {}", line(span))).unwrap_or_default()
}

/// The key that is wrong, and what it should be.
pub(crate) type Problem = (&'static str, String);

/// Finds the first value that is not within its range: key, value, least and most. One that is no number is not.
pub(crate) fn check_ranges(ranges: &[(&'static str, f64, f64, f64)]) -> std::result::Result<(), Problem> {
    match ranges.iter().find(|(_, value, from, to)| !(from..=to).contains(&value)) {
        Some((key, value, from, to)) => Err((key, format!("{value} is not within {from} to {to}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_parses_and_makes_a_device() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap_or_else(|error| panic!("{error}"));
            let model = profile.clone().with_capacity(32 << 20).build().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(model.describe().capacity_bytes, 32 << 20, "{name}");
            let text = Profile::text(name).unwrap();
            let is_parameter = |line: &&str| line.contains(" = ") && !line.starts_with('#');
            let needs_no_source = |line: &&str| line.starts_with("description") || line.starts_with("fitted");
            for parameter in text.lines().filter(is_parameter).filter(|line| !needs_no_source(line)) {
                assert!(parameter.contains(" # "), "{name}: no source is given for {parameter}");
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let good = Profile::text("durassd").unwrap();
        let unknown = good.replace("read_ns", "raed_ns");
        let message = Profile::parse("mine.toml", &unknown).unwrap_err().to_string();
        let line = 1 + good.lines().position(|line| line.starts_with("read_ns")).unwrap();
        assert!(message.contains("mine.toml") && message.contains("raed_ns"), "{message}");
        assert!(message.contains(&format!("line {line}")), "{message}");

        let impossible = good.replace("page_bytes = 8192", "page_bytes = 8000");
        let error = Profile::parse("mine.toml", &impossible).unwrap().build().unwrap_err();
        assert!(error.to_string().contains("key geometry.page_bytes"), "{error}");
        let message = Profile::named("no-such-drive").unwrap_err().to_string();
        assert!(message.contains("durassd"), "{message}");
    }

    #[test]
    fn the_first_value_out_of_its_range_is_named() {
        assert_eq!(check_ranges(&[("a", 1.0, 1.0, 2.0), ("b", 2.0, 1.0, 2.0)]), Ok(()));
        let not_a_number = check_ranges(&[("a", 1.0, 1.0, 2.0), ("b", f64::NAN, 1.0, 2.0), ("c", 9.0, 0.0, 1.0)]);
        assert_eq!(not_a_number.unwrap_err().0, "b");
    }
}
