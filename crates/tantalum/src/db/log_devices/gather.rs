//! Which devices the log is opened on: those that the record and the settings name, as far as the log lists them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_device::Device;
use tantalum_log::{LogStats, LostDevice, MissingDevice, Standing, standings};

use super::{
    growth::is_log_file,
    places::LogPlaces,
    record::{self, Entry, Record},
};
use crate::error::{self, Error, ErrorKind, Result};

/// The log's devices, before the log is opened.
pub(crate) struct Gathered {
    pub devices: Vec<Arc<dyn Device>>,
    /// What the record may say, and the names of the devices that were opened for it.
    candidates: Vec<(Entry, Vec<String>)>,
    /// What the record says.
    pub recorded: Option<Record>,
    /// Why some devices could not be opened.
    failures: Vec<Error>,
}

impl Gathered {
    /// Opens everything that may be a device of the log `log_id`.
    ///
    /// What the record names may be left over from a change that a crash interrupted, and is left out then. What only the
    /// settings name goes to the log, which refuses by name what does not belong to it; unless it was removed: the
    /// settings say where the log was when the database was created.
    ///
    /// # Errors
    /// [`Missing`](ErrorKind::Missing) where only devices are left that the log went on without.
    pub fn open(places: &LogPlaces<'_>, log_id: u128) -> Result<Self> {
        let recorded = record::read(places.directory)?;
        let mut gathered = Self { devices: Vec::new(), candidates: Vec::new(), recorded, failures: Vec::new() };
        let of_record = gathered.recorded.clone().unwrap_or_default().devices;
        let is_new = |name: &PathBuf| !of_record.iter().any(|entry| places.is_same(&entry.path, name));
        // Without a record, or if they are named explicitly.
        let of_settings = match gathered.recorded.is_some() && places.settings.log_devices.is_none() {
            true => Vec::new(),
            false => places.names_without_record()?.into_iter().filter(is_new).collect(),
        };
        let candidates = of_record.iter().map(|entry| (entry.clone(), true));
        let candidates: Vec<_> =
            candidates.chain(of_settings.into_iter().map(|path| (Entry::new(path, Vec::new()), false))).collect();
        let mut opened: Vec<Arc<dyn Device>> = Vec::new();
        let mut parts = Vec::new();
        for (entry, is_recorded) in &candidates {
            let before = opened.len();
            match places.open(&entry.path) {
                Ok(devices) => opened.extend(devices),
                Err(error) => {
                    if !is_recorded && gathered.recorded.is_some() {
                        tantalum_rt::tracing::warn!(%error, "what log_devices names cannot be opened; the log does without it if it can");
                    }
                    gathered.failures.push(error);
                }
            }
            parts.push(before..opened.len());
        }
        let standings = standings(log_id, &opened);
        let mut left_out = Vec::new();
        for ((entry, is_recorded), parts) in candidates.into_iter().zip(parts) {
            let mut names = Vec::new();
            for at in parts {
                match &standings[at] {
                    Standing::NotListed if gathered.recorded.is_some() || is_log_file(&entry.path) => {
                        let (device, file) = (opened[at].name(), record::RECORD);
                        tantalum_rt::tracing::warn!(
                            device,
                            "not a device of the log any more, or not yet; {file} will not name it"
                        );
                        continue;
                    }
                    Standing::Foreign { log_id: found } if is_recorded => {
                        let device = opened[at].name();
                        tantalum_rt::tracing::warn!(device, "holds nothing of this log; left out");
                        let (found, expected) = (*found, log_id);
                        left_out.push(tantalum_log::error::foreign_device(device, found, expected));
                        continue;
                    }
                    Standing::NoLog if is_recorded => {
                        let device = opened[at].name();
                        tantalum_rt::tracing::warn!(device, "holds nothing of this log; left out");
                        left_out.push(tantalum_log::error::not_a_log(device));
                        continue;
                    }
                    Standing::Unknown { error } => gathered.failures.push(error.clone()),
                    _ => {}
                }
                names.push(opened[at].name().to_owned());
                gathered.devices.push(Arc::clone(&opened[at]));
            }
            gathered.candidates.push((entry, names));
        }
        // An addition that was interrupted is no reason if there is another.
        gathered.failures.append(&mut left_out);
        gathered.check_not_behind()?;
        Ok(gathered)
    }

