//! Many runs, side by side.

use std::{sync::mpsc, time::Duration};

use tantalum_workloads::map_by_tasks;

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
    const LOOK: Duration = Duration::from_millis(20);
    let names: Vec<String> = cells.iter().map(describe).collect();
    let (sender, ended) = mpsc::channel();
    let (started, mut done, workers) = (tantalum_rt::now(), 0, tantalum_rt::available_cores().min(cells.len()));
    let mut show = || {
        for place in ended.try_iter() {
            done += 1;
            let left = started.elapsed().as_secs_f64() / done as f64 * (names.len() - done) as f64;
            let name: &String = &names[place];
            progress(&format!("{done} of {} runs ({name}), {left:.0} s left", names.len()));
        }
        LOOK
    };
    let run = move |place, cell: &C| {
        let result = run(cell);
        // The receiver stays until all have ended.
        let _ = sender.send(place);
        result
    };
    let results = map_by_tasks("lab", workers, cells, run, &mut show)?;
    show();
    Ok(results)
}
