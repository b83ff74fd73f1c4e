//! Many tasks at once, in simulations that run them in random order.

use super::*;
use std::sync::Arc;
use tantalum_rt::{Mutex, Random, Simulation, spawn};

const WRITERS: u32 = 4;
const NUMBERS: u32 = 160;

/// What a value says: which commit of its writer wrote it.
fn value(version: u32, random: &mut Random) -> Vec<u8> {
    let bytes = if random.u32(..12) == 0 { random.usize(513..9000) } else { random.usize(4..400) };
    let mut value = version.to_le_bytes().to_vec();
    value.resize(bytes, version as u8);
    value
}

fn version_of(value: &[u8]) -> u32 {
    let version = u32::from_le_bytes(value[..4].try_into().expect("a value has 4 bytes at least"));
    assert!(value[4..].iter().all(|byte| *byte == version as u8), "a value is one commit's");
    version
}

/// A writer owns every fourth key, so that it knows what its keys must be; leaves belong to all.
fn writer(bed: &Bed, writer: u32, commits: u32, seed: u64, acknowledged: &Mutex<Rows>) {
    let mut random = Random::with_seed(seed);
    // Mostly growing, then mostly shrinking.
    for version in 1..=commits {
        let deletes_of_8 = if version * 2 < commits { 1 } else { 6 };
        let mut batch = BTreeMap::new();
        for _ in 0..random.u32(1..8) {
            let number = random.u32(..NUMBERS) / WRITERS * WRITERS + writer;
            let is_delete = random.u32(..8) < deletes_of_8;
            batch.insert(
                key(number, 150 + 20 * (number % 9) as usize),
                (!is_delete).then(|| value(version, &mut random)),
            );
        }
        let writes: Vec<Write> = batch.into_iter().collect();
        commit(bed, &writes).expect("a commit succeeds");
        let mut rows = acknowledged.lock();
        for (key, value) in writes {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
    }
}

/// Reads while others write: rows are whole and in order, in both directions, and never older than what was
/// acknowledged before.
fn reader(bed: &Bed, rounds: u32, seed: u64, acknowledged: &Mutex<Rows>) {
    let mut random = Random::with_seed(seed);
    for _ in 0..rounds {
        let rows = rows_forwards(&bed.tree);
        assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "keys ascend");
        let rows = rows_backwards(&bed.tree);
        assert!(rows.is_sorted_by(|a, b| a.0 > b.0), "keys descend");
        for (_, value) in rows {
            version_of(&value);
        }
        for _ in 0..20 {
            let number = random.u32(..NUMBERS);
            let key = key(number, 150 + 20 * (number % 9) as usize);
            let before = acknowledged.lock().get(&key).map(|value| version_of(value));
            let now = read(&bed.tree, &key).map(|value| version_of(&value));
            if let (Some(before), Some(now)) = (before, now) {
                assert!(before <= now, "version {now} was read after {before} had been acknowledged");
            }
        }
        tantalum_rt::yield_now();
    }
}

fn run(seed: u64, frames: usize) {
    let bed = Arc::new(Bed::new(4096, frames));
    let acknowledged = Arc::new(Mutex::new(Rows::new()));
    let mut tasks = Vec::new();
    for task in 0..WRITERS + 2 {
        let (bed, acknowledged) = (Arc::clone(&bed), Arc::clone(&acknowledged));
        let seed = seed * 100 + u64::from(task);
        tasks.push(spawn(format!("task-{task}"), move || {
            if task < WRITERS {
                writer(&bed, task, 60, seed, &acknowledged);
            } else {
                reader(&bed, 6, seed, &acknowledged);
            }
        }));
    }
    for task in tasks {
        task.join().expect("no task panics");
    }
    assert_holds(&bed, &acknowledged.lock());
}

#[test]
fn writers_and_readers_in_random_order_agree_with_the_model() {
    for seed in 0..40 {
        Simulation::new(seed)
            .step_limit(20_000_000)
            .run(move || run(seed, if seed % 2 == 0 { 128 } else { 48 }))
            .expect_finished();
    }
}

#[test]
fn writers_and_readers_on_threads_agree_with_the_model() {
    for seed in 0..3 {
        run(seed, 128);
    }
}
