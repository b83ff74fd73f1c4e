//! From a [`Plan`] to a database that can be used: created where there is none, recovered where there is one.
//!
//! Creation writes the superblock last, so a creation that did not end leaves no database, and is simply begun anew.

use std::{collections::BTreeMap, sync::Arc};

use tantalum_device::{AlignedBuffer, Characteristics, Device, Durability};
use tantalum_log::{ArchiveOptions, Log, LogOptions, Recovery, inspect_archive, remove_archive};
use tantalum_store::{Logging, PageStore, StoreDevices, Superblock};

use super::{
    Core, CoreKind, Devices,
    catalog::Catalog,
    creation::CreationMark,
    log_devices::{self, LogDevices},
    plan::{Home, Plan, new_superblock},
    protection,
};
use crate::{
    error::{self, Error, ErrorKind, Result},
    options::{OpenPhase, OpenProgress, Settings, reporter, wrong_number_of_files},
    recovery::{self, Opened, RedoProgress},
};

/// The superblock and its copy, the first space map, the catalog's root: all that creating a database writes.
const PAGES_OF_A_CREATION: usize = 4;

/// Record bytes that the log gathers at most: room for a value of the largest size that a commit's record has, and as much again.
pub(super) const LOG_BUFFER_BYTES: usize = 2 << 20;

/// Opens the database of a plan, or creates it.
pub(crate) fn open(mut plan: Plan) -> Result<Core> {
    let (superblock, opened) = plan.run().map_err(|error| match &plan.home {
        Some(home) => home.gathered.explain(error),
        None => error,
    })?;
    if let Some(Home { directory, creation: Some(mark), .. }) = &plan.home {
        directory.end_creation(mark)?;
    }
    let Plan { settings, is_read_only, devices, home, barriers, page_observer, is_copy, .. } = plan;
    if let Some(observer) = page_observer {
        opened.pool.observe(observer);
    }
    let (log, policy) = (opened.pool.log(), barriers);
    let (log_devices, directory) = match home {
        Some(Home { directory, opener, gathered, .. }) => {
            let record_in = (!is_read_only).then(|| directory.path().into());
            (LogDevices::of_directory(record_in, &settings, opener, gathered, log, policy), Some(directory))
        }
        None => (LogDevices::of_devices(&settings, log, policy), None),
    };
    let kind = CoreKind { is_read_only, is_copy };
    Core::start(settings, superblock, opened, &devices, log_devices, kind, directory)
}

impl Plan {
    fn run(&mut self) -> Result<(Superblock, Opened)> {
        let devices = self.devices.clone();
        match self.superblock {
            Some(superblock) => self.recover(&devices, superblock),
            None => self.create(&devices),
        }
    }

