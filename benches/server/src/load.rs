//! Clients that each do the same again and again, and wait for each answer.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::arguments::{Arguments, Workload};
use crate::clients::Client;
use crate::error::{Error, Result};
use crate::results::{Figure, Outcome};
use crate::servers::Cluster;

/// Keys that are put together before the measurement, and transactions under way then.
const FILL: (u64, usize) = (100, 8);
/// After a failure, a client waits so long.
const PAUSE: Duration = Duration::from_millis(10);

/// A key of 16 bytes.
pub fn key(number: u64) -> Vec<u8> {
    format!("key-{number:012}").into_bytes()
}

/// A value of so many random bytes.
pub fn value(bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    fastrand::fill(&mut value);
    value
}

/// Connections to the nodes that run, in turn.
///
/// # Errors
/// None that is to be expected.
pub fn connect(cluster: &Cluster, connections: usize) -> Result<Vec<Client>> {
    let nodes = cluster.nodes.iter().filter(|node| node.process().is_some());
    nodes.cycle().take(connections).map(|node| Client::connect(&node.url)).collect()
}

/// Sets the keys from 0 up to `keys`.
///
/// # Errors
/// What the server says.
pub async fn fill(cluster: &Cluster, keys: u64, value_bytes: usize) -> Result<()> {
    let (together, parallel) = FILL;
    let mut tasks = JoinSet::new();
    for (worker, client) in connect(cluster, parallel)?.into_iter().enumerate() {
        tasks.spawn(async move {
            for first in (worker as u64 * together..keys).step_by(parallel * together as usize) {
                let rows = (first..keys.min(first + together)).map(|number| (key(number), value(value_bytes)));
                client.put_all(rows).await?;
            }
            Ok::<_, String>(())
        });
    }
    all_done(tasks, "putting the first keys").await.map(drop)
}

/// Waits for tasks that talk to a server.
///
/// # Errors
/// The first that one of them had.
pub async fn all_done<T: 'static>(mut tasks: JoinSet<Result<T, String>>, doing: &'static str) -> Result<Vec<T>> {
    let mut done = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let failed = |cause| Error::Server { server: "a client".to_owned(), doing, cause };
        done.push(task.map_err(|error| failed(error.to_string()))?.map_err(failed)?);
    }
    Ok(done)
}

/// What a client saw.
struct Seen {
    latency_us: Histogram<u64>,
    failures: u64,
    failure: Option<String>,
}

async fn operate(client: &Client, workload: Workload, keys: u64, value_bytes: usize) -> Result<(), String> {
    let number = fastrand::u64(..keys);
    let puts = match workload {
        Workload::Mixed => fastrand::u8(..4) == 0,
        Workload::Get | Workload::GetSerializable => false,
        _ => true,
    };
    if puts {
        client.put(key(number), value(value_bytes)).await
    } else {
        client.get(key(number), workload == Workload::GetSerializable).await
    }
}

/// Does operations until a time, and notes those that end after another.
async fn work(
    client: Client,
    workload: Workload,
    (keys, value_bytes): (u64, usize),
    (begin, end): (Instant, Instant),
) -> Result<Seen, String> {
    let latency_us = Histogram::new(3).map_err(|error| error.to_string())?;
    let mut seen = Seen { latency_us, failures: 0, failure: None };
    loop {
        let started = Instant::now();
        if started >= end {
            return Ok(seen);
        }
        let done = operate(&client, workload, keys, value_bytes).await;
        let now = Instant::now();
        if let Err(failure) = done {
            seen.failures += 1;
            seen.failure.get_or_insert(failure);
            tokio::time::sleep(PAUSE).await;
        } else if now >= begin && now < end {
            let latency = u64::try_from((now - started).as_micros()).unwrap_or(u64::MAX);
            seen.latency_us.record(latency).map_err(|error| error.to_string())?;
        }
    }
}

/// Runs a workload with so many clients.
///
/// # Errors
/// If a server is gone, or none of the operations succeeds.
pub async fn run(cluster: &Cluster, workload: Workload, clients: usize, arguments: &Arguments) -> Result<Outcome> {
    let Arguments { connections, keys, value_bytes, seconds, .. } = *arguments;
    let connections = connect(cluster, connections.min(clients))?;
    let begin = Instant::now() + Duration::from_secs_f64(seconds / 5.0);
    let end = begin + Duration::from_secs_f64(seconds);
    let mut tasks = JoinSet::new();
    for client in connections.iter().cycle().take(clients) {
        tasks.spawn(work(client.clone(), workload, (keys, value_bytes), (begin, end)));
    }
    tokio::time::sleep_until(begin.into()).await;
    let before = cluster.used()?;
    tokio::time::sleep_until(end.into()).await;
    let used = cluster.used()?.since(&before);
    let mut all = Histogram::<u64>::new(3).map_err(|error| Error::Other(error.to_string()))?;
    let (mut failures, mut failure) = (0, None);
    for seen in all_done(tasks, "the measurement").await? {
        all.add(seen.latency_us).map_err(|error| Error::Other(error.to_string()))?;
        failures += seen.failures;
        failure = failure.or(seen.failure);
    }
    if let Some(failure) = failure {
        eprintln!("{} with {clients} clients: {failures} failed, one with: {failure}", workload.name());
    }
    let operations = all.len() as f64;
    if operations == 0.0 {
        return Err(Error::Other(format!("{}: no operation succeeded", workload.name())));
    }
    let latency = |quantile| all.value_at_quantile(quantile) as f64;
    Ok(vec![
        (Figure::PerSecond, operations / seconds),
        (Figure::P50Us, latency(0.5)),
        (Figure::P99Us, latency(0.99)),
        (Figure::P999Us, latency(0.999)),
        (Figure::CpuUs, used.cpu_seconds * 1e6 / operations),
        (Figure::WrittenBytes, used.written_bytes as f64 / operations),
        (Figure::Failures, failures as f64),
    ])
}
