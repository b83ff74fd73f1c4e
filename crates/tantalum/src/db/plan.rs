//! The plan of an opening: where the database is, which settings hold, what its superblock says, and what it runs on. It is resolved
//! once, from a directory or from devices, and refuses what cannot be; [`open`](super::open) acts on it. Restoring a base backup
//! makes its new database by the same steps.

use std::{path::Path, sync::Arc};

use tantalum_device::{Access, Device, MemoryLimit};
use tantalum_log::{ArchiveTarget, LostDevice};
use tantalum_rt::{Random, random_seed};
use tantalum_store::{DoubleWrite, PageObserver, Protection, StoreKind, Superblock};

use super::{
    DeviceOpener, Devices,
    barriers::BarrierPolicy,
    creation::CreationMark,
    files::{Directory, Places},
    log_devices::{Gathered, lost_by_number},
};
use crate::{
    error::{self, Result},
    options::{Builder, Progress, Settings, TornPageProtection, reporter},
};

pub(crate) struct Plan {
    pub settings: Settings,
    /// The devices keep what is written to them in memory.
    pub is_read_only: bool,
    /// `None` if the database is to be created.
    pub superblock: Option<Superblock>,
    /// As the database uses them: wrapped, and without the barriers that are spared.
    pub devices: Devices,
    /// Where the log is archived.
    pub archive: Option<ArchiveTarget>,
    /// The names of the log's devices that are open, for each that the settings name.
    pub log_names: Vec<Vec<String>>,
    /// The log's devices are new: its records are in the archive.
    pub rebuilds_log: bool,
    /// A device of the log that is said to be lost.
    pub lost: Option<LostDevice>,
    /// Absent if the database is opened on devices.
    pub home: Option<Home>,
    pub barriers: Arc<BarrierPolicy>,
    pub page_observer: Option<Arc<dyn PageObserver>>,
    pub progress: Option<Progress>,
    /// It is a copy that is to be small.
    pub is_copy: bool,
}

/// The directory of a database, and what was found by way of it.
pub(crate) struct Home {
    pub directory: Directory,
    pub opener: Option<Box<dyn DeviceOpener>>,
    /// The log's devices, and what the record of devices says of them.
    pub gathered: Gathered,
    /// The creation that is under way.
    pub creation: Option<CreationMark>,
}

/// What was found by way of a directory or of devices: the fields of a [`Plan`] of these names, the devices as they are.
struct Found {
    settings: Settings,
    superblock: Option<Superblock>,
    devices: Devices,
    archive: Option<ArchiveTarget>,
    log_names: Vec<Vec<String>>,
    lost: Option<LostDevice>,
    home: Option<Home>,
}

impl Plan {
    /// The plan for the database in a directory. One that does not exist is begun to be created: its files are there.
    pub fn in_directory(mut builder: Builder, path: &Path) -> Result<Self> {
        let may_create = builder.may_create();
        let access = builder.access();
        let directory = Directory::open(path, may_create, access)?;
        let settings = std::mem::take(&mut builder.settings).over(directory.settings.clone().unwrap_or_default());
        settings.check()?;
        let opener = builder.opener.take();
        let places = Places::new(&directory, &settings, opener.as_deref(), may_create, access)?;
        let superblock = places.superblock()?;
        let archive = match builder.archive_device.take() {
            Some(device) => Some(ArchiveTarget::Device(device)),
            None => places.archive(may_create)?,
        };
        builder.check(&settings, superblock.as_ref(), &path.display().to_string(), archive.is_some())?;
        let log_places = places.log;
        let (devices, gathered, creation) = match &superblock {
            Some(superblock) => {
                let report = &mut reporter(&mut builder.progress);
                let (devices, gathered) = places.open(superblock, builder.rebuilds_log, report)?;
                (devices, gathered, None)
            }
            None => {
                let (devices, gathered, mark) = places.create(&mut reporter(&mut builder.progress))?;
                (devices, gathered, Some(mark))
            }
        };
        let lost = builder.lost_log_device.take().map(|name| gathered.lost(&name, &log_places)).transpose()?;
        let log_names = gathered.names_in_settings(&log_places);
        let home = Some(Home { directory, opener, gathered, creation });
        Self::of(builder, Found { settings, superblock, devices, archive, log_names, lost, home })
    }

