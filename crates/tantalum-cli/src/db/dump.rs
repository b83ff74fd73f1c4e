//! `tantalum db dump`.

use std::{
    io::{self, BufWriter, Read, Write},
    path::Path,
    process::ExitCode,
};

use tantalum_report::{Progress, Unit};

use super::{
    format::{Writer, escaped},
    source::Source,
};
use crate::error::{Error, Result};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes the named tables, or all, in the order of their names.
pub fn run(dir: &Path, only: &[String], output: Option<&Path>) -> Result<ExitCode> {
    let mut source = Source::open(dir)?;
    match output {
        None => {
            let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
            drop(write(&mut source, only, out, Error::Output)?);
        }
        Some(path) => {
            let failed = |error| Error::file("write", path, error);
            if path.exists() {
                return Err(failed(io::ErrorKind::AlreadyExists.into()));
            }
            // Under its name once it is complete; until then it goes when the command ends.
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let file = tempfile::Builder::new().prefix(".tantalum-dump-").tempfile_in(directory).map_err(failed)?;
            let file = write(&mut source, only, BufWriter::with_capacity(BUFFER_BYTES, file), failed)?;
            file.as_file().sync_all().map_err(failed)?;
            file.persist_noclobber(path).map_err(|error| failed(error.error))?;
        }
    }
    source.close()?;
    Ok(ExitCode::SUCCESS)
}

fn write<W: Write>(
    source: &mut Source,
    only: &[String],
    out: BufWriter<W>,
    failed: impl Fn(io::Error) -> Error + Copy,
) -> Result<W> {
    let mut tables = only.to_vec();
    tables.sort_unstable();
    tables.dedup();
    let progress = Progress::open_ended("dumping", Unit::Things);
    let mut writer = Writer::new(out).map_err(failed)?;
    source.values(&tables, &mut |table, row| {
        let Some((key, value)) = row else { return writer.table(table).map_err(failed) };
        let mut unread = None;
        let written = writer.row(key, &mut Noted { value, error: &mut unread });
        if let Some(error) = unread {
            return Err(Error::Other(format!("the value of key {} cannot be read: {error}", escaped(key))));
        }
        written.map_err(failed)?;
        progress.add(1);
        Ok(())
    })?;
    progress.finish();
    let out = writer.end().map_err(failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))
}

/// Notes what a value cannot be read by, as against what it cannot be written by.
struct Noted<'a> {
    value: &'a mut dyn Read,
    error: &'a mut Option<String>,
}

impl Read for Noted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.value.read(buffer).inspect_err(|error| *self.error = Some(error.to_string()))
    }
}
