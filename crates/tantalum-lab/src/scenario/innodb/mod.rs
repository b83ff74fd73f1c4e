//! A model of the server that DuraSSD ran LinkBench on, MySQL with InnoDB, at its true size: its buffer pool, how it makes room, its
//! double writes and its log, on emulated drives. No page has contents; what requests need follows from their keys ([`pages`]).
//!
//! It is that of MySQL 5.6, whose source is public (`buf0lru.cc`, `buf0flu.cc`, `buf0dblwr.cc`, `fil0fil.cc`, here of 5.6.41): the
//! paper's 5.7.2 has the same one page cleaner. Not modelled: flushing by the age of the log (three files of 4 GB do not fill), purge,
//! read-ahead, latches of pages, and the time of a processor but for [`Server::cpu_per_statement`].
//!
//! A task that misses a page needs a free frame of the page's instance (`buf_LRU_get_free_block`): from the list of free ones; else a
//! clean one among the last 1024; else it writes the last dirty one itself, durably, and looks at all of them; from the third try on
//! it sleeps before. One page cleaner goes through the instances once a second, or without a pause if that takes longer: it frees
//! clean frames and writes dirty ones, a hundred at a time, until 1024 are free (`buf_flush_LRU_tail`).

mod files;
mod log;
mod pages;
mod pool;
mod xfs;

use std::{
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
    log::{CHANGE_BYTES, Log},
    pages::{Pages, Use},
    pool::{Found, INSTANCES, Pool},
};
use super::{Drive, STACK_BYTES, side_by_side};
use crate::error::Result;

