//! Which pages LinkBench's requests need: where rows lie in the indexes of its tables, without the rows.
//!
//! The tables are those of LinkBench's description, in 32 partitions by their first column (DuraSSD, section 4.3.1). Rows are
//! counted in InnoDB's compact format, and lie in the order of their keys in pages that the load filled to 15/16, as InnoDB does
//! with rows that come in order.

use tantalum_rt::{Random, collections::HashMap};
use tantalum_workloads::{
    choice::log_normal,
    linkbench::{Kind, Parameters, Request, Requests},
};

use super::{latch::Mode, load::rows_of_leaves};

/// Partitions of a table.
const PARTITIONS: u64 = 32;
/// Trees: of four indexes.
pub const TREES: usize = 4 * PARTITIONS as usize;
/// Files of all tables.
pub const FILES: usize = 3 * PARTITIONS as usize;
/// Of a page of a clustered index that is filled in the order of keys (`dict_index_get_space_reserve`); those of others are filled.
const FILLED: f64 = 15.0 / 16.0;
/// Of a page: its header, trailer, directory and the records that bound it.
const PAGE_OVERHEAD_BYTES: f64 = 200.0;
/// Of a record in a clustered index, beside its columns: its header, and the transaction and the undo record that changed it.
const CLUSTERED_BYTES: f64 = 5.0 + 2.0 + 13.0;
/// Of a record in another index, or above the leaves.
const RECORD_BYTES: f64 = 5.0 + 1.0;
/// Of the number of a page, above the leaves.
const CHILD_BYTES: f64 = 4.0;
const NODE_DATA_MEDIAN: f64 = 128.0;
/// The mean of lengths whose median is 128 and 8 bytes, and whose logarithms deviate by 1: times the root of e.
const NODE_DATA_BYTES: f64 = NODE_DATA_MEDIAN * 1.6487;
const LINK_DATA_BYTES: f64 = 8.0 * 1.6487;
/// Room for rows that are added.
const GROWTH: f64 = 1.03;
/// Rows that one look at a list returns at most.
const LIST_LIMIT: u64 = 10_000;

/// What is done to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Change,
    /// A change of a secondary index: not read for it if it is not in memory, but merged when it is (the change buffer).
    ChangeLater,
    /// A change of a page that is new if it is not in memory: it needs a frame, and is not read.
    Create,
}

/// A part of what a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Use(u32, Use),
    /// Latches a tree until [`Unlatch`](Self::Unlatch): shared to go down to a leaf, exclusively to split one.
    Latch(usize, Mode),
    Unlatch(usize, Mode),
}

/// The rows of an index.
#[derive(Clone, Copy)]
struct Rows {
    /// Of the index and its table, from 0.
    number: u64,
    table: u64,
    row_bytes: f64,
    key_bytes: f64,
    count: f64,
}

/// How the load fills an index.
enum Fill<'a> {
    /// In the order of its keys.
    InOrder,
    /// List by list, each in random order.
    Lists { sample: &'a Requests },
}

/// Nodes whose lists show how full the load leaves leaves.
const SAMPLE: u64 = 200_000;

/// An index of a table, one tree in each partition.
#[derive(Clone, Debug, PartialEq)]
struct Index {
    number: u64,
    table: u64,
    row_bytes: f64,
    /// Bytes of a page for rows.
    page_room: f64,
    /// Bytes that the load left of leaves, each as likely as the others.
    spare_room: Vec<f32>,
    rows_of_page: f64,
    children_of_page: f64,
    /// Pages of a tree's levels in one partition, the leaves first, and where each begins in it.
    levels: [(u64, u64); 4],
    /// Of one tree.
    pages: u64,
    /// The first page of the first tree.
    first: u64,
}

impl Index {
    /// Begins at a page, and is filled as the load does it.
    fn new(page_bytes: u32, rows: Rows, fill: Fill, first: u64) -> Self {
        let Rows { table, number, row_bytes, key_bytes, count } = rows;
        let page_room = f64::from(page_bytes) - PAGE_OVERHEAD_BYTES;
        let most = page_room / row_bytes;
        let (rows_of_page, spare_room) = match fill {
            Fill::InOrder => (most * FILLED, vec![(page_room * (1.0 - FILLED)) as f32]),
            Fill::Lists { sample } => {
                let lists = (1..=SAMPLE).flat_map(|id1| (0..Requests::LINK_TYPES).map(move |of| (id1, of)));
                let lengths = lists.map(|(id1, of)| sample.loaded_links(id1, of) as usize);
                let leaves = rows_of_leaves(most as usize, lengths, &mut Random::with_seed(1));
                let mean = leaves.iter().sum::<usize>() as f64 / leaves.len() as f64;
                (mean, leaves.iter().map(|&rows| ((most - rows as f64) * row_bytes) as f32).collect())
            }
        };
        let children_of_page = page_room * FILLED / (key_bytes + RECORD_BYTES + CHILD_BYTES);
        let (mut levels, mut begin) = ([(0, 0); 4], 0);
        let mut pages = count / PARTITIONS as f64 * GROWTH / rows_of_page;
        for level in &mut levels {
            let count = pages.ceil().max(1.0) as u64;
            *level = (count, begin);
            begin += count;
            pages = count as f64 / children_of_page;
        }
        Self {
            number,
            table,
            row_bytes,
            page_room,
            spare_room,
            rows_of_page,
            children_of_page,
            levels,
            pages: begin,
            first,
        }
    }

