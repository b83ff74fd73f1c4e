//! Profiles: what makes a model the device that it is, as TOML.
//!
//! Each parameter's source stands in a comment beside it, and a profile lists the published numbers that were used to
//! fit it; everything else that it gives is a prediction.

mod flash;
mod parse;

use std::path::Path;

pub use flash::{RawFlash, SolidStateDrive};
use serde::Deserialize;

use crate::block_ssd::{BlockSsd, BlockSsdParameters};
use crate::cloud::{CloudParameters, CloudVolume};
use crate::disk::{DiskParameters, HardDisk};
use crate::usb::{UsbParameters, UsbStick};
use crate::{Contents, Error, Model, Result};

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
    ("nand-k9wag08u1a", include_str!("../../profiles/nand-k9wag08u1a.toml")),
    ("nvme-plp", include_str!("../../profiles/nvme-plp.toml")),
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
    /// [`Error::UnknownProfile`], [`Error::Syntax`].
    pub fn named(name: &str) -> Result<Self> {
        Self::parse(name, &Self::text(name)?)
    }

    /// The text of a profile that comes with the crate, or of a TOML file, with its comments.
    ///
    /// # Errors
    /// [`Error::UnknownProfile`] if there is neither; [`Error::File`] if the file cannot be read.
    pub fn text(name: &str) -> Result<String> {
        if let Some((_, text)) = BUILT_IN.iter().find(|&&(built_in, _)| built_in == name) {
            return Ok((*text).to_owned());
        }
        let path = Path::new(name);
        if !path.is_file() {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownProfile { name: name.to_owned(), known });
        }
        std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), operation: "read", source })
    }

    /// The same device, of another size.
    pub fn with_capacity(mut self, capacity_bytes: u64) -> Self {
        self.capacity_bytes = capacity_bytes;
        self
    }

    /// A device made by the profile, new, with its contents in memory.
    ///
    /// # Errors
    /// [`Error::Impossible`].
    pub fn build(&self) -> Result<Box<dyn Model>> {
        self.build_on(Contents::in_memory)
    }

    /// As [`Profile::build`], on contents that `contents` makes of the size that it is given.
    ///
    /// # Errors
    /// [`Error::Impossible`].
    pub fn build_on(&self, contents: impl FnOnce(u64) -> Contents) -> Result<Box<dyn Model>> {
        let (file, size) = (&*self.name, self.capacity_bytes);
        let possible = |check: std::result::Result<(), (&'static str, String)>| {
            check.map_err(|(key, problem)| Error::Impossible { file: file.to_owned(), key, problem })
        };
        Ok(match &self.device {
            Kind::SolidState(drive) => Box::new(drive.build(file, size, contents)?),
            Kind::RawFlash(flash) => Box::new(flash.build(file, size, contents)?),
            Kind::HardDisk(parameters) => {
                possible(parameters.check(size))?;
                Box::new(HardDisk::new(parameters.clone(), size, contents))
            }
            Kind::UsbDrive(parameters) => {
                possible(parameters.check(size))?;
                Box::new(UsbStick::new(parameters.clone(), size, contents))
            }
            Kind::BlockSsd(parameters) => {
                possible(parameters.check(size))?;
                Box::new(BlockSsd::new(parameters.clone(), size, contents))
            }
            Kind::CloudVolume(parameters) => {
                possible(parameters.check(size))?;
                Box::new(CloudVolume::new(parameters.clone(), size, contents))
            }
        })
    }
}

#[cfg(test)]
mod tests;
