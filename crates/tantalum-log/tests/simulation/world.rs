//! A log under random load on simulated devices, whose power is cut at random, and the model of what must survive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_log::{ErrorKind, Log, LogOptions, Lsn};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::operator::operator;
use crate::plan::{LOG_ID, Plan, as_devices, lock, random};

/// What must be found after a crash. Its locks are never held across anything that may switch tasks.
#[derive(Default)]
pub struct Model {
    /// Records that recovery returned, or that appends returned since, by start.
    pub records: BTreeMap<u64, Vec<u8>>,
    /// Up to here, the records are what the last recovery returned.
    pub fixed_end: u64,
    /// The largest LSN that was acknowledged.
    pub acknowledged: u64,
    pub checkpoint_done: u64,
    pub checkpoint_asked: u64,
    /// Records whose append had begun but not returned, by client.
    pub under_way: BTreeMap<u64, Vec<u8>>,
    pub was_closed: bool,
    /// The largest LSN that was known to be archived.
    pub archived: u64,
    /// The archive failed or hung once, so that there may be a gap in it.
    pub archive_failed: bool,
    /// All log devices are lost.
    pub lost: bool,
    /// Devices that may be lost, by name: two copies are kept of what they hold.
    pub may_lose: Vec<String>,
    /// Sessions in a row of which the power was cut before recovery ended.
    pub cut_short: u64,
    /// The sets of devices, by name, of which the log has one.
    pub devices: Vec<BTreeSet<String>>,
    /// What the runs did, to see that they do what they should.
    pub counts: Counts,
}

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub records: u64,
    pub fulls: u64,
    pub checkpoints: u64,
    pub cuts: u64,
    pub cuts_in_recovery: u64,
    pub closes: u64,
    pub reissued: u64,
    pub hidden: u64,
    pub hidden_won: u64,
    pub recovered: u64,
    pub joined: u64,
    pub left: u64,
    pub cuts_in_changes: u64,
    /// Devices that were lost with a copy of the log.
    pub lost: u64,
    /// Sessions that began with one copy for lack of devices.
    pub degraded: u64,
    /// Devices that took the place of lost ones.
    pub replaced: u64,
    /// Recoveries from the archive alone.
    pub rebuilt: u64,
    /// Those that a gap in the archive made impossible.
    pub not_archived: u64,
    /// Requests that the archive completed before a device took them.
    pub archived_first: u64,
    pub archives_set_aside: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.records += other.records;
        self.fulls += other.fulls;
        self.checkpoints += other.checkpoints;
        self.cuts += other.cuts;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.closes += other.closes;
        self.reissued += other.reissued;
        self.hidden += other.hidden;
        self.hidden_won += other.hidden_won;
        self.recovered += other.recovered;
        self.joined += other.joined;
        self.left += other.left;
        self.cuts_in_changes += other.cuts_in_changes;
        self.lost += other.lost;
        self.degraded += other.degraded;
        self.replaced += other.replaced;
        self.rebuilt += other.rebuilt;
        self.not_archived += other.not_archived;
        self.archived_first += other.archived_first;
        self.archives_set_aside += other.archives_set_aside;
    }
}

fn record(session: u64, client: u64, n: u64, bytes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(bytes + 24);
    for value in [session, client, n] {
        record.extend_from_slice(&value.to_le_bytes());
    }
    let mut random = random(session << 40 ^ client << 32 ^ n);
    record.extend((0..bytes).map(|_| random.u8(..)));
    record
}