    /// The first page behind it.
    fn end(&self) -> u64 {
        self.first + PARTITIONS * self.pages
    }

    fn leaf(&self, row: f64) -> u64 {
        ((row / self.rows_of_page) as u64).min(self.levels[0].0 - 1)
    }

    /// The first page of a partition's tree, which is its first leaf.
    fn tree(&self, partition: u64) -> u64 {
        self.first + partition * self.pages
    }

    fn latch_of(&self, partition: u64) -> usize {
        (self.number * PARTITIONS + partition) as usize
    }

    /// The pages above a leaf, from the root; the last is used otherwise.
    fn above(&self, partition: u64, leaf: u64, last: Use, into: &mut Vec<Step>) {
        for (level, &(count, begin)) in self.levels.iter().enumerate().skip(1).rev() {
            let place = (leaf as f64 / self.children_of_page.powi(level as i32)) as u64;
            let page = self.tree(partition) + begin + place.min(count - 1);
            into.push(Step::Use(page as u32, if level == 1 { last } else { Use::Read }));
        }
    }

    /// The way from the root to the leaf of a partition's row, with the tree latched, and the leaves behind it up to another row.
    fn path(&self, partition: u64, row: f64, last_row: f64, how: Use, into: &mut Vec<Step>) {
        let (first, last, latch) = (self.leaf(row), self.leaf(last_row), self.latch_of(partition));
        let page = |leaf: u64| Step::Use((self.tree(partition) + leaf) as u32, how);
        into.push(Step::Latch(latch, Mode::Shared));
        self.above(partition, first, Use::Read, into);
        into.extend([page(first), Step::Unlatch(latch, Mode::Shared)]);
        into.extend((first + 1..=last).map(page));
    }

    /// Changes a row, and splits its leaf if that has no room.
    fn change(&self, partition: u64, row: f64, bytes: Bytes, how: Use, room: &mut Room, into: &mut Vec<Step>) {
        let leaf = self.leaf(row);
        self.path(partition, row, row, how, into);
        let left = room.left.entry((self.tree(partition) + leaf) as u32).or_insert_with(|| self.loaded_room(leaf));
        let has_room = bytes.needed as f32 <= *left;
        *left -= bytes.kept as f32;
        if !has_room {
            // Half of both pages is empty then.
            *left += self.page_room as f32;
            let splits = &mut room.splits[self.latch_of(partition)];
            let new = self.levels[0].0 - 1 - *splits % self.spare_leaves();
            *splits += 1;
            self.split(partition, leaf, new, into);
        }
    }

    fn loaded_room(&self, leaf: u64) -> f32 {
        // Scattered, so that neighbours differ.
        self.spare_room[(leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.spare_room.len()]
    }

    /// Leaves at the end that the load left.
    fn spare_leaves(&self) -> u64 {
        ((self.levels[0].0 as f64 * (1.0 - 1.0 / GROWTH) / 2.0) as u64).max(1)
    }

    /// Splits a leaf (`BTR_MODIFY_TREE`): with the tree latched exclusively it looks at both neighbours, and changes the right one.
    fn split(&self, partition: u64, leaf: u64, new: u64, into: &mut Vec<Step>) {
        let (tree, latch) = (self.tree(partition), self.latch_of(partition));
        let page = |leaf: u64, how| Step::Use((tree + leaf) as u32, how);
        into.push(Step::Latch(latch, Mode::Exclusive));
        self.above(partition, leaf, Use::Change, into);
        if leaf > 0 {
            into.push(page(leaf - 1, Use::Read));
        }
        into.extend([page(leaf, Use::Change), page((leaf + 1).min(self.levels[0].0 - 1), Use::Change)]);
        into.extend([page(new, Use::Create), Step::Unlatch(latch, Mode::Exclusive)]);
    }

    /// Adds the row at the end of a partition's tree.
    fn append(&self, partition: u64, row: f64, into: &mut Vec<Step>) {
        let (leaf, before) = (self.leaf(row), self.leaf(row - 1.0));
        self.path(partition, row - 1.0, row - 1.0, Use::Change, into);
        if leaf > before {
            let (tree, latch) = (self.tree(partition), self.latch_of(partition));
            into.push(Step::Latch(latch, Mode::Exclusive));
            self.above(partition, before, Use::Change, into);
            into.extend([Step::Use((tree + before) as u32, Use::Change), Step::Use((tree + leaf) as u32, Use::Create)]);
            into.push(Step::Unlatch(latch, Mode::Exclusive));
        }
    }
}

/// Bytes of its leaf that a change of a row needs, where the row from before stays until it is purged; and those that it keeps.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    needed: f64,
    kept: f64,
}

