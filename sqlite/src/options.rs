//! How databases are opened.

use std::path::{Path, PathBuf};

use tantalum::{Db, Result, SETTINGS};

/// Where new SQLite databases go, and how the Tantalum databases with them are opened. A URI parameter takes precedence:
/// `file:app.db?vfs=tantalum&database=/var/lib/app&log_bytes=67108864`.
///
/// ```
/// let options = tantalum_sqlite::Options::new().set("buffer_pool_bytes", "16777216")?;
/// tantalum_sqlite::register(options)?;
/// # Ok::<(), tantalum::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) is_default: bool,
    pub(crate) says_failures: bool,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The directory of the Tantalum database that new SQLite databases go to. Default: `tantalum-sqlite` beside each, so that those of
    /// one directory share one, and one transaction can change several.
    pub fn database(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// A setting of the engine, as in `tantalum.toml`. It counts when the VFS is what opens the Tantalum database.
    ///
    /// # Errors
    /// [`InvalidInput`](tantalum::ErrorKind::InvalidInput) for a name that is none, or a value that it cannot have.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self> {
        // Refused where it is given, and not when a database is opened.
        drop(Db::builder().set(name, value)?);
        self.settings.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Whether connections that name no VFS use this one; default false. They can then open no ordinary SQLite file.
    pub fn default_vfs(mut self, is_default: bool) -> Self {
        self.is_default = is_default;
        self
    }

    /// Whether the reason of each failure is written to standard error as well, for programs that cannot ask for
    /// [it](crate::last_error); default false. Counts for the process, from the registration on.
    pub fn say_failures(mut self, says_failures: bool) -> Self {
        self.says_failures = says_failures;
        self
    }

    /// These options and what the parameters of a URI say.
    pub(crate) fn with_parameters(mut self, parameter: impl Fn(&str) -> Option<String>) -> Result<Self> {
        if let Some(directory) = parameter("database") {
            self = self.database(directory);
        }
        for setting in SETTINGS {
            if let Some(value) = parameter(setting.name) {
                self = self.set(setting.name, &value)?;
            }
        }
        Ok(self)
    }
}
