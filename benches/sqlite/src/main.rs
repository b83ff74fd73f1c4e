//! The same statements on SQLite in Tantalum and on SQLite in files: how many transactions a second, how long each takes, and what it
//! writes.

use std::{
    collections::HashMap,
    env,
    error::Error,
    fs,
    io::{self, BufRead, BufReader},
    iter,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use rusqlite::{Connection, TransactionBehavior};
use tantalum_loop_disk::{Frozen, LoopDisk};
use tantalum_rt::{Random, now, random_seed, sleep, spawn};
use tantalum_sqlite::{Engine, Options};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Parser)]
#[command(about = "Durable commits of SQLite in Tantalum beside SQLite in files")]
struct Arguments {
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Workload::Update, Workload::Insert, Workload::Mixed, Workload::Bulk])]
    workload: Vec<Workload>,
    /// How SQLite keeps the database.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Storage::Tantalum, Storage::WalFull])]
    storage: Vec<Storage>,
    /// Connections that work at the same time, each in a thread of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    connections: Vec<u64>,
    /// How long each is measured.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How long each runs before.
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    /// How often, one after another in turns.
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Rows that there are before updates and reads.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// The directory for the databases, on the device that is to be measured.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Milliseconds of each second for which the disk with the databases stalls; Tantalum has a second log device beside it. Needs root.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=900))]
    stall_ms: u64,
    /// The page size of the Tantalum database, in bytes.
    #[arg(long, default_value_t = 4096)]
    page_size: u32,
    /// Only has the Tantalum database in this directory open, for the connections of another process, until standard input ends.
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
}

/// What each connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
enum Workload {
    /// A new value of 100 bytes for one row, chosen at random.
    Update,
    /// A row of 3.5 KB into a table with four indexes, as kine inserts for k3s.
    Insert,
    /// Nineteen rows read for each that is updated, each in a transaction of its own.
    Mixed,
    /// 10,000 rows of 100 bytes in one transaction.
    Bulk,
    /// One row read.
    Read,
    /// A connection opened, one row read, and the connection closed, as programs do for each request.
    Request,
}

/// Rows of a transaction of [`Workload::Bulk`].
const BULK_ROWS: u64 = 10_000;

/// Of a disk that stalls.
const DISK_BYTES: u64 = 4 << 30;

/// Of Tantalum's log.
const LOG_BYTES: &str = "268435456";

/// Where the database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
enum Storage {
    /// In Tantalum.
    Tantalum,
    /// In Tantalum, which another process has open.
    TantalumElsewhere,
    /// In a file, with a write-ahead log that is synchronized at each commit.
    WalFull,
    /// In a file, with a write-ahead log that is not: the last commits are lost in a power cut.
    WalNormal,
    /// In a file, with a rollback journal.
    Rollback,
}

/// What one run showed.
struct Figures {
    per_second: f64,
    latency_us: Histogram<u64>,
    written_bytes: f64,
    log_bytes: Option<f64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(directory) = &arguments.serve {
        let engine = Engine::open(directory, &options(&arguments, directory)?)?;
        println!();
        io::copy(&mut io::stdin(), &mut io::sink())?;
        drop(engine);
        return Ok(());
    }
    let name = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let mut rates: HashMap<_, Vec<f64>> = HashMap::new();
    println!("round workload connections storage               tx/s   p50 us p99.9 us  written/tx   log/tx");
    for round in 1..=arguments.rounds {
        for &workload in &arguments.workload {
            for &connections in &arguments.connections {
                for &storage in &arguments.storage {
                    let figures = measure(&arguments, workload, storage, connections)?;
                    let log_bytes = figures.log_bytes.map_or("-".into(), |bytes| format!("{bytes:.0}"));
                    println!(
                        "{round:>5} {:<8} {connections:>11} {:<17} {:>8.0} {:>8} {:>8} {:>11.0} {log_bytes:>8}",
                        name(&workload),
                        name(&storage),
                        figures.per_second,
                        figures.latency_us.value_at_quantile(0.5),
                        figures.latency_us.value_at_quantile(0.999),
                        figures.written_bytes,
                    );
                    rates.entry((workload, connections, storage)).or_default().push(figures.per_second);
                }
            }
        }
    }
    println!("\nmedians of the rounds; x: times that of Tantalum");
    for &workload in &arguments.workload {
        for &connections in &arguments.connections {
            let median = |storage| {
                let mut rates = rates[&(workload, connections, storage)].clone();
                rates.sort_by(f64::total_cmp);
                rates[rates.len() / 2]
            };
            let tantalum = arguments.storage.contains(&Storage::Tantalum).then(|| median(Storage::Tantalum));
            print!("{:<8} {connections:>4}", name(&workload));
            for &storage in &arguments.storage {
                let rate = median(storage);
                let ratio = tantalum.map_or(String::new(), |tantalum| format!(" {:.2}x", rate / tantalum));
                print!("  {} {rate:.0}{ratio}", name(&storage));
            }
            println!();
        }
    }
    Ok(())
}

