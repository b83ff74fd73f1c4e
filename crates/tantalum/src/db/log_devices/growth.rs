//! The log's file in the database's directory: it begins small, and larger ones take its place, ahead of need.
//!
//! The [`LogGrower`] waits until the log is too small ([`Log::wait_for_growth`]), makes a larger file, and puts it in the place of the
//! present one as an operator would ([`change`](super::change)). No commit waits for that but one of a record that the present file
//! cannot take. A crash at any moment leaves a database that opens; the next grower takes out of the log, or removes, what is left
//! over, but for a file that was begun: growth goes on with that. Where the disk is full, the log stays as it is, and growth is tried
//! again after a pause.
//!
//! Devices that the settings name have their full size from the beginning, and so has a log of another layout than FlashLogging.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Access, Device, files};
use tantalum_log::{Log, Standing, standings};
use tantalum_rt::{JoinHandle, now};

use super::{
    LogDevices,
    change::UnderWay,
    places::{LOG, LogPlaces},
};
use crate::{
    buffer::BufferPool,
    db::{
        DeviceUse,
        files::{check_blank, sync_parent},
    },
    error::{self, Error, ErrorKind, Result},
};

/// The next file is so many times as large, so that a few steps lead to the full size.
const GROWTH_FACTOR: u64 = 8;
/// Bytes of a new file that are written at once: then growth looks whether it is to stop, and leaves the device to commits for a while.
const PIECE_BYTES: u64 = 1 << 20;
/// So many times as long as a piece took to write, unless a record waits for the file, ...
const PAUSE_FACTOR: u32 = 4;
/// ... but not longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The log of a copy has at most one in so many bytes of its data.
const PART_OF_COPY: u64 = 4;
/// How long growth waits while an operator changes the log's devices.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The size of the file behind one of `current` bytes of which each of `partitions` takes requests of `wanted` bytes; `full` at
/// most.
fn next_bytes(current: u64, full: u64, partitions: u64, wanted: usize) -> u64 {
    let mut next = current;
    loop {
        next = next.saturating_mul(GROWTH_FACTOR);
        // No last step that hardly changes anything.
        if next.saturating_mul(2) > full {
            return full;
        }
        if Log::request_bytes_on(next / partitions) >= wanted {
            return next / (4096 * partitions) * 4096 * partitions;
        }
    }
}

/// Which of the log's files in the directory a name is: 0 for the first one, `n` for `log-0.n`, which took its place.
fn generation(name: &Path) -> Option<u64> {
    let name = name.to_str()?;
    if name == LOG {
        return Some(0);
    }
    let digits = name.strip_prefix(LOG)?.strip_prefix('.')?;
    digits.parse().ok().filter(|number: &u64| *number > 0 && number.to_string() == digits)
}

/// Whether a device of the log is a file of the database's own, which a larger one can take the place of.
pub(super) fn is_log_file(name: &Path) -> bool {
    generation(name).is_some()
}

/// The log's files in a database's directory: those in use and what is left over.
pub(crate) fn log_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let names = files::list(directory).map_err(|error| error::io(directory, "list", error))?;
    Ok(names.into_iter().map(PathBuf::from).filter(|name| is_log_file(name)).collect())
}

/// Puts devices in the place of others in the log. `None` if it is not to be.
type Replace<'a> = dyn Fn(&[u32], &[Arc<dyn Device>]) -> Result<Option<Vec<u32>>> + 'a;

/// A new file that is not yet there as a whole.
fn partial(name: &Path) -> PathBuf {
    let mut partial = name.as_os_str().to_owned();
    partial.push(".partial");
    partial.into()
}

/// What came of an attempt to put another file in the place of the log's.
pub(super) enum Attempt {
    Done,
    /// Something else must be done first.
    Interrupted,
}

impl LogDevices {
    /// Puts a larger file in the place of the log's, one that takes requests of `wanted` bytes; of no more than `most` bytes unless a
    /// record asks for it.
    fn grow(&self, log: &Log, wanted: usize, most: u64, stop: &AtomicBool) -> Result<Attempt> {
        let Some(opener) = self.opener.try_lock() else { return Ok(Attempt::Interrupted) };
        let file = LogFile { change: UnderWay { own: self, log, opener: opener.as_deref() }, stop };
        file.tidy()?;
        file.grow(wanted, most)
    }