/// What changes of rows have left of the leaves' room, and how many rows have been added.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes that are left of a leaf, if any of it was changed.
    left: HashMap<u32, f32>,
    /// Leaves of each tree that were split.
    splits: Vec<u64>,
    /// Nodes that were added.
    added: u64,
    /// Whether links are there that were written, by both ends and the type. Of the others those are that were loaded.
    links: HashMap<(u64, u64, u32), bool>,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: HashMap::default(), splits: vec![0; TREES], added: 0, links: HashMap::default() }
    }
}

/// The pages of a LinkBench database.
#[derive(Clone, Debug)]
pub struct Pages {
    node: Index,
    link: Index,
    link_list: Index,
    count: Index,
    /// Rows of a node in the tables of links and of counts.
    links_of_node: f64,
    counts_of_node: f64,
    nodes: u64,
    /// Bytes of the longest node's data that counts: a page has room for two rows at least.
    longest_node: usize,
}

/// Nodes with links, and those with links of both types: the published table, as the workload has it.
const COUNTS_OF_NODE: f64 = 0.8025 + 0.2702;

impl Pages {
    /// For so many nodes with so many links each.
    pub fn new(nodes: u64, links_of_node: f64, page_bytes: u32) -> Self {
        let nodes_f = nodes as f64;
        let links = nodes_f * links_of_node;
        let node_bytes = 8.0 + 4.0 + 8.0 + 4.0 + NODE_DATA_BYTES + CLUSTERED_BYTES;
        let link_bytes = 8.0 + 8.0 + 8.0 + 1.0 + LINK_DATA_BYTES + 8.0 + 4.0;
        let count_bytes = 8.0 + 8.0 + 4.0 + 8.0 + 8.0 + CLUSTERED_BYTES;
        let rows = |number, table, row_bytes, key_bytes, count| Rows { number, table, row_bytes, key_bytes, count };
        let node = Index::new(page_bytes, rows(0, 0, node_bytes, 8.0, nodes_f), Fill::InOrder, 0);
        let link = rows(1, 1, link_bytes + CLUSTERED_BYTES, 24.0, links);
        let link = Index::new(page_bytes, link, Fill::InOrder, node.end());
        // All its columns are in the keys above the leaves too.
        let link_list = rows(2, 1, link_bytes + RECORD_BYTES, link_bytes, links);
        let sample = Requests::new(Parameters { nodes: SAMPLE, seed: 1 });
        let link_list = Index::new(page_bytes, link_list, Fill::Lists { sample: &sample }, link.end());
        let count = rows(3, 2, count_bytes, 16.0, nodes_f * COUNTS_OF_NODE);
        let count = Index::new(page_bytes, count, Fill::InOrder, link_list.end());
        Self {
            node,
            link,
            link_list,
            count,
            links_of_node,
            counts_of_node: COUNTS_OF_NODE,
            nodes,
            longest_node: page_bytes as usize / 4,
        }
    }

    /// The nodes of the largest database in so many bytes.
    pub fn nodes_of(database_bytes: u64, links_of_node: f64, page_bytes: u32) -> u64 {
        let some = 1_000_000;
        let bytes = Self::new(some, links_of_node, page_bytes).count() * u64::from(page_bytes);
        (some as f64 * database_bytes as f64 / bytes as f64) as u64
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.count.end()
    }

    /// The file in which a page lies: one for each partition of a table.
    pub fn file_of(&self, page: u32) -> usize {
        let page = u64::from(page);
        let indexes = [&self.node, &self.link, &self.link_list, &self.count];
        let index = indexes.into_iter().find(|index| page < index.end()).expect("a page of the database");
        (index.table * PARTITIONS + (page - index.first) / index.pages) as usize
    }

