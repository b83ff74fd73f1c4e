//! The initial graph: how large it is; nodes, then their links with lists and counts, in units of many nodes.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use tantalum::Db;
use tantalum_rt::Random;

use super::access::{Access, LINK_TYPES};
use super::graph::node;
use super::schema::{Count, Link, ListId, Listed, Tables};
use super::{link_data, node_data};
use crate::error::{self, Result};
use crate::load::{Batch, LoadProgress, Units};
use crate::row::{row, timestamp};

row!(
    /// What a database is loaded with.
    ///
    /// ```
    /// use tantalum_workloads::linkbench::Parameters;
    ///
    /// assert!(Parameters { nodes: 1000, seed: 1 }.validate().is_ok());
    /// assert!(Parameters { nodes: 0, seed: 1 }.validate().is_err());
    /// ```
    #[derive(Copy, Serialize)]
    pub struct Parameters of "linkbench_parameters" {
        /// Nodes, numbered from 1; each takes about 1 KB with its links.
        nodes: u64,
        /// Seeds the load, which is the same for the same seed whatever the number of loaders.
        seed: u64,
    }
);

impl Parameters {
    /// Refuses what the load cannot make.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput).
    pub fn validate(&self) -> Result<()> {
        const MOST: u64 = 1 << 40;
        if (1..=MOST).contains(&self.nodes) {
            return Ok(());
        }
        Err(error::out_of_range("nodes", self.nodes, "1 to 2^40"))
    }
}

impl Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.nodes, if self.nodes == 1 { "" } else { "s" })
    }
}

const NODES_PER_UNIT: u64 = 500;

/// Links of a mean node: what `degree` gives.
const MEAN_LINKS: u64 = 5;

enum Unit {
    Nodes(RangeInclusive<u64>),
    Links(RangeInclusive<u64>),
}

/// Fills the tables.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    let tables = Tables::open(db)?;
    let pieces = || {
        let first_ones = (1..=parameters.nodes).step_by(NODES_PER_UNIT as usize);
        first_ones.map(|first| first..=parameters.nodes.min(first + NODES_PER_UNIT - 1))
    };
    let units = Units {
        units: pieces().map(Unit::Nodes).chain(pieces().map(Unit::Links)).collect(),
        // A link has its row and its place in the list; about as many counts as nodes.
        total_rows: parameters.nodes * (2 + 2 * MEAN_LINKS),
        seed: parameters.seed,
    };
    let maker = Arc::new((tables, Access::new(parameters.nodes, parameters.seed)));
    let make = move |unit: &Unit, batch: &mut Batch<'_>, random: &mut Random| {
        let (tables, access) = &*maker;
        match unit {
            Unit::Nodes(nodes) => nodes.clone().try_for_each(|id| {
                let data = node_data(random);
                batch.put(&tables.node, &id.to_be_bytes(), &node(&data, 0))
            }),
            Unit::Links(nodes) => nodes.clone().try_for_each(|id1| {
                (0..LINK_TYPES)
                    .try_for_each(|link_type| make_list(tables, access, batch, random, ListId { id1, link_type }))
            }),
        }
    };
    units.make(db, loaders, make, progress)
}

fn make_list(tables: &Tables, access: &Access, batch: &mut Batch<'_>, random: &mut Random, list: ListId) -> Result<()> {
    let count = access.degrees.links_of_type(list.id1, list.link_type, LINK_TYPES);
    if count == 0 {
        return Ok(());
    }
    // Nodes that follow each other are linked, so that a request can guess at links that exist. They were made one after
    // the other, now.
    let now = timestamp();
    let links: Vec<(u64, u64, Vec<u8>)> =
        (0..count).map(|n| (list.id1 + n, now - (count - n), link_data(random))).collect();
    for (id2, time, data) in &links {
        let link = Link { is_visible: 1, time: *time, version: 0, data };
        batch.put(&tables.link, &list.link(*id2), &link.encode())?;
    }
    for (id2, time, data) in links.iter().rev() {
        batch.put(&tables.link_list, &list.listed(*time, *id2), &Listed { version: 0, data }.encode())?;
    }
    batch.put(&tables.link_count, &list.key(), &Count { count, time: now, version: 0 }.encode())
}
