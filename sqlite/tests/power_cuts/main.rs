//! SQLite on the VFS, in a simulation whose power goes: several connections with random transactions over two databases, and an engine
//! on devices in memory, which lose power at a random request, while the engine recovers too.
//!
//! What must hold when the power is back, and what the transactions see before: every commit that was acknowledged is there, and every one
//! that a reader was shown; what is there of a database is what one of its commits left, so all commits before it too; a transaction over
//! both databases is in both or in none; and `PRAGMA integrity_check` finds nothing.
//!
//! `SEEDS=A..B` has other seeds tried. `sqlite/run-mutants` checks that the test sees what it should.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod client;
mod connections;
mod content;
mod history;
mod machine;
mod session;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tantalum::{Db, Devices};
use tantalum_rt::{Random, Simulation, spawn};
use tantalum_sqlite::{Engine, Options};

use client::{Client, Counts, World};
use content::{Content, SCHEMA, read};
use history::{History, check};
use machine::{Machine, Power};
use session::{Session, Stop};

/// The engine that a seed runs.
#[derive(Clone, Copy)]
struct Config {
    pool_pages: u64,
    transaction_memory_bytes: u64,
    logs: usize,
    page_bytes: [u32; 2],
    clients: u32,
}

impl Config {
    fn new(random: &mut Random) -> Self {
        Self {
            pool_pages: 64 + random.u64(0..=192),
            transaction_memory_bytes: [16 << 10, 200 << 10, 64 << 20][random.usize(0..3)],
            logs: random.usize(1..=2),
            page_bytes: [(); 2].map(|()| 512 << random.u32(0..8)),
            clients: random.u32(1..=5),
        }
    }

    /// Opens the engine for the databases in a directory; `None` if the power goes.
    fn open(&self, directory: &Path, devices: Devices, power: &Power) -> Option<Engine> {
        let builder = Db::builder()
            .buffer_pool_bytes(self.pool_pages * 4096)
            .transaction_memory_bytes(self.transaction_memory_bytes);
        match builder.open_on(devices).and_then(|db| Engine::of(db, directory.join("tantalum-sqlite"))) {
            Ok(engine) => Some(engine),
            Err(error) if power.is_on() => panic!("the engine does not open: {error}"),
            Err(_) => None,
        }
    }
}

/// Makes the databases, or finds what they hold. `None` if the power goes.
fn look(config: &Config, directory: &Path, power: &Arc<Power>) -> Option<[(u64, Content); 2]> {
    let look = |database| {
        let session = Session::open_one(directory, power, database)?;
        let problems = session
            .ask(|connection| connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)))?;
        // It tells of pages that it cannot read as of others.
        if !power.is_on() {
            return Err(Stop::PowerLost);
        }
        assert_eq!(problems, "ok", "what integrity_check says of database {database}");
        let is_made = session.ask(|connection| {
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        })?;
        if is_made == 0 {
            let page_bytes = config.page_bytes[database];
            session.run(&format!("PRAGMA page_size={page_bytes}; BEGIN; {SCHEMA} COMMIT"))?;
        }
        session.run("BEGIN")?;
        read(&session, "main")
    };
    match (look(0), look(1)) {
        (Ok(one), Ok(two)) => Some([one, two]),
        (one, two) => {
            assert_eq!(one.err().or(two.err()), Some(Stop::PowerLost), "there is no other connection");
            None
        }
    }
}

/// A machine with its databases, from power cut to power cut.
struct Run {
    config: Config,
    directory: PathBuf,
    machine: Machine,
    random: Random,
    /// Of the last start that found what there is.
    histories: Option<[History; 2]>,
    counts: Counts,
}

impl Run {
    fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    /// Starts the engine, and checks what it finds, with power for so many requests. `None` if that goes.
    fn start(&mut self, requests: u64) -> Option<(Arc<Power>, Engine)> {
        let (power, devices) = self.machine.start(requests);
        let started = self.config.open(&self.directory, devices, &power).and_then(|engine| {
            let found = look(&self.config, &self.directory, &power)?;
            Some((engine, found))
        });
        let Some((engine, found)) = started else {
            self.count(if self.histories.is_some() { "cuts of a start" } else { "cuts of a creation" }, 1);
            return None;
        };
        if let Some(before) = &self.histories {
            check(before, &found);
            let is_unknown = |(history, (n, _)): (&History, &(u64, Content))| *n > history.visible();
            let unknown = before.iter().zip(&found).filter(|&database| is_unknown(database)).count();
            self.count("found without an answer", unknown as u64);
        }
        self.histories = Some(found.map(|(n, content)| History::found(n, content)));
        Some((power, engine))
    }

