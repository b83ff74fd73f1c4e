//! The mark `CREATING`, which is there while a database is being made, and what it says of the attempt.
//!
//! Invariant: what an attempt makes or overwrites outside the directory was blank when the first attempt that named it began, and
//! the mark names it, durably, before anything is written to it. So the next attempt knows what it may begin anew.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use tantalum_device::{
    Device, files,
    toml::{Problem, Table},
};
use tantalum_log::{Standing, standings};
use tantalum_store::Superblock;

use crate::error::{self, Result};

/// The name of the mark.
pub(crate) const CREATING: &str = "CREATING";

const HEAD: &str = "# A database is being made here. If this file stays, that was interrupted, and opening the database makes it\n\
                    # anew.\n";

/// What the mark says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CreationMark {
    /// The identities of the logs of this attempt, which comes last, and of those before it, in hexadecimal digits.
    logs: Vec<String>,
    /// The devices that the settings name, and that hold nothing but what these attempts have left.
    devices: Vec<PathBuf>,
    /// What the file of settings will hold when the database is made; absent if there was one before.
    pub settings: Option<String>,
}

impl CreationMark {
    /// That of an attempt that did not end, or is under way. Earlier versions wrote nothing into it.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(CREATING);
        match files::read(&path) {
            Ok(bytes) => Ok(Some(Table::parse(&bytes).and_then(Self::of_table).unwrap_or_default())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error::io(&path, "read", error)),
        }
    }

    fn of_table(mut table: Table) -> std::result::Result<Self, Problem> {
        let mark = Self {
            logs: table.take("logs")?.unwrap_or_default(),
            devices: table.take("devices")?.unwrap_or_default(),
            settings: table.take("settings")?,
        };
        table.finish()?;
        Ok(mark)
    }

    fn to_table(&self) -> std::result::Result<Table, String> {
        let mut table = Table::default();
        table.put("logs", &self.logs)?;
        table.put("devices", &self.devices)?;
        if let Some(settings) = &self.settings {
            table.put("settings", settings)?;
        }
        Ok(table)
    }

    /// Writes it, durably.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(CREATING);
        let keys = self.to_table().map_err(error::option)?;
        files::replace(&path, format!("{HEAD}{keys}").as_bytes()).map_err(|error| error::io(&path, "write", error))
    }

    /// The mark of an attempt after this one, which makes the log `log_id` and uses these devices.
    pub fn next(self, log_id: u128, devices: Vec<PathBuf>, settings: Option<String>) -> Self {
        let mut logs = self.logs;
        logs.push(format!("{log_id:032x}"));
        Self { logs, devices, settings }
    }

    /// The identities of all attempts' logs.
    pub fn logs(&self) -> Vec<u128> {
        self.logs.iter().filter_map(|id| u128::from_str_radix(id, 16).ok()).collect()
    }

    /// The identity of the log of the last attempt.
    pub fn log_id(&self) -> Option<u128> {
        self.logs().last().copied()
    }

    /// Whether what `path` leads to may be begun anew.
    pub fn names(&self, path: &Path) -> bool {
        self.devices.iter().any(|device| device == path)
    }

    /// Whether `device` holds another log than those of the attempts.
    pub fn is_foreign_log(&self, device: &std::sync::Arc<dyn Device>) -> bool {
        let found = standings(0, std::slice::from_ref(device));
        matches!(found[..], [Standing::Foreign { log_id }] if !self.logs().contains(&log_id))
    }

    /// Whether `device` holds another database than those of the attempts.
    pub fn is_foreign_data(&self, device: &dyn Device) -> bool {
        matches!(Superblock::read(device), Ok(Some(superblock)) if !self.logs().contains(&superblock.log_id))
    }
}
