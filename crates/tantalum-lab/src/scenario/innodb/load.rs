//! How full the load leaves the leaves of the index of lists.
//!
//! LinkBench loads list by list in the order of keys, and the links of a list with random times (`LinkBenchLoad.java`), which come
//! before the links' other ends in the key. A full leaf is split where the row before was inserted, if the new row is its neighbour,
//! so that it stays full, and else in the middle (`btr_page_split_and_insert`).

use tantalum_rt::Random;

/// A leaf: its rows, and the place of the one that was inserted last.
#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    rows: usize,
    last: Option<usize>,
}

/// The rows of each leaf when lists of these lengths are inserted one after the other, each in random order.
pub fn rows_of_leaves(most: usize, lists: impl Iterator<Item = usize>, random: &mut Random) -> Vec<usize> {
    let mut done = Vec::new();
    // That in which the list begins, and those behind it.
    let mut open = vec![Leaf::default()];
    for length in lists {
        done.extend(open.drain(..open.len() - 1).map(|leaf| leaf.rows));
        let before = open[0].rows;
        for inserted in 0..length {
            let (mut at, mut leaf) = (before + random.usize(0..inserted + 1), 0);
            while at > open[leaf].rows {
                at -= open[leaf].rows;
                leaf += 1;
            }
            insert(&mut open, leaf, at, most);
        }
    }
    done.extend(open.iter().map(|leaf| leaf.rows));
    done
}

/// Inserts a row before the one that is at `at`.
fn insert(leaves: &mut Vec<Leaf>, leaf: usize, at: usize, most: usize) {
    let Leaf { rows, last } = leaves[leaf];
    if rows < most {
        leaves[leaf] = Leaf { rows: rows + 1, last: Some(at) };
        return;
    }
    // How many rows stay, and whether the new one is among them.
    let (stay, is_before) = if at > 0 && last == Some(at - 1) {
        // The next row stays too, if there are more behind it.
        if rows - at > 1 { (at + 1, true) } else { (at, false) }
    } else if last == Some(at) {
        (if at > 2 { at - 1 } else { at }, false)
    } else {
        (rows / 2, at <= rows / 2)
    };
    let with = |rows, at| Leaf { rows: rows + 1, last: Some(at) };
    let without = |rows| Leaf { rows, last: None };
    let (left, right) =
        if is_before { (with(stay, at), without(rows - stay)) } else { (without(stay), with(rows - stay, at - stay)) };
    leaves[leaf] = left;
    leaves.insert(leaf + 1, right);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_order_fill_leaves_and_others_leave_them_half_full() {
        let mut random = Random::with_seed(1);
        let mut shares = |lists: &mut dyn Iterator<Item = usize>| {
            let leaves = rows_of_leaves(100, lists, &mut random);
            assert!(leaves.iter().all(|&rows| rows <= 100));
            let full = leaves.iter().filter(|&&rows| rows >= 98).count() as f64 / leaves.len() as f64;
            (leaves.iter().sum::<usize>(), full)
        };
        assert_eq!(shares(&mut std::iter::repeat_n(1, 10_000)), (10_000, 1.0));
        let (rows, full) = shares(&mut std::iter::repeat_n(20, 500));
        assert_eq!(rows, 10_000);
        assert!(full < 0.3, "{full}");
        let (rows, full) = shares(&mut std::iter::once(10_000));
        assert_eq!(rows, 10_000);
        assert!(full < 0.2, "{full}");
    }
}
