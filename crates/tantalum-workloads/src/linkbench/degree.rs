//! How many links a node has.
//!
//! LinkBench draws the number from what Facebook measured of its social graph, and publishes that as a table. Here are a
//! few points of it; between them the share of nodes with more links falls as a power of their number, and so it
//! does beyond the last.

use crate::choice::Scatter;

/// Links, and the share of nodes that have more.
const MORE_THAN: [(f64, f64); 17] = [
    (0.0, 0.802526),
    (1.0, 0.270154),
    (2.0, 0.132625),
    (3.0, 0.081832),
    (4.0, 0.055409),
    (5.0, 0.041314),
    (7.0, 0.026207),
    (10.0, 0.016590),
    (20.0, 0.007779),
    (50.0, 0.003482),
    (100.0, 0.002265),
    (200.0, 0.001602),
    (500.0, 0.001004),
    (740.0, 0.000813),
    (3137.0, 0.000252),
    (5000.0, 0.000132),
    (6000.0, 0.0000977),
];

/// No node has more links than this.
const MOST: f64 = 100_000.0;

/// The numbers of links that nodes are loaded with.
#[derive(Clone, Debug)]
pub(super) struct Degrees {
    nodes: u64,
    /// From a node's rank by its links to its number, from 0.
    scatter: Scatter,
}

impl Degrees {
    pub(super) fn new(nodes: u64, seed: u64) -> Self {
        Self { nodes, scatter: Scatter::new(nodes, seed) }
    }

    /// Links of the node with this number, from 1, of one of `types` types, from 0. LinkBench divides them among the types, and adds one
    /// to each type below what is left when one type has its part (`calcLinkCount`), so that a node with more has one or two too many.
    pub(super) fn links_of_type(&self, node: u64, link_type: u32, types: u32) -> u64 {
        let (links, types) = (self.links(node), u64::from(types));
        links / types + u64::from(u64::from(link_type) < links - links / types)
    }

    /// Links of the node with this number, from 1. A node that was added later has none.
    fn links(&self, node: u64) -> u64 {
        match node.checked_sub(1) {
            Some(place) if place < self.nodes => links_at((self.scatter.rank(place) as f64 + 0.5) / self.nodes as f64),
            _ => 0,
        }
    }

    /// The node with so many nodes before it that have as many links or more.
    pub(super) fn node_of_rank(&self, rank: u64) -> u64 {
        self.scatter.place(rank) + 1
    }
}

/// The number of links of a node when this share of all nodes comes before it.
fn links_at(share: f64) -> u64 {
    let Some(after) = MORE_THAN.iter().position(|&(_, more)| more <= share) else {
        let [.., before, last] = MORE_THAN;
        let fall = (before.1 / last.1).ln() / (last.0 / before.0).ln();
        return (last.0 * (last.1 / share).powf(1.0 / fall)).min(MOST) as u64;
    };
    if after <= 1 {
        return after as u64;
    }
    let ((few, many_more), (many, few_more)) = (MORE_THAN[after - 1], MORE_THAN[after]);
    let part = (many_more / share).ln() / (many_more / few_more).ln();
    // Rounded up: it is the least number that no larger share of nodes exceeds.
    (few * (many / few).powf(part)).ceil().min(many) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_of_the_published_graph() {
        let degrees = Degrees::new(1_000_000, 7);
        let mut links: Vec<u64> = (1..=1_000_000).map(|node| degrees.links(node)).collect();
        links.sort_unstable();
        let at_most = |n: u64| links.partition_point(|&links| links <= n) as f64 / 1e6;
        for (links, more) in MORE_THAN {
            let found = 1.0 - at_most(links as u64);
            assert!((found - more).abs() < 0.003 * more + 1e-5, "more than {links}: {found}, not {more}");
        }
        let mean = links.iter().sum::<u64>() as f64 / 1e6;
        assert!((4.0..7.0).contains(&mean), "{mean}");
        assert!(links[999_999] <= MOST as u64);
    }

    #[test]
    fn ranks_and_types_divide_the_links() {
        let degrees = Degrees::new(1000, 3);
        let ranked: Vec<u64> = (0..1000).map(|rank| degrees.links(degrees.node_of_rank(rank))).collect();
        assert!(ranked.is_sorted_by(|a, b| a >= b));
        for node in 0..1010 {
            let [first, second] = [0, 1].map(|link_type| degrees.links_of_type(node, link_type, 2));
            let links = degrees.links(node);
            let more = [0, 0, 1].get(links as usize).copied().unwrap_or(2 - links % 2);
            assert_eq!(first + second, links + more, "{links}");
            assert!(first == second || first == second + 1);
        }
        assert_eq!(degrees.links(1001), 0);
    }
}
