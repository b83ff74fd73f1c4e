//! A durable queue: threads add jobs, others take the oldest, and each job is done once, also if a worker fails or the power goes.
//!
//! `cargo run -p tantalum --example queue -- /path/to/queue.db`

use std::{
    env,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tantalum::{Db, Result, TypedTable};

const PRODUCERS: u64 = 2;
const WORKERS: u64 = 3;
const JOBS: u64 = 200;

#[derive(Clone)]
struct Queue {
    db: Db,
    /// By number, the oldest first.
    waiting: TypedTable<u64, String>,
    /// Jobs that a worker has taken and not finished.
    taken: TypedTable<u64, String>,
    results: TypedTable<u64, u64>,
}

impl Queue {
    fn open(path: &Path) -> Result<Self> {
        let db = Db::open(path)?;
        let (waiting, taken, results) = (db.table("waiting")?, db.table("taken")?, db.table("results")?);
        let queue = Self { db, waiting: waiting.typed(), taken: taken.typed(), results: results.typed() };
        // What workers had taken when the program ended waits again.
        queue.db.transact(|tx| {
            let left = queue.taken.range(tx, ..)?.collect::<Result<Vec<_>>>()?;
            for (number, job) in &left {
                queue.waiting.put(tx, number, job)?;
            }
            queue.taken.delete_range(tx, ..)?;
            Ok(())
        })?;
        Ok(queue)
    }

    /// Durable when it returns.
    fn add(&self, number: u64, job: &str) -> Result<()> {
        self.db.transact(|tx| self.waiting.insert(tx, number, job))
    }

    /// The oldest job, which no other worker gets. Where two workers want the same, one gives way and is run again.
    fn take(&self) -> Result<Option<(u64, String)>> {
        self.db.transact(|tx| {
            let Some((number, job)) = self.waiting.first(tx)? else { return Ok(None) };
            self.waiting.delete(tx, number)?;
            self.taken.put(tx, number, &job)?;
            Ok(Some((number, job)))
        })
    }

    /// The result is there exactly if the job is not taken any more.
    fn finish(&self, number: u64, result: u64) -> Result<()> {
        self.db.transact(|tx| {
            self.taken.delete(tx, number)?;
            self.results.insert(tx, number, &result)
        })
    }
}

fn main() -> Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-queue").into());
    run(path.as_ref())
}

fn run(path: &Path) -> Result<()> {
    let queue = Queue::open(path)?;
    let first = queue.results.last(&queue.db)?.map_or(0, |(number, _)| number + 1);
    let left = AtomicU64::new(JOBS);
    thread::scope(|threads| {
        let producers = (0..PRODUCERS).map(|producer| {
            let queue = queue.clone();
            threads.spawn(move || {
                let numbers = (first..first + JOBS).filter(|number| number % PRODUCERS == producer);
                numbers.into_iter().try_for_each(|number| queue.add(number, &format!("job {number}")))
            })
        });
        let workers = (0..WORKERS).map(|_| {
            let (queue, left) = (queue.clone(), &left);
            threads.spawn(move || work(&queue, left))
        });
        let all: Vec<_> = producers.chain(workers).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("a thread returns its errors and does not panic"))
    })?;
    let done = queue.results.range(&queue.db, first..)?.count() as u64;
    println!("{done} jobs done");
    assert_eq!(done, JOBS);
    assert!(queue.waiting.first(&queue.db)?.is_none() && queue.taken.first(&queue.db)?.is_none());
    queue.db.close()
}

/// Does jobs until none is left.
fn work(queue: &Queue, left: &AtomicU64) -> Result<()> {
    while left.load(Ordering::Acquire) > 0 {
        match queue.take()? {
            Some((number, job)) => {
                queue.finish(number, job.len() as u64)?;
                left.fetch_sub(1, Ordering::AcqRel);
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    Ok(())
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    run(&path).unwrap();
    // A worker took a job and was never heard of again.
    let queue = Queue::open(&path).unwrap();
    queue.add(JOBS * 10, "lost").unwrap();
    assert_eq!(queue.take().unwrap().unwrap().0, JOBS * 10);
    assert_eq!(queue.take().unwrap(), None);
    drop(queue);
    let queue = Queue::open(&path).unwrap();
    assert_eq!(queue.take().unwrap(), Some((JOBS * 10, "lost".into())));
}
