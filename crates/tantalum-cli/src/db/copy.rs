//! `tantalum db copy`: the rows of a table, in a table of another name or another database.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tantalum::control::{KeyBounds, RowSelection};
use tantalum_report::{Progress, Unit, units};

use super::{
    builder,
    encoding::Encodings,
    loader::Loader,
    rows::KeyRangeArguments,
    source::{RowAccess, Source},
};
use crate::error::{Error, Out, Result};

#[derive(Args)]
pub struct CopyArguments {
    /// The database's directory.
    dir: PathBuf,
    /// The table whose rows are copied, as of one moment.
    table: String,
    /// The table that they are copied to. It must not exist.
    #[arg(value_name = "NEW_TABLE")]
    new_table: String,
    /// The directory of the database that has the other table, which is created if missing. Default: the same database.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    #[command(flatten)]
    range: KeyRangeArguments,
    /// At most so many rows.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Copy into a table that exists too; rows replace rows with the same key.
    #[arg(long)]
    merge: bool,
    /// How the keys on this command line are written, as with `db scan`.
    #[arg(
        long,
        value_name = "ENCODING",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true
    )]
    key_as: super::encoding::Encoding,
}

/// Copies rows, and prints how many.
pub fn run(arguments: &CopyArguments) -> Result<ExitCode> {
    let CopyArguments { dir, table, new_table, into, range, limit, merge, key_as } = arguments;
    let encodings = Encodings { key_as: *key_as, ..Encodings::default() };
    let KeyBounds { from, to: until } = range.bounds(&encodings)?;
    let (source, other) = match into {
        Some(into) => (Source::open(dir)?, Some(Source::open_with(builder(true), into)?)),
        None if table == new_table => return Err(Error::Usage(format!("table {table:?} would be copied to itself"))),
        None => (Source::open_writable(dir)?, None),
    };
    if !source.table_names()?.contains(table) {
        return Err(Error::Other(format!("there is no table {table:?} in {}", dir.display())));
    }
    let progress = Progress::open_ended("copying", Unit::Things);
    let mut loader = Loader::new(other.as_ref().unwrap_or(&source), *merge)?;
    loader.begin(new_table)?;
    let selection =
        RowSelection { tables: vec![table.clone()], from, to: until, limit: *limit, ..RowSelection::default() };
    let mut count = 0;
    source.rows(selection, &mut |_, row| {
        let Some((key, value)) = row else { return Ok(()) };
        count += 1;
        progress.add(1);
        loader.put(key, value)
    })?;
    loader.finish()?;
    progress.finish();
    if let Some(other) = other {
        other.close()?;
    }
    source.close()?;
    Out::new().line(format_args!("{} rows copied", units::count(count)))?;
    Ok(ExitCode::SUCCESS)
}