/// Frames that the page cleaner keeps free of each instance, and those that are looked at for a clean one (`innodb_lru_scan_depth`).
const SCAN_DEPTH: usize = 1024;
/// Pages that the page cleaner writes at once.
const BATCH_PAGES: usize = 100;
/// From one round of the page cleaner to the next.
const ROUND: Duration = Duration::from_secs(1);
/// What a task sleeps that finds no frame, from its third try on.
const NO_FRAME_SLEEP: Duration = Duration::from_millis(100);
/// Links of a node in the mean: of the published graph.
const LINKS_OF_NODE: f64 = 4.9;

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
    pub data: Drive,
    pub log: Drive,
    pub clients: usize,
    pub cores: usize,
    /// What two hardware threads of a core do, in percent of what one does alone.
    pub two_threads_percent: u32,
    /// Of a core, with the client's part.
    pub cpu_per_statement: Duration,
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

    /// The pool after so many requests that every frame was filled and as many pages more were read; nothing takes time.
    fn warm_pool(&self) -> (Pool, u64) {
        /// From one request to the next: a rate that the paper's server reaches.
        const REQUEST_NS: u64 = 100_000;
        let (pages, requests) = (self.pages(), Requests::new(self.parameters()));
        let mut pool = Pool::new((self.buffer_pool_bytes / u64::from(self.page_bytes)) as usize, pages.count());
        let (mut random, mut needed) = (Random::with_seed(self.seed ^ 1), Vec::new());
        let (mut reads, mut now_ns) = (0, 0);
        while reads < 2 * pool.frames() {
            now_ns += REQUEST_NS;
            pages.of(&requests.next(&mut random), &requests, 0, &mut needed);
            for &(page, how) in &needed {
                while pool.touch(page, how, now_ns) == Found::Missing {
                    if how == Use::ChangeLater && pool.change_later(page) {
                        break;
                    }
                    let instance = Pool::instance_of(page);
                    if pool.take_free(instance).is_none_or(|frame| !pool.begin_read(page, frame)) {
                        // As if the page cleaner had written what is old.
                        for page in pool.begin_batch(instance, 8, BATCH_PAGES) {
                            pool.end_write(page);
                        }
                        continue;
                    }
                    pool.end_read(page);
                    reads += 1;
                }
            }
        }
        (pool, now_ns)
    }

    fn serve(&self, pool: Pool, pool_ns: u64) -> Result<Served> {
        let Self { clients, warm_up, counted, seed, .. } = *self;
        let (data_drive, data) = self.data.build("data", self.data.bytes())?;
        let (_, log) = self.log.build("log", self.log.bytes())?;
        let instance = Arc::new(Running {
            pages: self.pages(),
            requests: Requests::new(self.parameters()),
            pool: Mutex::new(pool),
            changed: Condvar::default(),
            pool_ns,
            started: now(),
            files: Files::new(data, self),
            log: Log::new(log),
            cpu_per_statement: self.cpu_per_statement,
            is_over: AtomicBool::new(false),
            added: AtomicU64::new(0),
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
        let of = |server: &Self| (server.database_bytes, server.page_bytes, server.buffer_pool_bytes, server.seed);
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
        let (pool, pool_ns) = group[0].warm_pool();
        let serve = move |server: &Server| {
            let (pool, running) = (pool.clone(), Box::new(server.clone()));
            let run = move || running.serve(pool, pool_ns).map(Box::new);
            server.simulation().run(run).expect_finished().map(|served| *served)
        };
        let served = side_by_side(group.clone(), Server::describe, serve, progress)?;
        KNOWN.lock().extend(group.into_iter().zip(served.into_iter().map(Arc::new)));
    }
    Ok(wanted.iter().map(|server| known(server).expect("each has run or failed")).collect())
}

/// A server that runs.
struct Running {
    pages: Pages,
    requests: Requests,
    pool: Mutex<Pool>,
    /// Signalled when a page is read or written.
    changed: Condvar,
    /// The pool's time when the server started.
    pool_ns: u64,
    started: Instant,
    files: Files,
    log: Log,
    cpu_per_statement: Duration,
    is_over: AtomicBool,
    /// Nodes that were added.
    added: AtomicU64,
    uses: AtomicU64,
    misses: AtomicU64,
    blocked: AtomicU64,
}

/// A client with its connection.
struct Connection {
    random: Random,
    needed: Vec<(u32, Use)>,
}

impl Workload for Running {
    type Client<'a> = Connection;

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn client(&self, number: usize, seed: u64) -> tantalum_workloads::Result<Connection> {
        Ok(Connection { random: client_random(seed, number), needed: Vec::new() })
    }

    fn step(&self, connection: &mut Connection, recorder: &mut Recorder) -> tantalum_workloads::Result<()> {
        let request = self.requests.next(&mut connection.random);
        let needed = &mut connection.needed;
        recorder.run(request.kind as usize, || {
            self.serve(&request, needed).expect("emulated drives do not fail");
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
    fn serve(&self, request: &Request, needed: &mut Vec<(u32, Use)>) -> Result<()> {
        let added = match request.kind {
            Kind::AddNode => self.added.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        self.pages.of(request, &self.requests, added, needed);
        let is_changed = needed.iter().any(|(_, how)| *how != Use::Read);
        let (count, changes) = statements(request.kind, is_changed);
        for _ in 0..count {
            work(self.cpu_per_statement);
        }
        for &(page, how) in &*needed {
            self.use_page(page, how)?;
        }
        if changes > 0 { self.log.commit(changes * CHANGE_BYTES) } else { Ok(()) }
    }

    fn now_ns(&self) -> u64 {
        self.pool_ns + u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
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
                if pool.evict(instance, SCAN_DEPTH, tries > 0) {
                    continue;
                }
            }
            if tries > 1 {
                sleep(NO_FRAME_SLEEP);
            }
            has_written |= self.write_oldest(instance)?;
            tries += 1;
        }
    }

    /// Writes the oldest dirty page of an instance and evicts a clean one. Whether there was a dirty one.
    fn write_oldest(&self, instance: usize) -> Result<bool> {
        let Some(page) = self.pool.lock().begin_write_of_oldest(instance) else { return Ok(false) };
        self.files.write_single(page, self.pages.file_of(page))?;
        {
            let mut pool = self.pool.lock();
            pool.end_write(page);
            pool.evict(instance, SCAN_DEPTH, true);
        }
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
            sleep(ROUND.saturating_sub(begun.elapsed()));
        }
        Ok(())
    }

    fn clean_instance(&self, instance: usize) -> Result<()> {
        for _ in 0..SCAN_DEPTH.div_ceil(BATCH_PAGES) {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let batch = self.pool.lock().begin_batch(instance, SCAN_DEPTH, BATCH_PAGES);
            let pages: Vec<(u32, usize)> = batch.iter().map(|&page| (page, self.pages.file_of(page))).collect();
            if !pages.is_empty() {
                self.files.write_batch(&pages, |page| {
                    self.pool.lock().end_write(page);
                    self.changed.notify_all();
                })?;
            }
            self.pool.lock().end_batch(instance);
            if pages.is_empty() {
                break;
            }
        }
        Ok(())
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
            data: drive(512 << 20),
            log: drive(64 << 20),
            clients: 64,
            cores: 8,
            two_threads_percent: 121,
            cpu_per_statement: Duration::from_micros(100),
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
        assert!((mean / LINKS_OF_NODE - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn barriers_and_double_writes_make_few_requests_wait_long() {
        let slow = server(1);
        let without = |drive: &Drive| Drive { has_barriers: false, ..drive.clone() };
        let fast = Server { double_writes: false, data: without(&slow.data), log: without(&slow.log), ..slow.clone() };
        let [slow, fast, again] = [&slow, &fast, &slow].map(|server| {
            let (pool, pool_ns) = server.warm_pool();
            let server = Box::new(server.clone());
            server.simulation().run(move || server.serve(pool, pool_ns).map(Box::new)).expect_finished().unwrap()
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
