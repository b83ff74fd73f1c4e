//! One task against an ordered map.

use super::super::overflow::CHAIN_BYTES_MAX;
use super::*;
use proptest::prelude::*;
use tantalum_rt::Random;

/// Applies writes to tree and model.
fn apply(bed: &Bed, rows: &mut Rows, batch: BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
    let writes: Vec<Write> = batch.into_iter().collect();
    commit(bed, &writes).expect("a commit succeeds");
    for (key, value) in writes {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}

/// Batches of puts and deletes: keys long enough that a page holds few, values from nothing to several overflow pages.
fn batches() -> impl Strategy<Value = Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>>> {
    let key = (0u32..120, prop_oneof![Just(12usize), 100..512usize]).prop_map(|(number, bytes)| key(number, bytes));
    let value = prop_oneof![
        8 => (any::<u8>(), 0usize..512).prop_map(|(byte, bytes)| Some(vec![byte; bytes])),
        1 => (any::<u8>(), 512usize..20_000).prop_map(|(byte, bytes)| Some(vec![byte; bytes])),
        6 => Just(None),
    ];
    proptest::collection::vec(proptest::collection::btree_map(key, value, 1..12), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn the_tree_holds_what_an_ordered_map_holds(batches in batches()) {
        let bed = Bed::new(4096, 256);
        let mut rows = Rows::new();
        for batch in batches {
            apply(&bed, &mut rows, batch);
            assert_holds(&bed, &rows);
        }
        for (key, value) in &rows {
            prop_assert_eq!(read(&bed.tree, key), Some(value.clone()));
        }
    }
}

#[test]
fn a_tree_grows_and_shrinks_back_to_one_page() {
    let bed = Bed::new(4096, 256);
    let mut rows = Rows::new();
    let mut random = Random::with_seed(3);
    let mut numbers: Vec<u32> = (0..3000).collect();
    random.shuffle(&mut numbers);
    for batch in numbers.chunks(50) {
        let value = |number: u32| Some(vec![number as u8; (number % 200) as usize]);
        apply(&bed, &mut rows, batch.iter().map(|&number| (key(number, 200), value(number))).collect());
    }
    assert_holds(&bed, &rows);
    let report = bed.tree.check(&mut |_| Ok(())).unwrap().expect("the tree is sound");
    assert!(report.height >= 3, "{report:?}");
    assert!(report.fill > 0.6, "{report:?}");
    random.shuffle(&mut numbers);
    for batch in numbers.chunks(10) {
        apply(&bed, &mut rows, batch.iter().map(|&number| (key(number, 200), None)).collect());
    }
    assert_holds(&bed, &rows);
    let report = bed.tree.check(&mut |_| Ok(())).unwrap().expect("the tree is sound");
    assert!(report.height <= 2 && report.pages <= 3, "{report:?}");
}

#[test]
fn keys_in_order_fill_their_pages() {
    let bed = Bed::new(4096, 256);
    let mut rows = Rows::new();
    for batch in (0..4000).collect::<Vec<u32>>().chunks(7) {
        apply(&bed, &mut rows, batch.iter().map(|&number| (key(number, 30), Some(vec![1; 50]))).collect());
    }
    assert_holds(&bed, &rows);
    let report = bed.tree.check(&mut |_| Ok(())).unwrap().expect("the tree is sound");
    assert!(report.fill > 0.9, "{report:?}");
}

#[test]
fn one_commit_may_fill_many_leaves() {
    let bed = Bed::new(8192, 512);
    let mut rows = Rows::new();
    apply(&bed, &mut rows, (0..500).map(|number| (key(number, 40), Some(vec![2; 300]))).collect());
    apply(&bed, &mut rows, (0..500).map(|number| (key(number * 3, 1024), Some(vec![3; 300]))).collect());
    assert_holds(&bed, &rows);
    apply(&bed, &mut rows, (0..1500).map(|number| (key(number, 1024), None)).collect());
    assert_holds(&bed, &rows);
}

#[test]
fn the_largest_keys_and_values_fit() {
    let bed = Bed::new(4096, 1024);
    let mut rows = Rows::new();
    for number in 0..12 {
        let value = Some(vec![number as u8; if number == 5 { CHAIN_BYTES_MAX } else { 512 }]);
        apply(&bed, &mut rows, [(key(number, 512), value)].into());
        apply(&bed, &mut rows, [(key(100 - number, 512), Some(Vec::new()))].into());
    }
    apply(&bed, &mut rows, [(Vec::new(), Some(vec![9; 600]))].into());
    assert_holds(&bed, &rows);
}

#[test]
fn a_dropped_tree_gives_all_pages_back() {
    let bed = Bed::new(4096, 512);
    let mut rows = Rows::new();
    for batch in (0..1200).collect::<Vec<u32>>().chunks(100) {
        let value = |number: u32| Some(vec![4; if number.is_multiple_of(40) { 30_000 } else { 100 }]);
        apply(&bed, &mut rows, batch.iter().map(|&number| (key(number, 300), value(number))).collect());
    }
    assert_holds(&bed, &rows);
    let mut steps = 1;
    while !bed.tree.free_step().expect("a step succeeds") {
        steps += 1;
        let mut visited = BTreeSet::new();
        // What is left is whole, but for inner pages that have lost all children.
        let _ = bed.tree.check(&mut |page| {
            assert!(visited.insert(page), "page {page} is used twice");
            Ok(())
        });
    }
    assert!(steps > 2, "the pages are freed in several steps, not in {steps}");
    assert!(bed.used_pages().is_empty(), "{:?}", bed.used_pages());
    assert!(bed.tree.free_step().expect("a repeated step succeeds"), "once done, it stays done");
}
