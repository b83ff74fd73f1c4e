//! The comparison: databases are loaded, and then engines take turns, round after round, each run in a process of its own.
//!
//! A run that fails is reported and the others go on: a comparison of hours should not be lost for one.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use tantalum_report::{Progress, Unit};

use crate::{
    arguments::Arguments,
    data::Dataset,
    engine::{Kind, Setup},
    error::{Error, Result},
    job::{FILLED, Job, Outcome, SUBCOMMAND, Task},
    workload::{Shape, Workload},
};

/// What is measured in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    /// What is done.
    pub workload: Workload,
    /// By how many; of the pipelined variant, commits under way.
    pub clients: usize,
    /// By which engine.
    pub engine: Kind,
}

/// What came of a case in each round: an outcome, or why there is none.
pub type Outcomes = BTreeMap<Case, Vec<Result<Outcome, String>>>;

/// All cases of a comparison, in the order in which they are run: engines take turns.
pub fn cases(arguments: &Arguments) -> Vec<Case> {
    let engines = arguments.engines();
    let mut cases = Vec::new();
    for workload in arguments.workloads() {
        let mut numbers: Vec<usize> = match workload.shape() {
            Shape::Once => vec![1],
            Shape::Clients => {
                [&arguments.clients[..], &arguments.in_flight, &[arguments.log_partitions as usize]].concat()
            }
        };
        numbers.sort_unstable();
        numbers.dedup();
        for clients in numbers {
            let is_asked_for = |engine: Kind| match (workload.shape(), engine) {
                (Shape::Once, _) => true,
                (_, Kind::TantalumPipelined) => arguments.in_flight.contains(&clients),
                (_, Kind::RawLogDepth) => arguments.log_partitions as usize == clients,
                _ => arguments.clients.contains(&clients),
            };
            let suitable = engines.iter().filter(|engine| workload.suits(**engine) && is_asked_for(**engine));
            cases.extend(suitable.map(|engine| Case { workload, clients, engine: *engine }));
        }
    }
    cases
}

/// Runs all cases, round after round.
///
/// # Errors
/// If directories cannot be made, or a database cannot be loaded; what goes wrong later is among the outcomes.
pub fn run(arguments: &Arguments, directory: &Path) -> Result<Outcomes> {
    let cases = cases(arguments);
    let progress = Progress::bar("measuring", (cases.len() * arguments.rounds) as u64, Unit::Things);
    let mut outcomes = Outcomes::new();
    for round in 0..arguments.rounds {
        for group in cases.chunk_by(|a, b| (a.workload, a.clients) == (b.workload, b.clients)) {
            // The engines take turns to come first.
            let first = round % group.len();
            for case in group[first..].iter().chain(&group[..first]) {
                let Case { workload, clients, engine } = *case;
                progress.remark(&format!("round {}, {}, {} x {clients}", round + 1, workload.name(), engine.name()));
                let runner = Runner { arguments, directory, case: *case, round };
                let outcome = runner.run().map_err(|error| error.to_string());
                if let Err(error) = &outcome {
                    eprintln!("{}, {} x {clients}: {error}", workload.name(), engine.name());
                }
                outcomes.entry(*case).or_default().push(outcome);
                progress.add(1);
            }
        }
    }
    progress.finish();
    Ok(outcomes)
}

/// One case in one round.
struct Runner<'a> {
    arguments: &'a Arguments,
    directory: &'a Path,
    case: Case,
    round: usize,
}

/// Of keys and tables, raised when what the adapters make of rows changes.
const FORMAT: u32 = 1;

/// A database that is loaded, as its mark says: one that was loaded otherwise is not used.
#[derive(Serialize)]
struct Mark<'a> {
    format: u32,
    setup: &'a Setup,
    dataset: Dataset,
}

