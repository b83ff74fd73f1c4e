//! `tantalum db dump`.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use tantalum::Db;
use tantalum_report::{Progress, Unit};

use super::{format::Writer, open};
use crate::error::{Error, Result};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes the named tables, or all, in the order of their names.
pub fn run(dir: &Path, only: &[String], output: Option<&Path>) -> Result<ExitCode> {
    let db = open(dir, false)?;
    match output {
        None => {
            let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
            drop(write(&db, only, out, Error::Output)?);
        }
        Some(path) => {
            let failed = |error| Error::file("write", path, error);
            let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
            let file = write(&db, only, BufWriter::with_capacity(BUFFER_BYTES, file), failed)?;
            file.sync_all().map_err(failed)?;
        }
    }
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

fn write<W: Write>(
    db: &Db,
    only: &[String],
    out: BufWriter<W>,
    failed: impl Fn(io::Error) -> Error + Copy,
) -> Result<W> {
    let mut names = db.tables()?;
    if let Some(missing) = only.iter().find(|name| !names.contains(name)) {
        return Err(Error::Other(format!("there is no table {missing:?}; `tantalum db tables` lists those there are")));
    }
    names.retain(|name| only.is_empty() || only.contains(name));
    names.sort_unstable();
    let snapshot = db.snapshot()?;
    let progress = Progress::open_ended("dumping", Unit::Things);
    let mut writer = Writer::new(out).map_err(failed)?;
    for name in names {
        writer.table(&name).map_err(failed)?;
        for row in snapshot.range(&db.table(&name)?, ..)? {
            let (key, value) = row?;
            writer.row(&key, &value).map_err(failed)?;
            progress.add(1);
        }
    }
    progress.finish();
    let out = writer.end().map_err(failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))
}
