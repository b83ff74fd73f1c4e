//! The servers in alternating rounds.

use std::fs;
use std::path::Path;

use crate::arguments::{Arguments, Contender, Workload};
use crate::error::{Error, Result};
use crate::results::Outcome;
use crate::servers::{Cluster, Place, program};
use crate::{load, once, stall};

/// A workload on so many nodes, and what was measured in each round.
pub struct Case {
    pub workload: Workload,
    pub nodes: usize,
    /// Those that do the same again and again; of other workloads there are none.
    pub clients: Option<usize>,
    pub rounds: Vec<(Contender, Vec<Outcome>)>,
    pub errors: Vec<String>,
}

/// Cases that share a cluster in each round.
struct Group {
    nodes: usize,
    cases: Vec<Case>,
}

/// The cases, those of loads together.
fn groups(arguments: &Arguments) -> Vec<Group> {
    let case = |workload, nodes, clients| {
        let rounds = arguments.server.iter().map(|contender| (*contender, Vec::new())).collect();
        Case { workload, nodes, clients, rounds, errors: Vec::new() }
    };
    let mut groups = Vec::new();
    for &nodes in &arguments.nodes {
        let loads = arguments.workload.iter().copied().filter(|workload| workload.is_load());
        let of = |workload| arguments.clients.iter().map(move |clients| case(workload, nodes, Some(*clients)));
        let cases: Vec<_> = loads.flat_map(of).collect();
        if !cases.is_empty() {
            groups.push(Group { nodes, cases });
        }
        for &workload in &arguments.workload {
            if matches!(workload, Workload::KeepAlive | Workload::Memory) {
                groups.push(Group { nodes, cases: vec![case(workload, nodes, None)] });
            }
        }
    }
    if arguments.workload.contains(&Workload::CatchUp) {
        groups.push(Group { nodes: 3, cases: vec![case(Workload::CatchUp, 3, None)] });
    }
    if arguments.workload.contains(&Workload::Stall) {
        for &clients in &arguments.clients {
            groups.push(Group { nodes: 3, cases: vec![case(Workload::Stall, 3, Some(clients))] });
        }
    }
    groups
}

/// Runs all that the arguments say.
///
/// # Errors
/// If a program is not there. What fails later is noted with the case.
pub fn run(arguments: &Arguments) -> Result<Vec<Case>> {
    for &contender in &arguments.server {
        program(contender, arguments)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::Other(format!("cannot start threads: {error}")))?;
    let mut groups = groups(arguments);
    for group in &mut groups {
        for round in 0..arguments.rounds {
            for turn in 0..arguments.server.len() {
                // Each is the first one in turn.
                let index = (round + turn) % arguments.server.len();
                runtime.block_on(run_group(group, index, round, arguments));
            }
        }
    }
    Ok(groups.into_iter().flat_map(|group| group.cases).collect())
}

/// Runs the cases of a group with one server, on a new cluster.
async fn run_group(group: &mut Group, index: usize, round: usize, arguments: &Arguments) {
    let contender = arguments.server[index];
    let directory = match tempfile::Builder::new().prefix("server-").tempdir_in(&arguments.dir) {
        Ok(directory) => directory,
        Err(error) => {
            let error = Error::file("make a directory in", &arguments.dir)(error);
            group.cases.iter_mut().for_each(|case| case.errors.push(error.to_string()));
            return;
        }
    };
    let (nodes, cases) = (group.nodes, &mut group.cases);
    let mut cluster = None;
    for case in cases {
        eprintln!(
            "round {}: {}, {} nodes, {}{}",
            round + 1,
            case.workload.name(),
            nodes,
            contender.name(),
            case.clients.map_or_else(String::new, |clients| format!(", {clients} clients"))
        );
        match run_case(case, contender, nodes, arguments, directory.path(), &mut cluster).await {
            Ok(outcome) => case.rounds[index].1.push(outcome),
            Err(error) => case.errors.push(format!("round {}, {}: {error}", round + 1, contender.name())),
        }
    }
}

async fn run_case(
    case: &Case,
    contender: Contender,
    nodes: usize,
    arguments: &Arguments,
    directory: &Path,
    cluster: &mut Option<Cluster>,
) -> Result<Outcome> {
    if case.workload == Workload::Stall {
        return stall::stall(contender, case.clients.unwrap_or(1), arguments, directory).await;
    }
    let running = match cluster {
        Some(running) => running,
        None => {
            let started = Cluster::start(contender, arguments, &places(contender, nodes, directory)?).await?;
            if case.workload.is_load() {
                load::fill(&started, arguments.keys, arguments.value_bytes).await?;
            }
            cluster.insert(started)
        }
    };
    // What was written before is no part of what is measured.
    rustix::fs::sync();
    match (case.workload, case.clients) {
        (Workload::KeepAlive, _) => once::keep_alive(running, arguments).await,
        (Workload::Memory, _) => once::memory(running, arguments).await,
        (Workload::CatchUp, _) => once::catch_up(running, arguments).await,
        (load, clients) => load::run(running, load, clients.unwrap_or(1), arguments).await,
    }
}

fn places(contender: Contender, nodes: usize, directory: &Path) -> Result<Vec<Place>> {
    let place = |node| {
        let mut place = Place { data: directory.join(format!("n{node}")), logs: Vec::new() };
        if contender == Contender::TwoLogs {
            for log in 0..2 {
                let log = directory.join(format!("n{node}-log{log}"));
                fs::create_dir(&log).map_err(Error::file("create", &log))?;
                place.logs.push(log);
            }
        }
        Ok(place)
    };
    (0..nodes).map(place).collect()
}
