//! A client of the databases: one connection after the other, with random transactions.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rusqlite::{Connection, backup::Backup, backup::StepResult, params};
use tantalum_rt::{Random, sleep};

use crate::{
    content::{Content, SCHEMA, change, count_commit, random_row, read},
    history::History,
    machine::Power,
    session::{Schema, Session, Stop, stop},
};

/// What all clients of a start share.
pub struct World {
    pub directory: PathBuf,
    pub power: Arc<Power>,
    pub histories: Mutex<[History; 2]>,
    pub counts: Mutex<Counts>,
}

/// How often what happened.
pub type Counts = BTreeMap<&'static str, u64>;

impl World {
    fn histories(&self) -> MutexGuard<'_, [History; 2]> {
        self.histories.lock().expect("no panic")
    }

    fn count(&self, what: &'static str) {
        *self.counts.lock().expect("no panic").entry(what).or_default() += 1;
    }

    fn visible(&self) -> [u64; 2] {
        self.histories().each_ref().map(History::visible)
    }
}

/// A client.
pub struct Client {
    pub world: Arc<World>,
    pub random: Random,
}

impl Client {
    /// Runs transactions until the power goes, so many at most; and some more, since a connection whose engine has failed can be used.
    pub fn run(&mut self, transactions: u32) {
        let mut session = None;
        let mut left_without_power = self.random.u32(0..6);
        for _ in 0..transactions {
            let outcome = self.step(&mut session);
            if outcome == Err(Stop::Busy) {
                self.world.count("busy");
            }
            if let (Err(_), Some(session)) = (outcome, &session) {
                let rolled_back = session.roll_back();
                assert_ne!(rolled_back, Err(Stop::Busy));
            }
            if !self.world.power.is_on() {
                if left_without_power == 0 {
                    return;
                }
                left_without_power -= 1;
            }
        }
    }

    fn step(&mut self, session: &mut Option<Session>) -> Result<(), Stop> {
        let session = match session {
            Some(session) => session,
            none => none.insert(Session::open(&self.world.directory, &self.world.power, &mut self.random)?),
        };
        self.pause();
        match self.random.u32(0..100) {
            0..25 => self.put(session),
            25..65 => self.write(session),
            65..85 => self.read(session),
            85..90 => self.vacuum(session),
            90..94 => session.choose_modes(&mut self.random),
            94..97 => self.write_exclusively(session),
            // The connection that there was ends, perhaps in a transaction.
            _ => {
                if self.random.bool() {
                    session.run("BEGIN IMMEDIATE")?;
                    let schema = session.schemas[0].name;
                    change(session, schema, &mut read(session, schema)?.1, &mut self.random)?;
                }
                *session = Session::open(&self.world.directory, &self.world.power, &mut self.random)?;
                Ok(())
            }
        }
    }

    fn pause(&mut self) {
        if self.random.bool() {
            sleep(Duration::from_micros(self.random.u64(0..1500)));
        }
    }

    /// One statement that is a transaction.
    fn put(&mut self, session: &Session) -> Result<(), Stop> {
        let schema = &session.schemas[self.random.usize(0..session.schemas.len())];
        let (key, value) = random_row(&mut self.random);
        let failed = |error| stop(&self.world.power, &error, "a statement alone");
        let sql = format!("UPDATE {}.state SET n = n + 1, id = ?1, value = ?2 RETURNING n", schema.name);
        let mut statement = session.connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query(params![key, &*value]).map_err(failed)?;
        let row = rows.next().map_err(failed)?.expect("there is a row");
        let n = row.get::<_, i64>(0).map_err(failed)? as u64;
        {
            let history = &mut self.world.histories()[schema.database];
            let mut content = history.content(n - 1).clone();
            content.rows.insert(key, value);
            history.begin(n, content, vec![], vec![], self.world.power.is_on());
        }
        // It commits behind its last row.
        assert!(rows.next().map_err(failed)?.is_none());
        self.world.histories()[schema.database].acknowledge(n, schema.is_durable);
        self.world.count("commits");
        Ok(())
    }

    /// A transaction that writes, to one database or both.
    fn write(&mut self, session: &Session) -> Result<(), Stop> {
        let begin = ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN"][self.random.usize(0..3)];
        let visible = self.world.visible();
        session.run(begin)?;
        let mut states = Vec::new();
        for schema in &session.schemas {
            let (n, content) = read(session, schema.name)?;
            let mut histories = self.world.histories();
            let history = &mut histories[schema.database];
            if self.world.power.is_on() {
                history.check_seen(n, &content, visible[schema.database]);
            }
            if begin == "BEGIN" && session.schemas.iter().all(|schema| schema.was_always_durable) {
                history.show(n);
            }
            states.push((schema, n, content));
        }
        self.pause();
        // What is only read is behind what is written.
        let first_written = self.random.usize(0..2) * (states.len() - 1);
        let (mut written, read) = match (states.len(), self.random.bool()) {
            (2, true) => {
                let other = states.remove(1 - first_written);
                (states, vec![other])
            }
            _ => (states, vec![]),
        };
        for (schema, _, content) in &mut written {
            for _ in 0..self.random.u32(0..4) {
                self.change(session, schema.name, content)?;
            }
            count_commit(session, schema.name)?;
        }
        if self.random.u32(0..5) == 0 {
            self.world.count("rollbacks");
            return session.roll_back();
        }
        self.commit(session, written, &read)
    }

    /// Changes a database, perhaps with a savepoint.
    fn change(&mut self, session: &Session, schema: &str, content: &mut Content) -> Result<(), Stop> {
        if self.random.u32(0..3) > 0 {
            return change(session, schema, content, &mut self.random);
        }
        let before = content.clone();
        session.run("SAVEPOINT s")?;
        for _ in 0..self.random.u32(0..4) {
            change(session, schema, content, &mut self.random)?;
        }
        if self.random.bool() {
            session.run("ROLLBACK TO s")?;
            *content = before;
            self.change(session, schema, content)?;
        }
        session.run("RELEASE s")
    }

