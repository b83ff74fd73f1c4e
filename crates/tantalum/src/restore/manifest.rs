//! What a base backup's directory says of itself: `backup.toml`, written last.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::Path,
};

use tantalum_device::toml::{Problem, Table};
use tantalum_store::{Protection, StoreKind};

use crate::{
    error::{self, Result},
    options::Settings,
};

const NAME: &str = "backup.toml";
/// The file that holds the pages.
pub const PAGES: &str = "pages";
/// The version that is written.
pub const VERSION: u32 = 1;

const HEAD: &str = "# A base backup of a Tantalum database: the file `pages` beside this one, which is to be followed by the\n\
                    # archive of the database's log. `tantalum db restore` makes a database of both.\n";

/// What is known of a base backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub version: u32,
    /// The identity of the log whose archive follows.
    pub log_id: u128,
    pub page_size: u32,
    pub store_kind: StoreKind,
    pub protection: Protection,
    /// Pages that `pages` has room for.
    pub pages: u64,
    /// Changes before it are in the pages; those behind it are to be repeated.
    pub start_lsn: u64,
    /// No page has a change from behind it: once the changes up to here are repeated, the pages suit each other.
    pub end_lsn: u64,
    /// When everything up to `end_lsn` was archived, in microseconds since 1970.
    pub taken_us: u64,
    /// Of the database, without the places of its files.
    pub settings: Settings,
}

impl Manifest {
    /// The log's identity stands in the file as in messages: 32 hexadecimal digits.
    fn of_table(mut table: Table) -> std::result::Result<Self, Problem> {
        let line = table.line();
        let log_id = u128::from_str_radix(&table.require::<String>("log_id")?, 16);
        let manifest = Self {
            version: table.require("version")?,
            log_id: log_id.map_err(|_| Problem { line, what: "log_id: an identity has 32 digits 0 to f".into() })?,
            page_size: table.require("page_size")?,
            store_kind: table.require("store_kind")?,
            protection: table.require("protection")?,
            pages: table.require("pages")?,
            start_lsn: table.require("start_lsn")?,
            end_lsn: table.require("end_lsn")?,
            taken_us: table.require("taken_us")?,
            settings: Settings::of_table(table.require("settings")?)?,
        };
        table.finish()?;
        Ok(manifest)
    }

    fn to_table(&self) -> std::result::Result<Table, String> {
        let mut table = Table::default();
        table.put("version", &self.version)?;
        table.put("log_id", &format!("{:032x}", self.log_id))?;
        table.put("page_size", &self.page_size)?;
        table.put("store_kind", &self.store_kind)?;
        table.put("protection", &self.protection)?;
        table.put("pages", &self.pages)?;
        table.put("start_lsn", &self.start_lsn)?;
        table.put("end_lsn", &self.end_lsn)?;
        table.put("taken_us", &self.taken_us)?;
        table.put("settings", &self.settings.to_table()?)?;
        Ok(table)
    }

    /// Writes it into a backup's directory, durably.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        let keys = self.to_table().map_err(error::option)?.to_string();
        let write = || -> std::io::Result<()> {
            let mut file = File::create_new(&path)?;
            file.write_all(HEAD.as_bytes())?;
            file.write_all(keys.as_bytes())?;
            file.sync_all()?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|error| error::io(&path, "write", error))
    }

    /// Reads that of a backup.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let refuse = |what: String| error::restore(format!("{}: {what}", path.display()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = "is missing, so this is no base backup; make one with `tantalum db backup --base`, or \
                            Db::base_backup";
                return Err(refuse(what.into()));
            }
            Err(error) => return Err(error::io(&path, "read", error)),
        };
        let read = Table::parse(text.as_bytes()).and_then(Self::of_table);
        let damaged = |Problem { line, what }| refuse(format!("is damaged: line {line}: {what}; use another backup"));
        let manifest = read.map_err(damaged)?;
        if manifest.version != VERSION {
            let version = manifest.version;
            return Err(refuse(format!(
                "has version {version}, this program reads version {VERSION}; use a newer one"
            )));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_what_is_damaged_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest {
            version: VERSION,
            log_id: u128::MAX - 7,
            page_size: 8192,
            store_kind: StoreKind::InPlace,
            protection: Protection::DoubleWrite,
            pages: 9,
            start_lsn: 1 << 62,
            end_lsn: (1 << 62) + 1,
            taken_us: 3,
            settings: Settings { log_bytes: Some(1 << 30), ..Settings::default() },
        };
        let refused = |words: &str| {
            let error = Manifest::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(NAME) && error.contains(words), "{error}");
        };
        refused("no base backup");
        manifest.write(dir.path()).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), manifest);
        let text = fs::read_to_string(dir.path().join(NAME)).unwrap();
        fs::write(dir.path().join(NAME), text.replace("version = 1", "version = 2")).unwrap();
        refused("version 2");
        fs::write(dir.path().join(NAME), text.replace("start_lsn = 4", "start_lsn = \"x")).unwrap();
        refused("damaged");
    }
}
