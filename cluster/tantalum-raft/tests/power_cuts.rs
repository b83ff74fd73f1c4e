//! Power cuts at any moment: after each, every group is as its changes up to the log's end left it, and nothing that was durable is
//! missing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::LogOptions;
use tantalum_raft::{Bounds, Entry, Error, ErrorKind, Group, Lsn, RaftLog, RaftLogOptions};
use tantalum_rt::{Outcome, Random, Simulation, power_cut, sleep, spawn};

const GROUPS: u64 = 4;

/// A group as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    exists: bool,
    first: u64,
    entries: Vec<Entry>,
    purged: Option<(u64, u64)>,
    vote: Option<Box<[u8]>>,
    committed: Option<Box<[u8]>>,
}

/// A change of a group.
#[derive(Clone, Debug)]
enum Change {
    Vote(Vec<u8>),
    Committed(Option<Vec<u8>>),
    Truncate(Option<u64>),
    Purge(u64),
    Append(Vec<Entry>),
    Remove,
}

/// What is known of a group.
#[derive(Default)]
struct Known {
    /// The states that its changes led to, by the ends of their records.
    states: Vec<(Lsn, Model)>,
    /// What a change leads to that has not returned.
    pending: Option<Model>,
}

/// What was done, and where in the log it ends.
#[derive(Default)]
struct History {
    groups: BTreeMap<u64, Known>,
    durable: Lsn,
    changes: u64,
    unseen: u64,
}

impl Model {
    fn last(&self) -> Option<(u64, u64)> {
        self.entries.last().map(|last| (last.index, last.term)).or(self.purged)
    }

    fn of(group: &Group) -> Model {
        let Bounds { indexes, last, purged, .. } = group.bounds();
        let model = Model {
            exists: group.log().groups().contains(&group.id()),
            first: indexes.start,
            entries: group.entries(indexes.clone(), usize::MAX).expect("read"),
            purged,
            vote: group.vote(),
            committed: group.committed(),
        };
        assert!(model.entries.iter().map(|entry| entry.index).eq(indexes));
        assert_eq!(last, model.last());
        model
    }

    /// A change that suits the group.
    fn plan(&self, id: u64, random: &mut Random) -> Change {
        let next = self.first + self.entries.len() as u64;
        match random.u32(0..20) {
            0 => Change::Vote(vec![random.u8(..); random.usize(0..60)]),
            1 => Change::Committed(random.bool().then(|| vec![random.u8(..); 9])),
            2 if !self.entries.is_empty() => {
                let keep = random.usize(0..=self.entries.len());
                Change::Truncate((keep > 0).then(|| self.entries[keep - 1].index))
            }
            // Sometimes beyond the end, as with a snapshot from the leader.
            3 if self.exists => Change::Purge(random.u64(self.first.max(1) - 1..next + 3)),
            4 if self.exists && random.u32(0..8) == 0 => Change::Remove,
            _ => {
                let begins = self.entries.is_empty() && self.purged.is_none();
                let first = if begins { random.u64(0..3) } else { next };
                let entry = |index| {
                    let bytes = vec![random.u8(..); [3, 50, 900][random.usize(0..3)]];
                    Entry::new(index, random.u64(0..4), bytes)
                };
                Change::Append((first..first + 1 + id % 3).map(entry).collect())
            }
        }
    }

    fn after(&self, change: &Change) -> Model {
        let mut model = Model { exists: true, ..self.clone() };
        match change {
            Change::Vote(vote) => model.vote = Some(vote.as_slice().into()),
            Change::Committed(committed) => model.committed = committed.as_deref().map(Into::into),
            Change::Truncate(last) => model.entries.retain(|entry| last.is_some_and(|last| entry.index <= last)),
            Change::Purge(index) if self.purged.is_none_or(|(purged, _)| purged < *index) => {
                let next = self.first + self.entries.len() as u64;
                model.entries.retain(|entry| entry.index > *index);
                model.purged = Some((*index, 5));
                model.first = if self.entries.is_empty() { index + 1 } else { self.first.max(index + 1) };
                assert!(model.entries.is_empty() || model.first + model.entries.len() as u64 == next);
            }
            Change::Purge(_) => {}
            Change::Append(entries) => {
                if model.entries.is_empty() && model.purged.is_none() {
                    model.first = entries[0].index;
                }
                model.entries.extend_from_slice(entries);
            }
            Change::Remove => model = Model::default(),
        }
        model
    }

    /// What may be found of an append of which only a part is in the log: the entries, and the state that a group begins with, are
    /// records of their own.
    fn parts_before(&self, appended: &Model) -> Vec<Model> {
        let parts = self.entries.len()..appended.entries.len();
        let part = |count| Model { entries: appended.entries[..count].to_vec(), ..appended.clone() };
        parts.map(part).collect()
    }
}

fn make(group: &Group, change: &Change) -> Result<Lsn, Error> {
    match change {
        Change::Vote(vote) => group.set_vote(vote),
        Change::Committed(committed) => group.set_committed(committed.as_deref()),
        Change::Truncate(last) => group.truncate_after(*last),
        Change::Purge(index) => group.purge(*index, 5, b""),
        Change::Append(entries) => group.append(entries),
        Change::Remove => group.remove(),
    }
}

