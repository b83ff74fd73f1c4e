//! What a group is made of, found before anything is latched: the leaves of its writes, with room made in them, and the marks of the
//! large values that it replaces.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use tantalum_log::Lsn;
use tantalum_store::{PageId, TableId};

use super::{Part, PartTree, overwritten::Removal};
use crate::{
    buffer::{PinnedPage, Pins, Reservation},
    error::Result,
    table::Table,
    transaction::{
        ValueTree,
        large_values::{Mark, MarkKey, lost, mark_key},
        staging::{ChangeBuffers, Deferral, StagedWrite, StagingTree},
    },
    tree::{Chains, LeafValue, LeafWrite, Place, Reference},
};

/// Writes that go to one leaf.
pub(super) struct LeafPlan<'a> {
    pub tree: &'a PartTree,
    pub page: PinnedPage,
    /// The page's LSN when the writes' places were found.
    pub found_at: Lsn,
    pub writes: &'a [LeafWrite<'a>],
    /// Which of all places are theirs.
    pub places: Range<usize>,
    /// The large values that they replace.
    pub replaced: Vec<Reference>,
}

/// Large values that a group replaces or deletes, and their tables.
pub(super) type Replaced = Vec<(Table, Reference)>;

/// Leaves that room is made for at once.
const PLANS: usize = 16;

/// What the group of one try is made of.
#[derive(Default)]
pub(super) struct Planning<'p> {
    pub plans: Vec<LeafPlan<'p>>,
    pub places: Vec<Place>,
    pub chains: Chains,
    /// Writes whose leaves are not in memory, by table.
    pub deferred: Vec<Deferred<'p>>,
}

/// Writes to a table that go to a change buffer.
pub(super) struct Deferred<'p> {
    pub table: &'p Table,
    pub to: Arc<StagingTree>,
    keys: Vec<&'p [u8]>,
    rows: Vec<Vec<u8>>,
    /// Their leaves, or pages on the way to these.
    leaves: Vec<PageId>,
}

impl Deferred<'_> {
    /// Whether a key of a table is deferred.
    pub fn has(&self, table: TableId, key: &[u8]) -> bool {
        self.table.id() == table && self.keys.binary_search(&key).is_ok()
    }

    /// What goes to the change buffer.
    pub fn part(&self) -> Part<'_> {
        let rows = self.keys.iter().zip(&self.rows);
        let writes = rows.map(|(key, row)| LeafWrite { key, value: Some(LeafValue::Bytes(row)) }).collect();
        Part { tree: PartTree::Buffer(Arc::clone(&self.to)), writes }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The leaves of the writes, or pages on the way to these.
    pub fn leaves(&self) -> &[PageId] {
        &self.leaves
    }

    /// The bytes of key and row of each write.
    pub fn bytes(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().zip(&self.rows).map(|(key, row)| key.len() + row.len())
    }
}

/// What came of planning a part.
pub(super) enum Planned {
    Done,
    NoFrames,
    /// A value was replaced meanwhile.
    Changed,
    /// A write is to be deferred, and there is no change buffer for its table.
    NoBuffer(Table),
}

