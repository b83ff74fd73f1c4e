//! Properties of single nodes, and what becomes of hostile ones.

use super::super::draft::{self, Fences, Growth, Item};
use super::super::node::{self, Found, Node, Payload, Stored};
use super::*;
use proptest::prelude::*;
use tantalum_store::{
    Change, PageKind, TableId,
    page::{change, header, slots},
};

const PAGE_BYTES: usize = 4096;

/// A node as it stands in a page.
fn page_of(level: u8, fences: Fences<'_>, items: &[Item<'_>]) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    header::clear(&mut page, PageId(9));
    let kind = if level == 0 { PageKind::Leaf } else { PageKind::Inner };
    let prefix = fences.prefix();
    let mut cells = vec![fences.lower.to_vec(), node::encode_upper(fences.upper)];
    for (index, item) in items.iter().enumerate() {
        let suffix = if level > 0 && index == 0 { &[] } else { &item.key[prefix..] };
        cells.push(item.payload.with_suffix(suffix));
    }
    change::apply(&mut page, &Change::Format { kind, level, owner: TableId(7) }).expect("a page can be formatted");
    for (slot, cell) in cells.iter().enumerate() {
        change::apply(&mut page, &Change::InsertSlot { slot: slot as u16, cell }).expect("the cells fit");
    }
    page
}

/// Keys that share prefixes often, between two fences.
fn a_leaf() -> impl Strategy<Value = (Vec<u8>, Option<Vec<u8>>, Rows)> {
    let key = proptest::collection::vec(0u8..4, 0..12);
    let value = proptest::collection::vec(any::<u8>(), 0..20);
    (key.clone(), proptest::option::of(key.clone()), proptest::collection::btree_map(key, value, 0..40)).prop_map(
        |(a, b, rows)| {
            let (lower, upper) = match b {
                Some(b) if a < b => (a, Some(b)),
                Some(b) if b < a => (b, Some(a)),
                _ => (a, None),
            };
            let inside = |key: &Vec<u8>| *key >= lower && upper.as_ref().is_none_or(|upper| key < upper);
            let rows = rows.into_iter().filter(|(key, _)| inside(key)).collect();
            (lower, upper, rows)
        },
    )
}

fn items_of(rows: &Rows) -> Vec<Item<'_>> {
    rows.iter().map(|(key, value)| Item { key: key.clone(), payload: Payload::inline(value) }).collect()
}