/// How the Tantalum database in a directory is opened.
fn options(arguments: &Arguments, directory: &Path) -> Result<Options> {
    let options = Options::new()
        .set("page_size", &arguments.page_size.to_string())?
        // In its full size from the beginning: making a larger one would be a part of what is measured.
        .set("log_initial_bytes", LOG_BYTES)?
        .set("log_bytes", LOG_BYTES)?;
    if arguments.stall_ms == 0 {
        return Ok(options);
    }
    // The directory is on the disk that stalls, which is mounted beside the second device.
    let disk = directory.parent().ok_or("a directory without a parent")?;
    let beside = disk.parent().ok_or("a disk without a parent")?;
    let logs = [disk.join("log-0"), beside.join("log-1")];
    Ok(logs.iter().try_fold(options, |options, log| options.set("log_devices", &log.display().to_string()))?)
}

/// Another process that has the Tantalum database open.
struct Owner(Child);

impl Owner {
    fn start(directory: &Path) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1)).arg("--serve").arg(directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.as_mut().ok_or("no pipe")?;
        if BufReader::new(stdout).read_line(&mut String::new())? == 0 {
            return Err(format!("the process that serves ended: {}", child.wait()?).into());
        }
        Ok(Self(child))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        _ = self.0.wait();
    }
}

fn open(path: &Path, storage: Storage) -> Result<Connection> {
    let uri = match storage {
        Storage::Tantalum | Storage::TantalumElsewhere => format!("file:{}?vfs=tantalum", path.display()),
        _ => format!("file:{}", path.display()),
    };
    let connection = Connection::open(uri)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    Ok(connection)
}

fn connect(path: &Path, storage: Storage) -> Result<Connection> {
    let connection = open(path, storage)?;
    connection.execute_batch(match storage {
        Storage::Tantalum | Storage::TantalumElsewhere | Storage::Rollback => "PRAGMA synchronous=FULL",
        Storage::WalFull => "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
        Storage::WalNormal => "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    })?;
    Ok(connection)
}

fn prepare(connection: &Connection, workload: Workload, rows: u64) -> Result<()> {
    match workload {
        Workload::Update | Workload::Mixed | Workload::Read | Workload::Request => {
            connection.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, value BLOB)")?;
            // In small transactions: of a large one, Tantalum is still busy when it has committed.
            for from in (0..rows).step_by(1000) {
                let sql = "WITH n(i) AS (VALUES (?1) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2) INSERT INTO t SELECT i, randomblob(100) FROM n";
                connection.execute(sql, [from as i64, rows.min(from + 1000) as i64])?;
            }
        }
        Workload::Insert => connection.execute_batch(
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER, prev INTEGER, value BLOB);
             CREATE INDEX by_name ON t (name); CREATE INDEX by_name_id ON t (name, id);
             CREATE INDEX by_id_deleted ON t (id, deleted); CREATE INDEX by_prev ON t (prev)",
        )?,
        Workload::Bulk => connection.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, value BLOB)")?,
    }
    Ok(())
}

/// Reads a row.
fn read(connection: &Connection, id: i64) -> Result<()> {
    let mut statement = connection.prepare_cached("SELECT value FROM t WHERE id = ?1")?;
    let value: Vec<u8> = statement.query_row([id], |row| row.get(0))?;
    assert_eq!(value.len(), 100);
    Ok(())
}

/// One transaction; of [`Workload::Request`] in a connection that `open` opens.
fn work(
    connection: &mut Connection,
    open: impl Fn() -> Result<Connection>,
    workload: Workload,
    rows: u64,
    random: &mut Random,
) -> Result<()> {
    let id = random.u64(..rows) as i64;
    match workload {
        Workload::Request => read(&open()?, id)?,
        Workload::Read => read(connection, id)?,
        Workload::Mixed if random.u8(..20) > 0 => read(connection, id)?,
        Workload::Update | Workload::Mixed => {
            let updated =
                connection.prepare_cached("UPDATE t SET value = randomblob(100) WHERE id = ?1")?.execute([id])?;
            assert_eq!(updated, 1);
        }
        Workload::Insert => {
            let sql = "INSERT INTO t (name, created, deleted, prev, value) VALUES (hex(randomblob(20)), 1, 0, 7, randomblob(3500))";
            connection.prepare_cached(sql)?.execute([])?;
        }
        Workload::Bulk => {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for _ in 0..BULK_ROWS {
                transaction.prepare_cached("INSERT INTO t (value) VALUES (randomblob(100))")?.execute([])?;
            }
            transaction.commit()?;
        }
    }
    Ok(())
}