    /// Removes what an interrupted growth has left.
    fn tidy(&self, log: &Log, stop: &AtomicBool) -> Result<()> {
        let Some(opener) = self.opener.try_lock() else { return Ok(()) };
        LogFile { change: UnderWay { own: self, log, opener: opener.as_deref() }, stop }.tidy()
    }

    /// Removes a file with which growth would go on.
    fn remove_begun(&self, log: &Log, stop: &AtomicBool) -> Result<()> {
        let Some(opener) = self.opener.try_lock() else { return Ok(()) };
        LogFile { change: UnderWay { own: self, log, opener: opener.as_deref() }, stop }.remove_partial(|_| true)
    }
}

/// The log's file, in whose place another one may come.
pub(super) struct LogFile<'a> {
    pub(super) change: UnderWay<'a>,
    pub(super) stop: &'a AtomicBool,
}

impl LogFile<'_> {
    pub(super) fn places(&self) -> LogPlaces<'_> {
        self.change.places().expect("the log of a database in a directory grows")
    }

    /// The log's files that it has, with their sizes, the largest last.
    pub(super) fn present(&self) -> Result<Vec<(u64, PathBuf)>> {
        let places = self.places();
        let paths: Vec<_> = self.change.own.entries.lock().iter().map(|entry| entry.path.clone()).collect();
        let bytes = |path: PathBuf| {
            let device = files::open(&places.directory.join(&path), Access::ReadOnly)?;
            Ok((device.capacity_bytes(), path))
        };
        let mut present = paths.into_iter().filter(|path| is_log_file(path)).map(bytes).collect::<Result<Vec<_>>>()?;
        present.sort();
        Ok(present)
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.change.own.operator_waits.load(Ordering::Acquire)
    }

    /// Takes all of the log's files but the largest out of the log, and removes those that do not belong to it.
    pub(super) fn tidy(&self) -> Result<()> {
        let mut present = self.present()?;
        let Some((current, _)) = present.pop() else {
            // An operator put other devices in their place; what is there is his.
            return Ok(());
        };
        for (_, path) in present {
            let old = self.change.find(&path.display().to_string())?;
            self.change.log.remove_devices(&old.ordinals)?;
            self.change.settle(&old.path, &[]);
        }
        let places = self.places();
        let own: Vec<_> = self.change.own.entries.lock().iter().map(|entry| entry.path.clone()).collect();
        let mut devices: Vec<Arc<dyn Device>> =
            own.iter().flat_map(|path| places.open(path).unwrap_or_default()).collect();
        let of_log = devices.len();
        for name in log_files(places.directory)?.into_iter().filter(|name| !own.contains(name)) {
            devices.truncate(of_log);
            devices.extend(places.open(&name).unwrap_or_default());
            let standings = standings(self.change.own.log_id, &devices);
            // Anything else is none of the log's, or belongs to another one.
            let is_left_over = |standing: &Standing| matches!(standing, Standing::NotListed | Standing::NoLog);
            if standings[of_log..].iter().all(is_left_over) {
                self.remove(&name)?;
            }
        }
        let (may_grow, begun) = (current < places.file_bytes(), partial(&self.next_name()?));
        self.remove_partial(|name| !may_grow || name != begun)
    }

    /// Removes files that are not yet there as a whole.
    pub(super) fn remove_partial(&self, which: impl Fn(&Path) -> bool) -> Result<()> {
        let directory = self.places().directory;
        let names = files::list(directory).map_err(|error| error::io(directory, "list", error))?;
        let is_partial = |name: &PathBuf| {
            name.extension().is_some_and(|extension| extension == "partial") && is_log_file(&name.with_extension(""))
        };
        let mut names = names.into_iter().map(PathBuf::from).filter(is_partial);
        names.try_for_each(|name| if which(&name) { self.remove(&name) } else { Ok(()) })
    }

    /// The name of the file that comes behind all that there are.
    fn next_name(&self) -> Result<PathBuf> {
        let numbers = log_files(self.places().directory)?.into_iter().filter_map(|name| generation(&name));
        Ok(PathBuf::from(format!("{LOG}.{}", 1 + numbers.max().unwrap_or(0))))
    }

    fn remove(&self, name: &Path) -> Result<()> {
        let path = self.places().directory.join(name);
        files::remove(&path).map_err(|error| error::io(&path, "remove", error))?;
        sync_parent(&path)
    }

    fn grow(&self, wanted: usize, most: u64) -> Result<Attempt> {
        let places = self.places();
        let Some((current, old)) = self.present()?.pop() else {
            return Err(error::log_device(
                "no file of the database's directory is a device of the log, so it cannot grow",
            ));
        };
        let full = places.file_bytes();
        if current >= full {
            return Err(error::log_device("it has the size that log_bytes allows"));
        }
        let bytes = next_bytes(current, full, places.settings.log_partitions().into(), wanted);
        if wanted == 0 && bytes > most {
            return Err(error::log_device("the log of a copy is no larger than its data asks for"));
        }
        let replaced =
            self.put_in_place(&old, bytes, &|old, new| self.change.log.replace_devices(old, new).map(Some))?;
        if let Attempt::Done = replaced {
            tantalum_rt::tracing::debug!(bytes, "the log has grown");
        }
        Ok(replaced)
    }

    /// Makes a file of so many bytes, and lets `replace` put it in the place of `old` in the log, which may find that it is not to be.
    pub(super) fn put_in_place(&self, old: &Path, bytes: u64, replace: &Replace<'_>) -> Result<Attempt> {
        let new = self.next_name()?;
        if let Attempt::Interrupted = self.make(&new, bytes)? {
            return Ok(Attempt::Interrupted);
        }
        let replaced = self.replace(old, &new, replace);
        // Whatever came of it: what the record does not name is not needed.
        for path in [old, &*new] {
            if self.change.own.entries.lock().iter().all(|entry| entry.path != path) {
                self.remove(path)?;
            }
        }
        replaced
    }

    /// Makes a file that is there as a whole or not at all, in pieces. If it is interrupted, what there is stays for the next attempt.
    fn make(&self, name: &Path, bytes: u64) -> Result<Attempt> {
        let directory = self.places().directory;
        let (path, partial) = (directory.join(name), directory.join(partial(name)));
        let made = self.make_partial(&partial, bytes);
        match made {
            Ok(Attempt::Done) => {
                files::rename(&partial, &path).map_err(|error| error::io(&path, "create", error))?;
                sync_parent(&path)?;
            }
            Ok(Attempt::Interrupted) => {}
            Err(_) => {
                // Others may need the space. The first error matters more.
                let _removed = files::remove(&partial);
            }
        }
        made
    }

    fn make_partial(&self, partial: &Path, bytes: u64) -> Result<Attempt> {
        let device = match self.begun(partial, bytes)? {
            Some(device) => device,
            None => files::create(partial, PIECE_BYTES.min(bytes), None)?,
        };
        let mut at = device.capacity_bytes();
        while at < bytes {
            if self.is_interrupted() {
                return Ok(Attempt::Interrupted);
            }
            at = bytes.min(at + PIECE_BYTES);
            let begun = now();
            device.grow(at)?;
            let pause = begun.elapsed() * PAUSE_FACTOR;
            self.change.log.pause_growth(pause.min(LONGEST_PAUSE));
        }
        Ok(Attempt::Done)
    }

    /// What there is of a file that is to have so many bytes, but for its last piece: that may have been under way when the power went.
    /// What is no beginning of it is removed.
    fn begun(&self, partial: &Path, bytes: u64) -> Result<Option<Arc<dyn Device>>> {
        if !files::exists(partial) {
            return Ok(None);
        }
        if let Ok(device) = files::open(partial, Access::ReadWrite) {
            let there = device.capacity_bytes();
            let pieces = there.saturating_sub(1) / PIECE_BYTES;
            if there <= bytes && pieces > 0 && check_blank(&*device).is_ok() {
                device.shrink(pieces * PIECE_BYTES)?;
                return Ok(Some(device));
            }
        }
        files::remove(partial).map_err(|error| error::io(partial, "remove", error))?;
        Ok(None)
    }

    fn replace(&self, old: &Path, new: &Path, replace: &Replace<'_>) -> Result<Attempt> {
        let UnderWay { own, log, .. } = self.change;
        let over = |device| own.barriers.over(DeviceUse::Log, device);
        let devices: Vec<_> = self.places().open(new)?.into_iter().map(over).collect::<Result<_>>()?;
        let old = self.change.find(&old.display().to_string())?;
        let mut before = log.stats().devices;
        before.retain(|device| old.ordinals.contains(&device.ordinal));
        self.change.enter(new)?;
        let replaced = replace(&old.ordinals, &devices);
        let ordinals = self.change.ordinals_of(&devices);
        self.change.settle(new, &ordinals);
        self.change.settle(&old.path, &[]);
        if replaced?.is_none() {
            return Ok(Attempt::Interrupted);
        }
        before.iter().for_each(|device| own.barriers.forget(&device.name));
        Ok(Attempt::Done)
    }
}