    /// The plan for the database on devices.
    pub fn on_devices(mut builder: Builder, devices: Devices) -> Result<Self> {
        let settings = std::mem::take(&mut builder.settings);
        settings.check()?;
        let lost = builder.lost_log_device.as_deref().map(lost_by_number).transpose()?;
        let superblock = Superblock::read(&*devices.data)?;
        let archive = builder.archive_device.take().map(ArchiveTarget::Device);
        builder.check(&settings, superblock.as_ref(), devices.data.name(), archive.is_some())?;
        let partitions = devices.log.chunks(settings.log_partitions() as usize);
        let names = |parts: &[Arc<dyn Device>]| parts.iter().map(|part| part.name().to_owned()).collect();
        let log_names = partitions.map(names).collect();
        Self::of(builder, Found { settings, superblock, devices, archive, log_names, lost, home: None })
    }

    fn of(builder: Builder, found: Found) -> Result<Self> {
        let Found { settings, superblock, devices, archive, log_names, lost, home } = found;
        let devices = builder.keep_unchanged(devices, &settings);
        let barriers = BarrierPolicy::new(settings.barriers(), builder.wrap_devices);
        Ok(Self {
            settings,
            is_read_only: builder.read_only,
            superblock,
            devices: barriers.over_all(devices)?,
            archive: archive.map(|archive| barriers.over_archive(archive)).transpose()?,
            log_names,
            rebuilds_log: builder.rebuilds_log,
            lost,
            home,
            barriers,
            page_observer: builder.page_observer,
            progress: builder.progress,
            is_copy: builder.is_copy,
        })
    }

    /// Where relative paths start.
    pub fn directory(&self) -> &Path {
        self.home.as_ref().map_or(Path::new("."), |home| home.directory.path())
    }

    /// The mark of the creation that is under way in a directory.
    pub fn creation(&self) -> Option<&CreationMark> {
        self.home.as_ref().and_then(|home| home.creation.as_ref())
    }
}

/// The superblock of a new database. It names no session yet. The double-write area has its size, or `area_grows` with the data.
pub(super) fn new_superblock(
    settings: &Settings,
    devices: &Devices,
    log_id: Option<u128>,
    protection: Protection,
    area_grows: bool,
) -> Superblock {
    let mut random = Random::with_seed(random_seed());
    let (store_kind, page_size) = (settings.page_store(), settings.page_size());
    let capabilities = devices.data.capabilities();
    Superblock {
        database_id: random.u128(..),
        log_id: log_id.unwrap_or_else(|| random.u128(..)),
        page_size,
        store_kind,
        units: (store_kind == StoreKind::InPageLogging).then(|| settings.unit_sizes(capabilities.logical_block)),
        double_write_slots: match (store_kind, &devices.double_write) {
            (StoreKind::InPlace, Some(_)) if area_grows => DoubleWrite::MAX_SLOTS,
            (StoreKind::InPlace, Some(area)) => DoubleWrite::slots_in(area.capacity_bytes(), page_size as usize),
            _ => 1,
        },
        segments: (store_kind == StoreKind::LogStructured).then(|| settings.segment_sizes(capabilities.zones)),
        compressed_pages: settings.compresses_pages_in(store_kind),
        lifetime_streams: settings.has_lifetime_streams_in(store_kind),
        protection,
        session: None,
    }
}

impl Builder {
    /// Whether a database that does not exist is created: not where one is to be mended.
    fn may_create(&self) -> bool {
        !self.refuses_to_create && !self.read_only && !self.rebuilds_log && self.lost_log_device.is_none()
    }