proptest! {
    #[test]
    fn a_leaf_is_searched_like_an_ordered_map(
        (lower, upper, rows) in a_leaf(),
        probe in proptest::collection::vec(0u8..4, 0..12),
    ) {
        let fences = Fences { lower: &lower, upper: upper.as_deref() };
        let page = page_of(0, fences, &items_of(&rows));
        let used_bytes = slots::capacity(PAGE_BYTES) - slots::free_bytes(&page);
        prop_assert_eq!(used_bytes, draft::node_bytes(0, fences, &items_of(&rows)));
        let node = Node::read(&page).expect("the page is a leaf");
        prop_assert_eq!(node.len(), rows.len());
        let smaller = rows.range::<Vec<u8>, _>(..&probe).count();
        prop_assert_eq!(node.lower_bound(&probe).expect("the leaf is sound"), smaller);
        if node.covers(&probe) {
            let expected = if rows.contains_key(&probe) { Found::At(smaller) } else { Found::Before(smaller) };
            prop_assert_eq!(node.search(&probe).expect("the leaf is sound"), expected);
        }
        for (index, (key, value)) in rows.iter().enumerate() {
            prop_assert_eq!(&node.key(index).expect("the leaf is sound"), key);
            prop_assert_eq!(node.value(index).expect("the leaf is sound"), Stored::Inline(value));
        }
    }

    #[test]
    fn the_child_of_a_key_is_the_last_that_starts_at_or_below_it(
        (lower, upper, mut rows) in a_leaf(),
        probe in proptest::collection::vec(0u8..4, 0..12),
    ) {
        rows.insert(lower.clone(), Vec::new());
        let children: Vec<[u8; 8]> = (0..rows.len() as u64).map(u64::to_le_bytes).collect();
        let items: Vec<_> = rows.keys().zip(&children)
            .map(|(key, child)| Item { key: key.clone(), payload: Payload::child(child) }).collect();
        let page = page_of(1, Fences { lower: &lower, upper: upper.as_deref() }, &items);
        let node = Node::read(&page).expect("the page is an inner one");
        if node.covers(&probe) {
            let expected = rows.range::<Vec<u8>, _>(..=&probe).count() - 1;
            prop_assert_eq!(node.child_for(&probe).expect("the node is sound"), expected);
            prop_assert_eq!(node.child(expected).expect("the node is sound"), PageId(expected as u64));
        }
        if node.covers_before(&probe) {
            let expected = rows.range::<Vec<u8>, _>(..&probe).count().saturating_sub(1);
            prop_assert_eq!(node.child_before(&probe).expect("the node is sound"), expected);
        }
    }

    /// With the largest keys and values allowed, there is always a cut, and both parts fit.
    #[test]
    fn a_full_leaf_can_always_be_cut(
        lengths in proptest::collection::vec((12usize..512, 0usize..512), 1..60),
        pending in proptest::collection::vec((0u32..2000, 12usize..512, 0usize..2000), 1..30),
        is_bounded: bool,
        growth in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let (lower, upper) = (key(0, 512), key(3000, 512));
        let upper = is_bounded.then_some(upper.as_slice());
        let lower: &[u8] = if is_bounded { &lower } else { &[] };
        let fences = Fences { lower, upper };
        let mut rows = Rows::new();
        for (number, (key_bytes, value_bytes)) in lengths.into_iter().enumerate() {
            rows.insert(key(number as u32 * 17 + 1, key_bytes), vec![0; value_bytes]);
            if draft::node_bytes(0, fences, &items_of(&rows)) > slots::capacity(PAGE_BYTES) {
                rows.remove(&key(number as u32 * 17 + 1, key_bytes));
                break;
            }
        }
        let pending: Rows = pending
            .into_iter()
            .map(|(number, key_bytes, value_bytes)| (key(number + 1, key_bytes), vec![1; value_bytes]))
            .collect();
        let writes: Vec<_> = pending.iter().map(|(key, value)| LeafWrite { key, value: Some(LeafValue::Bytes(value)) }).collect();
        let page = page_of(0, fences, &items_of(&rows));
        let node = Node::read(&page).expect("the page is a leaf");
        if super::super::leaf_writes::fits(&node, &page, &writes, 512, &mut Vec::new()).expect("the leaf is sound") {
            return Ok(());
        }
        let items = items_of(&rows);
        // Wherever it is said to grow.
        let growth = growth.map_or(Growth::Anywhere, |at| match at.index(items.len() + 1) {
            next if next == items.len() => Growth::AtEnd,
            next => Growth::Before(next),
        });
        let cut = draft::cut_leaf(PAGE_BYTES, fences, &items, &writes, growth, 512).expect("there is a cut");
        prop_assert!(cut.separator.as_slice() > lower && upper.is_none_or(|upper| cut.separator.as_slice() < upper));
        prop_assert_eq!(cut.at, rows.range::<Vec<u8>, _>(..&cut.separator).count());
        let left = Fences { lower, upper: Some(&cut.separator) };
        let right = Fences { lower: &cut.separator, upper };
        prop_assert!(draft::node_bytes(0, left, &items[..cut.at]) <= slots::capacity(PAGE_BYTES));
        prop_assert!(draft::node_bytes(0, right, &items[cut.at..]) <= slots::capacity(PAGE_BYTES));
        let keys = || items.iter().map(|item| item.key.as_slice()).chain(writes.iter().map(|write| write.key));
        prop_assert!(keys().any(|key| key < cut.separator.as_slice()));
        prop_assert!(keys().any(|key| key >= cut.separator.as_slice()));
    }

    #[test]
    fn damage_is_an_error_not_a_panic(
        (lower, upper, rows) in a_leaf(),
        level in 0u8..2,
        hits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        probe in proptest::collection::vec(0u8..4, 0..12),
    ) {
        let mut page = page_of(0, Fences { lower: &lower, upper: upper.as_deref() }, &items_of(&rows));
        page[4] = if level == 0 { PageKind::Leaf } else { PageKind::Inner } as u8;
        page[5] = level;
        // Directory, fences and cells: everything but the free space between them.
        let heap = PAGE_BYTES - 600;
        for (at, byte) in hits {
            let at = at.index(header::HEADER_BYTES + 200 + 600);
            page[if at < header::HEADER_BYTES + 200 { at } else { heap + at - header::HEADER_BYTES - 200 }] = byte;
        }
        let Ok(node) = Node::read(&page) else { return Ok(()) };
        let _ = node.lower_bound(&probe);
        if node.covers(&probe) {
            let _ = (node.search(&probe), node.child_for(&probe));
            let writes = [LeafWrite { key: &probe, value: Some(LeafValue::Bytes(&[7; 300])) }];
            let _ = super::super::leaf_writes::fits(&node, &page, &writes, 512, &mut Vec::new());
        }
        if node.covers_before(&probe) {
            let _ = node.child_before(&probe);
        }
        for index in 0..node.len().min(2000) {
            let _ = (node.key(index), node.value(index), node.child(index), node.payload(index).is_ok());
        }
        if let Ok(items) = draft::take_apart(&node) {
            let fences = Fences { lower: node.lower(), upper: node.upper() };
            let _ = (draft::cut_inner(&items).is_some(), draft::node_bytes(node.level(), fences, &items));
            if node.is_leaf() {
                draft::cut_leaf(PAGE_BYTES, fences, &items, &[], Growth::AtEnd, 512);
            }
        }
    }
}

#[test]
fn separators_are_as_short_as_can_be() {
    assert_eq!(node::shortest_separator(b"apple", b"banana"), b"b");
    assert_eq!(node::shortest_separator(b"bana", b"banana"), b"banan");
    assert_eq!(node::shortest_separator(b"", b"a"), b"a");
}
