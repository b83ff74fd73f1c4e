//! A check beside changes of the tree's shape, which the check's own visits make: each comes at the same point of the walk every time.

use super::*;
use tantalum_store::{PageKind, page::header};

/// Bytes of a value on two pages.
const LARGE: usize = 6000;

/// Rows of which the first and the last have pages of their own.
fn rows_between_two_large_ones(count: u32) -> Vec<Write> {
    let bytes = |number| if number == 0 || number + 1 == count { LARGE } else { 100 };
    (0..count).map(|number| (key(number, 100), Some(vec![number as u8; bytes(number)]))).collect()
}

/// Checks the tree, and changes it when the check has come to the first page of a large value. Returns the pages that were visited.
fn checked_beside(bed: &Bed, change: impl FnOnce()) -> BTreeSet<PageId> {
    let large: BTreeSet<_> = bed.used_pages().into_iter().filter(|page| is_overflow(bed, *page)).collect();
    let (mut change, mut visited) = (Some(change), BTreeSet::new());
    let report = bed.tree.check(&mut |page| {
        assert!(visited.insert(page), "page {page} is visited twice");
        if large.contains(&page)
            && let Some(change) = change.take()
        {
            change();
        }
        Ok(())
    });
    let report = report.expect("everything can be looked at").unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert!(change.is_none(), "the tree was changed meanwhile");
    assert_eq!(report.pages, visited.len() as u64);
    assert!(report.fill > 0.0 && report.fill <= 1.0, "{report:?}");
    visited
}

fn height_of(bed: &Bed) -> u32 {
    bed.tree.check(&mut |_| Ok(())).unwrap().expect("the tree is sound").height
}

fn is_overflow(bed: &Bed, page: PageId) -> bool {
    let page = bed.pool.read(page).unwrap();
    matches!(header::kind(&page), Ok(PageKind::Overflow))
}

/// A walk that ended where the root has become the only leaf would take the pages of the values beyond for pages that no table uses.
#[test]
fn large_values_are_visited_when_the_root_becomes_the_only_leaf() {
    let bed = Bed::new(4096, 256);
    let rows = rows_between_two_large_ones(60);
    commit(&bed, &rows).unwrap();
    let before = bed.used_pages();
    assert_eq!(height_of(&bed), 2);
    // The first leaf was looked at, and its large value is being visited.
    let visited = checked_beside(&bed, || {
        rows[1..rows.len() - 1].iter().for_each(|(key, _)| _ = commit(&bed, &[(key.clone(), None)]).unwrap());
    });
    assert_eq!(height_of(&bed), 1, "the root has become the only leaf");
    let stayed: BTreeSet<_> = before.intersection(&bed.used_pages()).copied().collect();
    assert_eq!(stayed.len(), 5, "the root and the pages of both large values");
    assert!(stayed.is_subset(&visited), "not visited: {:?}", stayed.difference(&visited));
}

#[test]
fn large_values_are_visited_when_the_only_leaf_becomes_the_root() {
    let bed = Bed::new(4096, 256);
    let rows = rows_between_two_large_ones(60);
    let (first, last) = (rows[0].clone(), rows[rows.len() - 1].clone());
    commit(&bed, &[first, last]).unwrap();
    let before = bed.used_pages();
    let visited = checked_beside(&bed, || {
        rows[1..rows.len() - 1].iter().for_each(|row| _ = commit(&bed, std::slice::from_ref(row)).unwrap());
    });
    assert_eq!(height_of(&bed), 2);
    assert_eq!(before.len(), 5, "the root and two pages of each value");
    assert!(before.is_subset(&visited), "not visited: {:?}", before.difference(&visited));
}