fn measure(arguments: &Arguments, workload: Workload, storage: Storage, connections: u64) -> Result<Figures> {
    let directory = tempfile::tempdir_in(&arguments.directory)?;
    let disk = match arguments.stall_ms {
        0 => None,
        _ => Some(LoopDisk::new(&directory.path().join("image"), directory.path().join("disk"), DISK_BYTES)?),
    };
    let place = disk.as_ref().map_or(directory.path(), LoopDisk::path);
    let path = place.join("bench.db");
    let database = place.join("tantalum-sqlite");
    let options = options(arguments, &database)?;
    tantalum_sqlite::register(options.clone())?;
    let owner = (storage == Storage::TantalumElsewhere).then(|| Owner::start(&database)).transpose()?;
    let first = connect(&path, storage)?;
    prepare(&first, workload, arguments.rows)?;
    let engine = (storage == Storage::Tantalum).then(|| Engine::open(&database, &options)).transpose()?;
    let processes = || iter::once(process::id()).chain(owner.as_ref().map(|owner| owner.0.id()));
    let counters = || -> Result<(u64, Option<u64>)> {
        let written = processes().map(bytes_written).sum::<Result<u64>>()?;
        let stats = engine.as_ref().map(|engine| engine.db().stats()).transpose()?;
        Ok((written, stats.map(|stats| stats.log.end_lsn.get())))
    };
    let from = now() + Duration::from_secs(arguments.warm_up);
    let until = from + Duration::from_secs(arguments.seconds);
    let tasks = (0..connections).map(|_| {
        let (path, rows) = (path.clone(), arguments.rows);
        spawn("connection", move || -> Result<Histogram<u64>> {
            let mut connection = connect(&path, storage)?;
            let mut latency_us = histogram()?;
            let mut random = Random::with_seed(random_seed());
            loop {
                let begun = now();
                work(&mut connection, || open(&path, storage), workload, rows, &mut random)?;
                let ended = now();
                if ended >= until {
                    return Ok(latency_us);
                }
                if ended >= from {
                    latency_us.saturating_record(ended.duration_since(begun).as_micros() as u64);
                }
            }
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    let stalls = disk.as_ref().map(|disk| Stalls::begin(disk, arguments.stall_ms));
    sleep(from.duration_since(now()));
    let (written_before, log_before) = counters()?;
    sleep(until.duration_since(now()));
    let (written, log) = counters()?;
    let mut latency_us = histogram()?;
    for task in tasks {
        latency_us.add(task.join().map_err(|_| "a connection panicked")??)?;
    }
    if let Some(stalls) = stalls {
        stalls.end()?;
    }
    let transactions = latency_us.len().max(1) as f64;
    Ok(Figures {
        per_second: latency_us.len() as f64 / arguments.seconds as f64,
        latency_us,
        written_bytes: (written - written_before) as f64 / transactions,
        log_bytes: log.zip(log_before).map(|(end, begin)| (end - begin) as f64 / transactions),
    })
}

/// A task that has a disk stall in each second.
struct Stalls {
    stop: Arc<AtomicBool>,
    task: tantalum_rt::JoinHandle<io::Result<()>>,
}

impl Stalls {
    fn begin(disk: &LoopDisk, stall_ms: u64) -> Self {
        let (stop, path) = (Arc::new(AtomicBool::new(false)), disk.path().to_owned());
        let (is_over, stall) = (Arc::clone(&stop), Duration::from_millis(stall_ms));
        let task = spawn("stalls", move || {
            while !is_over.load(Ordering::Acquire) {
                let frozen = Frozen::new(path.clone())?;
                sleep(stall);
                drop(frozen);
                sleep(Duration::from_secs(1).saturating_sub(stall));
            }
            Ok(())
        });
        Self { stop, task }
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        Ok(self.task.join().map_err(|_| "the task that freezes the disk panicked")??)
    }
}

/// Of microseconds, up to ten minutes.
fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

/// What a process had the system write to devices, in bytes.
fn bytes_written(process: u32) -> Result<u64> {
    let io = fs::read_to_string(format!("/proc/{process}/io"))?;
    let line =
        io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).ok_or("no write_bytes in /proc/PID/io")?;
    Ok(line.parse()?)
}
