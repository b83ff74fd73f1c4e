//! A database in a directory, from nothing on: its creation under power cuts, with every combination of settings, and old copies of
//! its files, which must be refused. Where the log grows, the disk is full for a while again and again.
//!
//! The rest of the search opens databases on devices. Here the database lies in a file system in memory, which loses power like one
//! on a disk. A seed decides all of it by generators of its own.

mod clients;
mod setup;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tantalum::{Builder, Db, DeviceRequest, Error, ErrorKind};
use tantalum_device::{
    Device, MemoryDevice, MemoryProfile,
    files::{self, SimulatedFiles},
};
use tantalum_rt::{Outcome, Random, Simulation, spawn};

use self::{
    clients::{commit, commit_others, fill_disk, set_full, shrink},
    setup::Setup,
};
use crate::{config::Protection, report::Report, search::message};

/// Where the database is.
const DIRECTORY: &str = "/database";
/// Another directory, for devices of the log and archives.
const ELSEWHERE: &str = "/elsewhere";
const TABLE: &str = "rows";
/// Starts of the database that may be cut, before one is let through.
const CUTS_MAX: usize = 6;
/// Virtual time after which a run that goes on is one that never ends.
const TIME_LIMIT: Duration = Duration::from_secs(600);
const PAGE_BYTES: u32 = 4096;
const DEVICE_BYTES: u64 = 8 << 20;
/// With what a data file begins.
const INITIAL_DATA_BYTES: u64 = 256 << 10;
const LOG: &str = "log-0";
const RECORD: &str = "log-devices.toml";

/// A file system, and devices beside it.
#[derive(Clone)]
struct Machine {
    files: Arc<SimulatedFiles>,
    devices: Arc<Vec<Arc<MemoryDevice>>>,
}

impl Machine {
    fn new(setup: &Setup, seed: u64) -> Self {
        let us = Duration::from_micros;
        let profile = MemoryProfile {
            write_latency: us(5)..us(50),
            read_latency: us(1)..us(10),
            flush_latency: us(5)..us(50),
            seed,
            ..MemoryProfile::default()
        };
        let names = setup.log_devices.iter().chain(&setup.data_device).chain(&setup.archive);
        let device = |name: &String| {
            name.starts_with("memory:").then(|| MemoryDevice::with_profile(&**name, DEVICE_BYTES, profile.clone()))
        };
        Self { files: SimulatedFiles::new(profile.clone()), devices: Arc::new(names.filter_map(device).collect()) }
    }

    fn builder(&self) -> Builder {
        let devices = Arc::clone(&self.devices);
        Db::builder().buffer_pool_bytes(64 * u64::from(PAGE_BYTES)).expert(|expert| {
            expert.device_opener(move |request: DeviceRequest<'_>| {
                let device = devices.iter().find(|device| device.name() == request.name)?;
                Some(Ok(Arc::clone(device) as Arc<dyn Device>))
            })
        })
    }

    /// The files of a log that grows.
    fn log_files(&self) -> Vec<String> {
        let names = self.files.files().into_iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        names.filter(|name| name.starts_with(LOG)).collect()
    }

    /// The one file of a log that grows, if there is one, and the record names it.
    fn log_file(&self) -> Option<String> {
        let attached = self.files.attach();
        let record = files::read(&Path::new(DIRECTORY).join(RECORD));
        drop(attached);
        let record = String::from_utf8_lossy(&record.ok()?).into_owned();
        let mut paths =
            record.lines().filter_map(|line| Some(line.strip_prefix("path = \"")?.trim_end_matches('"').to_owned()));
        let first = paths.next()?;
        paths.next().is_none().then_some(first)
    }

    /// Bytes of the data file in the directory.
    fn data_bytes(&self) -> u64 {
        let _attached = self.files.attach();
        files::read(&Path::new(DIRECTORY).join("data")).map_or(0, |bytes| bytes.len() as u64)
    }

    /// Whether the disk has no space.
    fn set_full(&self, is_full: bool) {
        set_full(&self.files, is_full);
    }

    /// The same, apart from now on.
    fn fork(&self) -> Self {
        let devices = self.devices.iter().map(|device| device.fork()).collect();
        Self { files: self.files.fork(), devices: Arc::new(devices) }
    }

    fn power_cut(&self, random: &mut Random) {
        self.files.power_cut(random);
        self.devices.iter().for_each(|device| device.power_cut(random));
    }

    /// Puts what `other` has under a name of the settings in the place of what is there.
    fn take_over(&self, name: &str, other: &Machine) {
        let is_it = |device: &&Arc<MemoryDevice>| device.name() == name;
        match (self.devices.iter().find(is_it), other.devices.iter().find(is_it)) {
            (Some(own), Some(other)) => own.load_from(other),
            _ => self.files.take_over(&Path::new(DIRECTORY).join(name), &other.files),
        }
    }
}

