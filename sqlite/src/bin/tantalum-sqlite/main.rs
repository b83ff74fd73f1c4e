//! The program `tantalum-sqlite`: copies ordinary SQLite databases into Tantalum and out of it, and has programs that know nothing of it
//! use the VFS.

use std::{
    env,
    error::Error,
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};
use tantalum_sqlite::{Options, last_error};

/// Pages that are copied between two looks at the progress.
const PAGES: i32 = 1024;
/// How long it waits for other connections of either database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const PRELOADED: &str = "libtantalum_sqlite_preload.so";

/// SQLite databases in Tantalum.
#[derive(Parser)]
#[command(name = "tantalum-sqlite", version)]
struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Copies an ordinary SQLite database into a new one in Tantalum.
    ///
    /// Programs may use the ordinary one meanwhile; what is copied is the state after one commit. If it is interrupted, nothing was copied, and it
    /// can be begun again.
    Import {
        /// The ordinary database; one in WAL mode too.
        ordinary: PathBuf,
        /// The path of the new one.
        new: PathBuf,
        /// The directory of the Tantalum database that it goes to [default: tantalum-sqlite beside the path]
        #[arg(long, value_name = "DIR")]
        database: Option<PathBuf>,
    },
    /// Copies a SQLite database in Tantalum into a new ordinary file.
    ///
    /// Programs may use it meanwhile; what is copied is the state after one commit.
    Export {
        /// The database in Tantalum.
        database: PathBuf,
        /// The path of the new file.
        ordinary: PathBuf,
    },
    /// Runs a program with all its SQLite databases in Tantalum, and the programs that it starts.
    ///
    /// For programs that are dynamically linked to SQLite; one that has it compiled in uses ordinary files, as ever. Ordinary databases
    /// that exist are refused: import them before. Failures are explained on standard error.
    Run {
        /// The directory with libtantalum_sqlite_preload.so and libtantalum_sqlite.so [default: that of this program, or ../lib beside it]
        #[arg(long, value_name = "DIR")]
        libraries: Option<PathBuf>,
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Subcommands::Import { ordinary, new, database } => import(&ordinary, &new, database.as_deref()),
        Subcommands::Export { database, ordinary } => export(&database, &ordinary),
        Subcommands::Run { libraries, program } => run(libraries, &program),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn import(ordinary: &Path, new: &Path, database: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from =
        Connection::open_with_flags_and_vfs(ordinary, read_only, "unix").map_err(|error| of(ordinary, &error))?;
    // An empty file and one that is no database show now, before anything is made.
    from.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(|error| of(ordinary, &error))?;
    let mut options = Options::new();
    if let Some(database) = database {
        options = options.database(database);
    }
    tantalum_sqlite::register(options)?;
    let mut to = Connection::open_with_flags_and_vfs(new, OpenFlags::default(), tantalum_sqlite::VFS_NAME)
        .map_err(|error| of(new, &error))?;
    let is_empty = to.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0));
    if !is_empty.map_err(|error| of(new, &error))? {
        return Err(format!("{} has tables already; choose another path", new.display()).into());
    }
    Ok(copy(&from, &mut to).map_err(|error| of(new, &error))?)
}

fn export(database: &Path, ordinary: &Path) -> Result<(), Box<dyn Error>> {
    check_new(ordinary)?;
    tantalum_sqlite::register(Options::new())?;
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags_and_vfs(database, read_only, tantalum_sqlite::VFS_NAME)
        .map_err(|error| of(database, &error))?;
    let directory = ordinary.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let partial = tempfile::Builder::new().prefix(".tantalum-export-").tempfile_in(directory)?;
    let mut to = Connection::open_with_flags_and_vfs(partial.path(), OpenFlags::default(), "unix")?;
    copy(&from, &mut to).map_err(|error| of(ordinary, &error))?;
    to.close().map_err(|(_, error)| of(ordinary, &error))?;
    let permissions = fs::metadata(database)?.permissions();
    fs::set_permissions(partial.path(), permissions)?;
    partial.as_file().sync_all()?;
    partial.persist_noclobber(ordinary).map_err(|error| format!("{}: {}", ordinary.display(), error.error))?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

fn check_new(path: &Path) -> Result<(), String> {
    if fs::symlink_metadata(path).is_ok_and(|file| file.len() > 0) {
        return Err(format!("{} exists already; choose another path, or remove it", path.display()));
    }
    Ok(())
}

/// What went wrong with a file: in the VFS's words, if it has some.
fn of(path: &Path, error: &rusqlite::Error) -> String {
    let reason = last_error().filter(|reason| !reason.is_empty()).map(|reason| format!(" ({reason})"));
    format!("{}: {error}{}", path.display(), reason.unwrap_or_default())
}

/// Copies all pages in one transaction, and shows how far it is.
fn copy(from: &Connection, to: &mut Connection) -> rusqlite::Result<()> {
    from.busy_timeout(BUSY_TIMEOUT)?;
    to.busy_timeout(BUSY_TIMEOUT)?;
    let page_bytes: u32 = from.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    // One state, and no beginning anew when another connection writes.
    from.execute_batch("BEGIN")?;
    from.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let backup = Backup::new(from, to)?;
    let style = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    loop {
        let step = backup.step(PAGES)?;
        let progress = backup.progress();
        bar.set_length(progress.pagecount.max(0) as u64 * u64::from(page_bytes));
        bar.set_position((progress.pagecount - progress.remaining).max(0) as u64 * u64::from(page_bytes));
        match step {
            StepResult::Done => break,
            StepResult::Busy | StepResult::Locked => std::thread::sleep(BUSY_PAUSE),
            _ => {}
        }
    }
    drop(backup);
    bar.finish_and_clear();
    from.execute_batch("COMMIT")
}

fn run(libraries: Option<PathBuf>, program: &[OsString]) -> Result<(), Box<dyn Error>> {
    let [name, arguments @ ..] = program else { return Err("name a program".into()) };
    let candidates = match libraries {
        Some(directory) => vec![directory],
        None => {
            let own = env::current_exe()?;
            let own = own.parent().unwrap_or(Path::new("/")).to_owned();
            vec![own.join("../lib"), own]
        }
    };
    let library = candidates.iter().rev().map(|directory| directory.join(PRELOADED)).find(|library| library.exists());
    let Some(library) = library else {
        let places = candidates.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>();
        return Err(format!(
            "{PRELOADED} is not in {}; build sqlite/extension, and name its directory with --libraries",
            places.join(" or ")
        )
        .into());
    };
    let library = fs::canonicalize(library)?;
    if library.to_string_lossy().contains([' ', ':']) {
        return Err(format!(
            "{}: LD_PRELOAD takes no path with a space or a colon; use another directory",
            library.display()
        )
        .into());
    }
    let mut preloaded = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloaded.push(":");
        preloaded.push(others);
    }
    // Returns only if it fails.
    let error = Command::new(name).args(arguments).env("LD_PRELOAD", preloaded).exec();
    Err(format!("{}: {error}", name.to_string_lossy()).into())
}