impl Runner<'_> {
    fn run(&self) -> Result<Outcome> {
        let Case { workload, clients, .. } = self.case;
        let job = self.job(Task::Load)?;
        match workload {
            Workload::BulkLoad | Workload::LoadInTransactions | Workload::HugeTransaction => {
                let task = match workload {
                    Workload::BulkLoad => Task::Load,
                    Workload::LoadInTransactions => Task::LoadInTransactions,
                    _ => Task::PutAtOnce,
                };
                remove(&job.setup.directory)?;
                create(&job.setup.directory)?;
                let mut outcome = self.start(&Job { task, ..job.clone() })?.outcome();
                if !matches!(task, Task::Load) && outcome.is_ok() {
                    let read = self.start(&Job { task: Task::Read, ..job.clone() })?.outcome();
                    outcome = read.and(outcome);
                }
                remove(&job.setup.directory)?;
                outcome
            }
            Workload::Reopen => {
                self.load(&job)?;
                let fill = Job { task: Task::Fill(self.arguments.fill_mib << 20), ..job.clone() };
                let committed = self.start(&fill)?.kill_when_filled()?;
                self.start(&Job { task: Task::Reopen { committed }, ..job })?.outcome()
            }
            _ => {
                if self.case.engine.is_database() {
                    self.load(&job)?;
                }
                let task = Task::Clients { workload, clients, seconds: self.arguments.seconds };
                self.start(&Job { task, ..job })?.outcome()
            }
        }
    }

    fn job(&self, task: Task) -> Result<Job> {
        let (arguments, Case { workload, clients, engine }) = (self.arguments, self.case);
        let name = match workload {
            _ if !engine.is_database() && workload.is_cold() => "read",
            _ if !engine.is_database() => "written",
            Workload::BulkLoad | Workload::LoadInTransactions | Workload::HugeTransaction => "loaded",
            Workload::ColdRead => "cold",
            workload if workload.has_records() => "records",
            _ => "rows",
        };
        let directory = self.directory.join(engine.directory()).join(name);
        create(&directory)?;
        let dataset = arguments.dataset(workload);
        let setup = Setup {
            directory,
            cache_bytes: arguments.cache_bytes(),
            log_bytes: arguments.log_mib << 20,
            log_partitions: arguments.log_partitions,
            value_bytes: dataset.value_bytes,
            sessions: clients,
            has_transactions: workload.has_transactions(),
            is_cold: workload.is_cold() || (arguments.bounded && engine.is_database()),
        };
        let seed = arguments.seed.wrapping_add(self.round as u64);
        Ok(Job { engine, setup, dataset, task, seed, drains: arguments.drain })
    }

    /// Loads the database unless it was.
    fn load(&self, job: &Job) -> Result<()> {
        // How it is opened may differ from run to run; what is in it, and where, may not.
        let setup = Setup { sessions: 1, has_transactions: false, is_cold: false, ..job.setup.clone() };
        let mark = Mark { format: FORMAT, setup: &setup, dataset: job.dataset };
        let mark = serde_json::to_string(&mark).map_err(|error| Error::Other(error.to_string()))?;
        let file = job.setup.directory.with_extension("json");
        if fs::read_to_string(&file).is_ok_and(|found| found == mark) {
            return Ok(());
        }
        remove(&job.setup.directory)?;
        create(&job.setup.directory)?;
        self.start(&Job { setup: setup.clone(), task: Task::Load, ..job.clone() })?.outcome()?;
        fs::write(&file, mark).map_err(Error::file("write", &file))
    }

    fn start(&self, job: &Job) -> Result<Running> {
        let json = serde_json::to_string(job).map_err(|error| Error::Other(error.to_string()))?;
        let program = std::env::current_exe().map_err(Error::file("find", Path::new("this program")))?;
        let child =
            Command::new(&program).arg(SUBCOMMAND).arg(json).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(Error::file("start", &program))?;
        let out = BufReader::new(child.stdout.take().expect("its standard output was asked for"));
        let seconds = match job.task {
            Task::Clients { seconds, .. } => 10.0 * seconds,
            _ => 0.0,
        };
        Ok(Running { child, out, limit: LONGEST + Duration::from_secs_f64(seconds) })
    }
}