/// Appends and flushes until the end of the simulation or of the log.
fn client(log: &Log, model: &Mutex<Model>, plan: &Plan, session: u64, client: u64) {
    let mut random = random(plan.seed ^ session << 20 ^ client << 10);
    for n in 0.. {
        let bytes = match random.u8(..) {
            _ if plan.one_size => (plan.record_bytes as usize).min(log.max_record_bytes() - 24),
            0..4 => log.max_record_bytes() - 24,
            _ => (random.u64(0..=plan.record_bytes * 2) as usize).min(log.max_record_bytes() - 24),
        };
        let record = record(session, client, n, bytes);
        lock(model).under_way.insert(client, record.clone());
        let cut = random.usize(0..=record.len());
        let range = loop {
            match log.append(&[&record[..cut], &record[cut..]]) {
                Ok(range) => break range,
                Err(error) if error.kind() == ErrorKind::LogFull => {
                    lock(model).counts.fulls += 1;
                    match log.wait_for_space(record.len()) {
                        Ok(mut space) => match log.append_requested(&[&record[..cut], &record[cut..]], &mut space) {
                            Ok(range) => break range,
                            Err(error) => assert!(
                                matches!(error.kind(), ErrorKind::LogFull | ErrorKind::Closed | ErrorKind::Poisoned),
                                "{error}"
                            ),
                        },
                        Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned) => return,
                Err(error) => panic!("{error}"),
            }
        };
        {
            let mut model = lock(model);
            model.counts.records += 1;
            model.under_way.remove(&client);
            assert_eq!(range.end.bytes_since(range.start), record.len() as u64 + 4);
            assert!(model.records.insert(range.start.get(), record).is_none(), "an LSN is given once");
        }
        let outcome = match random.u8(0..10) {
            0 => Some(log.flush_archived(range.end)),
            1..6 => Some(log.flush(range.end)),
            6 => {
                log.ticket(range.end).ok();
                None
            }
            7 => log.ticket(range.end).ok().map(|ticket| ticket.wait()),
            8 => match log.ticket(range.end) {
                Ok(ticket) => loop {
                    match ticket.is_done() {
                        Some(outcome) => break Some(outcome),
                        None => sleep(Duration::from_micros(50)),
                    }
                },
                Err(_) => None,
            },
            _ => None,
        };
        match outcome {
            Some(Ok(())) => {
                assert!(log.durable_lsn() >= range.end);
                let archived = log.archived_lsn().map_or(0, Lsn::get);
                let mut model = lock(model);
                model.acknowledged = model.acknowledged.max(range.end.get());
                model.archived = model.archived.max(archived);
            }
            Some(Err(error)) => {
                assert!(error.kind() == ErrorKind::Poisoned, "{error}");
                return;
            }
            None => {}
        }
        if random.bool() {
            sleep(Duration::from_micros(random.u64(0..300)));
        }
    }
}

/// Moves the checkpoint to a random record boundary below the durable end, whenever it is asked or likes to.
fn checkpointer(log: &Log, model: &Mutex<Model>, plan: &Plan, session: u64) {
    let mut random = random(plan.seed ^ session << 20 ^ 77);
    loop {
        let pressed = log.wait_for_pressure(Duration::from_micros(random.u64(1..5000)));
        if pressed {
            sleep(Duration::from_micros(random.u64(1..plan.checkpoint_delay_us)));
        }
        let durable = log.durable_lsn().get();
        let target = {
            let mut model = lock(model);
            let from = model.checkpoint_done;
            let boundary = |at: u64| model.records.range(..=at).next_back().map_or(from, |(&start, _)| start.max(from));
            let target = match random.u8(0..4) {
                0 if !pressed => boundary(random.u64(from..=durable.max(from))),
                1 => boundary(durable),
                _ => durable,
            };
            model.checkpoint_asked = model.checkpoint_asked.max(target);
            target
        };
        match log.set_checkpoint(Lsn::new(target)) {
            Ok(()) => {
                let mut model = lock(model);
                model.checkpoint_done = model.checkpoint_done.max(target);
                model.counts.checkpoints += 1;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned) => return,
            Err(error) => panic!("{error}"),
        }
        assert!(log.checkpoint_lsn().get() >= target);
    }
}

/// Opens the log, checks what comes back against the model, and makes that the model. `None` if all log devices are lost
/// and the archive has a gap.
pub fn recover(devices: &[Arc<MemoryDevice>], plan: &Plan, model: &Mutex<Model>, random: &mut Random) -> Option<Log> {
    let is_lost = lock(model).lost;
    let mut order = match is_lost {
        false => as_devices(plan.log_devices(devices)),
        true => as_devices(plan.first_devices(devices)),
    };
    random.shuffle(&mut order);
    let mut recovery = loop {
        let opened = match is_lost {
            false => Log::open(order.clone(), plan.options(devices), &mut |_| {}),
            true => {
                Log::rebuild(plan.options(devices), &mut |_| {}).and_then(|log| log.onto(order.clone(), &mut |_| {}))
            }
        };
        match opened {
            Ok(recovery) => break recovery,
            // As an owner would: what is refused by name is left out.
            Err(error) if error.kind() == ErrorKind::NotAMember && (plan.spares > 0 || plan.may_lose()) && !is_lost => {
                order.retain(|given| Some(given.name()) != error.about());
            }
            Err(error) if error.kind() == ErrorKind::NotArchived && is_lost && lock(model).archive_failed => {
                lock(model).counts.not_archived += 1;
                return None;
            }
            Err(error) => panic!("open failed: {error}"),
        }
    };
    let given: BTreeSet<String> = order.iter().map(|device| device.name().to_owned()).collect();
    {
        let mut model = lock(model);
        let is_known = plan.may_lose() || model.devices.contains(&given);
        assert!(is_known, "the log has {given:?}, not one of {:?}", model.devices);
        model.counts.cuts_in_changes += u64::from(model.devices.len() > 1);
        model.devices = vec![given];
    }
    let checkpoint = recovery.checkpoint_lsn().get();
    {
        let model = lock(model);
        let allowed = [if is_lost { 0 } else { model.checkpoint_done }, model.checkpoint_asked];
        let between = (allowed[0]..=allowed[1]).contains(&checkpoint);
        assert!(between, "checkpoint {checkpoint} not within {allowed:?}");
        if model.was_closed && !is_lost {
            assert!(recovery.was_clean(), "closed, but not found clean");
        }
        let end = recovery.end_lsn().get();
        assert!(end >= model.archived, "archived records are lost");
        assert!(is_lost || end >= model.acknowledged, "acknowledged records are lost");
        assert!(is_lost || end >= model.fixed_end, "recovered records are lost");
    }
    let mut recovered = BTreeMap::new();
    let mut last_end = None;
    while let Some(record) = recovery.next_record().expect("records are readable") {
        assert!(last_end.is_none_or(|end| record.start == end), "no gaps");
        last_end = Some(record.end);
        recovered.insert(record.start.get(), record.bytes);
    }
    let end = recovery.end_lsn().get();
    assert!(last_end.is_none_or(|last| last.get() == end));
    {
        let model = lock(model);
        for (start, bytes) in &recovered {
            match model.records.get(start) {
                Some(expected) => assert!(bytes == expected, "record at {start} differs from what was appended"),
                None => {
                    assert!(*start >= model.fixed_end, "a record at {start} that was not there before");
                    let begun = model.under_way.values().any(|begun| begun == bytes);
                    assert!(begun, "a record at {start} that was never appended");
                }
            }
        }
        for (start, bytes) in model.records.range(checkpoint..) {
            if start + (bytes.len() as u64) < end {
                assert!(recovered.contains_key(start), "record at {start} is missing, end {end}");
            }
        }
    }
    lock(model).was_closed = false;
    let log = recovery.finish().expect("finish");
    let mut model = lock(model);
    model.cut_short = 0;
    model.counts.rebuilt += u64::from(is_lost);
    (model.lost, model.archived) = (false, model.archived.min(end));
    model.counts.recovered += recovered.len() as u64;
    model.records = recovered;
    model.fixed_end = end;
    model.acknowledged = end;
    (model.checkpoint_done, model.checkpoint_asked) = (checkpoint, checkpoint);
    model.under_way.clear();
    Some(log)
}

/// One session: recover, work, and end in one way or another. True if it ended as planned, false if the power was cut.
fn session(devices: &[Arc<MemoryDevice>], plan: &Plan, model: &Arc<Mutex<Model>>, session: u64, survivors: &Survivors) {
    let mut random = random(plan.seed << 8 ^ session);
    let cut_in_recovery = random.u8(0..4) == 0;
    if cut_in_recovery {
        let (devices, survivors, model) = (devices.to_vec(), Arc::clone(survivors), Arc::clone(model));
        let after = Duration::from_micros(random.u64(0..1500));
        spawn("cutter", move || {
            sleep(after);
            lock(&model).counts.cuts_in_recovery += 1;
            cut(&devices, &survivors)
        });
    }
    let Some(log) = recover(devices, plan, model, &mut random) else { return };
    note_losable(&log, plan, model, None);
    if plan.may_lose() {
        lock(model).counts.degraded += u64::from(!log.stats().keeps_copies);
        let (log, model, devices) = (log.clone(), Arc::clone(model), devices.to_vec());
        spawn("replacer", move || replacer(&log, &devices, &model));
    }
    for n in 0..plan.clients {
        let (log, model, plan) = (log.clone(), Arc::clone(model), plan.clone());
        spawn(format!("client-{n}"), move || client(&log, &model, &plan, session, n));
    }
    {
        let (log, model, plan) = (log.clone(), Arc::clone(model), plan.clone());
        spawn("checkpointer", move || checkpointer(&log, &model, &plan, session));
    }
    if plan.spares > 0 {
        let (log, model, plan, devices) = (log.clone(), Arc::clone(model), plan.clone(), devices.to_vec());
        spawn("operator", move || operator(&log, plan.log_devices(&devices), &model, plan.seed << 16 ^ session));
    }
    let length = Duration::from_micros(random.u64(10..30_000));
    if plan.stalls {
        let (devices, mut random) = (devices.to_vec(), random.fork());
        spawn("stalls", move || {
            loop {
                let mut us = |most| Duration::from_micros(random.u64(1..most));
                let (by, length, pause) = (us(3000), us(500), us(1500));
                let victim = &devices[random.usize(0..devices.len())];
                victim.inject(Fault::SlowWrites { by });
                sleep(length);
                victim.clear_faults();
                sleep(pause);
            }
        });
    }
    let mut has_faults = false;
    if plan.faults && random.u8(0..3) > 0 {
        has_faults = true;
        sleep(length / 3);
        // One log device alone may not fail.
        let victim = random.usize(if plan.devices == 1 { 1 } else { 0 }..devices.len());
        if victim == plan.log_devices(devices).len() {
            lock(model).archive_failed = true;
        }
        note_losable(&log, plan, model, Some(devices[victim].name()));
        devices[victim].inject(match random.bool() {
            true => Fault::HangWrites,
            false => Fault::FailWrites { after: random.u64(0..20) },
        });
    }
    sleep(length);
    if !has_faults {
        note_losable(&log, plan, model, None);
    }
    let stats = log.stats();
    {
        let mut model = lock(model);
        model.counts.reissued += stats.reissued;
        model.counts.hidden += stats.hiding.reissued;
        model.counts.hidden_won += stats.hiding.won;
    }
    if let Some(archive) = &stats.archive {
        let mut model = lock(model);
        model.counts.archived_first += archive.completed;
        let is_healthy = archive.set_aside.is_none();
        assert!(is_healthy || model.archive_failed, "the archive is set aside without need: {:?}", archive.set_aside);
        model.counts.archives_set_aside += u64::from(archive.set_aside.is_some());
    }
    // With the others removed, the device that fails may be the last, or hang with nothing to go to.
    let may_be_stuck = has_faults && plan.spares > 0;
    if random.u8(0..5) == 0 && !may_be_stuck {
        log.close().expect("close");
        let mut model = lock(model);
        model.counts.closes += 1;
        model.was_closed = true;
        model.acknowledged = log.end_lsn().get();
        assert_eq!(log.durable_lsn(), log.end_lsn());
        if let Some(archived) = log.archived_lsn() {
            assert_eq!(archived, log.end_lsn(), "a closed log is archived");
            model.archived = archived.get();
        }
    }
    cut(devices, survivors)
}

/// Takes note of the devices of which the loss must lose nothing from now on: any one if two copies are kept of everything,
/// the archive included; only the `victim`, if one is about to fail.
fn note_losable(log: &Log, plan: &Plan, model: &Mutex<Model>, victim: Option<&str>) {
    if !plan.may_lose() {
        return;
    }
    let stats = log.stats();
    let is_whole = stats.may_lose_a_device;
    let all_serve = stats.devices.iter().all(|device| device.set_aside.is_none());
    let names = stats.devices.iter().map(|device| device.name.clone());
    let archive = plan.archive.then(|| "archive".to_owned());
    lock(model).may_lose = match victim {
        _ if !is_whole || !all_serve => Vec::new(),
        Some(victim) => vec![victim.to_owned()],
        None => names.chain(archive).collect(),
    };
}

/// Puts a blank device in the place of one that was lost.
fn replacer(log: &Log, devices: &[Arc<MemoryDevice>], model: &Mutex<Model>) {
    sleep(Duration::from_micros(200));
    let present: Vec<_> = log.stats().devices;
    let Some(lost) = present.iter().find(|device| device.name.is_empty()) else { return };
    let is_lost = |device: &&Arc<MemoryDevice>| present.iter().all(|other| other.name != device.name());
    let Some(blank) = devices.iter().find(|device| is_lost(device) && device.name() != "archive") else { return };
    match log.replace_devices(&[lost.ordinal], &[Arc::clone(blank) as Arc<dyn Device>]) {
        Ok(_) => lock(model).counts.replaced += 1,
        Err(error) if error.is_io() => {}
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Closed | ErrorKind::Poisoned | ErrorKind::WritesLost | ErrorKind::TimedOut
            ) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Devices as they were at the instant of a power cut. Forked, because a lock inside the originals may stay locked.
pub type Survivors = Arc<Mutex<Vec<Arc<MemoryDevice>>>>;

pub fn cut(devices: &[Arc<MemoryDevice>], survivors: &Survivors) -> ! {
    let forks: Vec<_> = devices.iter().map(|device| device.fork()).collect();
    // Here, where the clock is that of what is under way.
    let mut random = random(tantalum_rt::random_seed());
    forks.iter().for_each(|device| device.power_cut(&mut random));
    *lock(survivors) = forks;
    tantalum_rt::power_cut()
}

/// Runs a plan: sessions that end in power cuts, and a last recovery.
pub fn run(plan: &Plan) -> Counts {
    let model = Arc::new(Mutex::new(Model::default()));
    let mut devices = plan.create_devices();
    let names = |devices: &[Arc<MemoryDevice>]| devices.iter().map(|device| device.name().to_owned()).collect();
    lock(&model).devices = vec![names(plan.first_devices(&devices))];
    let at_creation = LogOptions { hiding: plan.hiding[0], ..plan.options(&devices) };
    Log::create(LOG_ID, as_devices(plan.first_devices(&devices)), at_creation).expect("create");
    let mut random = random(plan.seed ^ 0xc0ffee);
    for round in 0..plan.rounds {
        let survivors: Survivors = Arc::default();
        let outcome = simulation(plan, round).run({
            let (plan, model, survivors, devices) = (plan.clone(), model.clone(), survivors.clone(), devices.clone());
            move || session(&devices, &plan, &model, round + 1, &survivors)
        });
        if matches!(outcome, Outcome::Finished { .. }) {
            return lock(&model).counts.clone();
        }
        assert!(matches!(outcome, Outcome::PowerCut { .. }));
        devices = std::mem::take(&mut *lock(&survivors));
        let mut model = lock(&model);
        model.counts.cuts += 1;
        let is_lost = plan.loses_devices_one_in > 0 && random.u8(0..plan.loses_devices_one_in) == 0;
        // Recovery has room for the copies that a crash left undone, but not after one that was cut itself.
        model.cut_short += 1;
        let may_lose = std::mem::take(&mut model.may_lose);
        let may_lose = if model.cut_short > 2 { Vec::new() } else { may_lose };
        if !may_lose.is_empty() && random.u8(0..3) > 0 {
            let lost = &may_lose[random.usize(0..may_lose.len())];
            let at = devices.iter().position(|device| device.name() == lost).expect("the devices keep their names");
            devices[at] = plan.create_devices().swap_remove(at);
            model.counts.lost += 1;
            if devices[at].name() == "archive" {
                (model.archived, model.archive_failed) = (0, true);
                continue;
            }
        } else {
            model.may_lose = may_lose;
        }
        if is_lost && !model.lost {
            model.lost = true;
            let new = plan.create_devices();
            devices[..plan.devices + plan.spares].clone_from_slice(plan.log_devices(&new));
            model.devices = vec![names(plan.first_devices(&new))];
        }
    }
    simulation(plan, plan.rounds).run({
        let (plan, model) = (plan.clone(), model.clone());
        move || drop(recover(&devices, &plan, &model, &mut random))
    });
    let model = lock(&model);
    model.counts.clone()
}

fn simulation(plan: &Plan, round: u64) -> Simulation {
    Simulation::new(plan.seed * 1000 + round).time_limit(Duration::from_secs(10)).step_limit(20_000_000)
}
