//! The file that records where the log's devices are, since they may change while the database is open.
//!
//! Invariant: it names every device that the log may list. A device is entered before it joins and struck off after it
//! has left, so whenever the power goes, what is entered and not listed can be struck off.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use tantalum_device::{
    files,
    toml::{Problem, Table},
};
use tantalum_log::LogStats;

use crate::error::{self, Result};

pub(crate) const RECORD: &str = "log-devices.toml";
/// The record that is about to replace it.
pub(crate) const RECORD_FRESH: &str = "log-devices.toml.new";

const HEAD: &str = "# Where the devices of Tantalum's log are. The database writes this file: to change the devices, see\n\
                    # `tantalum log add-device`, `remove-device` and `replace-device`.\n";

/// A device of the log, or one that joins it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As the settings or the user named it.
    pub path: PathBuf,
    /// The identities of its partitions in the log, as far as they are known.
    pub ids: Vec<u64>,
    /// The log went on without it: it was set aside, or absent. Without the others the database must not be opened on it.
    pub left_behind: bool,
}

impl Entry {
    pub fn new(path: PathBuf, ids: Vec<u64>) -> Self {
        Self { path, ids, left_behind: false }
    }

    /// Identities stand in the file as in messages: sixteen hexadecimal digits.
    fn of_table(mut table: Table) -> std::result::Result<Self, Problem> {
        let line = table.line();
        let id = |text: &String| u64::from_str_radix(text, 16);
        let ids: Vec<String> = table.require("ids")?;
        let ids = ids.iter().map(id).collect::<std::result::Result<_, _>>();
        let ids = ids.map_err(|_| Problem { line, what: "ids: an id has 16 digits 0 to f".into() })?;
        let left_behind = table.take("left_behind")?.unwrap_or(false);
        let entry = Self { path: table.require("path")?, ids, left_behind };
        table.finish()?;
        Ok(entry)
    }

    fn to_table(&self) -> std::result::Result<Table, String> {
        let mut table = Table::default();
        table.put("path", &self.path)?;
        table.put("ids", &self.ids.iter().map(|id| format!("{id:016x}")).collect::<Vec<_>>())?;
        if self.left_behind {
            table.put("left_behind", &true)?;
        }
        Ok(table)
    }

    /// Takes over whether the log goes on without it.
    pub fn follow(&mut self, stats: &LogStats) {
        let mut own = stats.devices.iter().filter(|device| self.ids.contains(&device.device_id));
        self.left_behind = own.any(|device| device.set_aside.is_some());
    }
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The last session of the log that was noted here.
    pub session: Option<u64>,
    /// Every device that the log may list.
    pub devices: Vec<Entry>,
}

impl Record {
    fn of_table(mut table: Table) -> std::result::Result<Self, Problem> {
        let devices = table.take_tables("device")?.into_iter().map(Entry::of_table);
        let record = Self { devices: devices.collect::<std::result::Result<_, _>>()?, session: table.take("session")? };
        table.finish()?;
        Ok(record)
    }

    fn to_table(&self) -> std::result::Result<Table, String> {
        let mut table = Table::default();
        if let Some(session) = self.session {
            table.put("session", &session)?;
        }
        table.put_tables("device", self.devices.iter().map(Entry::to_table).collect::<std::result::Result<_, _>>()?);
        Ok(table)
    }
}

/// Reads the record in a database's directory. `None` where there is none.
pub(crate) fn read(directory: &Path) -> Result<Option<Record>> {
    let path = directory.join(RECORD);
    let text = match files::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error::io(&path, "read", error)),
    };
    let damaged = |Problem { line, what }| {
        error::config(path.display(), line, format!("{what}; put the paths of the log's devices right by hand"))
    };
    Table::parse(&text).and_then(Record::of_table).map(Some).map_err(damaged)
}

/// Replaces the record, durably; it is there as before or as a whole at each moment.
pub(crate) fn write(directory: &Path, record: &Record) -> Result<()> {
    let path = directory.join(RECORD);
    let keys = record.to_table().map_err(error::option)?;
    let text = format!("{HEAD}{keys}");
    files::replace(&path, text.as_bytes()).map_err(|error| error::io(&path, "write", error))
}

/// Notes a session in the record, if there is one.
pub(crate) fn stamp(directory: &Path, session: u64) -> Result<()> {
    match read(directory)? {
        Some(record) => write(directory, &Record { session: Some(session), ..record }),
        None => Ok(()),
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