/// What a process may take beside the time that it measures: a slow disk's load of a large database.
const LONGEST: Duration = Duration::from_secs(1800);

/// A process of this program.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    limit: Duration,
}

impl Running {
    /// Waits for what comes of it.
    fn outcome(mut self) -> Result<Outcome> {
        const LOOK: Duration = Duration::from_millis(5);
        let started = Instant::now();
        // What it writes is far smaller than a pipe, so it does not wait for a reader.
        let status = loop {
            match self.child.try_wait().map_err(wait_failed)? {
                Some(status) => break status,
                None if started.elapsed() > self.limit => {
                    return Err(Error::Other(format!("it did not end in {:?}, and was killed", self.limit)));
                }
                None => thread::sleep(LOOK),
            }
        };
        let mut text = String::new();
        self.out.read_to_string(&mut text).map_err(wait_failed)?;
        match text.lines().last().map(serde_json::from_str) {
            Some(Ok(outcome)) if status.success() => Ok(outcome),
            _ => Err(Error::Other(format!("its process failed ({status}); its message is above"))),
        }
    }

    /// Kills it, as soon as it says that it has written enough; gives the transactions that it has committed.
    fn kill_when_filled(mut self) -> Result<u64> {
        let mut line = String::new();
        self.out.read_line(&mut line).map_err(wait_failed)?;
        if let Some(Ok(committed)) = line.strip_prefix(FILLED).map(|number| number.trim().parse()) {
            // Dropping it kills it.
            return Ok(committed);
        }
        let status = self.child.wait().map_err(wait_failed)?;
        Err(Error::Other(format!("it failed ({status}) while it wrote before the kill; its message is above")))
    }
}

impl Drop for Running {
    /// Leaves no process behind; one that has ended cannot be killed any more.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_failed(error: std::io::Error) -> Error {
    Error::Other(format!("cannot wait for a process of this program: {error}"))
}

fn create(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(Error::file("create", directory))
}

fn remove(directory: &Path) -> Result<()> {
    let mark = directory.with_extension("json");
    if mark.exists() {
        fs::remove_file(&mark).map_err(Error::file("remove", &mark))?;
    }
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(Error::file("remove", directory))?;
    }
    Ok(())
}

/// Where the databases are.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    is_temporary: bool,
}

impl Place {
    /// The directory that is asked for, or a new one in the current directory that goes in the end.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn of(arguments: &Arguments) -> Result<Self> {
        let name = || PathBuf::from(format!("tantalum-peers-{}", std::process::id()));
        let (path, is_temporary) = (arguments.dir.clone().unwrap_or_else(name), arguments.dir.is_none());
        create(&path)?;
        let path = fs::canonicalize(&path).map_err(Error::file("find", &path))?;
        Ok(Self { path, is_temporary })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            eprintln!("cannot remove {}: {error}; remove it by hand", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn engines_take_turns_at_the_clients_they_are_asked_for() {
        let options = [
            "peers",
            "--clients",
            "1,16",
            "--in-flight",
            "1,1024",
            "--log-partitions",
            "4",
            "--workload",
            "update,reopen",
        ];
        let cases = cases(&Arguments::parse_from(options));
        let of = |engine| {
            let of_engine = cases.iter().filter(move |case| case.engine == engine && case.workload == Workload::Update);
            of_engine.map(|case| case.clients).collect::<Vec<_>>()
        };
        assert_eq!(of(Kind::RocksDb), [1, 16]);
        assert_eq!(of(Kind::TantalumPipelined), [1, 1024]);
        assert_eq!(of(Kind::RawLogDepth), [4]);
        let reopened: Vec<Kind> =
            cases.iter().filter(|case| case.workload == Workload::Reopen).map(|case| case.engine).collect();
        assert_eq!(reopened, [Kind::Tantalum, Kind::RocksDb, Kind::Lmdb, Kind::Sqlite, Kind::Redb, Kind::Fjall]);
    }
}
