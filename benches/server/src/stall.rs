//! Log disks that stall: ext4 file systems on loop devices, one for each log, of which the leader's first is frozen (`fsfreeze`) for a
//! part of each second. Nothing is written to a frozen file system, and what is under way waits, as with a drive that cleans up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::sync::watch;

use crate::arguments::{Arguments, Contender, Workload};
use crate::error::{Error, Result};
use crate::load;
use crate::results::{Figure, Outcome};
use crate::servers::{Cluster, Place};

const DISK_BYTES: u64 = 1 << 30;

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let failed = |what: String| Error::Other(format!("{program} {}: {what}", arguments.join(" ")));
    let output = Command::new(program).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// A file system on a loop device; given back when it is dropped.
struct Disk {
    mounted_at: PathBuf,
    device: String,
}

impl Disk {
    fn new(image: &Path, mounted_at: PathBuf) -> Result<Disk> {
        let file = fs::File::create(image).map_err(Error::file("create", image))?;
        file.set_len(DISK_BYTES).map_err(Error::file("extend", image))?;
        fs::create_dir(&mounted_at).map_err(Error::file("create", &mounted_at))?;
        let device = run("losetup", &["--find", "--show", &image.display().to_string()])?;
        let disk = Disk { mounted_at, device };
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &disk.device])?;
        run("mount", &[&disk.device, &disk.mounted_at.display().to_string()])?;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is not there any more needs no giving back.
        let _ = run("umount", &[&self.mounted_at.display().to_string()]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

/// A file system that is frozen until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(mounted_at: PathBuf) -> Result<Frozen> {
        run("fsfreeze", &["--freeze", &mounted_at.display().to_string()])?;
        Ok(Frozen(mounted_at))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = run("fsfreeze", &["--unfreeze", &self.0.display().to_string()]) {
            eprintln!("error: {error}");
        }
    }
}

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
            let disk = Disk::new(&directory.join(format!("{name}.image")), directory.join(name))?;
            place.logs.push(disk.mounted_at.clone());
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
        let frozen = frozen.map_err(|error| Error::Other(error.to_string()))??;
        tokio::time::sleep(stall).await;
        let thawed = tokio::task::spawn_blocking(move || drop(frozen)).await;
        thawed.map_err(|error| Error::Other(error.to_string()))?;
        stalls += 1;
    }
}
