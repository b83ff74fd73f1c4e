//! What a database did between two samples of its statistics.

use serde::Serialize;
use serde_json::Value;
use tantalum_rt::Instant;

/// The statistics of a database at some time.
pub struct Sample {
    pub at: Instant,
    /// Its [`Stats`](tantalum::Stats).
    pub stats: Value,
}

/// What `tantalum top` shows at a time.
#[derive(Debug, Serialize)]
pub struct Reading {
    /// The process that has the database open.
    pub process: u64,
    /// The time of which the rates are.
    pub seconds: f64,
    /// Transactions committed, those that wrote nothing included.
    pub commits_per_second: f64,
    /// How long calls of commit took.
    pub commit_times: CommitTimes,
    /// Transactions rolled back.
    pub rollbacks_per_second: f64,
    /// Times that a lock was waited for.
    pub lock_waits_per_second: f64,
    /// Deadlocks and locks that were not granted in time.
    pub lost_locks_per_second: f64,
    /// Snapshots that are alive.
    pub snapshots: u64,
    /// The log.
    pub log: LogReading,
    /// The log's devices.
    pub devices: Vec<DeviceReading>,
    /// Pages in memory, and on their way to and from the store.
    pub pages: PageReading,
}

/// How long the calls of commit took that wrote something and ended in the last ten to twenty seconds; null if there were none.
#[derive(Debug, Serialize)]
pub struct CommitTimes {
    /// Half of them took no longer.
    pub p50_us: Option<u64>,
    /// One of a hundred took longer.
    pub p99_us: Option<u64>,
    /// One of a thousand took longer.
    pub p999_us: Option<u64>,
    /// The longest.
    pub max_us: Option<u64>,
}

/// What the log did.
#[derive(Debug, Serialize)]
pub struct LogReading {
    /// Requests written: group commits.
    pub requests_per_second: f64,
    /// Bytes of records in them.
    pub bytes_per_second: f64,
    /// The mean time of a write, over all devices; null if there was none.
    pub write_us: Option<f64>,
    /// Bytes of the log that hold records since the checkpoint.
    pub used_bytes: u64,
    /// Bytes of the log.
    pub capacity_bytes: u64,
    /// Bytes of records since the checkpoint, which recovery would read.
    pub since_checkpoint_bytes: u64,
    /// Whether late writes are given to other devices.
    pub hides: bool,
    /// Bytes of records that the archive does not have yet; null without an archive.
    pub archive_behind_bytes: Option<u64>,
}

/// What a device of the log did.
#[derive(Debug, Serialize)]
pub struct DeviceReading {
    /// Its path or name.
    pub name: String,
    /// Requests written.
    pub writes_per_second: f64,
    /// Bytes written, headers and padding included.
    pub bytes_per_second: f64,
    /// The mean time of a write; null if there was none.
    pub write_us: Option<f64>,
    /// The part of the time in which a write was under way.
    pub busy_share: f64,
    /// Its late writes: those that took more than twice the average.
    pub late_per_second: f64,
    /// Late writes of other devices that it hid: it had written the same first.
    pub hidden_per_second: f64,
    /// Why it gets no more requests; null while it works.
    pub set_aside: Option<String>,
    /// Whether it is just joining or leaving the log.
    pub is_changing: bool,
}

/// What happened to pages.
#[derive(Debug, Serialize)]
pub struct PageReading {
    /// Memory for pages.
    pub memory_bytes: u64,
    /// Pages that there is memory for.
    pub frames: u64,
    /// Of these, how many hold no page.
    pub free_frames: u64,
    /// How many the cleaner aims to keep free; 0 without a cleaner.
    pub reserve_frames: u64,
    /// Pages that differ from the stored ones.
    pub dirty: u64,
    /// The part of the pages wanted that was in memory; null if none was wanted.
    pub hit_share: Option<f64>,
    /// Pages read from the store.
    pub read_per_second: f64,
    /// Pages written to the store.
    pub written_per_second: f64,
    /// Pages dropped from memory to make room.
    pub evicted_per_second: f64,
    /// Reads that had to wait until another page was written.
    pub blocked_reads_per_second: f64,
    /// Batches of pages that could not be written since the database was opened.
    pub failed_writes: u64,
}

