//! Many runs, side by side.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::error::Result;

/// Runs all, as many at a time as the machine has cores, and gives the results in their order. `progress` is called for each that ends.
///
/// # Errors
/// The first of a run.
pub(crate) fn side_by_side<C: Send + Sync + 'static, R: Send + 'static>(
    cells: Vec<C>,
    describe: impl Fn(&C) -> String,
    run: impl Fn(&C) -> Result<R> + Send + Sync + 'static,
    progress: &dyn Fn(&str),
) -> Result<Vec<R>> {
    let (cells, next, run) = (Arc::new(cells), Arc::new(AtomicUsize::new(0)), Arc::new(run));
    let (sender, ended) = mpsc::channel();
    let worker = |number| {
        let (cells, next, run, sender) = (Arc::clone(&cells), Arc::clone(&next), Arc::clone(&run), sender.clone());
        tantalum_rt::spawn(format!("lab {number}"), move || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(cell) = cells.get(place) else { break };
                let result = run(cell);
                let failed = result.is_err();
                if sender.send((place, result)).is_err() || failed {
                    break;
                }
            }
        })
    };
    let count = tantalum_rt::available_cores().min(cells.len());
    let mut workers: Vec<_> = (0..count).map(worker).collect();
    drop(sender);
    let (started, mut done, mut failure) = (tantalum_rt::now(), 0, None);
    let mut results: Vec<Option<R>> = cells.iter().map(|_| None).collect();
    while !workers.is_empty() {
        tantalum_rt::sleep(Duration::from_millis(20));
        // A worker that is over has sent all that it sends.
        let (over, running) = workers.into_iter().partition(|worker| worker.is_finished());
        workers = running;
        for (place, result) in ended.try_iter() {
            done += 1;
            let left = started.elapsed().as_secs_f64() / done as f64 * (cells.len() - done) as f64;
            progress(&format!("{done} of {} runs ({}), {left:.0} s left", cells.len(), describe(&cells[place])));
            match result {
                Ok(run) => results[place] = Some(run),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        over.into_iter().for_each(tantalum_rt::JoinHandle::join_or_panic);
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(results.into_iter().flatten().collect()),
    }
}
