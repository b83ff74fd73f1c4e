//! How large the graph is. The parameters are kept in the database, so that a later run knows what it finds.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::row::row;

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