    /// What a request does, in order; what was in `into` before goes.
    pub fn of(
        &self,
        request: &Request,
        requests: &Requests,
        random: &mut Random,
        room: &mut Room,
        into: &mut Vec<Step>,
    ) {
        into.clear();
        let &Request { kind, id1, link_type, ref id2s } = request;
        let (partition, place) = ((id1.max(1) - 1) % PARTITIONS, ((id1.max(1) - 1) / PARTITIONS) as f64);
        let in_partition = self.nodes as f64 / PARTITIONS as f64;
        let lists = place * self.links_of_node;
        // The key of links begins with their type.
        let of_type = self.links_of_node / f64::from(Requests::LINK_TYPES);
        let links = f64::from(link_type) * in_partition * of_type + place * of_type;
        // Links that are added come behind those that were loaded.
        let link = |id2: u64| links + id2.saturating_sub(id1).min(requests.loaded_links(id1, link_type)) as f64;
        let count = place * self.counts_of_node;
        match kind {
            Kind::GetNode => self.node.path(partition, place, place, Use::Read, into),
            Kind::UpdateNode => {
                let mut length = || log_normal(random, NODE_DATA_MEDIAN, self.longest_node) as f64;
                let longer = length() - length();
                self.node.change(partition, place, Bytes { needed: longer, kept: longer }, Use::Change, room, into);
            }
            Kind::DeleteNode => self.node.path(partition, place, place, Use::Change, into),
            Kind::AddNode => {
                let row = in_partition + (room.added / PARTITIONS) as f64;
                self.node.append(room.added % PARTITIONS, row, into);
                room.added += 1;
            }
            Kind::CountLink => self.count.path(partition, count, count, Use::Read, into),
            Kind::GetLinkList => {
                let found = requests.loaded_links(id1, link_type).min(LIST_LIMIT) as f64;
                self.link_list.path(partition, lists, lists + found, Use::Read, into);
            }
            Kind::MultigetLink => {
                for &id2 in id2s {
                    self.link.path(partition, link(id2), link(id2), Use::Read, into);
                }
            }
            Kind::AddLink | Kind::UpdateLink | Kind::DeleteLink => {
                let [id2] = id2s[..] else { unreachable!("one link is written") };
                let is_loaded = || id2.saturating_sub(id1) < requests.loaded_links(id1, link_type);
                let state = room.links.get(&(id1, id2, link_type)).copied();
                let exists = state.unwrap_or_else(is_loaded);
                if kind == Kind::DeleteLink && !exists {
                    self.link.path(partition, link(id2), link(id2), Use::Read, into);
                    return;
                }
                // A link that was deleted is hidden, and its row stays.
                let is_new = state.is_none() && !exists;
                room.links.insert((id1, id2, link_type), kind != Kind::DeleteLink);
                let row = if is_new { self.link.row_bytes } else { 0.0 };
                self.link.change(partition, link(id2), Bytes { needed: row, kept: row }, Use::Change, room, into);
                // All columns are in the key of the list, so that a row is changed by a new one; the old one is purged.
                let row = self.link_list.row_bytes;
                let bytes = Bytes { needed: row, kept: if is_new { row } else { 0.0 } };
                // The path to a leaf whose change is buffered is read all the same.
                self.link_list.change(partition, lists, bytes, Use::ChangeLater, room, into);
                if kind == Kind::DeleteLink || !exists {
                    self.count.path(partition, count, count, Use::Change, into);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_in_the_database_and_in_their_files() {
        let nodes = Pages::nodes_of(1 << 30, 4.9, 4096);
        let pages = Pages::new(nodes, 4.9, 4096);
        assert!((1_000_000_000..1_100_000_000).contains(&(pages.count() * 4096)), "{} pages", pages.count());
        let requests = Requests::new(Parameters { nodes, seed: 1 });
        let (mut random, mut steps, mut room) = (Random::with_seed(1), Vec::new(), Room::default());
        let mut files = [0; FILES];
        for _ in 0..20_000 {
            let request = requests.next(&mut random);
            pages.of(&request, &requests, &mut random, &mut room, &mut steps);
            for step in &steps {
                if let &Step::Use(page, _) = step {
                    files[pages.file_of(page)] += 1;
                }
            }
        }
        assert!(files.iter().all(|&uses| uses > 0), "{files:?}");
    }

    #[test]
    fn trees_are_deeper_with_small_pages() {
        let levels = |page_bytes| {
            let pages = Pages::new(90_000_000, 4.9, page_bytes);
            pages.link_list.levels.iter().filter(|(count, _)| *count > 1).count()
        };
        assert!(levels(4096) > levels(16 << 10));
    }
}
