//! Results as JSON, for programs to read, and read back.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

/// Why a result could not be written as JSON, or read back.
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
    /// The file could not be read.
    #[error("cannot read the JSON file {path:?}: {source}; check that it exists and may be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is not the JSON that is expected.
    #[error(
        "the JSON file {path:?} is damaged or holds something else: {source}; write it again, or name another file"
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        source: serde_json::Error,
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

/// Reads what [`to_json_file`] wrote.
///
/// # Errors
/// When the file cannot be read, is not JSON, or does not hold a `T`; the message names file, line and what is wrong.
pub fn from_json_file<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, Error> {
    let path = path.as_ref().to_owned();
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| Error::Parse { path, source }),
        Err(source) => Err(Error::Unreadable { path, source }),
    }
}

/// Writes `value` to standard output as indented JSON.
///
/// # Errors
/// When the value has no JSON form, or standard output is closed.
pub fn print_json(value: &impl Serialize) -> Result<(), Error> {
    io::stdout().lock().write_all(to_text(value)?.as_bytes()).map_err(|source| Error::Stdout { source })
}

/// `value` as indented JSON with a line break at its end.
///
/// # Errors
/// When the value has no JSON form.
pub fn to_text(value: &impl Serialize) -> Result<String, Error> {
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
    fn what_is_not_expected_is_refused_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        for (text, expected) in
            [("[1,\n 2", "line 2"), ("{\"a\": 1}", "line 1"), ("", "line 1"), ("[1, \"\u{0}", "line 1")]
        {
            fs::write(&path, text).unwrap();
            let error = from_json_file::<Vec<u32>>(&path).unwrap_err().to_string();
            assert!(error.contains("result.json") && error.contains(expected), "{text}: {error}");
        }
        let error = from_json_file::<Vec<u32>>(directory.path().join("none")).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        fs::write(&path, "[1, 2]").unwrap();
        assert_eq!(from_json_file::<Vec<u32>>(&path).unwrap(), [1, 2]);
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
