//! `tantalum db load`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use tantalum::{Builder, ErrorKind, StoreKind};
use tantalum_report::{Progress, Unit, units};

use super::{
    builder,
    encoding::Encodings,
    export::Format,
    format::Line,
    import::{Importer, InputFormat},
    loader::Loader,
    source::Source,
};
use crate::error::{Error, Out, Result};

#[derive(Args)]
pub struct LoadArguments {
    /// The database's directory.
    dir: PathBuf,
    /// Read from this file instead of standard input. It is checked as a whole before anything is loaded.
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
    /// What is read.
    #[arg(long, default_value = "text")]
    format: Format,
    /// The table of rows that name none.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// How pages are stored in a database that is created: in-place, in-page-logging or log-structured.
    /// Default: in-place, or what tantalum.toml says.
    #[arg(long, value_name = "STORE")]
    page_store: Option<StoreKind>,
    /// Load into tables that exist too, and rows in any order; they replace rows with the same key.
    #[arg(long)]
    merge: bool,
    #[command(flatten)]
    encodings: Encodings,
}

/// Loads rows from a file, or from standard input.
pub fn run(arguments: &LoadArguments) -> Result<ExitCode> {
    let LoadArguments { input, format, table, encodings, .. } = arguments;
    format.check(encodings)?;
    let how = InputFormat { format: *format, encodings: *encodings, table: table.as_deref() };
    let (rows, tables) = match input {
        Some(path) => {
            let file = File::open(path).map_err(|error| Error::file("read", path, error))?;
            let bytes = file.metadata().map_or(0, |metadata| metadata.len());
            let again = file.try_clone().map_err(|error| Error::file("read", path, error))?;
            verify(path, BufReader::new(file), how, bytes)?;
            io::Seek::rewind(&mut &again).map_err(|error| Error::file("read again", path, error))?;
            let progress = Progress::bar("loading", bytes, Unit::Bytes);
            load(arguments, how, &path.display().to_string(), BufReader::new(again), &progress)?
        }
        None => {
            let progress = Progress::open_ended("loading", Unit::Bytes);
            load(arguments, how, "standard input", io::stdin().lock(), &progress)?
        }
    };
    Out::new().line(format_args!("{} rows in {} tables loaded", units::count(rows), units::count(tables)))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all of a file, so that nothing is loaded from a damaged one.
fn verify(path: &Path, input: impl BufRead, how: InputFormat<'_>, bytes: u64) -> Result<()> {
    let progress = Progress::bar("checking the file", bytes, Unit::Bytes);
    let named = |what| Error::Other(format!("{}: {what}", path.display()));
    let mut rows = Importer::new(input, how).map_err(named)?;
    loop {
        match rows.next().map_err(named)? {
            Line::End => break,
            Line::Row(_) => {
                _ = io::copy(&mut rows.value(), &mut io::sink()).map_err(|error| named(error.to_string()))?
            }
            Line::Table(_) => {}
        }
        progress.add(rows.line_bytes());
    }
    progress.finish();
    Ok(())
}

/// Returns the rows and tables loaded.
fn load(
    arguments: &LoadArguments,
    how: InputFormat<'_>,
    name: &str,
    input: impl BufRead,
    progress: &Progress,
) -> Result<(u64, u64)> {
    let named = |what| Error::Other(format!("{name}: {what}"));
    let mut rows = Importer::new(input, how).map_err(named)?;
    let LoadArguments { dir, page_store, merge, .. } = arguments;
    let target = Source::open_with(page_store.iter().copied().fold(builder(true), Builder::page_store), dir)?;
    let mut loader = Loader::new(&target, *merge)?;
    let (mut row_count, mut table_count) = (0, 0);
    loop {
        match rows.next().map_err(named)? {
            Line::End => break,
            Line::Table(name) => {
                loader.begin(&name)?;
                table_count += 1;
            }
            Line::Row(key) => {
                loader.put(&key, &mut rows.value()).map_err(|error| match error {
                    Error::Engine(error) if error.kind() == ErrorKind::InvalidInput => {
                        named(format!("{error}; or give --merge, with which rows are loaded in any order"))
                    }
                    Error::Engine(error) if error.kind() == ErrorKind::Io => named(error.to_string()),
                    Error::Other(what) => named(what),
                    error => error,
                })?;
                row_count += 1;
            }
        }
        progress.add(rows.line_bytes());
    }
    loader.finish()?;
    target.close()?;
    progress.finish();
    Ok((row_count, table_count))
}
