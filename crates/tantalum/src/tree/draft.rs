//! Nodes taken apart and put together again: where a split cuts, and what the pages then hold.

use tantalum_store::{Change, PageKind, TableId, page::slots};

use super::leaf_writes::LeafWrite;
use super::node::{self, Node, Payload};
use crate::buffer::ChangeGroup;
use crate::error::Result;

/// The range of keys that a node is responsible for.
#[derive(Clone, Copy)]
pub(super) struct Fences<'a> {
    pub(super) lower: &'a [u8],
    pub(super) upper: Option<&'a [u8]>,
}

impl Fences<'_> {
    /// How many bytes all keys between them begin with alike.
    pub(super) fn prefix(&self) -> usize {
        self.upper.map_or(0, |upper| node::common_prefix(self.lower, upper))
    }
}

/// An entry with its whole key.
pub(super) struct Item<'a> {
    pub(super) key: Vec<u8>,
    pub(super) payload: Payload<'a>,
}

/// A node's entries with their whole keys, which are checked to lie in order between its fences: cutting relies on it.
pub(super) fn take_apart<'a>(node: &Node<'a>) -> Result<Vec<Item<'a>>> {
    let mut items: Vec<Item<'a>> = Vec::with_capacity(node.len());
    for index in 0..node.len() {
        let item = Item { key: node.key(index)?, payload: node.payload(index)? };
        if !node.covers(&item.key) || items.last().is_some_and(|last| last.key >= item.key) {
            return Err(node.error(&format!("the key of entry {index} is out of order")));
        }
        items.push(item);
    }
    Ok(items)
}

/// The part of an item's key that its cell holds. The first child of an inner node needs none: it starts at the lower
/// fence.
fn stored_suffix<'i>(level: u8, index: usize, prefix: usize, item: &'i Item<'_>) -> &'i [u8] {
    if level > 0 && index == 0 { &[] } else { &item.key[prefix..] }
}

/// The bytes that a node between these fences takes.
pub(super) fn node_bytes(level: u8, fences: Fences<'_>, items: &[Item<'_>]) -> usize {
    let prefix = fences.prefix();
    let cells = items.iter().enumerate().map(|(index, item)| {
        slots::SLOT_BYTES + item.payload.cell_bytes(stored_suffix(level, index, prefix, item).len())
    });
    node::fence_bytes(fences.lower, fences.upper) + cells.sum::<usize>()
}

