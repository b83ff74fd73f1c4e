//! A model of the server that DuraSSD ran LinkBench on, MySQL with InnoDB, at its true size: its buffer pool, how it makes room, its
//! double writes and its log, on emulated drives. No page has contents; what requests need follows from their keys ([`pages`]).
//!
//! It is that of MySQL 5.6.41, whose source is public, with what MySQL 5.7.2, which the paper ran, does in another way: it scans the
//! lists of the pool as worklog 7047 has it, which came into the development of 5.7 on 9 August 2013, six weeks before the release of
//! 5.7.2, and which WebScaleSQL took back into 5.6 (its commit 2c9704c9). Not modelled: flushing by the age of the log (three files of
//! 4 GB do not fill), purge, read-ahead, latches of pages, and the time of a processor but for [`Server::cpu_per_statement`].
//!
//! A task that misses a page needs a free frame of the page's instance (`buf_LRU_get_free_block`): from the list of free ones; else a
//! clean one among the last 100, of which it tells the page cleaner if there is none; else it takes the last page of the list, which it
//! writes itself, durably, if it is dirty; after that it looks at all of them, and from the third try on it sleeps before. One page
//! cleaner goes through the instances once a second, when it is told, or without a pause if a round takes longer: it frees clean frames
//! and writes dirty ones, up to 1024 of both, until 1024 are free (`buf_flush_LRU_tail`).

mod files;
mod latch;
mod load;
mod log;
mod pages;
mod pool;
mod xfs;

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{Condvar, Instant, Mutex, Random, Scheduling, Simulation, now, sleep, spawn, work};
use tantalum_workloads::{
    driver::{self, Completed, Options, Recorder, RunReport, Workload, client_random},
    linkbench::{Kind, Parameters, Request, Requests},
};

use self::{
    files::Files,
    latch::Latch,
    log::{CHANGE_BYTES, Log},
    pages::{Pages, Room, Step, TREES, Use},
    pool::{Found, INSTANCES, Pool, Taken},
};
use super::{Drive, STACK_BYTES, side_by_side};
use crate::error::Result;

/// Frames that the page cleaner keeps free of each instance, and pages that it frees or writes in a round (`innodb_lru_scan_depth`).
const SCAN_DEPTH: usize = 1024;
/// Frames that a task looks at for a clean one (`BUF_LRU_SEARCH_SCAN_THRESHOLD`).
const SEARCH_DEPTH: usize = 100;
/// From one round of the page cleaner to the next.
const ROUND: Duration = Duration::from_secs(1);
/// What a task sleeps that finds no frame, from its third try on.
const NO_FRAME_SLEEP: Duration = Duration::from_millis(10);
/// Links of a node in the mean: of the published graph.
const LINKS_OF_NODE: f64 = 5.19;

/// A server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Server {
    /// Of the database.
    pub database_bytes: u64,
    pub page_bytes: u32,
    pub buffer_pool_bytes: u64,
    pub double_writes: bool,
    /// How many pages tasks write one at a time with double writes; of InnoDB, [`single_places`](Self::single_places).
    pub single_places: usize,
    /// Whether the files of a batch are flushed as if they were one.
    pub flushes_files_together: bool,
    /// Whether tasks latch a tree while they go down in it, and while they split one of its leaves.
    pub latches_trees: bool,
    pub data: Drive,
    pub log: Drive,
    pub clients: usize,
    pub cores: usize,
    /// What two hardware threads of a core do, in percent of what one does alone.
    pub two_threads_percent: u32,
    /// Of a core, with the client's part.
    pub cpu_per_statement: Duration,
    /// Requests before the run, in which nothing takes time, at least.
    pub history: u64,
    /// Requests before those that are counted, and those that are, by the rate of the warm-up.
    pub warm_up: u64,
    pub counted: u64,
    pub seed: u64,
}

/// What a run measured.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub report: RunReport,
    /// Pages that were asked for, and not there.
    pub uses: u64,
    pub misses: u64,
    /// Of the misses, those whose task wrote a page itself before.
    pub blocked: u64,
    /// Dirty frames at the end, as a share of all.
    pub dirty: f64,
    /// Bytes that the drive of the pages was written, and its flash.
    pub host_written_bytes: u64,
    pub flash_written_bytes: u64,
}