/// How a start ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The database is closed.
    Closed,
    /// The power goes in the middle of an operation on directories.
    AtOperation(u64),
    /// The power goes after this time.
    AtTime(Duration),
}

impl End {
    fn cut(random: &mut Random, setup: &Setup) -> Self {
        // So many that the growth of a log is among them.
        let most_operations = if setup.log_grows { 120 } else { 60 };
        match random.bool() {
            true => Self::AtOperation(random.u64(0..most_operations)),
            // Short ones as often as long ones by order of magnitude.
            false => Self::AtTime(Duration::from_micros(10).mul_f64(3000f64.powf(random.f64()))),
        }
    }
}

/// What the clients of all starts know.
#[derive(Default)]
struct Known {
    /// Whether the creation was acknowledged.
    is_made: AtomicBool,
    /// Rows whose commits were acknowledged, and those that were begun.
    acknowledged: AtomicU32,
    begun: AtomicU32,
    /// How often a log that had grown was to shrink, and did.
    shrinkings: [AtomicU32; 2],
    /// Times that the disk was full, and what was refused because of it.
    fillings: AtomicU32,
    refused: AtomicU32,
}

struct Search {
    setup: Setup,
    machine: Machine,
    random: Random,
    known: Arc<Known>,
    clock: Duration,
}

/// Searches what the seed decides, and counts in `report`. Skipped unless `is_wanted`.
///
/// # Errors
/// The setup, and what was violated.
pub(crate) fn search(
    seed: u64,
    is_wanted: impl Fn(Protection) -> bool,
    report: &mut Report,
) -> Result<(), (String, String)> {
    let mut random = Random::with_seed(seed ^ 0xd12e_c702);
    let mut setup = Setup::new(&mut random);
    let mut of_shrinking = Random::with_seed(seed ^ 0x5a11_7106);
    if setup.log_grows && of_shrinking.u8(0..4) > 0 {
        setup.shrinks_after = Some(Duration::from_micros(5).mul_f64(2000f64.powf(of_shrinking.f64())));
    }
    let mut of_disk = Random::with_seed(seed ^ 0xf111_d15c);
    if setup.log_grows && of_disk.u8(0..4) > 0 {
        let mut time = |least, most: f64| Duration::from_micros(least).mul_f64(most.powf(of_disk.f64()));
        setup.fills_disk = Some([time(50, 20.), time(1000, 20.)]);
    }
    if !is_wanted(setup.protection()) {
        return Ok(());
    }
    let machine = Machine::new(&setup, seed);
    let mut search = Search { setup, machine, random, known: Arc::default(), clock: Duration::from_secs(1) };
    search.run(report).map_err(|what| (search.setup.to_string(), what))?;
    report.fingerprint = report.fingerprint.wrapping_add(search.clock.as_nanos() as u64);
    Ok(())
}

impl Search {
    fn run(&mut self, report: &mut Report) -> Result<(), String> {
        self.prepare()?;
        for _ in 0..self.random.usize(0..=CUTS_MAX) {
            let end = End::cut(&mut self.random, &self.setup);
            let was_made = self.known.is_made.load(Ordering::Relaxed);
            self.start(end, 2)?;
            report.count("creations of directories that were cut", u64::from(!was_made));
            report.count("power cuts of databases in directories", 1);
        }
        self.start(End::Closed, 3)?;
        self.look_for_remains()?;
        let has_grown = self.machine.log_file().is_some_and(|name| name != LOG);
        report.count("logs that have grown", u64::from(has_grown));
        let [begun, done] = self.known.shrinkings.each_ref().map(|count| u64::from(count.load(Ordering::Relaxed)));
        report.count("logs that were to shrink", begun);
        report.count("logs that shrank", done);
        let count = |count: &AtomicU32| u64::from(count.load(Ordering::Relaxed));
        report.count("times that the disk of a directory was full", count(&self.known.fillings));
        report.count("commits and compactions refused by a full disk", count(&self.known.refused));
        report.count("data files that have grown", u64::from(self.machine.data_bytes() > INITIAL_DATA_BYTES));
        self.old_copies(report)
    }

    /// What is there before the database.
    fn prepare(&mut self) -> Result<(), String> {
        let has_settings = self.setup.has_settings;
        let made = self.simulate(move || {
            files::create_directory(Path::new(ELSEWHERE))?;
            if has_settings {
                files::create_directory(Path::new(DIRECTORY))?;
                files::replace(&settings_path(), b"# ours\nlock_timeout_ms = 777\n")?;
            }
            Ok::<(), std::io::Error>(())
        })?;
        made.finished().expect("nothing cuts the power").map_err(|error| error.to_string())
    }

