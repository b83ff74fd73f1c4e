//! The initial graph: how large it is; nodes, then their links with lists and counts, in units of many nodes.
//!
//! The parameters are kept in the database, so that a later run knows what it finds.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use tantalum::Db;
use tantalum_rt::Random;

use super::access::{Access, LINK_TYPES};
use super::graph::node;
use super::schema::{Count, Link, ListId, Listed, TABLE_NAMES, Tables};
use super::{link_data, node_data};
use crate::error::{Error, Result};
use crate::load::{self, Batch, LoadProgress, Units};
use crate::row::{row, timestamp};

/// What a database is loaded with.
///
/// ```
/// use tantalum_workloads::linkbench::Parameters;
///
/// assert!(Parameters { nodes: 1000, seed: 1 }.validate().is_ok());
/// assert!(Parameters { nodes: 0, seed: 1 }.validate().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// Nodes, numbered from 1; each takes about 1 KB with its links.
    pub nodes: u64,
    /// Seeds the load, which is the same for the same seed whatever the number of loaders.
    pub seed: u64,
}

impl Parameters {
    /// Refuses what the load cannot make.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn validate(&self) -> Result<()> {
        const MOST: u64 = 1 << 40;
        if (1..=MOST).contains(&self.nodes) {
            return Ok(());
        }
        Err(Error::OutOfRange { name: "nodes", value: self.nodes.to_string(), expected: "1 to 2^40" })
    }
}

impl Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.nodes, if self.nodes == 1 { "" } else { "s" })
    }
}

row!(
    /// The one row of the table of parameters; `is_loaded` is set when the load is complete.
    Loaded of "linkbench_parameters" {
        format: u16,
        is_loaded: u8,
        nodes: u64,
        seed: u64,
    }
);

/// Of the row encoding; raised when it changes.
const FORMAT: u16 = 1;

impl Loaded {
    pub(super) const KEY: &'static [u8] = b"parameters";

    pub(super) fn new(parameters: &Parameters, is_loaded: bool) -> Self {
        let Parameters { nodes, seed } = *parameters;
        Self { format: FORMAT, is_loaded: is_loaded.into(), nodes, seed }
    }

    pub(super) fn parameters(&self) -> Parameters {
        Parameters { nodes: self.nodes, seed: self.seed }
    }

    /// Whether this is a complete load in today's format.
    pub(super) fn is_usable(&self) -> bool {
        self.format == FORMAT && self.is_loaded == 1
    }
}

const NODES_PER_UNIT: u64 = 500;

/// Links of a mean node: what `degree` gives.
const MEAN_LINKS: u64 = 5;

enum Unit {
    Nodes(RangeInclusive<u64>),
    Links(RangeInclusive<u64>),
}

/// The parameters of a finished load.
pub(super) fn loaded(db: &Db) -> Result<Option<Parameters>> {
    let [parameters, ..] = TABLE_NAMES;
    let row = load::mark(db, parameters, Loaded::KEY)?;
    let loaded = row.map(|row| Loaded::decode(&row)).transpose()?;
    Ok(loaded.filter(Loaded::is_usable).map(|loaded| loaded.parameters()))
}

/// Loads, after dropping what an unfinished load left behind.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    load::drop_tables(db, &TABLE_NAMES)?;
    let tables = Tables::open(db)?;
    let mark =
        |is_loaded| load::put_mark(db, &tables.parameters, Loaded::KEY, &Loaded::new(&parameters, is_loaded).encode());
    mark(false)?;
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
    let maker = Arc::new((tables.clone(), Access::new(parameters.nodes, parameters.seed)));
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
    units.make(db, loaders, make, progress)?;
    mark(true)
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