    fn recover(&mut self, devices: &Devices, superblock: Superblock) -> Result<(Superblock, Opened)> {
        let as_left = protection::store_as_left(devices, &superblock, &self.settings)?;
        let protection = protection::at_open(&self.settings, devices, superblock.page_size, superblock.protection);
        // Refused before the log is touched.
        store_on(devices, &Superblock { protection, ..superblock }, &self.settings)?;
        let read_only = self.is_read_only;
        let archive = self.archive.clone().map(|target| ArchiveOptions { read_only, ..self.settings.archive(target) });
        if self.rebuilds_log {
            Self::check_archive(archive.as_ref(), &superblock)?;
        }
        let options = LogOptions { archive, ..self.log_options()? };
        let sessions = self.sessions(devices, &superblock, &*as_left)?;
        let log = match self.rebuilds_log {
            true => self.rebuild_log(devices, options, &*as_left, &sessions)?,
            false => self.open_log(devices, options)?,
        };
        drop(as_left);
        if log.log_id() != superblock.log_id {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the log on {log} belongs to another database than {data}; give the log devices of this one",
                    data = devices.data.name(),
                    log = devices.log.first().map_or_else(String::new, |device| device.name().into())
                ),
            ));
        }
        if let Some(home) = &self.home {
            home.gathered.check_used(&log.devices())?;
        }
        let log_name = names_of(&devices.log);
        sessions.check_not_older(log.stamped_epoch(), &log_name)?;
        sessions.check_not_newer(log.epoch(), &log_name)?;
        let (superblock, mended) = protection::change(devices, superblock, &self.settings, protection)?;
        // Once and for all: pages that were compressed stay so until they are stored again. It is written with the session.
        let compressed_pages = superblock.compressed_pages || self.settings.compresses_pages_in(superblock.store_kind);
        let lifetime_streams =
            superblock.lifetime_streams || self.settings.has_lifetime_streams_in(superblock.store_kind);
        let superblock = Superblock { compressed_pages, lifetime_streams, ..superblock };
        let store = store_on(devices, &superblock, &self.settings)?;
        let home = self.home.as_ref().filter(|_| !self.is_read_only);
        let directory = home.map(|home| home.directory.path().to_owned());
        let mut stamp = |session| {
            if let Some(directory) = &directory {
                log_devices::stamp_record(directory, session)?;
            }
            store.stamp(session)?;
            match superblock.units {
                // Flash does not write it again; the store has noted the session elsewhere.
                Some(_) => Ok(()),
                None => Superblock { session: Some(session), ..superblock }.write(&*devices.data),
            }
        };
        let mut opened = self.open_pool(Arc::clone(&store), log, &superblock, &mut stamp)?;
        opened.redo.torn_pages += mended;
        Ok((superblock, opened))
    }

    /// The sessions that the database's files and devices bear, but for the log's.
    fn sessions(&self, devices: &Devices, superblock: &Superblock, store: &dyn PageStore) -> Result<Sessions> {
        let of_data = superblock.session.map(|session| (devices.data.name().to_owned(), session));
        let record = if self.home.is_some() { log_devices::read_record(self.directory())? } else { None };
        let name = || self.directory().join(log_devices::RECORD).display().to_string();
        let of_record = record.and_then(|record| record.session).map(|session| (name(), session));
        Ok(Sessions(store.sessions()?.into_iter().chain(of_data).chain(of_record).collect()))
    }

    /// Refuses to make the log from another database's archive, or from none.
    fn check_archive(archive: Option<&ArchiveOptions>, superblock: &Superblock) -> Result<()> {
        let Some(archive) = archive else {
            let what =
                "log_archive: without an archive, a log whose devices are lost is lost; name it, or restore a backup";
            return Err(error::option(what));
        };
        let inspection = inspect_archive(&archive.target)?;
        if inspection.log_id != superblock.log_id {
            let (archive, found, expected) = (inspection.name, inspection.log_id, superblock.log_id);
            return Err(tantalum_log::error::foreign_archive(archive, found, expected));
        }
        Ok(())
    }

    fn create(&mut self, devices: &Devices) -> Result<(Superblock, Opened)> {
        let protection = protection::at_creation(&self.settings, devices);
        let log_id = self.creation().and_then(CreationMark::log_id);
        let area_grows = self.home.is_some() && self.settings.data_device.is_none();
        let superblock = new_superblock(&self.settings, devices, log_id, protection, area_grows);
        let store = store_on(devices, &superblock, &self.settings)?;
        Self::prepare_data(devices, &*store, &superblock)?;
        let options = self.log_options()?;
        let section_bytes = self.home.as_ref().and_then(|_| self.settings.initial_section_bytes());
        Log::create(superblock.log_id, devices.log.clone(), LogOptions { section_bytes, ..options.clone() })?;
        // Not archived yet: an archive of a creation that does not end would belong to no database.
        let log = self.open_log(devices, options)?;
        // The superblock comes last, and with it the session is noted.
        let opened = self.open_pool(Arc::clone(&store), log, &superblock, &mut |_| Ok(()))?;
        // A split logs nearly two pages at once.
        let (record, needed) = (opened.pool.log().max_record_bytes(), 3 * superblock.page_size as usize);
        if record < needed && opened.pool.store().logging() == Logging::Redo {
            return Err(error::option(format!(
                "log_bytes: the log takes records of at most {record} bytes, but pages of {} bytes need {needed}; \
                     make the log larger or the pages smaller",
                superblock.page_size
            )));
        }
        Catalog::create(&opened.pool, &opened.space)?;
        opened.pool.checkpoint()?;
        let session = opened.pool.log().stats().epoch;
        let superblock = Superblock { session: superblock.units.is_none().then_some(session), ..superblock };
        superblock.write(&*devices.data)?;
        store.stamp(session)?;
        if let Some(target) = &self.archive {
            let interrupted = self.creation().map(CreationMark::logs).unwrap_or_default();
            remove_archive(target, &interrupted)?;
            opened.pool.log().attach_archive(&self.settings.archive(target.clone()))?;
        }
        Ok((superblock, opened))
    }

    /// Makes a data device ready for a new database, over what a creation that did not end may have left.
    fn prepare_data(devices: &Devices, store: &dyn PageStore, superblock: &Superblock) -> Result<()> {
        if let Some(units) = superblock.units {
            // The remains of another store are none of this one's number. Only the superblock's copy may stand in the way:
            // where it itself will be is blank still, and an erase that a power cut interrupts would leave something else.
            if devices.data.capabilities().erase_block_bytes > 0 {
                devices.data.discard(units.unit.into(), units.unit.into())?;
            }
            return Ok(());
        }
        if superblock.segments.is_some() {
            return tantalum_store::format(superblock, &*devices.data);
        }
        if store.capacity_pages() < 16 {
            store.grow()?;
        }
        // A creation that did not end may have left pages with LSNs of a log that is about to be replaced.
        // The first block is blank already, and stays so until the end: garbage that a power cut leaves there would look
        // like something else than a database.
        let blank = AlignedBuffer::zeroed(PAGES_OF_A_CREATION * superblock.page_size as usize - Superblock::BYTES);
        devices.data.write(Superblock::BYTES as u64, &[&blank], Durability::Durable)
    }

    fn log_options(&self) -> Result<LogOptions> {
        let mut characteristics = BTreeMap::new();
        let files = self.settings.log_characteristics.as_deref().unwrap_or_default();
        let refuse = |what: String| error::option(format!("log_characteristics: {what}"));
        if !files.is_empty() && files.len() != self.log_names.len() {
            return Err(refuse(wrong_number_of_files(files.len(), self.log_names.len())));
        }
        for (path, names) in files.iter().zip(&self.log_names) {
            let measured = Characteristics::load(self.directory().join(path))
                .map_err(|error| error.context("option log_characteristics"))?;
            characteristics.extend(names.iter().map(|name| (name.clone(), measured.clone())));
        }
        let hiding = self.settings.log_hiding().into();
        let (pool_bytes, default) = (self.settings.buffer_pool_bytes(), LogOptions::default());
        Ok(LogOptions {
            layout: self.settings.log_layout(),
            block_bytes: self.settings.log_block_bytes,
            buffer_bytes: LOG_BUFFER_BYTES,
            hiding,
            request_per_flush: self.settings.log_request_per_flush.unwrap_or_default(),
            group_commit_delay: self.settings.log_gather.unwrap_or(default.group_commit_delay),
            // A second copy in memory is of no use.
            copies: if self.is_read_only { 1 } else { self.settings.log_copies() },
            characteristics,
            grown_bytes: self.grown_log_bytes(),
            // The pool is empty meanwhile, and fills as this is used up.
            recovery_memory_bytes: default.recovery_memory_bytes.max(pool_bytes as usize / 2),
            ..default
        })
    }

    /// To how many bytes which devices of the log grow.
    fn grown_log_bytes(&self) -> BTreeMap<String, u64> {
        let home = self.home.as_ref().filter(|_| !self.is_read_only && self.settings.log_can_grow());
        let bytes = self.settings.log_bytes() / u64::from(self.settings.log_partitions());
        home.into_iter().flat_map(|home| home.gathered.growing()).map(|name| (name.clone(), bytes)).collect()
    }

    fn open_log(&mut self, devices: &Devices, options: LogOptions) -> Result<Recovery> {
        let lost = self.lost.clone();
        let report = &mut |progress| self.report_log(progress);
        if let Some(lost) = &lost {
            Log::give_up(&devices.log, &options, lost, report)?;
        }
        let log = Log::open(devices.log.clone(), options, report)?;
        self.check_layout(log)
    }

    /// A log whose devices are lost, from its archive. Nothing is written to the new devices unless all pages suit it.
    fn rebuild_log(
        &mut self,
        devices: &Devices,
        options: LogOptions,
        store: &dyn PageStore,
        sessions: &Sessions,
    ) -> Result<Recovery> {
        let log = Log::rebuild(options, &mut |progress| self.report_log(progress))?;
        // They may bear newer sessions, in which the archive was set aside; whether pages do is looked at below.
        sessions.check_not_older(log.stamped_epoch(), log.archive())?;
        store.recover()?;
        recovery::check_pages(store, &log, &mut |progress: RedoProgress| {
            self.report(OpenPhase::CheckPages, progress.done_bytes, progress.total_bytes);
        })?;
        let log = log.onto(devices.log.clone(), &mut |progress| self.report_log(progress))?;
        self.check_layout(log)
    }

    fn report_log(&mut self, progress: tantalum_log::RecoveryProgress) {
        self.report(OpenPhase::ScanLog, progress.done_bytes, progress.total_bytes);
    }

    fn check_layout(&self, log: Recovery) -> Result<Recovery> {
        match self.settings.log_layout {
            Some(asked) if asked != log.layout() => Err(error::option(format!(
                "log_layout: {asked} was asked for, but the log was created as {}; it cannot be changed",
                log.layout()
            ))),
            _ => Ok(log),
        }
    }

    fn open_pool(
        &mut self,
        store: Arc<dyn PageStore>,
        log: Recovery,
        superblock: &Superblock,
        stamp: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Opened> {
        let options = self.settings.pool_options(superblock.page_size, superblock.protection);
        recovery::open(store, log, &options, stamp, &mut |progress: RedoProgress| {
            self.report(OpenPhase::Redo, progress.done_bytes, progress.total_bytes);
        })
    }

    fn report(&mut self, phase: OpenPhase, done_bytes: u64, total_bytes: u64) {
        reporter(&mut self.progress)(OpenProgress { phase, done_bytes, total_bytes });
    }
}

