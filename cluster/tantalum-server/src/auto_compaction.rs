//! Compaction by itself, as etcd's `--auto-compaction-mode` has it. Every member counts; only the leader proposes.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often the history is given up that is too long.
const BY_REVISIONS: Duration = Duration::from_secs(300);
/// At least so often, the history is given up that is too old.
const BY_TIME: Duration = Duration::from_secs(3600);
/// Revisions are noted so many times in the time between two compactions.
const SAMPLES: u32 = 10;

/// When the history is given up without being asked to.
///
/// ```
/// use tantalum_server::{AutoCompaction, NodeOptions};
///
/// let an_hour = AutoCompaction::Periodic(std::time::Duration::from_secs(3600));
/// let options = NodeOptions { auto_compaction: an_hour, ..NodeOptions::default() };
/// assert_ne!(options.auto_compaction, NodeOptions::default().auto_compaction);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Never.
    #[default]
    Off,
    /// What is older than this, each time that it has gone by, and at least each hour. A time of 0 is never.
    Periodic(Duration),
    /// All but so many revisions, every five minutes. 0 is never.
    Revisions(i64),
}

/// What the store was at when.
#[derive(Default)]
struct Samples {
    samples: VecDeque<(Instant, i64)>,
}

impl Samples {
    /// Notes the revision of now. Returns the newest that is as old as `age`, and forgets those before it.
    fn note(&mut self, revision: i64, age: Duration) -> Option<i64> {
        let now = Instant::now();
        self.samples.push_back((now, revision));
        while self.samples.get(1).is_some_and(|(at, _)| now - *at >= age) {
            self.samples.pop_front();
        }
        self.samples.front().filter(|(at, _)| now - *at >= age).map(|(_, revision)| *revision)
    }
}

impl AutoCompaction {
    /// Has compactions proposed, for ever. `revision` is that of the store, or `None` if it cannot be read now.
    pub(crate) async fn run<R: Future<Output = Option<i64>>, C: Future<Output = ()>>(
        self,
        leads: impl Fn() -> bool,
        revision: impl Fn() -> R,
        compact: impl Fn(i64) -> C,
    ) {
        let (every, age) = match self {
            AutoCompaction::Periodic(age) if age > Duration::ZERO => (age.min(BY_TIME), age),
            AutoCompaction::Revisions(kept) if kept > 0 => (BY_REVISIONS, Duration::ZERO),
            AutoCompaction::Off | AutoCompaction::Periodic(_) | AutoCompaction::Revisions(_) => return,
        };
        let mut samples = Samples::default();
        let (mut last, mut looked) = (0, Instant::now());
        loop {
            sleep((every / SAMPLES).max(Duration::from_millis(1))).await;
            let Some(current) = revision().await else { continue };
            let target = match self {
                AutoCompaction::Revisions(kept) => Some(current - kept),
                _ => samples.note(current, age),
            };
            if looked.elapsed() < every {
                continue;
            }
            looked = Instant::now();
            if let Some(target) = target.filter(|target| *target > last && leads()) {
                compact(target).await;
                last = target;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Compactions with the second of each, of a store that makes a revision each second for two hours and then rests for one.
    async fn compactions(mode: AutoCompaction, leads_from_s: u64) -> Vec<(u64, i64)> {
        let begin = Instant::now();
        let revision = Arc::new(AtomicI64::new(1));
        let leads = Arc::new(AtomicBool::new(false));
        let done = Arc::new(Mutex::new(Vec::new()));
        let (of, to, is_leader) = (Arc::clone(&revision), Arc::clone(&done), Arc::clone(&leads));
        let run = mode.run(
            move || is_leader.load(SeqCst),
            move || std::future::ready(Some(of.load(SeqCst))),
            move |target| {
                to.lock().expect("no panic").push((begin.elapsed().as_secs(), target));
                std::future::ready(())
            },
        );
        let task = tokio::spawn(run);
        for second in 0..11_000 {
            leads.store(second >= leads_from_s, SeqCst);
            revision.fetch_add(i64::from(second < 7200), SeqCst);
            sleep(Duration::from_secs(1)).await;
        }
        task.abort();
        let done = done.lock().expect("no panic");
        done.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_time_is_given_up() {
        let done = compactions(AutoCompaction::Periodic(Duration::from_secs(1800)), 0).await;
        let seconds: Vec<_> = done.iter().map(|(second, _)| *second).collect();
        assert!(seconds.len() >= 4 && seconds.windows(2).all(|pair| pair[1] - pair[0] >= 1800), "{done:?}");
        for (second, revision) in &done {
            let behind = *second as i64 - revision;
            assert!((1790..=2000).contains(&behind) || *revision == 7201, "{done:?}");
        }
        assert_eq!(done.last().map(|(_, revision)| *revision), Some(7201));
        // Longer than the longest pause: each hour.
        let done = compactions(AutoCompaction::Periodic(Duration::from_secs(5400)), 0).await;
        assert!(done.iter().all(|(second, revision)| *second as i64 - revision >= 5390), "{done:?}");
        assert_eq!(done.len(), 2, "{done:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_but_the_last_revisions_are_given_up_by_the_leader() {
        let done = compactions(AutoCompaction::Revisions(1000), 3000).await;
        assert!(done[0].0 >= 3000 && done.windows(2).all(|pair| pair[0].1 < pair[1].1), "{done:?}");
        assert!(done.iter().all(|(second, revision)| (*second as i64).min(7200) - revision <= 1001), "{done:?}");
        assert_eq!(done.last().map(|(_, revision)| *revision), Some(6201));
        assert_eq!(compactions(AutoCompaction::Off, 0).await, []);
        assert_eq!(compactions(AutoCompaction::Revisions(0), 0).await, []);
    }
}
