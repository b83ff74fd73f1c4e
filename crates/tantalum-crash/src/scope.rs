//! What a search may choose from: the devices by their profiles, and what is asked of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tantalum::ErrorKind;
use tantalum_device::WriteCache;
use tantalum_flash::{Error, Kind, Profile, Result, Shape, disk::CacheMode, faults::Plan};
use tantalum_rt::Random;

use crate::{
    config::{Config, Protection},
    machine::miniature,
    report::Failure,
};

/// The name of the device without a profile: memory with any latency, which tears and loses whatever a device may.
pub(crate) const MEMORY: &str = "memory";

/// What a search is asked for. The default is everything.
///
/// ```
/// let options = tantalum_crash::Options { profiles: vec!["durassd".into()], ..Default::default() };
/// let scope = tantalum_crash::Scope::new(options)?;
/// assert_eq!(scope.profiles().collect::<Vec<_>>(), ["durassd"]);
/// # Ok::<(), tantalum_flash::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Profiles by name or file, or `memory`; none: all that come with Tantalum, and memory. Raw flash holds the pages of
    /// in-page logging, drives with zones those of a log-structured store, and nothing else.
    pub profiles: Vec<String>,
    /// Only seeds with one of these torn-page protections; none: all.
    pub only: Vec<Protection>,
    /// Which faults devices have.
    pub faults: Faults,
    /// No device is sent a flush or forced unit access.
    pub without_barriers: bool,
    /// The engine leaves out barriers and, with the protection `device`, double writes on the user's word, whatever devices say.
    pub trusts_devices: bool,
    /// Devices with capacitors have so many.
    pub capacitors: Option<u32>,
}

/// Which faults devices have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Faults {
    /// As the seed decides: none, some that must be survived, or one that cannot be.
    #[default]
    BySeed,
    /// None but those of a profile itself.
    None,
    /// Every device has these.
    Plan(Plan),
}

/// A device to choose.
#[derive(Debug)]
pub(crate) struct Stock {
    pub name: String,
    /// Small, so that it is soon made, and its garbage collected early; none: memory.
    pub profile: Option<Profile>,
    /// What it says of itself.
    pub shape: Option<Shape>,
    /// From submission to completion of a small durable write.
    pub write_latency: Duration,
    /// From power on to the first answer.
    pub start_latency: Duration,
    /// Whether it loses writes by design that it says are durable.
    pub is_unsafe: bool,
}

/// [`Options`], with everything loaded that they name.
#[derive(Debug)]
pub struct Scope {
    pub(crate) options: Options,
    pub(crate) stock: Vec<Stock>,
    /// Flash without a translation layer, for the data of in-page logging.
    pub(crate) raw: Vec<Stock>,
    /// Drives with zones, for the data of log-structured stores.
    pub(crate) zoned: Vec<Stock>,
}

/// The profiles that come with the emulator, but for those that another does all of.
fn different_profiles() -> impl Iterator<Item = &'static str> {
    const WITHIN: &str = "nvme-fdp";
    // The same drive, with placement handles.
    let names = Profile::names().filter(|name| *name != WITHIN);
    names.map(|name| if name == "nvme-plp" { WITHIN } else { name })
}

/// Whether a drive must be written in order.
fn has_zones(profile: &Profile) -> bool {
    matches!(&profile.device, Kind::SolidState(drive) if drive.zones.is_some())
}

/// Bytes of a drive with one zone, if it has zones.
fn zones_bytes(profile: &Profile) -> Option<u64> {
    let Kind::SolidState(drive) = &profile.device else { return None };
    drive.zones.map(|zones| zones.conventional_bytes + zones.zone_bytes(&drive.geometry))
}

impl Scope {
    /// Loads what `options` name.
    ///
    /// # Errors
    /// What is wrong with a profile.
    pub fn new(options: Options) -> Result<Self> {
        let names: Vec<String> = match options.profiles.is_empty() {
            true => std::iter::once(MEMORY).chain(different_profiles()).map(str::to_owned).collect(),
            false => options.profiles.clone(),
        };
        let (mut stock, mut raw, mut zoned) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            let profile = if name == MEMORY { None } else { Some(Profile::named(&name)?) };
            let is_raw = profile.as_ref().is_some_and(|profile| matches!(profile.device, Kind::RawFlash(_)));
            let is_zoned = profile.as_ref().is_some_and(has_zones);
            if is_zoned && options.capacitors.is_some() {
                // It cannot be made with too few.
                continue;
            }
            let list = match (is_raw, is_zoned) {
                (true, _) => &mut raw,
                (_, true) => &mut zoned,
                (false, false) => &mut stock,
            };
            list.push(Stock::new(name, profile, &options)?);
        }
        if stock.is_empty() {
            let problem = "a log needs a device that can be written in any order; name one beside it";
            let what = format!("profile {}: {problem}", options.profiles.join(", "));
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(Self { options, stock, raw, zoned })
    }

    /// What was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The names of the devices to choose from.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.stock.iter().chain(&self.raw).chain(&self.zoned).map(|stock| &*stock.name)
    }

    /// What a seed runs on, for a failure of its process.
    pub fn failure(&self, seed: u64, round: usize, what: String) -> Failure {
        let config = Config::new(seed, self);
        Failure { seed, profiles: config.profiles(), configuration: config.to_string(), round, what }
    }

    /// Whether databases in directories are searched as well: on a file system of memory, whose files break no promise.
    pub(crate) fn searches_directories(&self) -> bool {
        let Options { without_barriers, trusts_devices, capacitors, .. } = self.options;
        self.stock[0].profile.is_none() && !without_barriers && !trusts_devices && capacitors.is_none()
    }

    /// One of them.
    pub(crate) fn pick(&self, random: &mut Random) -> usize {
        // Memory goes to more extremes than any profile.
        let has_memory = self.stock[0].profile.is_none();
        if has_memory && random.u8(0..6) == 0 { 0 } else { random.usize(0..self.stock.len()) }
    }
}

impl Stock {
    fn new(name: String, profile: Option<Profile>, options: &Options) -> Result<Self> {
        let Some(profile) = profile else {
            let zero = Duration::ZERO;
            let (write_latency, start_latency) = (zero, zero);
            return Ok(Self { name, profile, shape: None, write_latency, start_latency, is_unsafe: false });
        };
        let mut profile = miniature(profile);
        if let (Kind::SolidState(drive), Some(count)) = (&mut profile.device, options.capacitors)
            && let Some(capacitors) = &mut drive.capacitors
        {
            capacitors.count = count;
        }
        let is_unsafe = matches!(&profile.device, Kind::HardDisk(disk) if disk.write_cache == CacheMode::NeverFlushed);
        let mut sound = profile.clone().with_capacity(zones_bytes(&profile).unwrap_or(1 << 20));
        sound.faults = None;
        let mut model = sound.build()?;
        let block = [1; 4096];
        // What says that it keeps what has completed is asked for no more.
        let is_volatile = model.describe().write_cache != WriteCache::None;
        let first = model.write(0, 0, &block, is_volatile).done;
        let second = model.write(first, 4096, &block, is_volatile).done;
        model.power_cut(second, &mut Random::with_seed(0));
        let start = model.power_on(second) - second;
        Ok(Self {
            name,
            shape: Some(model.describe()),
            profile: Some(profile),
            write_latency: Duration::from_nanos(second - first),
            start_latency: Duration::from_nanos(start),
            is_unsafe,
        })
    }
}
