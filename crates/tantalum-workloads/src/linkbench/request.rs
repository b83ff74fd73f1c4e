//! What requesters ask for, and how often: chosen without a database, so that models of other servers get the same requests.

use tantalum_rt::Random;

use super::access::{Access, LINK_TYPES};
use super::initial_graph::Parameters;
use super::requester::Kind;
use super::schema::ListId;
use crate::choice::geometric;

/// How likely it is that a link was loaded which is asked for, added, updated or deleted (`ID2Chooser.java`).
const GET_EXISTS: f64 = 0.5;
const ADD_EXISTS: f64 = 0.05;
const UPDATE_EXISTS: f64 = 0.9;
const DELETE_EXISTS: f64 = 0.9;

/// Links of a multiget: 1 / 0.382 in the mean.
const MULTIGET: f64 = 0.382;
const MULTIGET_MOST: usize = 128;

/// One request.
///
/// ```
/// use tantalum_rt::Random;
/// use tantalum_workloads::linkbench::{Kind, Parameters, Requests};
///
/// let requests = Requests::new(Parameters { nodes: 1000, seed: 1 });
/// let mut random = Random::with_seed(1);
/// let request = requests.of(Kind::DeleteLink, &mut random);
/// assert!((1..=1000).contains(&request.id1) && request.id2s.len() == 1);
/// assert!(requests.next(&mut random).id1 <= 1000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is done.
    pub kind: Kind,
    /// The node, or that from which the links go; 0 for a node that is to be added.
    pub id1: u64,
    /// The type of the links, from 0.
    pub link_type: u32,
    /// The other ends of the links, where single ones are asked for; they begin at `id1`, and those that were
    /// loaded come first.
    pub id2s: Vec<u64>,
}

impl Request {
    /// The list that it is for.
    pub(super) fn list(&self) -> ListId {
        ListId { id1: self.id1, link_type: self.link_type }
    }
}

/// All that requesters may ask for, of a graph of some size. Cheap to make; requests are chosen by the caller's random numbers.
///
/// See [`Request`] for an example.
pub struct Requests(Access);

impl Requests {
    /// Of the graph that is loaded with these parameters.
    pub fn new(parameters: Parameters) -> Self {
        Self(Access::new(parameters.nodes, parameters.seed))
    }

    /// The next one of a requester.
    pub fn next(&self, random: &mut Random) -> Request {
        self.of(Kind::choose(random), random)
    }

    /// One of this kind.
    pub fn of(&self, kind: Kind, random: &mut Random) -> Request {
        let node = |id1| Request { kind, id1, link_type: 0, id2s: Vec::new() };
        let list = |ListId { id1, link_type }, id2s| Request { kind, id1, link_type, id2s };
        let link = |exists, random: &mut Random| {
            let of = self.0.list_to_write(random);
            list(of, vec![self.0.id2(&of, exists, random)])
        };
        match kind {
            Kind::GetNode => node(self.0.node_to_read(random)),
            Kind::UpdateNode => node(self.0.node_to_update(random)),
            Kind::DeleteNode => node(self.0.node_to_delete(random)),
            Kind::AddNode => node(0),
            Kind::CountLink | Kind::GetLinkList => list(self.0.list_to_read(random), Vec::new()),
            Kind::MultigetLink => {
                let of = self.0.list_to_read(random);
                let count = geometric(random, MULTIGET, MULTIGET_MOST);
                list(of, self.0.different_id2s(&of, GET_EXISTS, count, random))
            }
            Kind::AddLink => link(ADD_EXISTS, random),
            Kind::UpdateLink => link(UPDATE_EXISTS, random),
            Kind::DeleteLink => link(DELETE_EXISTS, random),
        }
    }

    /// How many links of a type a node was loaded with.
    pub fn loaded_links(&self, id1: u64, link_type: u32) -> u64 {
        self.0.degrees.links_of_type(id1, link_type, LINK_TYPES)
    }

    /// Types of links.
    pub const LINK_TYPES: u32 = LINK_TYPES;
}
