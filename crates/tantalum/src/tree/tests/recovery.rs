//! Power cuts in the middle of commits, splits, merges and checkpoints.

use super::bed::Devices;
use super::*;
use std::sync::Arc;
use std::time::Duration;
use tantalum_rt::{Mutex, Outcome, Random, Simulation, sleep, spawn};

const WRITERS: u32 = 3;
const NUMBERS: u32 = 90;

/// What must hold after a power cut.
#[derive(Default)]
struct Model {
    acknowledged: Rows,
    /// By writer: what it is committing, which may be found whole or not at all.
    in_flight: BTreeMap<u32, Vec<Write>>,
}

fn put_all(rows: &mut Rows, writes: &[Write]) {
    for (key, value) in writes {
        match value {
            Some(value) => rows.insert(key.clone(), value.clone()),
            None => rows.remove(key),
        };
    }
}

impl Model {
    /// Takes what was found as the truth, if it is possible.
    fn settle(&mut self, found: Rows) {
        for writes in std::mem::take(&mut self.in_flight).into_values() {
            if writes.iter().all(|(key, value)| found.get(key) == value.as_ref()) {
                put_all(&mut self.acknowledged, &writes);
            }
        }
        assert!(found == self.acknowledged, "what was acknowledged is there, and nothing in part");
    }
}

/// Commits until the power fails. Writers own different keys, so each commit in flight can be judged by itself.
fn write_forever(bed: &Bed, writer: u32, seed: u64, model: &Mutex<Model>) {
    let mut random = Random::with_seed(seed);
    let mut is_growing = true;
    loop {
        if random.u32(..30) == 0 {
            is_growing = !is_growing;
        }
        let mut batch = BTreeMap::new();
        let mut batch_bytes = 0;
        for _ in 0..random.u32(1..8) {
            let number = random.u32(..NUMBERS) / WRITERS * WRITERS + writer;
            let bytes = if random.u32(..15) == 0 { random.usize(513..12_000) } else { random.usize(..400) };
            batch_bytes += 400 + bytes;
            if batch_bytes > 16_000 {
                break;
            }
            let value = vec![random.u8(..); bytes];
            batch.insert(key(number, 400), (random.u32(..8) < if is_growing { 7 } else { 1 }).then_some(value));
        }
        if batch.is_empty() {
            continue;
        }
        let writes: Vec<Write> = batch.into_iter().collect();
        model.lock().in_flight.insert(writer, writes.clone());
        let end = commit(bed, &writes).expect("a commit succeeds");
        bed.pool.log().flush(end).expect("the log goes on");
        let mut model = model.lock();
        model.in_flight.remove(&writer);
        put_all(&mut model.acknowledged, &writes);
    }
}

/// One life of the database, from recovery to the next power cut, which may come during recovery.
fn live(devices: &Devices, model: &Arc<Mutex<Model>>, seed: u64) {
    let mut random = Random::with_seed(seed);
    let longest_us = if random.u32(..4) == 0 { 2_000 } else { 60_000 };
    let life = Duration::from_micros(random.u64(..longest_us));
    spawn("power", move || {
        sleep(life);
        tantalum_rt::power_cut();
    });
    let bed = Arc::new(devices.open(64));
    let found = rows_forwards(&bed.tree).into_iter().collect();
    model.lock().settle(found);
    assert_holds(&bed, &model.lock().acknowledged);
    for writer in 0..WRITERS {
        let (bed, model, seed) = (Arc::clone(&bed), Arc::clone(model), random.u64(..));
        spawn(format!("writer-{writer}"), move || write_forever(&bed, writer, seed, &model));
    }
    // Rare checkpoints leave it to the writers, which find the log full.
    let pause_us = if random.bool() { 1_000..10_000 } else { 40_000..1_000_000 };
    loop {
        sleep(Duration::from_micros(random.u64(pause_us.clone())));
        bed.pool.checkpoint().expect("a checkpoint succeeds");
    }
}

#[test]
fn no_power_cut_harms_the_tree() {
    for seed in 0..12 {
        let devices = Devices::create(seed);
        let model = Arc::new(Mutex::new(Model::default()));
        let mut random = Random::with_seed(seed);
        for life in 0..8 {
            let (simulated, model) = (devices.clone(), Arc::clone(&model));
            let outcome: Outcome<()> =
                Simulation::new(seed * 100 + life).run(move || live(&simulated, &model, seed * 100 + life));
            assert!(matches!(outcome, Outcome::PowerCut { .. }), "seed {seed}, life {life}");
            devices.power_cut(&mut random);
        }
    }
}

/// Drops a tree in as many lives as it takes.
#[test]
fn a_drop_goes_on_after_a_power_cut() {
    for seed in 0..4 {
        let devices = Devices::create(seed);
        let fresh = devices.clone();
        let fill = move || {
            let bed = fresh.open(64);
            for number in 0..400 {
                let bytes = if number % 9 == 0 { 9_000 } else { 100 };
                let end = commit(&bed, &[(key(number, 400), Some(vec![1; bytes]))]).expect("a commit succeeds");
                bed.pool.log().flush(end).expect("the log goes on");
            }
        };
        Simulation::new(seed).run(fill).expect_finished();
        let mut random = Random::with_seed(seed);
        let mut lives = 0;
        loop {
            lives += 1;
            devices.power_cut(&mut random);
            let life = Duration::from_micros(random.u64(..4_000) + 500 * lives);
            let simulated = devices.clone();
            let drop_until_cut = move || {
                spawn("power", move || {
                    sleep(life);
                    tantalum_rt::power_cut();
                });
                let bed = simulated.open(64);
                while !bed.tree.free_step().expect("a step succeeds") {
                    bed.pool.log().flush(bed.pool.log().end_lsn()).expect("the log goes on");
                }
                assert!(bed.used_pages().is_empty(), "{:?}", bed.used_pages());
            };
            match Simulation::new(seed * 1000 + lives).run(drop_until_cut) {
                Outcome::Finished(()) => break,
                Outcome::PowerCut { .. } => assert!(lives < 1000, "the drop comes to no end"),
            }
        }
    }
}