impl Served {
    pub fn per_second(&self) -> f64 {
        self.report.total.per_second
    }
}

impl Server {
    /// Places of InnoDB's double-write area for single pages of this size.
    pub fn single_places(page_bytes: u32) -> usize {
        files::single_places(page_bytes.into()) as usize
    }

    fn parameters(&self) -> Parameters {
        let nodes = Pages::nodes_of(self.database_bytes, LINKS_OF_NODE, self.page_bytes);
        Parameters { nodes, seed: self.seed }
    }

    fn pages(&self) -> Pages {
        Pages::new(self.parameters().nodes, LINKS_OF_NODE, self.page_bytes)
    }

    /// The pool after [`history`](Self::history), and so many requests that every frame was filled and as many pages more were read;
    /// nothing takes time.
    fn history(&self) -> History {
        /// From one request to the next: a rate that the paper's server reaches.
        const REQUEST_NS: u64 = 100_000;
        let (pages, requests) = (self.pages(), Requests::new(self.parameters()));
        let mut pool = Pool::new((self.buffer_pool_bytes / u64::from(self.page_bytes)) as usize, pages.count());
        let (mut random, mut steps, mut room) = (Random::with_seed(self.seed ^ 1), Vec::new(), Room::default());
        let (mut requested, mut reads, mut now_ns) = (0, 0, 0);
        while reads < 2 * pool.frames() || requested < self.history {
            requested += 1;
            now_ns += REQUEST_NS;
            let request = requests.next(&mut random);
            pages.of(&request, &requests, &mut random, &mut room, &mut steps);
            for &step in &steps {
                let Step::Use(page, how) = step else { continue };
                while pool.touch(page, how, now_ns) == Found::Missing {
                    if how == Use::ChangeLater && pool.change_later(page) {
                        break;
                    }
                    let instance = Pool::instance_of(page);
                    if pool.take_free(instance).is_none_or(|frame| !pool.begin_read(page, frame)) {
                        // As if the page cleaner had written what is old.
                        pool.begin_batches(instance);
                        for page in pool.next_batch(instance, 8, files::BATCH_PLACES as usize, &mut { SCAN_DEPTH }) {
                            pool.end_write(page);
                        }
                        pool.end_batches(instance);
                        continue;
                    }
                    pool.end_read(page);
                    reads += 1;
                }
            }
        }
        History { pool, room, now_ns }
    }

    fn serve(&self, history: History) -> Result<Served> {
        let Self { clients, warm_up, counted, seed, .. } = *self;
        let (data_drive, data) = self.data.build("data", self.data.bytes())?;
        let (_, log) = self.log.build("log", self.log.bytes())?;
        let instance = Arc::new(Running {
            pages: self.pages(),
            requests: Requests::new(self.parameters()),
            pool: Mutex::new(history.pool),
            room: Mutex::new(history.room),
            latches: iter::repeat_with(Latch::default).take(TREES).collect(),
            latches_trees: self.latches_trees,
            changed: Condvar::default(),
            cleaner_wanted: Condvar::default(),
            begin_ns: history.now_ns,
            started: now(),
            files: Files::new(data, self),
            log: Log::new(log),
            cpu_per_statement: self.cpu_per_statement,
            is_over: AtomicBool::new(false),
            uses: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
        });
        let cleaner = {
            let instance = Arc::clone(&instance);
            spawn("page cleaner", move || instance.clean_pages())
        };
        let steps = warm_up.div_ceil(clients as u64);
        let warmed_up = driver::run(&instance, Options::transactions(clients, steps).with_seed(seed), &mut |_| ())?;
        let time = Duration::from_secs_f64(counted as f64 / warmed_up.total.per_second);
        let counts =
            || [&instance.uses, &instance.misses, &instance.blocked].map(|count| count.load(Ordering::Relaxed));
        let (before, drive_before) = (counts(), data_drive.counters());
        let options = Options::timed(clients, Duration::ZERO, time).with_seed(seed + 1);
        let report = driver::run(&instance, options, &mut |_| ())?;
        let (after, drive) = (counts(), data_drive.counters().since(&drive_before));
        instance.is_over.store(true, Ordering::Relaxed);
        cleaner.join_or_panic()?;
        let [uses, misses, blocked] = [0, 1, 2].map(|at| after[at] - before[at]);
        let pool = instance.pool.lock();
        let dirty = pool.dirty() as f64 / pool.frames() as f64;
        let (host_written_bytes, flash_written_bytes) = (drive.host_written_bytes, drive.media_written_bytes);
        Ok(Served { report, uses, misses, blocked, dirty, host_written_bytes, flash_written_bytes })
    }