fn client(log: &RaftLog, id: u64, history: &Mutex<History>, seed: u64) {
    let lock = || history.lock().expect("no panic");
    let mut random = Random::with_seed(seed);
    let mut model =
        lock().groups.entry(id).or_default().states.last().map(|(_, model)| model.clone()).unwrap_or_default();
    let mut is_full = false;
    loop {
        let group = log.group(id);
        let change = match model.last() {
            Some((last, _)) if std::mem::take(&mut is_full) => Change::Purge(last),
            _ => model.plan(id, &mut random),
        };
        let after = model.after(&change);
        lock().groups.entry(id).or_default().pending = Some(after.clone());
        let made = make(&group, &change);
        let mut history = lock();
        let known = history.groups.entry(id).or_default();
        known.pending = None;
        let end = match made {
            Ok(end) => end,
            Err(error) if error.kind() == ErrorKind::LogFull => {
                is_full = true;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        model = after;
        known.states.push((end, model.clone()));
        history.changes += 1;
        drop(history);
        if random.u32(0..40) == 0 {
            assert_eq!(Model::of(&log.group(id)), model);
        }
        if random.u32(0..3) == 0 {
            let is_durable = match random.bool() {
                true => log.flush(end).is_ok(),
                false => {
                    let (tell, told) = std::sync::mpsc::channel();
                    log.on_durable(end, move |outcome| tell.send(outcome.is_ok()).unwrap_or_default());
                    sleep(Duration::from_micros(random.u64(0..500)));
                    told.try_recv().unwrap_or(false)
                }
            };
            if is_durable {
                let mut history = lock();
                history.durable = history.durable.max(end);
            }
        }
    }
}

/// Opens the log, and compares it with the history up to its end, which the history then ends with.
fn reopen(devices: &[Arc<dyn Device>], options: &RaftLogOptions, history: &Mutex<History>) -> RaftLog {
    let log = RaftLog::open(devices.to_vec(), options).expect("open");
    let end = log.stats().log.end_lsn;
    let mut history = history.lock().expect("no panic");
    assert!(end >= history.durable, "what was durable is there: {end} is not {}", history.durable);
    for id in 0..GROUPS {
        let found = Model::of(&log.group(id));
        let known = history.groups.entry(id).or_default();
        let count = known.states.partition_point(|(state, _)| *state <= end);
        let last = known.states[..count].last().map(|(_, model)| model.clone()).unwrap_or_default();
        let mut allowed = vec![last.clone()];
        match (known.states.get(count), &known.pending) {
            (Some((_, next)), _) => allowed.extend(last.parts_before(next)),
            (None, Some(next)) => {
                allowed.extend(last.parts_before(next));
                allowed.push(next.clone());
            }
            (None, None) => {}
        }
        assert!(allowed.contains(&found), "group {id}: {found:?} is not {last:?}, nor a part of what follows it");
        let unseen = (known.states.len() - count) as u64;
        *known = Known { states: vec![(Lsn::ZERO, found)], pending: None };
        history.unseen += unseen;
    }
    drop(history);
    log
}

fn run(seed: u64) -> (u64, u64) {
    let us = Duration::from_micros;
    let (count, copies) = [(1, 1), (2, 1), (2, 2), (3, 1)][seed as usize % 4];
    let device = |n| {
        let profile = MemoryProfile {
            write_latency: us(20)..us(300),
            read_latency: us(5)..us(40),
            seed: seed * 8 + n,
            ..MemoryProfile::default()
        };
        MemoryDevice::with_profile(format!("raft-{n}"), 1 << 20, profile)
    };
    let memory: Vec<_> = (0..count).map(device).collect();
    let devices: Vec<Arc<dyn Device>> = memory.iter().map(|device| Arc::clone(device) as _).collect();
    let options = RaftLogOptions {
        cache_bytes: [0, 20_000, 1 << 20][seed as usize % 3],
        log: LogOptions { copies, ..LogOptions::default() },
    };
    RaftLog::create(devices.clone(), &options).expect("create");
    let history = Arc::new(Mutex::new(History::default()));
    let mut random = Random::with_seed(seed);
    for session in 0..12 {
        let (devices, options, known) = (devices.clone(), options.clone(), Arc::clone(&history));
        let rest = us(random.u64(100..60_000));
        let seed = seed * 1000 + session * 10;
        let outcome = Simulation::new(seed).cores(2).run(move || {
            let log = reopen(&devices, &options, &known);
            for id in 0..GROUPS {
                let (log, known) = (log.clone(), Arc::clone(&known));
                spawn(format!("client-{id}"), move || client(&log, id, &known, seed + id));
            }
            sleep(rest);
            power_cut()
        });
        assert!(matches!(outcome, Outcome::PowerCut { .. }), "seed {seed}: {outcome:?}");
        memory.iter().for_each(|device| device.power_cut(&mut random));
    }
    Simulation::new(seed)
        .run({
            let history = Arc::clone(&history);
            move || reopen(&devices, &options, &history).close().expect("close")
        })
        .expect_finished();
    let known = history.lock().expect("no panic");
    (known.changes, known.unseen)
}

#[test]
fn groups_are_as_their_changes_up_to_the_logs_end_left_them() {
    let (mut changes, mut unseen) = (0, 0);
    for seed in 0..24 {
        let (more, lost) = run(seed);
        (changes, unseen) = (changes + more, unseen + lost);
    }
    assert!(changes > 20_000 && unseen > 20, "{changes} changes, {unseen} of them not durable at a power cut");
}