    /// Opens or creates the database, looks at it, and commits so many rows. Then the power goes, unless the end comes before.
    fn start(&mut self, end: End, rows: u32) -> Result<(), String> {
        let (setup, machine, known) = (self.setup.clone(), self.machine.clone(), Arc::clone(&self.known));
        // What was acknowledged is there with its settings, whether they are given again or not.
        let must_be_given = !known.is_made.load(Ordering::Relaxed) || setup.has_settings;
        let is_given = self.random.bool() || must_be_given;
        if let End::AtOperation(operations) = end {
            self.machine.files.cut_after(operations);
        }
        let outcome = self.simulate(move || {
            if let End::AtTime(time) = end {
                spawn("power", move || {
                    tantalum_rt::sleep(time);
                    tantalum_rt::power_cut()
                });
            }
            let builder = if is_given { setup.builder(&machine) } else { machine.builder().create_if_missing(false) };
            let db = builder.open(DIRECTORY).map_err(|error| format!("it does not open: {error}"))?;
            known.is_made.store(true, Ordering::Relaxed);
            look_at(&db, &setup, &known)?;
            let others = setup.log_grows.then(|| {
                let (db, known) = (db.clone(), Arc::clone(&known));
                spawn("others", move || commit_others(&db, &known, rows))
            });
            let is_over = Arc::new(AtomicBool::new(false));
            let disk = setup.fills_disk.filter(|_| rows > 0).map(|times| {
                let (files, known, is_over) = (Arc::clone(&machine.files), Arc::clone(&known), Arc::clone(&is_over));
                spawn("disk", move || fill_disk(&files, &known, times, &is_over))
            });
            let shrinking = setup.shrinks_after.filter(|_| rows > 0).map(|pause| {
                let (db, known, is_over) = (db.clone(), Arc::clone(&known), Arc::clone(&is_over));
                spawn("shrinking", move || shrink(&db, &known, pause, &is_over))
            });
            commit(&db, &known, setup.rows(rows)).map_err(|error| error.to_string())?;
            if let Some(others) = others {
                let ended = others.join().map_err(|_| "a client panicked".to_owned())?;
                ended.map_err(|error| error.to_string())?;
            }
            is_over.store(true, Ordering::Relaxed);
            if let Some(shrinking) = shrinking {
                let ended = shrinking.join().map_err(|_| "the client that lets the log shrink panicked".to_owned())?;
                ended.map_err(|error| error.to_string())?;
            }
            if let Some(disk) = disk {
                disk.join().map_err(|_| "the task that fills the disk panicked".to_owned())?;
            }
            match end {
                End::Closed => db.close().map_err(|error| format!("it cannot be closed: {error}")),
                End::AtOperation(_) | End::AtTime(_) => tantalum_rt::power_cut(),
            }
        })?;
        match outcome {
            Outcome::Finished(result) => result,
            Outcome::PowerCut { .. } => self.cut_power(),
        }
    }

    fn cut_power(&mut self) -> Result<(), String> {
        let (machine, mut random) = (self.machine.clone(), self.random.fork());
        machine.set_full(false);
        self.simulate(move || machine.power_cut(&mut random)).map(drop)
    }

    /// After a close in which no growth of the log was interrupted there is one file of it.
    fn look_for_remains(&mut self) -> Result<(), String> {
        if !self.setup.log_grows {
            return Ok(());
        }
        // It removes what the last one has left.
        self.start(End::Closed, 0)?;
        match self.machine.log_files() {
            names if names.len() == 1 => Ok(()),
            names => Err(format!("files of the log are left over: {names:?}")),
        }
    }

    /// Puts old copies in the place of present files, one at a time.
    fn old_copies(&mut self, report: &mut Report) -> Result<(), String> {
        let old = self.machine.fork();
        let end = if self.random.bool() { End::Closed } else { End::cut(&mut self.random, &self.setup) };
        let sessions = self.known.acknowledged.load(Ordering::Relaxed);
        self.start(end, 5)?;
        if !matches!(end, End::Closed) && self.known.acknowledged.load(Ordering::Relaxed) == sessions {
            // The session may not have begun.
            self.start(End::Closed, 5)?;
        }
        let present = self.machine.fork();
        let log_file = present.log_file().filter(|_| self.setup.log_grows);
        self.machine = present.fork();
        let present_archive_begins_anew = self.open_to_look()?.map_err(|error| format!("it does not open: {error}"))?;
        for name in self.setup.stamped() {
            let name = match (&*name, &log_file) {
                // Another file may have taken its place since.
                (LOG | RECORD, log_file) if self.setup.log_grows && *log_file != old.log_file() => continue,
                (LOG, Some(log_file)) => log_file.clone(),
                _ => name,
            };
            self.machine = present.fork();
            self.machine.take_over(&name, &old);
            let file = match self.open_to_look()? {
                Err(error) if error.kind() == ErrorKind::Stale => error.about().unwrap_or_default().to_owned(),
                // Of one that was set aside on a full disk, the present one lacks what the old one lacks: both begin anew.
                Ok(true) if Some(&name) == self.setup.archive.as_ref() && present_archive_begins_anew => {
                    report.count("old copies of archives that begin anew", 1);
                    continue;
                }
                Ok(_) => return Err(format!("an old copy of {name} is taken for the present one")),
                Err(error) => return Err(format!("an old copy of {name} is refused as something else: {error}")),
            };
            let bare = name.rsplit('/').next().unwrap_or_default();
            if !file.contains(bare) {
                return Err(format!("an old copy of {name} is refused as one of {file}"));
            }
            report.count("old copies of files refused", 1);
        }
        self.machine = present;
        self.start(End::Closed, 0)
    }

