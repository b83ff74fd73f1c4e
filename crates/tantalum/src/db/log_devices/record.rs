//! The file that records where the log's devices are, since they may change while the database is open.
//!
//! Invariant: it names every device that the log may list. A device is entered before it joins and struck off after it
//! has left, so whenever the power goes, what is entered and not listed can be struck off.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tantalum_device::files;
use tantalum_log::LogStats;

use crate::error::{self, Result};

pub(crate) const RECORD: &str = "log-devices.toml";
/// The record that is about to replace it.
pub(crate) const RECORD_FRESH: &str = "log-devices.toml.new";

const HEAD: &str = "# Where the devices of Tantalum's log are. The database writes this file: to change the devices, see\n\
                    # `tantalum log add-device`, `remove-device` and `replace-device`.\n";

/// A device of the log, or one that joins it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// As the settings or the user named it.
    pub path: PathBuf,
    /// The identities of its partitions in the log, as far as they are known.
    #[serde(with = "hexadecimal")]
    pub ids: Vec<u64>,
    /// The log went on without it: it was set aside, or absent. Without the others the database must not be opened on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_behind: bool,
}

impl Entry {
    pub fn new(path: PathBuf, ids: Vec<u64>) -> Self {
        Self { path, ids, left_behind: false }
    }

    /// Takes over whether the log goes on without it.
    pub fn follow(&mut self, stats: &LogStats) {
        let mut own = stats.devices.iter().filter(|device| self.ids.contains(&device.device_id));
        self.left_behind = own.any(|device| device.set_aside.is_some());
    }
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The last session of the log that was noted here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Every device that the log may list.
    #[serde(default, rename = "device")]
    pub devices: Vec<Entry>,
}

/// Reads the record in a database's directory. `None` where there is none.
pub(crate) fn read(directory: &Path) -> Result<Option<Record>> {
    let path = directory.join(RECORD);
    let text = match files::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error::io(&path, "read", error)),
    };
    let damaged = |error: toml::de::Error| {
        let line = 1 + text.bytes().take(error.span().map_or(0, |span| span.start)).filter(|&b| b == b'\n').count();
        let what = format!("{}; put the paths of the log's devices right by hand", error.message().replace('\n', " "));
        error::config(path.display(), line, what)
    };
    toml::from_str(&text).map(Some).map_err(damaged)
}

/// Replaces the record, durably; it is there as before or as a whole at each moment.
pub(crate) fn write(directory: &Path, record: &Record) -> Result<()> {
    let path = directory.join(RECORD);
    let keys = toml::to_string(record);
    let text = HEAD.to_owned() + &keys.map_err(|error| error::option(&error))?;
    files::replace(&path, text.as_bytes()).map_err(|error| error::io(&path, "write", error))
}

/// Notes a session in the record, if there is one.
pub(crate) fn stamp(directory: &Path, session: u64) -> Result<()> {
    match read(directory)? {
        Some(record) => write(directory, &Record { session: Some(session), ..record }),
        None => Ok(()),
    }
}

/// Identities as they stand in messages: sixteen hexadecimal digits.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(ids: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ids.iter().map(|id| format!("{id:016x}")))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(deserializer)?;
        let id =
            |text: &String| u64::from_str_radix(text, 16).map_err(|_| D::Error::custom("an id has 16 digits 0 to f"));
        texts.iter().map(id).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let entry = |path: &str, ids: &[u64]| Entry::new(path.into(), ids.to_vec());
        let behind = Entry { left_behind: true, ..entry("b", &[3]) };
        for devices in [vec![], vec![entry("log-0", &[1, u64::MAX]), entry("/dev/\"b", &[]), behind]] {
            let record = Record { session: None, devices };
            write(dir.path(), &record).unwrap();
            assert_eq!(read(dir.path()).unwrap(), Some(record.clone()));
            stamp(dir.path(), 7).unwrap();
            assert_eq!(read(dir.path()).unwrap(), Some(Record { session: Some(7), ..record }));
        }
    }

    #[test]
    fn a_damaged_record_names_its_line() {
        let dir = tempfile::tempdir().unwrap();
        for text in
            ["[[device]]\npath = 3", "[[device]]\npaths = \"a\"", "[[device]]\npath = \"a\"\nids = [\"z\"]", "x"]
        {
            fs::write(dir.path().join(RECORD), format!("# head\n{text}\n")).unwrap();
            match read(dir.path()) {
                Err(error) => {
                    let message = error.to_string();
                    let (file, rest) = message.split_once(", line ").unwrap();
                    let line: usize = rest.split(':').next().unwrap().parse().unwrap();
                    assert!(file.contains(RECORD) && line >= 2, "{text}: {line}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
