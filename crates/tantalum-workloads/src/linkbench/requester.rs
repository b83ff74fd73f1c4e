//! Requesters: the clients of LinkBench, how often they ask for each operation, and the workload they make.

use tantalum::Db;
use tantalum_rt::Random;

use super::graph::Graph;
use super::initial_graph::{self, Parameters};
use super::request::{Request, Requests};
use super::schema::{ListId, TABLE_NAMES};
use super::{link_data, node_data};
use crate::driver::{Completed, Pipeline, Recorder, Workload, client_random};
use crate::error::{self, Result};
use crate::load::{self, LoadProgress, PARAMETERS_KEY};

/// An operation, in the order of the published tables.
///
/// ```
/// use tantalum_workloads::linkbench::Kind;
///
/// let shares: f64 = Kind::ALL.iter().map(|kind| kind.percent()).sum();
/// assert!((shares - 100.0).abs() < 1e-5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The data of a node.
    GetNode,
    /// How many links of a type a node has.
    CountLink,
    /// The newest links of a node and a type.
    GetLinkList,
    /// Some links of a node and a type, by their other ends.
    MultigetLink,
    /// A new node.
    AddNode,
    /// A node goes; its links stay.
    DeleteNode,
    /// Other data for a node.
    UpdateNode,
    /// A new link, or other data for one that is there.
    AddLink,
    /// A link is hidden.
    DeleteLink,
    /// Other data for a link, or a new one.
    UpdateLink,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::GetNode,
        Self::CountLink,
        Self::GetLinkList,
        Self::MultigetLink,
        Self::AddNode,
        Self::DeleteNode,
        Self::UpdateNode,
        Self::AddLink,
        Self::DeleteLink,
        Self::UpdateLink,
    ];

    /// Their names.
    pub const NAMES: [&str; 10] = [
        "get node",
        "count link",
        "get link list",
        "multiget link",
        "add node",
        "delete node",
        "update node",
        "add link",
        "delete link",
        "update link",
    ];

    /// How many of a hundred requests are for it.
    pub fn percent(self) -> f64 {
        match self {
            Self::GetNode => 12.9326683,
            Self::CountLink => 4.8863567,
            Self::GetLinkList => 50.7119145,
            Self::MultigetLink => 0.5261142,
            Self::AddNode => 2.5732789,
            Self::DeleteNode => 1.0115914,
            Self::UpdateNode => 7.366437,
            Self::AddLink => 8.9886601,
            Self::DeleteLink => 2.9907664,
            Self::UpdateLink => 8.0122125,
        }
    }

    pub(super) fn choose(random: &mut Random) -> Self {
        let mut left = random.f64() * 100.0;
        let is_it = |kind: &Self| {
            left -= kind.percent();
            left < 0.0
        };
        Self::ALL.into_iter().find(is_it).unwrap_or(Self::GetLinkList)
    }
}

/// How often a list is asked for from where an earlier look at it ended.
const HISTORY: f64 = 0.003;

/// Ends of lists that a requester remembers.
const REMEMBERED: usize = 2048;

/// A loaded graph and how to run on it.
pub struct LinkBench {
    graph: Graph,
    requests: Requests,
    parameters: Parameters,
    async_depth: usize,
}