/// The task that lets the log grow. Dropping it stops it, after the change that it is in.
pub(crate) struct LogGrower {
    stop: Arc<AtomicBool>,
    log: Log,
    task: Option<JoinHandle<()>>,
}

impl LogGrower {
    /// Starts it, for a log that can grow. That of a copy is to stay small beside its data.
    pub fn start(log_devices: &Arc<LogDevices>, pool: &BufferPool, is_copy: bool) -> Option<Self> {
        let log = pool.log();
        if log_devices.directory.is_none() || !log_devices.settings.log_can_grow() {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        log.set_growth_owner(true);
        let task = tantalum_rt::spawn("tantalum-log-grower", {
            let (log_devices, pool, stop) = (Arc::clone(log_devices), pool.clone(), Arc::clone(&stop));
            move || {
                let most = || if is_copy { pool.store().stats().capacity_bytes / PART_OF_COPY } else { u64::MAX };
                run(&log_devices, pool.log(), &most, &stop);
                // It is to be small when it is complete.
                if is_copy && let Err(error) = log_devices.remove_begun(pool.log(), &stop) {
                    tantalum_rt::tracing::warn!(%error, "a file that the log of a copy was to grow with could not be removed");
                }
            }
        });
        Some(Self { stop, log: log.clone(), task: Some(task) })
    }
}

impl Drop for LogGrower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.log.set_growth_owner(false);
        if self.task.take().is_some_and(|task| task.join().is_err()) {
            tantalum_rt::tracing::error!("the task that lets the log grow panicked");
        }
    }
}