/// The last sessions that files and devices bear, by name.
struct Sessions(Vec<(String, u64)>);

impl Sessions {
    /// Refuses what is from before the session that the log knows all to bear. Since then the log may have let go of changes.
    fn check_not_older(&self, stamped: Option<u64>, log: &str) -> Result<()> {
        match self.0.iter().find(|(_, session)| stamped.is_some_and(|stamped| *session < stamped)) {
            None => Ok(()),
            Some((file, session)) => Err(error::stale(file, *session, log, stamped.unwrap_or_default())),
        }
    }

    /// Refuses a log that is older than anything else: it lacks what was acknowledged since.
    fn check_not_newer(&self, newest: u64, log: &str) -> Result<()> {
        match self.0.iter().max_by_key(|(_, session)| *session) {
            Some((other, expected)) if *expected > newest => Err(error::stale(log, newest, other, *expected)),
            _ => Ok(()),
        }
    }
}

fn names_of(devices: &[Arc<dyn Device>]) -> String {
    devices.iter().map(|device| device.name()).collect::<Vec<_>>().join(", ")
}

/// The page store on a database's devices, with those of its settings that may change.
pub(super) fn store_on(devices: &Devices, superblock: &Superblock, settings: &Settings) -> Result<Arc<dyn PageStore>> {
    let devices = StoreDevices { data: Arc::clone(&devices.data), double_write: devices.double_write.clone() };
    tantalum_store::open(superblock, devices, settings.store_options())
}
