//! What is done once: keeping many leases alive, filling a store, catching up.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::arguments::Arguments;
use crate::clients::Client;
use crate::error::{Error, Result};
use crate::load::{all_done, connect, fill, key, value};
use crate::meter::resident_bytes;
use crate::results::{Figure, Outcome};
use crate::servers::Cluster;

/// Streams of keep-alives, and clients that make leases or puts.
const PARALLEL: usize = 64;
const LEASE_S: i64 = 30;
/// A follower that has not caught up after this never will.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);

/// Keeps each lease alive once, and looks at what that writes.
///
/// # Errors
/// What the server says.
pub async fn keep_alive(cluster: &Cluster, arguments: &Arguments) -> Result<Outcome> {
    let clients = connect(cluster, PARALLEL)?;
    let mut grants = JoinSet::new();
    for (worker, client) in clients.iter().cloned().enumerate() {
        let count = (worker..arguments.leases).step_by(PARALLEL).count();
        grants.spawn(async move {
            let mut leases = Vec::new();
            for _ in 0..count {
                leases.push(client.grant(LEASE_S).await?);
            }
            Ok((client, leases))
        });
    }
    let granted = all_done(grants, "granting leases").await?;
    // What granting leaves to be written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, started) = (cluster.used()?, Instant::now());
    let mut tasks = JoinSet::new();
    for (client, leases) in granted {
        tasks.spawn(async move { client.keep_alive(leases).await });
    }
    all_done(tasks, "keeping leases alive").await?;
    let (seconds, used) = (started.elapsed().as_secs_f64(), cluster.used()?.since(&before));
    let leases = arguments.leases as f64;
    Ok(vec![
        (Figure::PerSecond, leases / seconds),
        (Figure::CpuUs, used.cpu_seconds * 1e6 / leases),
        (Figure::WrittenBytes, used.written_bytes as f64 / leases),
    ])
}

/// Fills a store, and looks at what its first node has in memory then.
///
/// # Errors
/// What the server says.
pub async fn memory(cluster: &Cluster, arguments: &Arguments) -> Result<Outcome> {
    let started = Instant::now();
    fill(cluster, arguments.memory_keys, arguments.value_bytes).await?;
    let seconds = started.elapsed().as_secs_f64();
    let process = cluster.nodes.first().and_then(|node| node.process());
    let resident = resident_bytes(process.ok_or_else(|| Error::Other("the first node does not run".to_owned()))?)?;
    Ok(vec![(Figure::Seconds, seconds), (Figure::ResidentBytes, resident as f64)])
}

/// Stops a follower, puts, starts it again, and waits until it has all.
///
/// # Errors
/// What the server says.
pub async fn catch_up(cluster: &mut Cluster, arguments: &Arguments) -> Result<Outcome> {
    let (leader, _) = cluster.leader().await?;
    let follower = (leader + 1) % cluster.nodes.len();
    cluster.nodes[follower].stop()?;
    let mut puts = JoinSet::new();
    for (worker, client) in connect(cluster, PARALLEL)?.into_iter().enumerate() {
        let Arguments { missed, keys, value_bytes, .. } = *arguments;
        puts.spawn(async move {
            for number in (worker as u64..missed).step_by(PARALLEL) {
                client.put(key(number % keys), value(value_bytes)).await?;
            }
            Ok(())
        });
    }
    all_done(puts, "puts that the follower misses").await?;
    let leads = Client::connect(&cluster.nodes[leader].url)?;
    let said = |cause| Error::Server { server: format!("n{leader}"), doing: "its revision", cause };
    let revision = leads.revision().await.map_err(said)?;
    let started = Instant::now();
    cluster.nodes[follower].start_again()?;
    let client = Client::connect(&cluster.nodes[follower].url)?;
    while client.revision().await.is_ok_and(|has| has < revision) || client.revision().await.is_err() {
        if started.elapsed() > PATIENCE {
            return Err(cluster.nodes[follower].failed("catching up", "it does not have all"));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(vec![(Figure::Seconds, started.elapsed().as_secs_f64())])
}