    /// Starts the engine, and has clients use it until the power goes.
    fn round(&mut self) {
        let mut longer = 0;
        let (power, engine) = loop {
            let most = [60, 300, 300, 1200][self.random.usize(0..4)];
            let requests = self.random.u64(1..most << longer);
            if let Some(started) = self.start(requests) {
                break started;
            }
            // A database may be too large to be looked at with so few.
            longer += 1;
        };
        self.machine.disturb();
        let world = Arc::new(World {
            directory: self.directory.clone(),
            power: Arc::clone(&power),
            histories: Mutex::new(self.histories.take().expect("the start found what there is")),
            counts: Mutex::default(),
        });
        let client = |id| {
            let mut client = Client { world: Arc::clone(&world), random: self.random.fork() };
            spawn(format!("client-{id}"), move || if id == 0 { client.run_imports(8) } else { client.run(100) })
        };
        let clients: Vec<_> = (0..=self.config.clients).map(client).collect();
        clients.into_iter().for_each(|client| client.join().expect("no client panics"));
        self.count(if power.is_on() { "cuts at rest" } else { "cuts" }, 1);
        power.cut();
        drop(engine);
        let world = Arc::into_inner(world).expect("all clients have ended");
        self.histories = Some(world.histories.into_inner().expect("no panic"));
        world.counts.into_inner().expect("no panic").into_iter().for_each(|(what, by)| self.count(what, by));
    }
}

/// Runs `f` with the machine of a seed, in its simulation.
fn simulate<T: 'static>(seed: u64, f: impl FnOnce(&mut Run) -> T + 'static) -> T {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    std::fs::create_dir(directory.path().join("tantalum-sqlite")).unwrap();
    let path = directory.path().to_owned();
    let run = move || {
        let mut random = Random::with_seed(seed);
        let config = Config::new(&mut random);
        let machine = Machine::new(config.logs, &mut random);
        let run = Run { config, directory: path, machine, random, histories: None, counts: Counts::new() };
        f(&mut { run })
    };
    Simulation::new(seed)
        .stack_size(1 << 20)
        .time_limit(Duration::from_secs(600))
        .step_limit(3_000_000)
        .run(run)
        .expect_finished()
}

fn search(run: &mut Run) -> Counts {
    for _ in 0..5 {
        run.round();
    }
    run.start(u64::MAX).expect("the power stays");
    std::mem::take(&mut run.counts)
}

/// Tests share what the VFS has for the process, which two simulations at the same time cannot; nor a simulation and a registration: a
/// simulated task waits for ever for a lock that a thread outside of it holds.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tantalum_sqlite::register(Options::new()).unwrap();
    alone
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let _alone = alone();
    let chosen = std::env::var("SEEDS").ok();
    let seeds = chosen.as_deref().unwrap_or("0..50").split_once("..");
    let (from, to) = seeds.expect("SEEDS is A..B");
    let seeds = from.parse::<u64>().expect("a number")..to.parse().expect("a number");
    let mut all = Counts::new();
    for seed in seeds {
        let counts = std::panic::catch_unwind(|| simulate(seed, search)).unwrap_or_else(|_| {
            panic!("seed {seed} fails; alone: SEEDS={seed}..{} cargo test --test power_cuts", seed + 1)
        });
        println!("{seed}: {counts:?}");
        counts.into_iter().for_each(|(what, by)| *all.entry(what).or_default() += by);
    }
    println!("{all:?}");
    if chosen.is_none() {
        let least = [
            ("commits", 6000),
            ("commits of both", 1100),
            ("rollbacks", 800),
            ("reads", 2500),
            ("vacuums", 600),
            ("imports", 300),
            ("busy", 1000),
            ("cuts", 100),
            ("cuts of a start", 45),
            ("cuts of a creation", 8),
            ("found without an answer", 10),
        ];
        least.into_iter().for_each(|(what, least)| assert!(all[what] >= least, "{what}: {}", all[what]));
    }
}
