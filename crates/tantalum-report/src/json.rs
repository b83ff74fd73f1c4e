//! Results as JSON, for programs to read.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;

/// Why a result could not be written as JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The value has no JSON form.
    #[error("the result cannot be written as JSON: {source}; maps need keys that are strings or numbers")]
    Serialize {
        /// What the serializer says.
        source: serde_json::Error,
    },
    /// The file could not be written.
    #[error("cannot write the JSON file {path:?}: {source}; check that its directory exists and may be written to")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Standard output could not be written to.
    #[error("cannot write JSON to standard output: {source}; its reader may have closed it")]
    Stdout {
        /// What the system says.
        source: io::Error,
    },
}

/// Writes `value` to a file as indented JSON, replacing what the file held.
///
/// ```
/// let directory = tempfile::tempdir().expect("a temporary directory");
/// let path = directory.path().join("result.json");
/// tantalum_report::to_json_file(&path, &[1, 2]).expect("the directory exists");
/// assert_eq!(std::fs::read_to_string(&path).expect("just written"), "[\n  1,\n  2\n]\n");
/// ```
///
/// # Errors
/// When the value has no JSON form, or the file cannot be written.
pub fn to_json_file(path: impl AsRef<Path>, value: &impl Serialize) -> Result<(), Error> {
    let path = path.as_ref();
    fs::write(path, to_text(value)?).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Writes `value` to standard output as indented JSON.
///
/// # Errors
/// When the value has no JSON form, or standard output is closed.
pub fn print_json(value: &impl Serialize) -> Result<(), Error> {
    io::stdout().lock().write_all(to_text(value)?.as_bytes()).map_err(|source| Error::Stdout { source })
}

fn to_text(value: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value).map_err(|source| Error::Serialize { source })?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = to_json_file(directory.path().join("missing/result.json"), &1).unwrap_err();
        assert!(error.to_string().contains("missing/result.json"), "{error}");
    }

    #[test]
    fn a_value_without_a_json_form_is_refused_before_the_file_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        let error = to_json_file(&path, &BTreeMap::from([(vec![1], 2)])).unwrap_err();
        assert!(matches!(error, Error::Serialize { .. }), "{error}");
        assert!(!path.exists());
    }
}