fn run(log_devices: &LogDevices, log: &Log, most: &dyn Fn() -> u64, stop: &AtomicBool) {
    if let Err(error) = log_devices.tidy(log, stop) {
        tantalum_rt::tracing::warn!(%error, "what an interrupted growth of the log has left could not be removed; it will be tried again");
    }
    while let Some(wanted) = log.wait_for_growth() {
        match log_devices.grow(log, wanted, most(), stop) {
            Ok(Attempt::Done) => log.report_growth(Ok(())),
            Ok(Attempt::Interrupted) => tantalum_rt::sleep(BUSY_PAUSE),
            Err(error) => {
                report(&error);
                log.report_growth(Err(error));
            }
        }
    }
}

fn report(error: &Error) {
    match error.kind() {
        // The log has its full size, or its devices are an operator's.
        ErrorKind::InvalidInput => tantalum_rt::tracing::debug!(%error, "the log does not grow"),
        _ => {
            tantalum_rt::tracing::warn!(%error, "the log could not grow; it goes on as it is, and growth will be tried again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_size_is_reached_in_few_steps_and_large_records_skip_some() {
        let steps = |from: u64, full: u64| {
            let next = |bytes: &u64| (*bytes < full).then(|| next_bytes(*bytes, full, 1, 0));
            std::iter::successors(Some(from), next).map(|bytes| bytes >> 20).collect::<Vec<_>>()
        };
        assert_eq!(steps(1 << 20, 256 << 20), [1, 8, 64, 256]);
        assert_eq!(steps(1 << 20, 4 << 20), [1, 4]);
        assert_eq!(steps(1 << 20, 100 << 20), [1, 8, 100]);
        assert_eq!(next_bytes(1 << 20, 256 << 20, 1, 100_000), 8 << 20);
        assert_eq!(next_bytes(1 << 20, 256 << 20, 1, 1 << 20), 64 << 20);
        assert_eq!(next_bytes(1 << 20, 256 << 20, 1, usize::MAX), 256 << 20);
        assert_eq!(next_bytes(3 << 20, 256 << 20, 3, 0) % (3 * 4096), 0);
    }

    #[test]
    fn only_the_databases_own_files_are_its_logs() {
        let generation = |name: &str| super::generation(Path::new(name));
        assert_eq!((generation("log-0"), generation("log-0.1"), generation("log-0.12")), (Some(0), Some(1), Some(12)));
        for other in
            ["log-1", "log-0.", "log-0.0", "log-0.01", "log-0.x", "log-0.1.partial", "xlog-0", "log-0.-1", "log-0.+1"]
        {
            assert_eq!(generation(other), None, "{other}");
        }
    }
}
