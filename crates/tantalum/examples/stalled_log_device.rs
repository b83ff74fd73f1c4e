//! A log on two devices, one of which stands still now and then: commits go to the other one, and hardly any waits.
//!
//! `cargo run --release -p tantalum --example stalled_log_device -- /path/to/new.db`

use std::{
    env,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tantalum::{Builder, Db, Device, DeviceUse, Result, StallingDevice};

/// The stalling device stands still for so long,
const STALL: Duration = Duration::from_millis(40);
/// at the end of each such time.
const PERIOD: Duration = Duration::from_millis(80);
const COMMITS: u64 = 400;

fn main() -> Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-stalled").into());
    run(path.as_ref())
}

fn run(path: &Path) -> Result<()> {
    let one = commit_on(path, "one device, which stalls", &["log-0"])?;
    let two = commit_on(path, "two devices, one of which stalls", &["log-0", "log-1"])?;
    println!("the slowest commit: {one:?} with one device, {two:?} with two");
    Ok(())
}

/// Commits one row after the other. Returns how long the slowest took.
fn commit_on(path: &Path, what: &str, log: &[&str]) -> Result<Duration> {
    let db = stalling(Db::builder().log_devices(log)).open(path.join(format!("{}-devices", log.len())))?;
    let counter = db.table("counter")?;
    let before = db.increment(&counter, "commits", 0)?;
    let mut slowest = Duration::ZERO;
    for _ in 0..COMMITS {
        let begin = Instant::now();
        db.increment(&counter, "commits", 1)?;
        slowest = slowest.max(begin.elapsed());
    }
    let log = db.stats()?.log;
    println!("{what}: {} writes given to another device, {} of them won", log.hiding.reissued, log.hiding.won);
    for device in &log.devices {
        println!("  {}: {} writes", device.name, device.writes);
    }
    assert_eq!(db.increment(&counter, "commits", 0)? - before, COMMITS as i64, "none is lost");
    db.close()?;
    Ok(slowest)
}

/// Lets the first device of the log stall.
fn stalling(builder: Builder) -> Builder {
    builder.expert(|expert| {
        expert.wrap_devices(|used_for, device: Arc<dyn Device>| match used_for {
            DeviceUse::Log if device.name().contains("log-0") => Arc::new(StallingDevice::new(device, STALL, PERIOD)),
            _ => device,
        })
    })
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path()).unwrap();
}
