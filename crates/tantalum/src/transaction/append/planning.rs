//! What a group is made of, found before anything is latched: the leaves of its writes, with room made in them, and the marks of the
//! large values that it replaces.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use tantalum_log::Lsn;
use tantalum_store::TableId;

use super::{Part, PartTree, overwritten::Removal};
use crate::{
    buffer::{PinnedPage, Pins, Reservation},
    error::Result,
    table::Table,
    transaction::{
        ValueTree,
        large_values::{Mark, MarkKey, lost, mark_key},
        staging::StagedWrite,
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
pub(super) struct Planning<'p> {
    pub plans: Vec<LeafPlan<'p>>,
    pub places: Vec<Place>,
    pub chains: Chains,
}

/// What came of planning a part.
pub(super) enum Planned {
    Done,
    NoFrames,
    /// A value was replaced meanwhile.
    Changed,
}

impl<'p> Planning<'p> {
    /// Has room for so many writes; most find a leaf each, or one for many.
    pub fn of(writes: usize) -> Self {
        let (plans, places) = (Vec::with_capacity(writes.min(PLANS)), Vec::with_capacity(writes));
        Self { plans, places, chains: Chains::default() }
    }

    /// Finds the leaves of a part, and makes room in them.
    pub fn add(&mut self, part: &'p Part<'p>, pins: &mut Pins<'_>, reservation: &Arc<Reservation>) -> Result<Planned> {
        let Part { tree, writes } = part;
        let mut rest = &writes[..];
        while !rest.is_empty() {
            let first = self.places.len();
            let (page, found_at) = tree.tree().prepare(rest, &mut self.places, reservation)?;
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

    /// The large values that the group replaces or deletes.
    pub fn replaced(&self, removals: &[Removal<'_>]) -> Replaced {
        let in_tables = self.plans.iter().filter_map(|plan| match plan.tree {
            PartTree::Table(table) | PartTree::Target(table) => Some((table, &plan.replaced)),
            PartTree::Staging(_) | PartTree::Own(_) | PartTree::Values(_) => None,
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