    fn describe(&self) -> String {
        let writes = if self.double_writes { "double writes" } else { "single writes" };
        format!("InnoDB with pages of {} KB, {writes}", self.page_bytes >> 10)
    }

    fn simulation(&self) -> Simulation {
        let simulation = Simulation::new(self.seed).scheduling(Scheduling::InOrder).cores(self.cores);
        simulation.two_threads_per_core(self.two_threads_percent).stack_size(STACK_BYTES)
    }

    /// Whether the pool of both is the same before they begin.
    fn begins_as(&self, other: &Self) -> bool {
        let of = |server: &Self| {
            let &Self { database_bytes, page_bytes, buffer_pool_bytes, history, seed, .. } = server;
            (database_bytes, page_bytes, buffer_pool_bytes, history, seed)
        };
        of(self) == of(other)
    }
}

/// What was measured, for experiments that share runs.
static KNOWN: Mutex<Vec<(Server, Arc<Served>)>> = Mutex::new(Vec::new());

/// Runs all that have not run before, several at a time, and gives what came of them in the order asked for.
///
/// # Errors
/// The first of a run.
pub(crate) fn run(wanted: &[Server], progress: &dyn Fn(&str)) -> Result<Vec<Arc<Served>>> {
    let known = |of: &Server| KNOWN.lock().iter().find(|(other, _)| other == of).map(|(_, run)| Arc::clone(run));
    let mut groups: Vec<Vec<Server>> = Vec::new();
    for server in wanted.iter().filter(|server| known(server).is_none()) {
        match groups.iter_mut().find(|group| group[0].begins_as(server)) {
            Some(group) if group.contains(server) => {}
            Some(group) => group.push(server.clone()),
            None => groups.push(vec![server.clone()]),
        }
    }
    for group in groups {
        progress(&format!("{}: filling the buffer pool", group[0].describe()));
        let history = group[0].history();
        let serve = move |server: &Server| {
            let (history, running) = (history.clone(), Box::new(server.clone()));
            let run = move || running.serve(history).map(Box::new);
            server.simulation().run(run).expect_finished().map(|served| *served)
        };
        let served = side_by_side(group.clone(), Server::describe, serve, progress)?;
        KNOWN.lock().extend(group.into_iter().zip(served.into_iter().map(Arc::new)));
    }
    Ok(wanted.iter().map(|server| known(server).expect("each has run or failed")).collect())
}

/// What a server has in memory after some time.
#[derive(Clone)]
struct History {
    pool: Pool,
    room: Room,
    now_ns: u64,
}

/// A server that runs.
struct Running {
    pages: Pages,
    requests: Requests,
    pool: Mutex<Pool>,
    room: Mutex<Room>,
    latches: Vec<Latch>,
    latches_trees: bool,
    /// Signalled when a page is read or written.
    changed: Condvar,
    /// Signalled when a task finds no clean frame near the end of a list.
    cleaner_wanted: Condvar,
    /// The pool's time when the server started.
    begin_ns: u64,
    started: Instant,
    files: Files,
    log: Log,
    cpu_per_statement: Duration,
    is_over: AtomicBool,
    uses: AtomicU64,
    misses: AtomicU64,
    blocked: AtomicU64,
}

/// A client with its connection.
struct Connection {
    random: Random,
    steps: Vec<Step>,
}

impl Workload for Running {
    type Client<'a> = Connection;

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn client(&self, number: usize, seed: u64) -> tantalum_workloads::Result<Connection> {
        Ok(Connection { random: client_random(seed, number), steps: Vec::new() })
    }

