//! `tantalum db dump`, and what other commands write rows out with.

use std::{
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use tantalum::control::RowSelection;
use tantalum_report::{Progress, Unit};

use super::{
    encoding::{Encodings, text_of},
    export::{Exporter, Failure, Format},
    source::{RowAccess, Source},
};
use crate::error::{Error, Result};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Args)]
pub struct DumpArguments {
    /// The database's directory.
    pub dir: PathBuf,
    /// Only this table. May be given several times.
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Write to this file instead of standard output. It must not exist.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What is written.
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    encodings: Encodings,
}

/// Gives rows to an output: `None` when a table begins.
pub type GiveRows<'a> =
    &'a mut dyn FnMut(&[String], &mut dyn FnMut(&str, Option<(&[u8], &mut dyn Read)>) -> Result<()>) -> Result<()>;

/// Writes the named tables, or all, in the order of their names.
pub fn run(arguments: &DumpArguments) -> Result<ExitCode> {
    let source = Source::open(&arguments.dir)?;
    arguments.write("dumping", &mut |tables, take| {
        source.rows(RowSelection { tables: tables.to_vec(), ..RowSelection::default() }, take)
    })?;
    source.close()?;
    Ok(ExitCode::SUCCESS)
}

impl DumpArguments {
    /// Writes the rows that `give` gives.
    pub fn write(&self, doing: &str, give: GiveRows<'_>) -> Result<()> {
        self.format.check(&self.encodings)?;
        match &self.output {
            None => {
                let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
                drop(self.write_to(doing, out, Error::Output, give)?);
            }
            Some(path) => {
                let failed = |error| Error::file("write", path, error);
                if path.exists() {
                    return Err(failed(io::ErrorKind::AlreadyExists.into()));
                }
                // Under its name once it is complete; until then it goes when the command ends.
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let file = tempfile::Builder::new().prefix(".tantalum-dump-").tempfile_in(directory).map_err(failed)?;
                let file = self.write_to(doing, BufWriter::with_capacity(BUFFER_BYTES, file), failed, give)?;
                file.as_file().sync_all().map_err(failed)?;
                file.persist_noclobber(path).map_err(|error| failed(error.error))?;
            }
        }
        Ok(())
    }

    fn write_to<W: Write>(
        &self,
        doing: &str,
        out: BufWriter<W>,
        failed: impl Fn(io::Error) -> Error + Copy,
        give: GiveRows<'_>,
    ) -> Result<W> {
        let mut tables = self.table.clone();
        tables.sort_unstable();
        tables.dedup();
        let progress = Progress::open_ended(doing, Unit::Things);
        let mut out = Exporter::new(self.format, self.encodings, out).map_err(failed)?;
        give(&tables, &mut |table, row| {
            let Some((key, value)) = row else { return out.table(table).map_err(failed) };
            out.row(key, value).map_err(|failure| match failure {
                Failure::Write(error) => failed(error),
                Failure::Encoding(error) => error,
                Failure::Read(error) => {
                    Error::Other(format!("the value of the key \"{}\" cannot be read: {error}", text_of(key)))
                }
            })?;
            progress.add(1);
            Ok(())
        })?;
        progress.finish();
        let out = out.end().map_err(failed)?;
        out.into_inner().map_err(|error| failed(error.into_error()))
    }
}
