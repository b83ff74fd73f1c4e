//! A file for results that are long in coming.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
};

/// A file that is opened before the work begins whose results it will hold: a path that cannot be written to is known at
/// once, and not after hours. What the file held stays until the results replace it; a file that was made for nothing
/// goes again.
///
/// ```
/// let directory = tempfile::tempdir().expect("a temporary directory");
/// let path = directory.path().join("report.html");
/// let out = tantalum_report::OutFile::open(&path).expect("the directory may be written to");
/// // ... the work ...
/// out.write("<p>done</p>").expect("there is room");
/// assert_eq!(std::fs::read_to_string(&path).expect("just written"), "<p>done</p>");
/// ```
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
    /// Whether it is to be removed: it was not there before, and nothing has been written.
    is_for_nothing: bool,
}

impl OutFile {
    /// Opens or creates the file, and leaves it as it is.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let is_for_nothing = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        Ok(Self { path, file, is_for_nothing })
    }

    /// Replaces what the file holds.
    ///
    /// # Errors
    /// What the system says; the file may then hold a part.
    pub fn write(mut self, text: &str) -> io::Result<()> {
        self.is_for_nothing = false;
        // A pipe or a terminal has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(text.as_bytes())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if self.is_for_nothing {
            // An empty file that stays is no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_leaves_things_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| directory.path().join(name));
        fs::write(&old, "a longer text").unwrap();
        for path in [&new, &old] {
            let out = OutFile::open(path).unwrap();
            assert!(out.path().exists());
        }
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "a longer text");
        OutFile::open(&old).unwrap().write("short").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "short");
    }

    #[test]
    fn a_path_that_cannot_be_written_to_is_known_at_once() {
        let directory = tempfile::tempdir().unwrap();
        assert!(OutFile::open(directory.path()).is_err());
        assert!(OutFile::open(directory.path().join("missing/out")).is_err());
    }
}