    fn step(&self, connection: &mut Connection, recorder: &mut Recorder) -> tantalum_workloads::Result<()> {
        let request = self.requests.next(&mut connection.random);
        recorder.run(request.kind as usize, || {
            self.serve(&request, connection).expect("emulated drives do not fail");
            Ok(Completed::Committed)
        })?;
        Ok(())
    }
}

/// Statements of a request, and the rows that it changes: those of LinkBench's MySQL store. Writes end with a `COMMIT`.
fn statements(kind: Kind, is_changed: bool) -> (u32, u64) {
    match kind {
        Kind::GetNode | Kind::CountLink | Kind::GetLinkList | Kind::MultigetLink => (1, 0),
        Kind::AddNode | Kind::UpdateNode | Kind::DeleteNode => (2, 1),
        Kind::AddLink | Kind::UpdateLink => (3, 3),
        Kind::DeleteLink if is_changed => (4, 3),
        // `SELECT ... FOR UPDATE` finds nothing.
        Kind::DeleteLink => (2, 0),
    }
}

impl Running {
    fn serve(&self, request: &Request, connection: &mut Connection) -> Result<()> {
        let Connection { random, steps } = connection;
        self.pages.of(request, &self.requests, random, &mut self.room.lock(), steps);
        let is_changed = steps.iter().any(|step| matches!(step, Step::Use(_, how) if *how != Use::Read));
        let (count, changes) = statements(request.kind, is_changed);
        for _ in 0..count {
            work(self.cpu_per_statement);
        }
        for &step in &*steps {
            match step {
                Step::Use(page, how) => self.use_page(page, how)?,
                Step::Latch(tree, mode) if self.latches_trees => self.latches[tree].take(mode),
                Step::Unlatch(tree, mode) if self.latches_trees => self.latches[tree].leave(mode),
                Step::Latch(..) | Step::Unlatch(..) => {}
            }
        }
        if changes > 0 { Ok(self.log.commit(changes * CHANGE_BYTES)?) } else { Ok(()) }
    }

    fn now_ns(&self) -> u64 {
        self.begin_ns + u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn use_page(&self, page: u32, how: Use) -> Result<()> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        let mut pool = self.pool.lock();
        loop {
            match pool.touch(page, how, self.now_ns()) {
                Found::Here => return Ok(()),
                Found::Busy => self.changed.wait(&mut pool),
                Found::Missing if how == Use::ChangeLater && pool.change_later(page) => return Ok(()),
                Found::Missing => {
                    drop(pool);
                    self.read_page(page, how)?;
                    pool = self.pool.lock();
                }
            }
        }
    }