    /// Opens the database. Whether its archive begins anew then: it has nothing that leads to the end of the log.
    fn open_to_look(&mut self) -> Result<tantalum::Result<bool>, String> {
        let (setup, machine) = (self.setup.clone(), self.machine.clone());
        let opened = self.simulate(move || {
            let db = setup.builder(&machine).open(DIRECTORY)?;
            Ok(db.stats()?.log.archive.is_some_and(|archive| archive.run_start_lsn == archive.archived_lsn))
        })?;
        Ok(opened.finished().expect("nothing cuts the power"))
    }

    fn simulate<T: 'static>(&mut self, root: impl FnOnce() -> T + 'static) -> Result<Outcome<T>, String> {
        let attached = self.machine.files.attach();
        let simulation = Simulation::new(self.random.u64(..)).start_at(self.clock).time_limit(self.clock + TIME_LIMIT);
        let root = move || (root(), Duration::from_nanos(tantalum_rt::now().as_nanos()));
        let outcome = catch_unwind(AssertUnwindSafe(|| simulation.run(root)));
        drop(attached);
        match outcome {
            Ok(Outcome::Finished((result, at))) => {
                self.clock = at;
                Ok(Outcome::Finished(result))
            }
            Ok(Outcome::PowerCut { at }) => {
                self.clock = at;
                Ok(Outcome::PowerCut { at })
            }
            Err(panic) => Err(format!("panic: {}", message(panic.as_ref()))),
        }
    }
}

fn settings_path() -> PathBuf {
    Path::new(DIRECTORY).join("tantalum.toml")
}

/// The database must be what was asked for, and hold what was acknowledged.
fn look_at(db: &Db, setup: &Setup, known: &Known) -> Result<(), String> {
    let stats = db.stats().map_err(|error| error.to_string())?;
    let text = files::read(&settings_path()).map_err(|error| format!("its settings cannot be read: {error}"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let expected = match setup.has_settings {
        true => "lock_timeout_ms = 777".to_owned(),
        false => format!("log_bytes = {}", setup.log_bytes()),
    };
    if !text.contains(&expected) {
        return Err(format!("its settings lack {expected:?}: {text:?}"));
    }
    if files::exists(&Path::new(DIRECTORY).join("CREATING")) {
        return Err("it is open, and would be made anew".to_owned());
    }
    if !setup.has_settings && stats.log.archive.is_some() != setup.archive.is_some() {
        return Err(format!("its log's archive is {:?}", stats.log.archive));
    }
    let failed = |error: Error| error.to_string();
    if let Some(problem) = db.check().map_err(failed)?.problems().first() {
        return Err(format!("the check finds: {problem}"));
    }
    let table = db.table(TABLE).map_err(failed)?;
    let snapshot = db.snapshot().map_err(failed)?;
    let found = snapshot.range(&table, ..).map_err(failed)?.count() as u32;
    let (acknowledged, begun) = (known.acknowledged.load(Ordering::Relaxed), known.begun.load(Ordering::Relaxed));
    if !(acknowledged..=begun).contains(&found) {
        return Err(format!(
            "it has {found} rows, of {acknowledged} that were acknowledged and {begun} that were begun"
        ));
    }
    // From here on it is known which there are.
    known.acknowledged.store(found, Ordering::Relaxed);
    known.begun.store(found, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_survives_power_cuts_and_old_copies_are_refused() {
        let mut report = Report::default();
        for seed in 0..120 {
            search(seed, |_| true, &mut report).unwrap_or_else(|(setup, what)| panic!("seed {seed}: {what}, {setup}"));
        }
        let least = [
            ("creations of directories that were cut", 120),
            ("old copies of files refused", 300),
            ("old copies of archives that begin anew", 3),
            ("logs that have grown", 25),
            ("logs that were to shrink", 8),
            ("logs that shrank", 4),
            ("times that the disk of a directory was full", 40),
            ("commits and compactions refused by a full disk", 20),
            ("data files that have grown", 40),
        ];
        for (name, least) in least {
            assert!(report.counts[name] >= least, "{name}: {:?}", report.counts);
        }
    }
}
