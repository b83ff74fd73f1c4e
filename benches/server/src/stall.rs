//! Log disks that stall: one for each log, of which the leader's first is frozen for a part of each second.

use std::path::Path;
use std::time::Duration;

use tantalum_loop_disk::{Frozen, LoopDisk};
use tokio::sync::watch;

use crate::arguments::{Arguments, Contender, Workload};
use crate::error::{Error, Result};
use crate::load;
use crate::results::{Figure, Outcome};
use crate::servers::{Cluster, Place};

const DISK_BYTES: u64 = 1 << 30;

/// Puts while the log disk of the node that leads stalls for a part of each second.
///
/// # Errors
/// If there are no loop devices, or what a server says.
pub async fn stall(contender: Contender, clients: usize, arguments: &Arguments, directory: &Path) -> Result<Outcome> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Other("stall makes file systems that it freezes: run it as root".to_owned()));
    }
    let logs = if contender == Contender::TwoLogs { 2 } else { 1 };
    let mut disks = Vec::new();
    let mut places = Vec::new();
    for node in 0..3 {
        let mut place = Place { data: directory.join(format!("n{node}")), logs: Vec::new() };
        for log in 0..logs {
            let name = format!("n{node}-log{log}");
            let disk = LoopDisk::new(&directory.join(format!("{name}.image")), directory.join(name), DISK_BYTES);
            let disk = disk.map_err(other)?;
            place.logs.push(disk.path().to_owned());
            disks.push(disk);
        }
        places.push(place);
    }
    // Before the disks: nothing is given back that a node still uses.
    let measured = {
        let cluster = Cluster::start(contender, arguments, &places).await?;
        load::fill(&cluster, arguments.keys, arguments.value_bytes).await?;
        let (_, term) = cluster.leader().await?;
        let (stop, stopped) = watch::channel(false);
        let stalls = async { stall_leader(&cluster, &places, arguments.stall_ms, stopped).await };
        let puts = async {
            let done = load::run(&cluster, Workload::Put, clients, arguments).await;
            stop.send_replace(true);
            done
        };
        let (stalls, puts) = tokio::join!(stalls, puts);
        let mut outcome = puts?;
        let (_, later) = cluster.leader().await?;
        outcome.push((Figure::Elections, later.saturating_sub(term) as f64));
        outcome.push((Figure::Stalls, f64::from(stalls?)));
        outcome
    };
    drop(disks);
    Ok(measured)
}

/// Freezes the log disk of the node that leads again and again. Returns how often.
async fn stall_leader(
    cluster: &Cluster,
    places: &[Place],
    stall_ms: u64,
    mut stopped: watch::Receiver<bool>,
) -> Result<u32> {
    let stall = Duration::from_millis(stall_ms);
    let mut stalls = 0;
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(stalls),
            () = tokio::time::sleep(Duration::from_secs(1).saturating_sub(stall)) => {}
        }
        let (leader, _) = cluster.leader().await?;
        let mounted_at = places[leader].logs[0].clone();
        let frozen = tokio::task::spawn_blocking(move || Frozen::new(mounted_at)).await;
        let frozen = frozen.map_err(other)?.map_err(other)?;
        tokio::time::sleep(stall).await;
        let thawed = tokio::task::spawn_blocking(move || drop(frozen)).await;
        thawed.map_err(other)?;
        stalls += 1;
    }
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::Other(error.to_string())
}
