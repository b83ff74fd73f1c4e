//! Reading many units at the same time: most devices serve many reads in little more than the time of one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tantalum_rt::spawn;

use super::medium::Medium;
use crate::Result;

/// So many reads are under way at most: what flash drives queue.
const READERS: usize = 32;

/// Reads physical units, each with `read`, and returns what came of them, in the order of `units`. Where there are no more than
/// `units_per_reader` to do for another reader, it is not worth its task.
///
/// # Errors
/// The first error of `read`; the rest is not read then.
pub fn read_many<T: Send + 'static>(
    medium: &Medium,
    units: Vec<u32>,
    units_per_reader: usize,
    read: impl Fn(&Medium, u32) -> Result<T> + Copy + Send + 'static,
) -> Result<Vec<T>> {
    let readers = (units.len() / units_per_reader).clamp(1, READERS);
    let (units, next) = (Arc::new(units), Arc::new(AtomicUsize::new(0)));
    let start = |number: usize| {
        let (medium, units, next) = (medium.clone(), Arc::clone(&units), Arc::clone(&next));
        spawn(format!("unit-reader-{number}"), move || read_next(&medium, &units, &next, read))
    };
    let tasks: Vec<_> = (1..readers).map(start).collect();
    let mut all = read_next(medium, &units, &next, read);
    // Every one is waited for, also after an error.
    for task in tasks {
        let more = task.join_or_panic();
        all = all.and_then(|mut all| {
            all.extend(more?);
            Ok(all)
        });
    }
    let mut all = all?;
    all.sort_unstable_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, read)| read).collect())
}

/// Reads one unit after the other that nobody else has taken.
fn read_next<T>(
    medium: &Medium,
    units: &[u32],
    next: &AtomicUsize,
    read: impl Fn(&Medium, u32) -> Result<T>,
) -> Result<Vec<(usize, T)>> {
    let mut all = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = units.get(number) else { return Ok(all) };
        match read(medium, *unit) {
            Ok(found) => all.push((number, found)),
            Err(error) => {
                // The others need not go on.
                next.store(units.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
    }
}