/// Writes a whole node into the page at `index` of `group`.
pub(super) fn write_node(
    group: &mut ChangeGroup,
    index: usize,
    level: u8,
    owner: TableId,
    fences: Fences<'_>,
    items: &[Item<'_>],
) -> Result<()> {
    let kind = if level == 0 { PageKind::Leaf } else { PageKind::Inner };
    group.change(index, Change::Format { kind, level, owner })?;
    group.change(index, Change::InsertSlot { slot: 0, cell: fences.lower })?;
    group.change(index, Change::InsertSlot { slot: 1, cell: &node::encode_upper(fences.upper) })?;
    append_items(group, index, level, fences, 0, items)
}

/// Adds entries behind the `present` ones that the page at `index` has between the same fences.
pub(super) fn append_items(
    group: &mut ChangeGroup,
    index: usize,
    level: u8,
    fences: Fences<'_>,
    present: usize,
    items: &[Item<'_>],
) -> Result<()> {
    let prefix = fences.prefix();
    for (position, item) in items.iter().enumerate().map(|(offset, item)| (present + offset, item)) {
        let cell = item.payload.with_suffix(stored_suffix(level, position, prefix, item));
        group.change(index, Change::InsertSlot { slot: (node::FENCES + position) as u16, cell: &cell })?;
    }
    Ok(())
}

/// Takes what all keys between the fences begin with out of the cells of the page at `index`, which has these entries alone. The log
/// gets what is taken out, and not what remains: a node that grows at its end keeps all that it has.
pub(super) fn lengthen_prefix(
    group: &mut ChangeGroup,
    index: usize,
    level: u8,
    fences: Fences<'_>,
    items: &[Item<'_>],
) -> Result<()> {
    let prefix = fences.prefix();
    for (position, item) in items.iter().enumerate() {
        let cell = item.payload.with_suffix(stored_suffix(level, position, prefix, item));
        group.change(index, Change::ReplaceSlot { slot: (node::FENCES + position) as u16, cell: &cell })?;
    }
    Ok(())
}

/// Where a node is cut in two.
pub(super) struct Cut {
    /// The entries that stay on the left.
    pub(super) at: usize,
    /// The upper fence of the left part and lower fence of the right one.
    pub(super) separator: Vec<u8>,
}

/// Cuts an inner node so that both parts are about equally full; `None` if it has only one child.
pub(super) fn cut_inner(items: &[Item<'_>]) -> Option<Cut> {
    let bytes: Vec<usize> = items.iter().map(|item| item.payload.cell_bytes(item.key.len())).collect();
    let at = middle(&bytes)?;
    Some(Cut { at, separator: items[at].key.clone() })
}

/// An entry of a leaf as it will be when the pending writes are in: its key, and the room that it may need.
struct Weighed<'a> {
    key: &'a [u8],
    is_present: bool,
    bytes: usize,
}

/// Where a leaf grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Behind its last entry.
    AtEnd,
    /// Before the entry of this number, again and again.
    Before(usize),
    /// There is no telling.
    Anywhere,
}

/// The entry before which all those of the writes go that add a row; `None` if they do not all go to the same place, or none
/// does.
pub(super) fn added_before(items: &[Item<'_>], writes: &[LeafWrite<'_>]) -> Option<usize> {
    let place = |write: &LeafWrite<'_>| match items.last() {
        Some(last) if last.key.as_slice() >= write.key => {
            items.binary_search_by(|item| item.key.as_slice().cmp(write.key)).err()
        }
        _ => Some(items.len()),
    };
    // In key order: what lies between the first and the last goes where they go.
    let mut added = writes.iter().filter(|write| write.value.is_some());
    let first = added.find_map(place)?;
    let last = added.rev().find_map(place).unwrap_or(first);
    (first == last).then_some(first)
}

/// Cuts a leaf so that the writes waiting for it come closer to fitting. One of the parts may be empty: the writes go
/// there.
///
/// A leaf that grows at its end is filled up. One that grows at a place inside is cut there, so that what is there to come has
/// the room of what moves, and once that is filled grows at its end. Otherwise both parts get about half. `None` if there are not two keys to cut between.
pub(super) fn cut_leaf(
    page_size: usize,
    fences: Fences<'_>,
    items: &[Item<'_>],
    writes: &[LeafWrite<'_>],
    growth: Growth,
    inline_limit: usize,
) -> Option<Cut> {
    let weighed = weigh(page_size, items, writes, inline_limit);
    let fullest = || fullest_left(page_size, fences, &weighed);
    let grown = match growth {
        Growth::AtEnd => fullest(),
        Growth::Before(next) => {
            let behind = weighed.iter().position(|entry| entry.key == items[next].key);
            behind.and_then(|behind| Some(fullest()?.min(behind)))
        }
        Growth::Anywhere => None,
    };
    let preferred = grown.or_else(|| middle(&weighed.iter().map(|entry| entry.bytes).collect::<Vec<_>>()))?;
    let capacity = slots::capacity(page_size);
    // From the preferred one to both sides.
    let around = |distance| [preferred.checked_sub(distance), (distance > 0).then_some(preferred + distance)];
    let candidates = (0..weighed.len()).flat_map(around).flatten();
    candidates.filter(|candidate| (1..weighed.len()).contains(candidate)).find_map(|candidate| {
        let separator = separator_at(&weighed, candidate);
        let at = weighed[..candidate].iter().filter(|entry| entry.is_present).count();
        let left = Fences { lower: fences.lower, upper: Some(separator) };
        let right = Fences { lower: separator, upper: fences.upper };
        let fits = node_bytes(0, left, &items[..at]) <= capacity && node_bytes(0, right, &items[at..]) <= capacity;
        fits.then(|| Cut { at, separator: separator.to_vec() })
    })
}

/// The entries and the first of the writes (two pages of them; the rest cannot matter to this cut) in key order.
fn weigh<'a>(
    page_size: usize,
    items: &'a [Item<'_>],
    writes: &[LeafWrite<'a>],
    inline_limit: usize,
) -> Vec<Weighed<'a>> {
    let mut weighed = Vec::with_capacity(items.len() + writes.len().min(page_size));
    let mut items = items.iter().peekable();
    let mut pending_bytes = 0;
    let present = |item: &'a Item<'_>| Weighed {
        key: &item.key,
        is_present: true,
        bytes: slots::SLOT_BYTES + item.payload.cell_bytes(item.key.len()),
    };
    for write in writes {
        if pending_bytes > 2 * page_size {
            break;
        }
        while let Some(item) = items.next_if(|item| item.key.as_slice() < write.key) {
            weighed.push(present(item));
        }
        let written = write
            .value
            .map_or(0, |value| slots::SLOT_BYTES + node::leaf_cell_bytes(write.key.len(), value, inline_limit));
        pending_bytes += written;
        match items.next_if(|item| item.key == write.key) {
            Some(item) => {
                let present = present(item);
                weighed.push(Weighed { bytes: present.bytes.max(written), ..present });
            }
            None if written > 0 => weighed.push(Weighed { key: write.key, is_present: false, bytes: written }),
            None => {}
        }
    }
    weighed.extend(items.map(present));
    weighed
}

/// The last cut that leaves the left part fitting in one page, pending writes included.
fn fullest_left(page_size: usize, fences: Fences<'_>, weighed: &[Weighed<'_>]) -> Option<usize> {
    let mut bytes = 0;
    let mut fullest = None;
    for candidate in 1..weighed.len() {
        bytes += weighed[candidate - 1].bytes;
        let left = Fences { lower: fences.lower, upper: Some(separator_at(weighed, candidate)) };
        let needed = node::fence_bytes(left.lower, left.upper) + bytes - candidate * left.prefix();
        if needed <= slots::capacity(page_size) {
            fullest = Some(candidate);
        }
    }
    fullest
}

fn separator_at<'a>(weighed: &[Weighed<'a>], cut: usize) -> &'a [u8] {
    node::shortest_separator(weighed[cut - 1].key, weighed[cut].key)
}

/// The cut that divides the bytes most evenly.
fn middle(bytes: &[usize]) -> Option<usize> {
    let total: usize = bytes.iter().sum();
    let mut left = 0;
    (1..bytes.len()).min_by_key(|&cut| {
        left += bytes[cut - 1];
        (2 * left).abs_diff(total)
    })
}
