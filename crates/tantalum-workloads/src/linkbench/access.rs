//! Which nodes and links the requests are for.
//!
//! The shapes are those of LinkBench's default configuration: Zipf's distribution of 0.8 for reads of links, 0.741 for
//! writes of links, 0.625 for reads of nodes and 0.606 for their updates; deletions of nodes are uniform. Most requests
//! for links prefer nodes regardless of how many links they have (99.5 % of the reads, 95 % of the writes), the others
//! prefer those with many. Reads and writes of links have the same favourites, and so have reads and updates of nodes.

use tantalum_rt::Random;

use super::degree::Degrees;
use super::schema::ListId;
use crate::choice::{Scatter, Zipf};

/// Types of links; a node's are divided among them.
pub(super) const LINK_TYPES: u32 = 2;

const READ_UNCORRELATED: f64 = 0.995;
const WRITE_UNCORRELATED: f64 = 0.95;

/// Whose links, or which node.
pub(super) struct Access {
    nodes: u64,
    pub(super) degrees: Degrees,
    link_reads: Zipf,
    link_writes: Zipf,
    node_reads: Zipf,
    node_updates: Zipf,
    /// Where the favourites lie: of requests for links, and of those for nodes.
    by_links: Scatter,
    by_nodes: Scatter,
}

impl Access {
    /// For a graph of so many nodes; `seed` is that of its load, so that favourites stay the same from run to run.
    pub(super) fn new(nodes: u64, seed: u64) -> Self {
        let mut seeds = Random::with_seed(seed);
        let zipf = |shape| Zipf::new(nodes, shape);
        Self {
            nodes,
            link_reads: zipf(0.8),
            link_writes: zipf(0.741),
            node_reads: zipf(0.625),
            node_updates: zipf(0.606),
            by_links: Scatter::new(nodes, seeds.u64(..)),
            by_nodes: Scatter::new(nodes, seeds.u64(..)),
            degrees: Degrees::new(nodes, seeds.u64(..)),
        }
    }

    pub(super) fn list_to_read(&self, random: &mut Random) -> ListId {
        self.list(&self.link_reads, READ_UNCORRELATED, random)
    }

    pub(super) fn list_to_write(&self, random: &mut Random) -> ListId {
        self.list(&self.link_writes, WRITE_UNCORRELATED, random)
    }

    fn list(&self, favourites: &Zipf, uncorrelated: f64, random: &mut Random) -> ListId {
        let id1 = if random.f64() < uncorrelated {
            self.by_links.place(favourites.choose(random)) + 1
        } else {
            self.degrees.node_of_rank(favourites.choose(random))
        };
        ListId { id1, link_type: random.u32(0..LINK_TYPES) }
    }

    /// The other end of a link, which was loaded with about this probability.
    pub(super) fn id2(&self, list: &ListId, exists: f64, random: &mut Random) -> u64 {
        list.id1 + random.u64(0..self.id2s(list, exists))
    }

    /// Other ends of so many links, all different.
    pub(super) fn different_id2s(&self, list: &ListId, exists: f64, count: usize, random: &mut Random) -> Vec<u64> {
        let range = self.id2s(list, exists);
        if range <= count as u64 {
            return (list.id1..list.id1 + count as u64).collect();
        }
        let mut id2s = Vec::with_capacity(count);
        while id2s.len() < count {
            let id2 = list.id1 + random.u64(0..range);
            if !id2s.contains(&id2) {
                id2s.push(id2);
            }
        }
        id2s
    }

    /// The other ends, from the node on, among which the loaded ones have about this share.
    fn id2s(&self, list: &ListId, exists: f64) -> u64 {
        let loaded = self.degrees.links_of_type(list.id1, list.link_type, LINK_TYPES);
        (loaded as f64 / exists).ceil().max(1.0) as u64
    }

    pub(super) fn node_to_read(&self, random: &mut Random) -> u64 {
        self.by_nodes.place(self.node_reads.choose(random)) + 1
    }

    pub(super) fn node_to_update(&self, random: &mut Random) -> u64 {
        self.by_nodes.place(self.node_updates.choose(random)) + 1
    }

    pub(super) fn node_to_delete(&self, random: &mut Random) -> u64 {
        random.u64(1..=self.nodes)
    }
}