impl LinkBench {
    /// Uses the graph that is loaded, or loads it by `loaders` tasks. An unfinished load is dropped and made anew.
    ///
    /// # Errors
    /// A finished load of another number of nodes; parameters out of range; errors of the engine.
    pub fn load_or_reuse(
        db: &Db,
        parameters: Parameters,
        loaders: usize,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Self> {
        parameters.validate()?;
        match load::loaded(db, TABLE_NAMES[0], Parameters::decode)? {
            Some(found) if found.nodes != parameters.nodes => {
                return Err(error::parameters(found, parameters));
            }
            Some(_) => {}
            None => load::load(db, &TABLE_NAMES, &parameters.encode(), || {
                initial_graph::load(db, parameters, loaders, progress)
            })?,
        }
        Self::open(db)?.ok_or_else(|| error::missing(TABLE_NAMES[0], PARAMETERS_KEY))
    }

    /// Uses the graph that is loaded; `None` if none is, or not to its end.
    ///
    /// # Errors
    /// Of the engine, or a row that does not decode.
    pub fn open(db: &Db) -> Result<Option<Self>> {
        let Some(parameters) = load::loaded(db, TABLE_NAMES[0], Parameters::decode)? else { return Ok(None) };
        let requests = Requests::new(parameters);
        Ok(Some(Self { graph: Graph::open(db)?, requests, parameters, async_depth: 1 }))
    }

    /// With so many commits of each requester under way; 1: it waits for each.
    pub fn with_async_depth(self, async_depth: usize) -> Self {
        Self { async_depth, ..self }
    }

    /// What the database was loaded with.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    fn read(&self, requester: &mut Requester, recorder: &mut Recorder, kind: Kind) -> Result<()> {
        let Requester { random, history, .. } = requester;
        let graph = &self.graph;
        let mut run = |work: &mut dyn FnMut() -> Result<()>| {
            recorder.run(kind as usize, || work().map(|()| Completed::Committed)).map(drop)
        };
        if kind == Kind::GetLinkList {
            let again = !history.is_empty() && random.f64() < HISTORY;
            let at = again.then(|| random.usize(0..history.len()));
            let (list, until) = at.map_or_else(|| (self.requests.of(kind, random).list(), u64::MAX), |at| history[at]);
            let mut part = None;
            run(&mut || {
                part = Some(graph.get_list(&list, until)?);
                Ok(())
            })?;
            if let Some(time) = part.and_then(|part| part.more_before) {
                match at {
                    Some(at) => history[at] = (list, time),
                    None if history.len() < REMEMBERED => history.push((list, time)),
                    None => history[random.usize(0..REMEMBERED)] = (list, time),
                }
            }
            return Ok(());
        }
        let request = self.requests.of(kind, random);
        let list = request.list();
        match kind {
            Kind::GetNode => run(&mut || graph.get_node(request.id1).map(drop)),
            Kind::CountLink => run(&mut || graph.count_links(&list).map(drop)),
            _ => run(&mut || graph.get_links(&list, &request.id2s).map(drop)),
        }
    }

    fn write(&self, requester: &mut Requester, recorder: &mut Recorder, kind: Kind) -> Result<()> {
        let Requester { random, pipeline, .. } = requester;
        let (graph, number) = (&self.graph, kind as usize);
        let request = self.requests.of(kind, random);
        let Request { id1, ref id2s, .. } = request;
        match kind {
            Kind::AddNode => {
                let (id, data) = (graph.new_node_id(), node_data(random));
                pipeline.commit(number, recorder, || graph.add_node(id, &data))
            }
            Kind::UpdateNode => {
                let data = node_data(random);
                pipeline.commit(number, recorder, || graph.update_node(id1, &data))
            }
            Kind::DeleteNode => pipeline.commit(number, recorder, || graph.delete_node(id1)),
            Kind::DeleteLink => pipeline.commit(number, recorder, || graph.delete_link(&request.list(), id2s[0])),
            _ => {
                let data = link_data(random);
                pipeline.commit(number, recorder, || graph.add_link(&request.list(), id2s[0], &data))
            }
        }
    }
}

/// One client.
pub struct Requester {
    random: Random,
    pipeline: Pipeline,
    /// Lists that went on, and the time of the last link that was seen of each.
    history: Vec<(ListId, u64)>,
}

impl Workload for LinkBench {
    type Client<'a> = Requester;

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn client(&self, number: usize, seed: u64) -> Result<Requester> {
        let random = client_random(seed, number);
        Ok(Requester { random, pipeline: Pipeline::new(self.async_depth)?, history: Vec::new() })
    }

    fn step(&self, requester: &mut Requester, recorder: &mut Recorder) -> Result<()> {
        let kind = Kind::choose(&mut requester.random);
        match kind {
            Kind::GetNode | Kind::CountLink | Kind::GetLinkList | Kind::MultigetLink => {
                self.read(requester, recorder, kind)
            }
            _ => self.write(requester, recorder, kind),
        }
    }

    fn finish(&self, requester: &mut Requester, recorder: &mut Recorder) -> Result<()> {
        requester.pipeline.finish(recorder)
    }
}