    fn read_page(&self, page: u32, how: Use) -> Result<()> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let frame = self.free_frame(Pool::instance_of(page))?;
        if !self.pool.lock().begin_read(page, frame) {
            return Ok(());
        }
        if how != Use::Create {
            self.files.read(page)?;
        }
        self.pool.lock().end_read(page);
        self.changed.notify_all();
        Ok(())
    }

    /// `buf_LRU_get_free_block`.
    fn free_frame(&self, instance: usize) -> Result<u32> {
        let (mut tries, mut has_written) = (0, false);
        loop {
            {
                let mut pool = self.pool.lock();
                if let Some(frame) = pool.take_free(instance) {
                    self.blocked.fetch_add(u64::from(has_written), Ordering::Relaxed);
                    return Ok(frame);
                }
                let is_worth = tries > 0 || pool.is_worth_a_look(instance);
                if is_worth && pool.evict(instance, SEARCH_DEPTH, tries > 0) {
                    continue;
                }
                if is_worth && tries == 0 {
                    self.cleaner_wanted.notify_all();
                }
            }
            if tries > 1 {
                sleep(NO_FRAME_SLEEP);
            }
            has_written |= self.evict_oldest(instance)?;
            tries += 1;
        }
    }

    /// Evicts the oldest page of an instance. Whether it had to be written before.
    fn evict_oldest(&self, instance: usize) -> Result<bool> {
        let Taken::ToWrite(page) = self.pool.lock().take_oldest(instance) else { return Ok(false) };
        self.files.write_single(page, self.pages.file_of(page))?;
        self.pool.lock().end_write(page);
        self.changed.notify_all();
        Ok(true)
    }

    /// The page cleaner's thread.
    fn clean_pages(&self) -> Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            let begun = now();
            for instance in 0..INSTANCES {
                self.clean_instance(instance)?;
            }
            let rest = ROUND.saturating_sub(begun.elapsed());
            if !rest.is_zero() {
                self.cleaner_wanted.wait_for(&mut self.pool.lock(), rest);
            }
        }
        Ok(())
    }

    fn clean_instance(&self, instance: usize) -> Result<()> {
        // Without double writes all are written at once.
        let at_once = if self.files.double_writes() { files::BATCH_PLACES as usize } else { SCAN_DEPTH };
        let mut left = SCAN_DEPTH;
        self.pool.lock().begin_batches(instance);
        loop {
            let (batch, is_last) = {
                let mut pool = self.pool.lock();
                let batch = pool.next_batch(instance, SCAN_DEPTH, at_once, &mut left);
                let is_last = batch.len() < at_once || self.is_over.load(Ordering::Relaxed);
                if is_last {
                    pool.end_batches(instance);
                }
                (batch, is_last)
            };
            let pages: Vec<(u32, usize)> = batch.iter().map(|&page| (page, self.pages.file_of(page))).collect();
            if !pages.is_empty() {
                self.files.write_batch(&pages, |page| {
                    self.pool.lock().end_write(page);
                    self.changed.notify_all();
                })?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::Profile;

    use super::*;
    use crate::scenario::{FileUse, Filled};

    /// A small one, with double writes and barriers.
    pub fn server(seed: u64) -> Server {
        let drive = |bytes| {
            let profile = Profile::named("durassd").unwrap().with_capacity(bytes);
            Drive { filled: Filled::Database, file: FileUse::None, ..Drive::new(profile) }
        };
        Server {
            database_bytes: 2 << 30,
            page_bytes: 16 << 10,
            buffer_pool_bytes: 400 << 20,
            double_writes: true,
            single_places: 8,
            flushes_files_together: false,
            latches_trees: true,
            data: drive(512 << 20),
            log: drive(64 << 20),
            clients: 64,
            cores: 8,
            two_threads_percent: 121,
            cpu_per_statement: Duration::from_micros(100),
            history: 0,
            warm_up: 60_000,
            counted: 6000,
            seed,
        }
    }

    #[test]
    fn nodes_have_as_many_links_as_the_pages_have_room_for() {
        let (nodes, types) = (1_000_000, 0..Requests::LINK_TYPES);
        let requests = Requests::new(Parameters { nodes, seed: 1 });
        let links: u64 = types.map(|of| (1..=nodes).map(|node| requests.loaded_links(node, of)).sum::<u64>()).sum();
        let mean = links as f64 / nodes as f64;
        assert!((mean / LINKS_OF_NODE - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn barriers_and_double_writes_make_few_requests_wait_long() {
        let slow = server(1);
        let without = |drive: &Drive| Drive { has_barriers: false, ..drive.clone() };
        let fast = Server { double_writes: false, data: without(&slow.data), log: without(&slow.log), ..slow.clone() };
        let [slow, fast, again] = [&slow, &fast, &slow].map(|server| {
            let (history, server) = (server.history(), Box::new(server.clone()));
            server.simulation().run(move || server.serve(history).map(Box::new)).expect_finished().unwrap()
        });
        assert!(fast.per_second() > 4.0 * slow.per_second(), "{} {}", fast.per_second(), slow.per_second());
        let [slow_latency, fast_latency] = [&slow, &fast].map(|run| run.report.total.latency);
        assert!(slow_latency.p99_us > 10.0 * slow_latency.p50_us, "{slow_latency:?}");
        assert!(slow_latency.p99_us > 10.0 * fast_latency.p99_us, "{fast_latency:?}");
        assert!(0 < slow.blocked && slow.blocked < slow.misses && slow.misses < slow.uses);
        assert!(
            slow.host_written_bytes / slow.report.total.committed
                > fast.host_written_bytes / fast.report.total.committed
        );
        assert_eq!(
            (slow.per_second(), slow.uses),
            (again.per_second(), again.uses),
            "the same seed gives the same run"
        );
    }
}
