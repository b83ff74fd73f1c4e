//! A page that is not in memory holds up no other task: no latch is held while a page is read.

use super::bed::Devices;
use super::*;
use std::time::Duration;
use tantalum_rt::{JoinHandle, Simulation, now, sleep, spawn};

/// A read of the device takes so long.
const READ: Duration = Duration::from_millis(20);
const MS: Duration = Duration::from_millis(1);

/// A tree of more pages than there are frames, whose root is in memory.
fn tree() -> (Arc<Bed>, Vec<Write>) {
    let bed = Devices::with_slow_reads(READ).open(64);
    let rows: Vec<Write> = (0..3000).map(|number| (key(number, 20), Some(vec![number as u8; 100]))).collect();
    rows.chunks(20).for_each(|rows| _ = commit(&bed, rows).unwrap());
    (Arc::new(bed), rows)
}

/// Does something in a task, and tells how long it took.
fn timed<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<(T, Duration)> {
    let start = now();
    spawn(name, move || (f(), start.elapsed()))
}

/// Waits for the page's latch for writing, and lets it go: a task that comes later waits behind it.
fn writer(bed: &Arc<Bed>, page: PageId) -> JoinHandle<((), Duration)> {
    let bed = Arc::clone(bed);
    timed("writer", move || drop(bed.pool.pin(page).unwrap().write()))
}

fn reader(bed: &Arc<Bed>, key: &[u8]) -> JoinHandle<(Option<Vec<u8>>, Duration)> {
    let (bed, key) = (Arc::clone(bed), key.to_vec());
    timed("reader", move || read(&bed.tree, &key))
}

#[test]
fn a_miss_holds_up_no_reader_of_other_children_of_the_same_parent() {
    Simulation::new(1)
        .run(|| {
            let (bed, rows) = tree();
            let root = bed.tree.root();
            // The leaf of the row between them is in memory, and there is no hint for it.
            let other = 1001;
            [1000, 1002].into_iter().for_each(|hot| assert_eq!(read(&bed.tree, &rows[hot].0), rows[hot].1));
            let miss = reader(&bed, &rows[0].0);
            sleep(MS);
            let (writer, hit) = (writer(&bed, root), reader(&bed, &rows[other].0));
            assert_eq!(miss.join().unwrap().0, rows[0].1);
            let (value, took) = hit.join().unwrap();
            assert_eq!(value, rows[other].1);
            assert!(took < MS, "a page in memory was read in {took:?}");
            assert!(writer.join().unwrap().1 < MS, "no task holds the parent's latch while a child is read");
        })
        .expect_finished();
}

#[test]
fn a_large_value_that_is_not_in_memory_holds_up_no_other_task_in_its_leaf() {
    Simulation::new(1)
        .run(|| {
            let bed = Arc::new(Devices::with_slow_reads(READ).open(64));
            let (large, small) = ((key(1, 20), Some(vec![7; 9000])), (key(2, 20), Some(vec![8; 10])));
            commit(&bed, &[large.clone(), small.clone()]).unwrap();
            // Others take the frames of its pages.
            for number in 0..80 {
                commit(&bed, &[(key(3 + number, 20), Some(vec![number as u8; 9000]))]).unwrap();
                assert_eq!(read(&bed.tree, &small.0), small.1);
            }
            let misses = bed.pool.stats().fault_reads;
            let slow = reader(&bed, &large.0);
            sleep(MS);
            let (writer, hit) = (writer(&bed, bed.tree.root()), reader(&bed, &small.0));
            assert!(writer.join().unwrap().1 < MS && hit.join().unwrap().1 < MS);
            let (value, took) = slow.join().unwrap();
            assert_eq!(value, large.1);
            assert!(took >= READ && bed.pool.stats().fault_reads > misses, "it was not in memory");
        })
        .expect_finished();
}

#[test]
fn a_split_that_reads_its_nodes_holds_no_latch_meanwhile() {
    Simulation::new(1)
        .run(|| {
            let (bed, rows) = tree();
            let root = bed.tree.root();
            [1000, 1002].into_iter().for_each(|hot| assert_eq!(read(&bed.tree, &rows[hot].0), rows[hot].1));
            let split = {
                let bed = Arc::clone(&bed);
                let large: Vec<Write> = (0..20).map(|number| (key(number, 21), Some(vec![1; 500]))).collect();
                timed("splits", move || commit(&bed, &large).map(drop).unwrap())
            };
            sleep(MS);
            for _ in 0..10 {
                let (writer, hit) = (writer(&bed, root), reader(&bed, &rows[1001].0));
                assert!(writer.join().unwrap().1 < MS && hit.join().unwrap().1 < MS);
                sleep(3 * MS);
            }
            assert!(split.join().unwrap().1 >= READ, "a leaf was read");
        })
        .expect_finished();
}

#[test]
fn the_leaves_of_one_commit_are_read_at_the_same_time() {
    Simulation::new(1)
        .run(|| {
            let (bed, rows) = tree();
            // Of a leaf each; those that were written last are in memory.
            let far_apart: Vec<Write> = (0..8).map(|part| (rows[part * 120].0.clone(), Some(vec![9; 100]))).collect();
            let before = bed.pool.stats();
            let start = now();
            commit(&bed, &far_apart).unwrap();
            // At most one for inner pages, and one for the leaves.
            assert!(start.elapsed() < 3 * READ, "{:?}", start.elapsed());
            let pages_read = bed.pool.stats().fault_reads - before.fault_reads;
            assert!(pages_read >= 6 && bed.pool.stats().read_ahead > before.read_ahead, "{pages_read} pages");
            far_apart.iter().for_each(|(key, value)| assert_eq!(read(&bed.tree, key), *value));
        })
        .expect_finished();
}