    /// The devices of a database that is opened for reading only stay as they are: what is written to them is in memory.
    fn keep_unchanged(&self, devices: Devices, settings: &Settings) -> Devices {
        match self.read_only {
            true => {
                let remedy = "raise read_only_memory_bytes, or open the database for writing once, which stores what recovery changes";
                devices.with_writes_in(&MemoryLimit::of(settings.read_only_memory_bytes(), remedy))
            }
            false => devices,
        }
    }

    fn access(&self) -> Access {
        if self.read_only { Access::ReadOnly } else { Access::ReadWrite }
    }

    /// Refuses what the database `file` cannot be opened, or a new one be created with.
    fn check(&self, settings: &Settings, superblock: Option<&Superblock>, file: &str, is_archived: bool) -> Result<()> {
        if self.read_only && self.rebuilds_log {
            let what = "rebuild_log: it makes new devices; open the database without read_only";
            return Err(error::option(what));
        }
        let Some(superblock) = superblock else {
            return match self.may_create() {
                true => check_archiving(settings.page_store(), is_archived, false),
                false => Err(error::not_found(file)),
            };
        };
        check_format(settings, superblock, file)?;
        settings.check_pool(superblock.page_size)?;
        check_archiving(superblock.store_kind, is_archived, self.rebuilds_log)
    }
}

/// Refuses settings that differ from what the database was created with.
fn check_format(settings: &Settings, superblock: &Superblock, file: &str) -> Result<()> {
    let refuse = |key: &str, asked: String, has: String| {
        Err(error::option(format!(
            "{key}: {asked} was asked for, but {file} was created with {has}; it cannot be changed"
        )))
    };
    if let Some(size) = settings.page_size
        && size != superblock.page_size
    {
        return refuse("page_size", size.to_string(), superblock.page_size.to_string());
    }
    if let Some(asked) = settings.page_store
        && asked != superblock.store_kind
    {
        return refuse("page_store", asked.to_string(), superblock.store_kind.to_string());
    }
    for (key, asked, has) in [
        ("erase_unit_bytes", settings.erase_unit_bytes, superblock.units.map(|units| units.unit)),
        ("log_region_bytes", settings.log_region_bytes, superblock.units.map(|units| units.region)),
        ("segment_bytes", settings.segment_bytes, superblock.segments.map(|sizes| sizes.segment)),
        ("segment_fill_percent", settings.segment_fill_percent, superblock.segments.map(|sizes| sizes.fill_percent)),
    ] {
        if let (Some(asked), Some(has)) = (asked, has)
            && asked != has
        {
            return refuse(key, asked.to_string(), has.to_string());
        }
    }
    let fits = match settings.torn_page_protection() {
        TornPageProtection::Auto => true,
        // What redo repeats has no images in the log, unless they were there all along.
        TornPageProtection::FullPageImages => superblock.protection == Protection::FullPageImages,
        _ => superblock.protection != Protection::Store,
    };
    if !fits {
        let (asked, has) = (settings.torn_page_protection(), superblock.protection);
        return refuse("torn_page_protection", format!("{asked:?}"), format!("{has:?}"));
    }
    Ok(())
}

/// Refuses an archive where the log has nothing that could be restored from it, and to make such a log anew.
fn check_archiving(store: StoreKind, is_archived: bool, rebuilds_log: bool) -> Result<()> {
    match store {
        StoreKind::InPlace | StoreKind::LogStructured => return Ok(()),
        StoreKind::InPageLogging => {}
    }
    let what = match (is_archived, rebuilds_log) {
        (_, true) => {
            "rebuild_log: the page store in-page-logging has no archive that its log could be made from; restore a \
             backup of rows"
        }
        (true, false) => {
            "log_archive: the page store in-page-logging leaves nothing in the log that an archive could restore; \
             leave it out"
        }
        (false, false) => return Ok(()),
    };
    Err(error::option(what))
}
