//! Tables that grow at many places at once.

use super::*;
use tantalum_rt::{Random, Simulation};

/// A row of one of several owners, each of which adds rows in order.
fn owned(owner: u32, number: u32) -> Vec<u8> {
    format!("{owner:04}/{number:08}").into_bytes()
}

/// How full the leaves are when each of 10 owners has added 1500 rows, `at_once` by `at_once`, in the order that `next` gives.
fn fill(at_once: u32, mut next: impl FnMut(u32) -> u32) -> f64 {
    let (bed, mut rows, mut counts) = (Bed::new(4096, 256), Rows::new(), [0; 10]);
    for turn in 0..10 * 1500 / at_once {
        let owner = next(turn) % 10;
        let from = counts[owner as usize];
        counts[owner as usize] += at_once;
        let writes: Vec<Write> =
            (from..from + at_once).map(|number| (owned(owner, number), Some(vec![7; 30]))).collect();
        commit(&bed, &writes).expect("there is room");
        rows.extend(writes.into_iter().filter_map(|(key, value)| Some((key, value?))));
    }
    assert_holds(&bed, &rows);
    bed.tree.check(&mut |_| Ok(())).expect("everything can be looked at").expect("the tree is sound").fill
}

#[test]
fn leaves_that_grow_inside_are_filled() {
    Simulation::new(1)
        .run(|| {
            let mut dice = Random::with_seed(1);
            for at_once in [1, 10] {
                let (in_turn, at_random) = (fill(at_once, |turn| turn), fill(at_once, |_| dice.u32(0..10)));
                println!("{at_once} rows at once: {in_turn:.2} full in turn, {at_random:.2} at random");
                assert!(in_turn > 0.75 && at_random > 0.75, "{at_once} at once: {in_turn:.2}, {at_random:.2}");
            }
        })
        .expect_finished();
}

/// Where a table grows at its end, splits log little.
#[test]
fn rows_in_order_are_logged_once() {
    Simulation::new(3)
        .run(|| {
            for (key_bytes, bytes) in [(11, 30), (11, 600), (200, 100)] {
                let (bed, mut rows, mut ends) = (Bed::new(4096, 256), Rows::new(), Vec::new());
                for number in 0..2000 {
                    let (row, value) = (key(number, key_bytes), vec![7; bytes]);
                    ends.push(commit(&bed, &[(row.clone(), Some(value.clone()))]).expect("there is room"));
                    rows.insert(row, value);
                }
                assert_holds(&bed, &rows);
                let logged = ends[1999].bytes_since(ends[0]) / 1999;
                let row_bytes = (key_bytes + bytes) as u64;
                println!("{logged} bytes for each row of {row_bytes}");
                assert!(logged < row_bytes + 50, "{logged} bytes for each row of {row_bytes}");
            }
        })
        .expect_finished();
}

/// Rows that come in no order leave no leaf emptier than halves do.
#[test]
fn rows_in_no_order_fill_leaves_as_halves_do() {
    Simulation::new(2)
        .run(|| {
            let (bed, mut rows, mut dice) = (Bed::new(4096, 256), Rows::new(), Random::with_seed(2));
            for _ in 0..10_000 {
                let (row, value) = (key(dice.u32(0..1 << 20), 0), vec![7; 30]);
                commit(&bed, &[(row.clone(), Some(value.clone()))]).expect("there is room");
                rows.insert(row, value);
            }
            assert_holds(&bed, &rows);
            let report =
                bed.tree.check(&mut |_| Ok(())).expect("everything can be looked at").expect("the tree is sound");
            assert!(report.fill > 0.6, "{report:?}");
        })
        .expect_finished();
}