    fn commit(
        &mut self,
        session: &Session,
        written: Vec<(&Schema, u64, Content)>,
        read: &[(&Schema, u64, Content)],
    ) -> Result<(), Stop> {
        let commits: Vec<_> =
            written.iter().map(|(schema, n, _)| (schema.database, n + 1, schema.is_durable)).collect();
        let is_together = written.iter().all(|(schema, ..)| schema.is_together);
        {
            let mut histories = self.world.histories();
            let needs: Vec<_> = read.iter().map(|(schema, n, _)| (schema.database, *n)).collect();
            for (schema, n, content) in written {
                let others = commits.iter().filter(|(database, ..)| is_together && *database != schema.database);
                let together = others.map(|(database, n, _)| (*database, *n)).collect();
                histories[schema.database].begin(n + 1, content, needs.clone(), together, self.world.power.is_on());
            }
        }
        let committed = session.run("COMMIT");
        assert_ne!(committed, Err(Stop::Busy), "a transaction that has written can commit");
        committed?;
        let mut histories = self.world.histories();
        for &(database, n, is_durable) in &commits {
            histories[database].acknowledge(n, is_durable);
        }
        self.world.count(if commits.len() == 2 { "commits of both" } else { "commits" });
        Ok(())
    }

    /// A transaction that reads twice, the same.
    fn read(&mut self, session: &Session) -> Result<(), Stop> {
        let visible = self.world.visible();
        session.run("BEGIN")?;
        for schema in &session.schemas {
            let (n, content) = read(session, schema.name)?;
            {
                let history = &mut self.world.histories()[schema.database];
                if self.world.power.is_on() {
                    history.check_seen(n, &content, visible[schema.database]);
                }
                if schema.was_always_durable {
                    history.show(n);
                }
            }
            self.pause();
            assert_eq!((n, content), read(session, schema.name)?, "what a transaction reads twice");
        }
        self.world.count("reads");
        session.run("COMMIT")
    }

    /// Rewrites a database without changing what it holds.
    fn vacuum(&mut self, session: &Session) -> Result<(), Stop> {
        let schema = session.schemas[self.random.usize(0..session.schemas.len())].name;
        match self.random.u32(0..3) {
            0 => session.run(&format!("PRAGMA {schema}.incremental_vacuum"))?,
            _ => {
                let page_bytes = 512 << self.random.u32(0..8);
                let auto_vacuum = self.random.u32(0..3);
                session.run(&format!(
                    "PRAGMA {schema}.page_size={page_bytes}; PRAGMA {schema}.auto_vacuum={auto_vacuum}; VACUUM {schema}"
                ))?;
            }
        }
        self.world.count("vacuums");
        Ok(())
    }

    /// Some transactions with locks that are kept.
    fn write_exclusively(&mut self, session: &Session) -> Result<(), Stop> {
        session.run("PRAGMA main.locking_mode=exclusive")?;
        let mut outcome = Ok(());
        for _ in 0..self.random.u32(1..5) {
            outcome = self.write(session);
            session.roll_back()?;
        }
        session.run("PRAGMA main.locking_mode=normal")?;
        // With this, the locks are let go.
        session.run("SELECT n FROM main.state")?;
        outcome
    }

    /// Imports now and then, until the power goes, so many times at most.
    pub fn run_imports(&mut self, imports: u32) {
        for _ in 0..imports {
            sleep(Duration::from_millis(self.random.u64(0..40)));
            match self.import() {
                Err(Stop::PowerLost) => return,
                Err(Stop::Busy) => self.world.count("busy"),
                Ok(()) => self.world.count("imports"),
            }
        }
    }

    /// Has an ordinary database take the place of one.
    fn import(&mut self) -> Result<(), Stop> {
        let database = 1;
        let random = &mut self.random;
        let n = (self.world.histories()[database].last() / 1000 + 1) * 1000;
        let mut content = Content::default();
        let source = Connection::open_in_memory().and_then(|source| {
            source.execute_batch(&format!("PRAGMA page_size={}; {SCHEMA}", 512 << random.u32(0..8)))?;
            source.execute("UPDATE state SET n = ?1", params![n as i64])?;
            for _ in 0..random.u32(0..100) {
                let (key, value) = random_row(random);
                source.execute("INSERT OR REPLACE INTO t VALUES (?1, ?2)", params![key, &*value])?;
                content.rows.insert(key, value);
            }
            Ok(source)
        });
        let source = source.expect("a database in memory");
        let mut session = Session::open_one(&self.world.directory, &self.world.power, database)?;
        self.world.histories()[database].begin(n, content, vec![], vec![], self.world.power.is_on());
        let imported = self.copy(&source, &mut session.connection);
        match imported {
            Ok(()) => self.world.histories()[database].acknowledge(n, true),
            Err(Stop::Busy) => self.world.histories()[database].forget(n),
            Err(Stop::PowerLost) => {}
        }
        imported
    }

    fn copy(&mut self, source: &Connection, target: &mut Connection) -> Result<(), Stop> {
        let failed = |error| stop(&self.world.power, &error, "an import");
        let backup = Backup::new(source, target).map_err(failed)?;
        let pages = [-1, 5][self.random.usize(0..2)];
        loop {
            match backup.step(pages).map_err(failed)? {
                StepResult::Done => return Ok(()),
                StepResult::More => sleep(Duration::from_micros(self.random.u64(0..500))),
                _ => return Err(Stop::Busy),
            }
        }
    }
}