    /// Refuses to go on where only devices are left that the log went on without.
    fn check_not_behind(&self) -> Result<()> {
        let is_there = |(_, names): &&(Entry, Vec<String>)| !names.is_empty();
        let path = |(entry, _): &(Entry, Vec<String>)| entry.path.display().to_string();
        let (mut there, missing): (Vec<_>, Vec<_>) = self.candidates.iter().partition(is_there);
        there.retain(|(entry, _)| !entry.ids.is_empty());
        let missing: Vec<String> = missing.into_iter().filter(|(entry, _)| !entry.left_behind).map(path).collect();
        if there.is_empty() || missing.is_empty() || there.iter().any(|(entry, _)| !entry.left_behind) {
            return Ok(());
        }
        let there: Vec<String> = there.into_iter().map(path).collect();
        Err(error::log_left_behind(there.join(", "), missing.join(", ")))
    }

    /// As [`check_not_behind`](Self::check_not_behind), when it is known which of the log's `devices` are used: those that
    /// are there may have turned out to be unreadable.
    pub fn check_used(&self, devices: &[(u64, bool)]) -> Result<()> {
        let has =
            |entry: &Entry, wanted| devices.iter().any(|(id, is_used)| *is_used == wanted && entry.ids.contains(id));
        let entries = || self.candidates.iter().map(|(entry, _)| entry);
        let paths = |entries: Vec<&Entry>| {
            entries.iter().map(|entry| entry.path.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        let used: Vec<&Entry> = entries().filter(|entry| has(entry, true)).collect();
        let missing: Vec<&Entry> = entries().filter(|entry| has(entry, false) && !entry.left_behind).collect();
        if used.is_empty() || missing.is_empty() || used.iter().any(|entry| !entry.left_behind) {
            return Ok(());
        }
        Err(error::log_left_behind(paths(used), paths(missing)))
    }

    /// The names of the devices in whose place larger files come.
    pub fn growing(&self) -> impl Iterator<Item = &String> {
        self.candidates.iter().filter(|(entry, _)| is_log_file(&entry.path)).flat_map(|(_, names)| names)
    }

    /// The devices that were just made for a new database, by name.
    pub fn made(made: Vec<(PathBuf, Vec<Arc<dyn Device>>)>) -> Self {
        let devices = made.iter().flat_map(|(_, devices)| devices.clone()).collect();
        let candidate = |(path, devices): (PathBuf, Vec<Arc<dyn Device>>)| {
            (Entry::new(path, Vec::new()), devices.iter().map(|device| device.name().to_owned()).collect())
        };
        let candidates = made.into_iter().map(candidate).collect();
        Self { devices, candidates, recorded: None, failures: Vec::new() }
    }

    /// What is known of the device that the user calls `name`, and that is not there.
    pub fn lost(&self, name: &str, places: &LogPlaces<'_>) -> Result<LostDevice> {
        let is_named = |(entry, _): &&(Entry, Vec<String>)| places.is_same(&entry.path, Path::new(name));
        match self.candidates.iter().find(is_named) {
            Some((entry, _)) if !entry.ids.is_empty() => Ok(LostDevice::Identities(entry.ids.clone())),
            _ => lost_by_number(name),
        }
    }

    /// The names of the devices that were opened for each name in the settings; none for one that is absent, or that is
    /// no device of the log any more.
    pub fn names_in_settings(&self, places: &LogPlaces<'_>) -> Vec<Vec<String>> {
        let opened = |name: PathBuf| {
            let candidate = self.candidates.iter().find(|(entry, _)| places.is_same(&entry.path, &name));
            candidate.map_or_else(Vec::new, |(_, names)| names.clone())
        };
        places.names().into_iter().map(opened).collect()
    }

    /// The better explanation of why the log cannot be opened: a device that it lacks is one that could not be opened.
    pub fn explain(&self, error: Error) -> Error {
        match (error, self.failures.first().cloned()) {
            (error, Some(failure)) if self.devices.is_empty() && error.kind() == ErrorKind::Missing => failure,
            (missing, Some(failure)) if missing.cause::<MissingDevice>().is_some() => {
                Error::new(ErrorKind::Missing, format!("{failure}; therefore {missing}")).with_source(failure)
            }
            (error, _) => error,
        }
    }

    /// The record for the log that was opened on these devices: those that it lists. An absent device whose identity was
    /// never recorded is the one that has no other entry.
    pub fn settle(self, stats: &LogStats) -> Vec<Entry> {
        settle(self.candidates, stats)
    }
}

/// A device that is lost, by its number in the log.
pub(crate) fn lost_by_number(name: &str) -> Result<LostDevice> {
    name.parse().map(LostDevice::Ordinal).map_err(|_| {
        let what =
            format!("{name}: which device of the log that was is not recorded; give its number, which the error says");
        error::log_device(what)
    })
}

fn settle(candidates: Vec<(Entry, Vec<String>)>, stats: &LogStats) -> Vec<Entry> {
    let listed: Vec<u64> = stats.devices.iter().map(|device| device.device_id).collect();
    let ids_of = |names: &[String]| {
        let opened = stats.devices.iter().filter(|device| names.contains(&device.name));
        opened.map(|device| device.device_id).collect::<Vec<_>>()
    };
    let present: Vec<u64> = candidates.iter().flat_map(|(_, names)| ids_of(names)).collect();
    let identify = |(mut entry, names): (Entry, Vec<String>)| {
        match names.is_empty() {
            // What is found elsewhere was moved.
            true => entry.ids.retain(|id| listed.contains(id) && !present.contains(id)),
            false => entry.ids = ids_of(&names),
        }
        entry
    };
    let mut entries: Vec<Entry> = candidates.into_iter().map(identify).collect();
    let claimed = |id: &u64| entries.iter().any(|entry| entry.ids.contains(id));
    let unclaimed: Vec<u64> = listed.iter().copied().filter(|id| !claimed(id)).collect();
    let mut vacant: Vec<_> = entries.iter_mut().filter(|entry| entry.ids.is_empty()).collect();
    if let [entry] = &mut vacant[..] {
        entry.ids = unclaimed;
    }
    entries.retain(|entry| !entry.ids.is_empty());
    entries.iter_mut().for_each(|entry| entry.follow(stats));
    entries
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tantalum_device::Access;
    use tantalum_log::{Log, LogOptions};

    use super::*;
    use crate::options::Settings;

    #[test]
    fn a_device_that_cannot_be_opened_explains_a_log_without_devices_and_no_other_error() {
        let failures = vec![error::missing("log-0")];
        let gathered = Gathered { devices: Vec::new(), candidates: Vec::new(), recorded: None, failures };
        let none = Log::open(Vec::new(), LogOptions::default(), &mut |_| {}).map(drop).unwrap_err();
        assert!(gathered.explain(none).to_string().starts_with("log-0 is missing"));
        assert_eq!(gathered.explain(error::option("log_copies: 3")).kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn what_the_settings_name_is_found_whatever_came_and_went() {
        let dir = tempfile::tempdir().unwrap();
        let named = vec!["a".into(), "b".into()];
        let settings = Settings { log_devices: Some(named), ..Settings::default() };
        let places = LogPlaces { directory: dir.path(), settings: &settings, opener: None, access: Access::ReadWrite };
        let candidate = |path: &str, names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            (Entry::new(Path::new(path).into(), Vec::new()), names)
        };
        let candidates = vec![candidate("c", &["c[0]", "c[1]"]), candidate("b", &["b[0]", "b[1]"])];
        let gathered = Gathered { devices: Vec::new(), candidates, recorded: None, failures: Vec::new() };
        assert_eq!(gathered.names_in_settings(&places), [vec![], vec!["b[0]".to_owned(), "b[1]".to_owned()]]);
    }
}
