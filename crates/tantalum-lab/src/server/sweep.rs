//! Many runs, side by side.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use tantalum_rt::Mutex;
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::{
    Cell, LogSetup, Run,
    cell::PAGE_BYTES,
    image::{Image, Plan},
};
use crate::error::Result;

/// How large the server's database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Warehouses.
    pub warehouses: u32,
    /// Rows of each.
    pub scale: Scale,
    /// The buffer pool.
    pub buffer_pool_bytes: u64,
}

impl Size {
    /// The paper's.
    pub const PAPER: Self = Self { warehouses: 20, scale: Scale::full(), buffer_pool_bytes: 2 << 30 };
}

/// A loaded database, and all that was measured on it so far.
pub struct Server {
    size: Size,
    image: Arc<Image>,
    known: Mutex<HashMap<Cell, Arc<Run>>>,
}

impl Server {
    /// Loads the database.
    ///
    /// # Errors
    /// As the engine fails: a defect.
    pub fn load(size: Size, seed: u64, progress: &dyn Fn(&str)) -> Result<Self> {
        let parameters = Parameters { warehouses: size.warehouses, scale: size.scale, seed };
        let image = Arc::new(Image::load(Plan::tpcc(parameters, PAGE_BYTES, size.buffer_pool_bytes), progress)?);
        Ok(Self { size, image, known: Mutex::default() })
    }

    /// Bytes of the loaded database's pages.
    pub fn database_bytes(&self) -> u64 {
        self.image.bytes
    }

    /// Runs all cells that were not run before, as many at a time as the machine has cores, and gives the results in the
    /// order asked for. `progress` is told of each that ends.
    ///
    /// # Errors
    /// The first of a cell.
    pub fn run(&self, cells: &[Cell], progress: &dyn Fn(&str)) -> Result<Vec<Arc<Run>>> {
        let mut missing: Vec<Cell> = Vec::new();
        for cell in cells {
            if !self.known.lock().contains_key(cell) && !missing.contains(cell) {
                missing.push(*cell);
            }
        }
        self.run_new(missing, progress)?;
        let known = self.known.lock();
        Ok(cells.iter().map(|cell| Arc::clone(&known[cell])).collect())
    }

    /// Runs cells with the log on a disk, as the paper reports it (section 4): the better of the original server's log and
    /// of the paper's own with the disk as its only device.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_on_disk(&self, profile: &'static str, cells: &[Cell], progress: &dyn Fn(&str)) -> Result<Vec<Arc<Run>>> {
        let with = |log: LogSetup| cells.iter().map(move |cell| Cell { log, ..*cell });
        let both: Vec<Cell> = with(LogSetup::original(profile)).chain(with(LogSetup::paper(profile, 1))).collect();
        let runs = self.run(&both, progress)?;
        let (original, paper) = runs.split_at(cells.len());
        let better = |(one, other): (&Arc<Run>, &Arc<Run>)| {
            let is_first = one.new_orders_per_minute >= other.new_orders_per_minute;
            Arc::clone(if is_first { one } else { other })
        };
        Ok(original.iter().zip(paper).map(better).collect())
    }

    fn run_new(&self, cells: Vec<Cell>, progress: &dyn Fn(&str)) -> Result<()> {
        let (image, buffer_pool_bytes) = (Arc::clone(&self.image), self.size.buffer_pool_bytes);
        let describe = |cell: &Cell| format!("{}, {} clients", cell.log.describe(), cell.clients);
        let run = move |cell: &Cell| cell.run(&image, buffer_pool_bytes);
        let keep = |cell, run| drop(self.known.lock().insert(cell, Arc::new(run)));
        side_by_side(cells, describe, run, keep, progress)
    }
}

/// Runs all, as many at a time as the machine has cores; `keep` is given each with its result, in the order in which they
/// end, and `progress` is told.
pub(super) fn side_by_side<C: Clone + Send + Sync + 'static, R: Send + 'static>(
    cells: Vec<C>,
    describe: impl Fn(&C) -> String,
    run: impl Fn(&C) -> Result<R> + Send + Sync + 'static,
    mut keep: impl FnMut(C, R),
    progress: &dyn Fn(&str),
) -> Result<()> {
    let (cells, next, run) = (Arc::new(cells), Arc::new(AtomicUsize::new(0)), Arc::new(run));
    let (sender, ended) = mpsc::channel();
    let worker = |number| {
        let (cells, next, run, sender) = (Arc::clone(&cells), Arc::clone(&next), Arc::clone(&run), sender.clone());
        tantalum_rt::spawn(format!("lab {number}"), move || {
            while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = run(cell);
                let failed = result.is_err();
                if sender.send((cell.clone(), result)).is_err() || failed {
                    break;
                }
            }
        })
    };
    let count = tantalum_rt::available_cores().min(cells.len());
    let mut workers: Vec<_> = (0..count).map(worker).collect();
    drop(sender);
    let (started, mut done, mut failure) = (tantalum_rt::now(), 0, None);
    while !workers.is_empty() {
        tantalum_rt::sleep(Duration::from_millis(20));
        // Who is over has sent all that it sends.
        let (over, running) = workers.into_iter().partition(|worker| worker.is_finished());
        workers = running;
        for (cell, result) in ended.try_iter() {
            done += 1;
            let left = started.elapsed().as_secs_f64() / done as f64 * (cells.len() - done) as f64;
            progress(&format!("{done} of {} runs ({}), {left:.0} s left", cells.len(), describe(&cell)));
            match result {
                Ok(run) => keep(cell, run),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        over.into_iter().for_each(tantalum_rt::JoinHandle::join_or_panic);
    }
    failure.map_or(Ok(()), Err)
}