/// Two samples, to be compared.
struct Compared<'s> {
    before: &'s Value,
    after: &'s Value,
    seconds: f64,
}

impl Compared<'_> {
    /// A number as it is now; 0 if it is not there.
    fn now(&self, path: &str) -> u64 {
        self.after.pointer(path).and_then(Value::as_u64).unwrap_or_default()
    }

    /// By how much a counter has risen.
    fn rise(&self, path: &str) -> f64 {
        let before = self.before.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        self.now(path).saturating_sub(before) as f64
    }

    fn rate(&self, path: &str) -> f64 {
        if self.seconds > 0.0 { self.rise(path) / self.seconds } else { 0.0 }
    }
}

impl Reading {
    /// What happened between two samples.
    pub fn between(process: u64, before: &Sample, after: &Sample) -> Self {
        let seconds = (after.at - before.at).as_secs_f64();
        let all = Compared { before: &before.stats, after: &after.stats, seconds };
        let devices =
            |stats: &Value| stats.pointer("/log/devices").and_then(Value::as_array).cloned().unwrap_or_default();
        let earlier = devices(&before.stats);
        let later = devices(&after.stats);
        let compared = later.iter().map(|after| {
            // One that has just joined did everything since.
            let before =
                earlier.iter().find(|before| before["number"] == after["number"] && before["name"] == after["name"]);
            Compared { before: before.unwrap_or(&Value::Null), after, seconds }
        });
        let compared: Vec<_> = compared.collect();
        let sum = |path| compared.iter().map(|device| device.rise(path)).sum::<f64>();
        let mean = |time: f64, count: f64| (count > 0.0).then(|| time / count);
        let misses = all.rise("/pool/misses");
        let time = |path| Some(all.now(path)).filter(|us| *us > 0);
        Self {
            process,
            seconds,
            commits_per_second: all.rate("/transactions/commits"),
            commit_times: CommitTimes {
                p50_us: time("/transactions/commit_p50_us"),
                p99_us: time("/transactions/commit_p99_us"),
                p999_us: time("/transactions/commit_p999_us"),
                max_us: time("/transactions/commit_max_us"),
            },
            rollbacks_per_second: all.rate("/transactions/rollbacks"),
            lock_waits_per_second: all.rate("/transactions/lock_waits"),
            lost_locks_per_second: all.rate("/transactions/deadlocks") + all.rate("/transactions/lock_timeouts"),
            snapshots: all.now("/transactions/snapshots"),
            log: LogReading {
                requests_per_second: all.rate("/log/requests"),
                bytes_per_second: all.rate("/log/request_bytes"),
                write_us: mean(sum("/busy_us"), sum("/writes")),
                used_bytes: all.now("/log/used_bytes"),
                capacity_bytes: all.now("/log/capacity_bytes"),
                since_checkpoint_bytes: all.now("/log/end_lsn").saturating_sub(all.now("/log/checkpoint_lsn")),
                hides: after.stats.pointer("/log/hides").and_then(Value::as_bool).unwrap_or_default(),
                archive_behind_bytes: after.stats.pointer("/log/archive/behind_bytes").and_then(Value::as_u64),
            },
            devices: compared
                .iter()
                .map(|device| DeviceReading {
                    name: device.after["name"].as_str().unwrap_or_default().into(),
                    writes_per_second: device.rate("/writes"),
                    bytes_per_second: device.rate("/bytes"),
                    write_us: mean(device.rise("/busy_us"), device.rise("/writes")),
                    busy_share: (device.rate("/busy_us") / 1e6).min(1.0),
                    late_per_second: device.rate("/hiding/outliers"),
                    hidden_per_second: device.rate("/hiding/won"),
                    set_aside: device.after["set_aside"].as_str().map(str::to_owned),
                    is_changing: device.after["is_changing"].as_bool().unwrap_or_default(),
                })
                .collect(),
            pages: PageReading {
                memory_bytes: all.now("/pool/memory_bytes"),
                frames: all.now("/pool/frames"),
                free_frames: all.now("/pool/free_frames"),
                reserve_frames: all.now("/pool/reserve_frames"),
                dirty: all.now("/pool/dirty_pages"),
                hit_share: mean(all.rise("/pool/hits"), all.rise("/pool/hits") + misses),
                read_per_second: all.rate("/store/pages_loaded"),
                written_per_second: all.rate("/store/pages_stored"),
                evicted_per_second: all.rate("/pool/evictions"),
                blocked_reads_per_second: all.rate("/pool/blocked_reads"),
                failed_writes: all.now("/pool/failed_write_backs"),
            },
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// What a database did in two seconds; `before` is a multiple of what it did since it was opened.
    fn stats(times: u64) -> Value {
        let device = |name: &str, number: u64, writes: u64| {
            json!({
                "name": name, "number": number, "writes": writes * times, "bytes": 4096 * writes * times,
                "busy_us": 150 * writes * times, "hiding": { "outliers": 4 * times, "won": 6 * times },
                "set_aside": if number == 2 { json!("it does not answer") } else { Value::Null }, "is_changing": number == 1,
            })
        };
        json!({
            "transactions": { "commit_p50_us": 180, "commit_p99_us": 2300, "commit_p999_us": 0, "commit_max_us": 12_000,
                "commits": 20_000 * times, "rollbacks": 2 * times, "lock_waits": 30 * times, "deadlocks": times,
                "lock_timeouts": times, "snapshots": 3 },
            "log": { "requests": 3000 * times, "request_bytes": 6_291_456 * times, "used_bytes": 100 << 20, "capacity_bytes": 256 << 20,
                "end_lsn": 90 << 20, "checkpoint_lsn": 80 << 20, "hides": true, "archive": { "behind_bytes": 4096 },
                "devices": [device("/mnt/fast/log-0", 0, 2000), device("log-1", 1, 1000), device("log-2", 2, 0)] },
            "pool": { "misses": 10 * times, "hits": 990 * times, "evictions": 8 * times, "blocked_reads": 2 * times, "frames": 262_144,
                "free_frames": 1000, "reserve_frames": 32, "memory_bytes": 1_u64 << 30, "dirty_pages": 12_345, "failed_write_backs": 0 },
            "store": { "pages_loaded": 10 * times, "pages_stored": 500 * times },
        })
    }

    /// A reading of a busy database with three devices.
    pub fn reading() -> Reading {
        let at = tantalum_rt::now();
        let before = Sample { at, stats: stats(1) };
        Reading::between(4242, &before, &Sample { at: at + Duration::from_secs(2), stats: stats(2) })
    }

    #[test]
    fn rates_are_what_happened_between_the_samples() {
        let Reading { commits_per_second, lost_locks_per_second, log, devices, pages, .. } = reading();
        assert_eq!((commits_per_second, lost_locks_per_second), (10_000.0, 1.0));
        assert_eq!(
            (log.requests_per_second, log.write_us, log.since_checkpoint_bytes),
            (1500.0, Some(150.0), 10 << 20)
        );
        let first = &devices[0];
        assert_eq!((first.writes_per_second, first.busy_share, first.late_per_second), (1000.0, 0.15, 2.0));
        assert_eq!((first.hidden_per_second, devices[2].write_us), (3.0, None));
        assert_eq!((pages.hit_share, pages.written_per_second), (Some(0.99), 250.0));
    }

    #[test]
    fn a_device_that_has_joined_and_a_first_look_have_no_past() {
        let at = tantalum_rt::now();
        let mut before = stats(1);
        before["log"]["devices"][1]["name"] = json!("another");
        let after = Sample { at: at + Duration::from_secs(1), stats: stats(1) };
        let reading = Reading::between(1, &Sample { at, stats: before }, &after);
        assert_eq!((reading.devices[0].writes_per_second, reading.devices[1].writes_per_second), (0.0, 1000.0));
        let first = Reading::between(1, &after, &after);
        assert_eq!((first.commits_per_second, first.pages.hit_share), (0.0, None));
    }
}
