//! The files that `--write-config` writes. Nothing that exists is replaced without being told to.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tantalum_lab::probe::{self, Advice, Found};

use crate::error::{Error, Result};

const SETTINGS: &str = "tantalum.toml";
const CHARACTERISTICS: &str = "log.characteristics.toml";

/// Where they go.
pub struct Config {
    directory: PathBuf,
}

impl Config {
    /// Looks whether they may be written, before it takes minutes to know what.
    pub fn at(directory: &Path, force: bool) -> Result<Self> {
        for path in [SETTINGS, CHARACTERISTICS].map(|name| directory.join(name)) {
            if path.exists() && !force {
                let path = path.display();
                return Err(Error::Other(format!(
                    "{path} exists; name another directory, or give --force to replace it"
                )));
            }
        }
        fs::create_dir_all(directory).map_err(|error| Error::file("create", directory, error))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Writes them, and says which.
    pub fn write(&self, found: &Found, advice: &Advice) -> Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        let mut write = |name: &str, text: &str| -> Result<()> {
            let path = self.directory.join(name);
            fs::write(&path, text).map_err(|error| Error::file("write", &path, error))?;
            written.push(path);
            Ok(())
        };
        let measured = probe::characteristics(found);
        if let Some(characteristics) = &measured {
            write(CHARACTERISTICS, &characteristics.to_toml())?;
        }
        write(SETTINGS, &probe::settings(found, advice, measured.map(|_| CHARACTERISTICS)))?;
        Ok(written)
    }
}
