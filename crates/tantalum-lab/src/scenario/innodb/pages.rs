//! Which pages LinkBench's requests need: where rows lie in the indexes of its tables, without the rows.
//!
//! The tables are those of LinkBench's description, in 32 partitions by their first column (DuraSSD, section 4.3.1). Rows are
//! counted in InnoDB's compact format, and lie in the order of their keys in pages that the load filled to 15/16, as InnoDB does
//! with rows that come in order.

use tantalum_workloads::linkbench::{Kind, Request, Requests};

/// Partitions of a table.
const PARTITIONS: u64 = 32;
/// Files of all tables.
pub const FILES: usize = 3 * PARTITIONS as usize;
/// Of a page that is filled in the order of keys.
const FILLED: f64 = 15.0 / 16.0;
/// Of a page: its header, trailer, directory and the records that bound it.
const PAGE_OVERHEAD_BYTES: f64 = 200.0;
/// Of a record in a clustered index, beside its columns: its header, and the transaction and the undo record that changed it.
const CLUSTERED_BYTES: f64 = 5.0 + 2.0 + 13.0;
/// Of a record in another index, or above the leaves.
const RECORD_BYTES: f64 = 5.0 + 1.0;
/// Of the number of a page, above the leaves.
const CHILD_BYTES: f64 = 4.0;
/// The mean of lengths whose median is 128 and 8 bytes, and whose logarithms deviate by 1: times the root of e.
const NODE_DATA_BYTES: f64 = 128.0 * 1.6487;
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

/// An index of a table, one tree in each partition.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Index {
    /// Of the table, from 0.
    table: u64,
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
    /// With rows and keys of so many bytes.
    fn new(table: u64, page_bytes: u32, row_bytes: f64, key_bytes: f64, rows: f64, first: u64) -> Self {
        let room = (f64::from(page_bytes) - PAGE_OVERHEAD_BYTES) * FILLED;
        let (rows_of_page, children_of_page) = (room / row_bytes, room / (key_bytes + RECORD_BYTES + CHILD_BYTES));
        let (mut levels, mut begin) = ([(0, 0); 4], 0);
        let mut pages = rows / PARTITIONS as f64 * GROWTH / rows_of_page;
        for level in &mut levels {
            let count = pages.ceil().max(1.0) as u64;
            *level = (count, begin);
            begin += count;
            pages = count as f64 / children_of_page;
        }
        Self { table, rows_of_page, children_of_page, levels, pages: begin, first }
    }

    /// The first page behind it.
    fn end(&self) -> u64 {
        self.first + PARTITIONS * self.pages
    }

    /// The pages from the root to the leaf of a partition's row, and the leaves behind it up to another row.
    fn path(&self, partition: u64, row: f64, last_row: f64, how: Use, into: &mut Vec<(u32, Use)>) {
        let tree = self.first + partition * self.pages;
        let [(leaves, _), ..] = self.levels;
        let leaf = |row: f64| ((row / self.rows_of_page) as u64).min(leaves - 1);
        let (first, last) = (leaf(row), leaf(last_row));
        for (level, &(count, begin)) in self.levels.iter().enumerate().skip(1).rev() {
            let place = (first as f64 / self.children_of_page.powi(level as i32)) as u64;
            into.push(((tree + begin + place.min(count - 1)) as u32, Use::Read));
        }
        into.extend((first..=last).map(|leaf| ((tree + leaf) as u32, how)));
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
}

/// Nodes with links, and those with links of both types: the published table, as the workload has it.
const COUNTS_OF_NODE: f64 = 0.8025 + 0.2702;

impl Pages {
    /// For so many nodes with so many links each.
    pub fn new(nodes: u64, links_of_node: f64, page_bytes: u32) -> Self {
        let of_nodes = nodes as f64;
        let node =
            Index::new(0, page_bytes, 8.0 + 4.0 + 8.0 + 4.0 + NODE_DATA_BYTES + CLUSTERED_BYTES, 8.0, of_nodes, 0);
        let links = of_nodes * links_of_node;
        let link_bytes = 8.0 + 8.0 + 8.0 + 1.0 + LINK_DATA_BYTES + 8.0 + 4.0;
        let link = Index::new(1, page_bytes, link_bytes + CLUSTERED_BYTES, 24.0, links, node.end());
        // All its columns are in the keys above the leaves too.
        let link_list = Index::new(1, page_bytes, link_bytes + RECORD_BYTES, link_bytes, links, link.end());
        let count_bytes = 8.0 + 8.0 + 4.0 + 8.0 + 8.0 + CLUSTERED_BYTES;
        let count = Index::new(2, page_bytes, count_bytes, 16.0, of_nodes * COUNTS_OF_NODE, link_list.end());
        Self { node, link, link_list, count, links_of_node, counts_of_node: COUNTS_OF_NODE, nodes }
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

    /// What a request needs, in order, when so many nodes have been added; what was in `into` before goes.
    pub fn of(&self, request: &Request, requests: &Requests, added: u64, into: &mut Vec<(u32, Use)>) {
        into.clear();
        let &Request { kind, id1, link_type, ref id2s } = request;
        let (partition, place) = ((id1.max(1) - 1) % PARTITIONS, ((id1.max(1) - 1) / PARTITIONS) as f64);
        let in_partition = self.nodes as f64 / PARTITIONS as f64;
        let lists = place * self.links_of_node;
        // The key of links begins with their type.
        let of_type = self.links_of_node / f64::from(Requests::LINK_TYPES);
        let links = f64::from(link_type) * in_partition * of_type + place * of_type;
        let link = |id2: u64| links + id2.saturating_sub(id1) as f64;
        let count = place * self.counts_of_node;
        match kind {
            Kind::GetNode => self.node.path(partition, place, place, Use::Read, into),
            Kind::UpdateNode | Kind::DeleteNode => self.node.path(partition, place, place, Use::Change, into),
            Kind::AddNode => {
                let (partition, row) = (added % PARTITIONS, in_partition + (added / PARTITIONS) as f64);
                self.node.path(partition, row, row, Use::Create, into);
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
                let exists = id2.saturating_sub(id1) < requests.loaded_links(id1, link_type);
                if kind == Kind::DeleteLink && !exists {
                    self.link.path(partition, link(id2), link(id2), Use::Read, into);
                    return;
                }
                self.link.path(partition, link(id2), link(id2), Use::Change, into);
                // The path to a leaf whose change is buffered is read all the same.
                self.link_list.path(partition, lists, lists, Use::ChangeLater, into);
                if kind == Kind::DeleteLink || !exists {
                    self.count.path(partition, count, count, Use::Change, into);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Random;
    use tantalum_workloads::linkbench::Parameters;

    use super::*;

    #[test]
    fn requests_stay_in_the_database_and_in_their_files() {
        let nodes = Pages::nodes_of(1 << 30, 4.9, 4096);
        let pages = Pages::new(nodes, 4.9, 4096);
        assert!((1_000_000_000..1_100_000_000).contains(&(pages.count() * 4096)), "{} pages", pages.count());
        let requests = Requests::new(Parameters { nodes, seed: 1 });
        let (mut random, mut needed) = (Random::with_seed(1), Vec::new());
        let mut files = [0; FILES];
        for added in 0..20_000 {
            pages.of(&requests.next(&mut random), &requests, added, &mut needed);
            for &(page, _) in &needed {
                files[pages.file_of(page)] += 1;
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
