//! Leaves that are not where they were found before, and pages that are read without a pin.

use super::*;
use tantalum_rt::Random;
use tantalum_store::TableId;

fn rows_of(numbers: impl IntoIterator<Item = u32>, bytes: usize) -> Vec<Write> {
    numbers.into_iter().map(|number| (key(number, 20), Some(vec![number as u8; bytes]))).collect()
}

/// A tree of `count` rows in a pool of so many frames.
fn filled(frames: usize, count: u32) -> (Bed, Vec<Write>) {
    let (bed, rows) = (Bed::new(4096, frames), rows_of(0..count, 100));
    rows.chunks(20).for_each(|rows| _ = commit(&bed, rows).unwrap());
    (bed, rows)
}

fn assert_reads(tree: &Tree, rows: &[Write]) {
    for (key, value) in rows {
        assert_eq!(read(tree, key), *value);
    }
}

#[test]
fn what_moved_to_another_leaf_is_found_there() {
    let bed = Bed::new(4096, 256);
    let first = rows_of((0..200).step_by(20), 100);
    commit(&bed, &first).unwrap();
    // The leaf that holds them becomes the root of others, and those split.
    for step in [10, 5, 2, 1] {
        assert_reads(&bed.tree, &first);
        commit(&bed, &rows_of((0..200).step_by(step), 100)).unwrap();
    }
    assert_reads(&bed.tree, &first);
    // They merge, and what becomes free is used again.
    let gone: Vec<Write> = (0..200).filter(|number| number % 20 > 0).map(|number| (key(number, 20), None)).collect();
    commit(&bed, &gone).unwrap();
    assert_reads(&bed.tree, &first);
    commit(&bed, &rows_of(1000..1200, 100)).unwrap();
    assert_reads(&bed.tree, &first);
    assert_reads(&bed.tree, &gone);
}

#[test]
fn a_leaf_of_another_table_is_not_taken_for_ones_own() {
    let bed = Bed::new(4096, 16);
    let other = bed.other_tree(TableId(8));
    let (ours, others) = (rows_of(0..300, 100), rows_of(0..300, 101));
    // Of the same keys, and only by chance both in the pool.
    for (tree, rows) in [(&bed.tree, &ours), (&other, &others)] {
        let bed = bed.with(tree.clone());
        rows.chunks(20).for_each(|rows| _ = commit(&bed, rows).unwrap());
    }
    let mut random = Random::with_seed(1);
    for _ in 0..3000 {
        let number = random.usize(..300);
        assert_eq!(read(&bed.tree, &ours[number].0), ours[number].1);
        assert_eq!(read(&other, &others[number].0), others[number].1);
    }
    assert!(bed.pool.stats().evictions > 1000, "{:?}", bed.pool.stats());
}

#[test]
fn a_latched_page_stays_in_memory_and_so_does_one_that_was_pinned_while_latched() {
    let (bed, rows) = filled(16, 1500);
    let (bed, rows) = (Arc::new(bed), Arc::new(rows));
    let leaf = bed.tree.descend(LeafPosition::Containing(&rows[300].0), 0).unwrap();
    let (id, bytes) = (leaf.id(), leaf.to_vec());
    // Other tasks read: a task that has latched a page reads no other.
    let is_there = || {
        let (bed, rows, bytes) = (Arc::clone(&bed), Arc::clone(&rows), bytes.clone());
        let others = tantalum_rt::spawn("reads", move || {
            assert_reads(&bed.tree, &rows);
            let misses = bed.pool.stats().misses;
            let again = bed.pool.read(id).unwrap();
            (bed.pool.stats().misses, again.to_vec()) == (misses, bytes)
        });
        others.join().unwrap()
    };
    assert!(is_there(), "it is latched");
    let _pin = leaf.pin();
    drop(leaf);
    assert!(is_there(), "it is pinned");
    assert!(bed.pool.stats().evictions > 50, "others needed its frame: {:?}", bed.pool.stats());
}

#[test]
fn a_read_that_follows_a_hint_looks_at_its_leaf_only() {
    let (bed, rows) = filled(256, 600);
    assert_reads(&bed.tree, &rows);
    let hits = bed.pool.stats().hits;
    assert_reads(&bed.tree, &rows);
    // One page each; where the hints of more than two keys share a set, some reads descend.
    let pages = bed.pool.stats().hits - hits;
    assert!((600..700).contains(&pages), "{pages} pages for 600 reads");
}