/// Where a write goes.
enum Destination<'p> {
    /// To its leaf, which has this LSN.
    Leaf(PinnedPage, Lsn),
    /// To the change buffer of its table, instead of this leaf.
    Buffer(&'p Table, Arc<StagingTree>, PageId),
    /// To one that is to be made.
    NewBuffer(&'p Table),
}

impl<'p> Planning<'p> {
    /// Has room for so many writes; most find a leaf each, or one for many.
    pub fn of(writes: usize) -> Self {
        let (plans, places) = (Vec::with_capacity(writes.min(PLANS)), Vec::with_capacity(writes));
        Self { plans, places, ..Self::default() }
    }

    /// Finds the leaves of a part, and makes room in them. With change buffers, writes to a table are deferred whose leaves are not in
    /// memory.
    pub fn add(
        &mut self,
        part: &'p Part<'p>,
        buffers: Option<&ChangeBuffers>,
        pins: &mut Pins<'_>,
        reservation: &Arc<Reservation>,
    ) -> Result<Planned> {
        let Part { tree, writes } = part;
        let mut rest = &writes[..];
        while !rest.is_empty() {
            let first = self.places.len();
            let (page, found_at) = match self.destination(tree, rest, buffers, reservation)? {
                Destination::Leaf(page, lsn) => (page, lsn),
                Destination::Buffer(table, buffer, leaf) => {
                    self.defer(table, buffer, &rest[0], leaf);
                    rest = &rest[1..];
                    continue;
                }
                Destination::NewBuffer(table) => return Ok(Planned::NoBuffer(table.clone())),
            };
            let (writes, later) = rest.split_at(self.places.len() - first);
            if !pins.try_add(1)? {
                return Ok(Planned::NoFrames);
            }
            let places = &self.places[first..];
            if !tree.tree().find_chains(writes, places, &mut self.chains)? {
                return Ok(Planned::Changed);
            }
            let replaced = references_at(places);
            self.plans.push(LeafPlan { tree, page, found_at, writes, places: first..self.places.len(), replaced });
            rest = later;
        }
        Ok(Planned::Done)
    }

    /// Where the first of some writes goes. If it is the leaf, that has room for those that belong to it, and they have their places.
    fn destination(
        &mut self,
        tree: &'p PartTree,
        writes: &'p [LeafWrite<'p>],
        buffers: Option<&ChangeBuffers>,
        reservation: &Arc<Reservation>,
    ) -> Result<Destination<'p>> {
        if let (Some(buffers), PartTree::Table { table, was_read }) = (buffers, tree) {
            // While writes are deferred anyway, no leaf is to be stored for one.
            let must_be_dirty = table.staging().has_open_buffer() && table.staging().gain().are_many();
            let at_hand = table.tree().prepare_in_memory(writes, &mut self.places, reservation, must_be_dirty)?;
            let passed_over = match at_hand {
                Ok((page, lsn)) => return Ok(Destination::Leaf(page, lsn)),
                Err(page) => page,
            };
            let is_again = self.deferred.last().is_some_and(|deferred| deferred.leaves.last() == Some(&passed_over));
            let deferral = match is_again {
                true => Deferral::ToLeaf,
                false => buffers.deferral(table, &writes[0], passed_over, *was_read),
            };
            match deferral {
                Deferral::To(buffer) => return Ok(Destination::Buffer(table, buffer, passed_over)),
                Deferral::ToNew => return Ok(Destination::NewBuffer(table)),
                Deferral::ToLeaf => {}
            }
        }
        let (page, lsn) = tree.tree().prepare(writes, &mut self.places, reservation)?;
        Ok(Destination::Leaf(page, lsn))
    }

    fn defer(&mut self, table: &'p Table, to: Arc<StagingTree>, write: &'p LeafWrite<'p>, leaf: PageId) {
        let is_same =
            |deferred: &&mut Deferred<'_>| deferred.table.id() == table.id() && Arc::ptr_eq(&deferred.to, &to);
        let row = StagedWrite::encode_write(write.value);
        match self.deferred.last_mut().filter(is_same) {
            Some(deferred) => {
                deferred.keys.push(write.key);
                deferred.rows.push(row);
                deferred.leaves.push(leaf);
            }
            None => {
                self.deferred.push(Deferred { table, to, keys: vec![write.key], rows: vec![row], leaves: vec![leaf] })
            }
        }
    }

    /// The large values that the group replaces or deletes.
    pub fn replaced(&self, removals: &[Removal<'_>]) -> Replaced {
        let in_tables = self.plans.iter().filter_map(|plan| match plan.tree {
            PartTree::Table { table, .. } | PartTree::Target(table) => Some((table, &plan.replaced)),
            PartTree::Staging(_) | PartTree::Buffer(_) | PartTree::Own(_) | PartTree::Values(_) => None,
        });
        let in_tables = in_tables.flat_map(|(table, replaced)| replaced.iter().map(|value| (table.clone(), *value)));
        let staged = removals.iter().flat_map(|removal| {
            let values = removal.rows.iter().filter_map(StagedWrite::reference);
            values.map(|value| (removal.table.clone(), value))
        });
        in_tables.chain(staged).collect()
    }
}

/// The large values that stand in these places.
pub(super) fn references_at(places: &[Place]) -> Vec<Reference> {
    places.iter().filter_map(|place| place.reference).collect()
}

/// The marks of values that a group replaces, by the tree that they are in.
pub(super) type Marks = BTreeMap<TableId, (Arc<ValueTree>, BTreeMap<MarkKey, [u8; Mark::BYTES]>)>;

pub(super) fn marks_of(replaced: &Replaced) -> Result<Marks> {
    let mut marks = Marks::new();
    for (table, reference) in replaced {
        let values = table.values().ok_or_else(|| lost(*reference))?;
        let mark = Mark { owner: TableId(0), born: reference.born };
        let of_tree = marks.entry(values.tree().owner()).or_insert_with(|| (values, BTreeMap::new()));
        // A row that is just being moved is seen in both places; the try then comes to nothing.
        of_tree.1.insert(mark_key(reference.id), mark.encode());
    }
    Ok(marks)
}

/// What goes to value trees: what the caller wants to have there, and the marks.
pub(super) fn value_parts<'p>(parts: &'p [Part<'p>], marks: &'p Marks) -> Vec<Part<'p>> {
    let mut writes: BTreeMap<TableId, Part<'p>> = BTreeMap::new();
    let of_caller = parts.iter().filter_map(|part| match &part.tree {
        PartTree::Values(values) => Some((values, &part.writes)),
        _ => None,
    });
    let mut part_of = |values: &Arc<ValueTree>, more: &mut dyn Iterator<Item = LeafWrite<'p>>| {
        let new = || Part { tree: PartTree::Values(Arc::clone(values)), writes: Vec::new() };
        writes.entry(values.tree().owner()).or_insert_with(new).writes.extend(more);
    };
    for (values, marks) in marks.values() {
        let writes = marks.iter().map(|(key, mark)| LeafWrite { key, value: Some(LeafValue::Bytes(mark)) });
        part_of(values, &mut { writes });
    }
    for (values, writes) in of_caller {
        part_of(values, &mut writes.iter().copied());
    }
    let mut parts: Vec<_> = writes.into_values().collect();
    parts.iter_mut().for_each(|part| part.writes.sort_by_key(|write| write.key));
    parts
}
