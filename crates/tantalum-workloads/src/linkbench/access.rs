//! Which nodes and links the requests are for.
//!
//! The shapes are those of LinkBench's default configuration: Zipf's distribution of 0.8 for reads of links, 0.741 for
//! writes of links, 0.625 for reads of nodes and 0.606 for their updates; deletions of nodes are uniform. Most requests
//! for links prefer nodes regardless of how many links they have (99.5 % of the reads, 95 % of the writes), the others
//! prefer those with many.

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
    link_reads: Favourites,
    link_writes: Favourites,
    node_reads: Favourites,
    node_updates: Favourites,
}

struct Favourites {
    zipf: Zipf,
    scatter: Scatter,
}

impl Favourites {
    fn new(nodes: u64, shape: f64, seed: u64) -> Self {
        Self { zipf: Zipf::new(nodes, shape), scatter: Scatter::new(nodes, seed) }
    }

    fn node(&self, random: &mut Random) -> u64 {
        self.scatter.place(self.zipf.choose(random)) + 1
    }
}

impl Access {
    /// For a graph of so many nodes; `seed` is that of its load, so that favourites stay the same from run to run.
    pub(super) fn new(nodes: u64, seed: u64) -> Self {
        let mut seeds = Random::with_seed(seed);
        let mut favourites = |shape| Favourites::new(nodes, shape, seeds.u64(..));
        Self {
            nodes,
            link_reads: favourites(0.8),
            link_writes: favourites(0.741),
            node_reads: favourites(0.625),
            node_updates: favourites(0.606),
            degrees: Degrees::new(nodes, seeds.u64(..)),
        }
    }

    pub(super) fn list_to_read(&self, random: &mut Random) -> ListId {
        self.list(&self.link_reads, READ_UNCORRELATED, random)
    }

    pub(super) fn list_to_write(&self, random: &mut Random) -> ListId {
        self.list(&self.link_writes, WRITE_UNCORRELATED, random)
    }

    fn list(&self, favourites: &Favourites, uncorrelated: f64, random: &mut Random) -> ListId {
        let id1 = if random.f64() < uncorrelated {
            favourites.node(random)
        } else {
            self.degrees.node_of_rank(favourites.zipf.choose(random))
        };
        ListId { id1, link_type: random.u32(0..LINK_TYPES) }
    }

    /// The other end of a link, which was loaded with about this probability.
    pub(super) fn id2(&self, list: &ListId, exists: f64, random: &mut Random) -> u64 {
        let loaded = self.degrees.links_of_type(list.id1, list.link_type, LINK_TYPES);
        let range = (loaded as f64 / exists).round().max(1.0) as u64;
        list.id1 + random.u64(0..range)
    }

    pub(super) fn node_to_read(&self, random: &mut Random) -> u64 {
        self.node_reads.node(random)
    }

    pub(super) fn node_to_update(&self, random: &mut Random) -> u64 {
        self.node_updates.node(random)
    }

    pub(super) fn node_to_delete(&self, random: &mut Random) -> u64 {
        random.u64(1..=self.nodes)
    }
}
