//! The same statements on SQLite in Tantalum and on SQLite in files: how many durable commits a second, how long each takes, and what it
//! writes.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use rusqlite::{Connection, params};
use tantalum_rt::{Random, now, random_seed, spawn};
use tantalum_sqlite::{Engine, Options};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Parser)]
#[command(about = "Durable commits of SQLite in Tantalum beside SQLite in files")]
struct Arguments {
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Workload::Update, Workload::Insert])]
    workload: Vec<Workload>,
    /// How SQLite keeps the database.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Storage::Tantalum, Storage::WalFull])]
    storage: Vec<Storage>,
    /// Connections that commit at the same time, each in a thread of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    connections: Vec<u64>,
    /// How long each is measured.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How often, one after another in turns.
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Rows that there are before an update.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// The directory for the databases, on the device that is to be measured.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// The page size of the Tantalum database, in bytes.
    #[arg(long, default_value_t = 4096)]
    page_size: u32,
}

/// What each connection does.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Workload {
    /// A new value of 100 bytes for one row, chosen at random.
    Update,
    /// A row of 3.5 KB into a table with four indexes, as kine inserts for k3s.
    Insert,
}

/// Where the database is.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Storage {
    /// In Tantalum.
    Tantalum,
    /// In a file, with a write-ahead log that is synchronized at each commit.
    WalFull,
    /// In a file, with a write-ahead log that is not: the last commits are lost in a power cut.
    WalNormal,
    /// In a file, with a rollback journal.
    Rollback,
}

/// What one run showed.
struct Figures {
    commits_per_second: f64,
    latency_us: Histogram<u64>,
    bytes_per_commit: f64,
    log_bytes_per_commit: Option<f64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    println!("workload storage    connections  commits/s  p50 us  p99.9 us  bytes written/commit  log bytes/commit");
    for round in 1..=arguments.rounds {
        for workload in &arguments.workload {
            for connections in &arguments.connections {
                for storage in &arguments.storage {
                    let figures = measure(&arguments, *workload, *storage, *connections)?;
                    let log_bytes = figures.log_bytes_per_commit.map_or("-".into(), |bytes| format!("{bytes:.0}"));
                    println!(
                        "{:<8} {:<12} {connections:>9} {:>10.0} {:>7} {:>9} {:>21.0} {log_bytes:>17}  (round {round})",
                        format!("{workload:?}"),
                        format!("{storage:?}"),
                        figures.commits_per_second,
                        figures.latency_us.value_at_quantile(0.5),
                        figures.latency_us.value_at_quantile(0.999),
                        figures.bytes_per_commit,
                    );
                }
            }
        }
    }
    Ok(())
}

fn connect(path: &Path, storage: Storage) -> Result<Connection> {
    let uri = match storage {
        Storage::Tantalum => format!("file:{}?vfs=tantalum", path.display()),
        _ => format!("file:{}", path.display()),
    };
    let connection = Connection::open(uri)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.execute_batch(match storage {
        Storage::Tantalum | Storage::Rollback => "PRAGMA synchronous=FULL",
        Storage::WalFull => "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
        Storage::WalNormal => "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    })?;
    Ok(connection)
}

fn prepare(connection: &Connection, workload: Workload, rows: u64) -> Result<()> {
    match workload {
        Workload::Update => {
            connection.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, value BLOB)")?;
            let numbers = "WITH n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)";
            connection.execute(&format!("{numbers} INSERT INTO t SELECT i, randomblob(100) FROM n"), params![rows as i64])?;
        }
        Workload::Insert => connection.execute_batch(
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER, prev INTEGER, value BLOB);
             CREATE INDEX by_name ON t (name); CREATE INDEX by_name_id ON t (name, id);
             CREATE INDEX by_id_deleted ON t (id, deleted); CREATE INDEX by_prev ON t (prev)",
        )?,
    }
    Ok(())
}

fn work(connection: &Connection, workload: Workload, rows: u64, random: &mut Random) -> Result<()> {
    match workload {
        Workload::Update => {
            let id = random.u64(..rows) as i64;
            let updated =
                connection.prepare_cached("UPDATE t SET value = randomblob(100) WHERE id = ?1")?.execute([id])?;
            assert_eq!(updated, 1);
        }
        Workload::Insert => {
            let sql = "INSERT INTO t (name, created, deleted, prev, value) VALUES (hex(randomblob(20)), 1, 0, 7, randomblob(3500))";
            connection.prepare_cached(sql)?.execute([])?;
        }
    }
    Ok(())
}

fn measure(arguments: &Arguments, workload: Workload, storage: Storage, connections: u64) -> Result<Figures> {
    let directory = tempfile::tempdir_in(&arguments.directory)?;
    let path = directory.path().join("bench.db");
    let options = Options::new().set("page_size", &arguments.page_size.to_string())?;
    tantalum_sqlite::register(options.clone())?;
    let first = connect(&path, storage)?;
    prepare(&first, workload, arguments.rows)?;
    let engine = match storage {
        Storage::Tantalum => Some(Engine::open(directory.path().join("tantalum-sqlite"), &options)?),
        _ => None,
    };
    let log_bytes = || -> Result<Option<u64>> {
        let stats = engine.as_ref().map(|engine| engine.db().stats()).transpose()?;
        Ok(stats.map(|stats| stats.log.request_bytes))
    };
    let begin_log = log_bytes()?;
    let begin_written = bytes_written()?;
    let begun = now();
    let end = begun + Duration::from_secs(arguments.seconds);
    let tasks = (0..connections).map(|_| {
        let (path, rows) = (path.clone(), arguments.rows);
        spawn("connection", move || -> Result<Histogram<u64>> {
            let connection = connect(&path, storage)?;
            let mut latency_us = Histogram::new(3)?;
            let mut random = Random::with_seed(random_seed());
            while now() < end {
                let begun = now();
                work(&connection, workload, rows, &mut random)?;
                latency_us.saturating_record(now().duration_since(begun).as_micros() as u64);
            }
            Ok(latency_us)
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    let mut latency_us = Histogram::<u64>::new(3)?;
    for task in tasks {
        latency_us.add(task.join().map_err(|_| "a connection panicked")??)?;
    }
    let seconds = now().duration_since(begun).as_secs_f64();
    let commits = latency_us.len().max(1) as f64;
    let written = bytes_written()? - begin_written;
    let logged = log_bytes()?;
    Ok(Figures {
        commits_per_second: latency_us.len() as f64 / seconds,
        latency_us,
        bytes_per_commit: written as f64 / commits,
        log_bytes_per_commit: logged.zip(begin_log).map(|(end, begin)| (end - begin) as f64 / commits),
    })
}

/// What this process had the system write to devices, in bytes.
fn bytes_written() -> Result<u64> {
    let io = fs::read_to_string("/proc/self/io")?;
    let line =
        io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).ok_or("no write_bytes in /proc/self/io")?;
    Ok(line.parse()?)
}
