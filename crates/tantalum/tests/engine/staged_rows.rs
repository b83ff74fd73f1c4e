//! Rows that are staged, or being moved, beside all else that reads or repeats them: backups, restores, dumps, the loss of a log
//! device, and recoveries that are cut themselves.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tantalum::{
    Builder, Db, Devices, Lsn, Restore, RestoreTarget, StoreKind, Table, Transaction, control::RowSelection,
};
use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{
    Model, check, committed, cut_power_after, simulate_stores, slow_devices_of, wait_until_applied, with_little_memory,
};

const STORES: [StoreKind; 3] = [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured];

/// The large transaction is written in so many steps.
const STEPS: u32 = 20;

fn key(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// What is there before the large transaction.
fn fill(db: &Db, table: &Table) -> Model {
    let model: Model = (0..600).map(|number| (key(number), vec![1; 400])).collect();
    let mut tx = db.begin().unwrap();
    model.iter().for_each(|(key, value)| tx.put(table, key, value).unwrap());
    tx.commit().unwrap();
    wait_until_applied(db);
    model
}

/// A part of the large transaction: rows that are replaced, deleted and new, some of them with large values.
fn write_step(tx: &mut Transaction, table: &Table, model: &mut Model, step: u32) {
    for number in (step * 40..).take(40) {
        let key = key(number);
        if number % 5 == 0 {
            assert_eq!(tx.delete(table, &key).unwrap(), model.remove(&key).is_some());
        } else {
            let value = vec![2; if number % 50 == 1 { 6000 } else { 150 }];
            tx.put(table, &key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn write_all(tx: &mut Transaction, table: &Table, model: &mut Model) {
    (0..STEPS).for_each(|step| write_step(tx, table, model, step));
}

/// When a base backup begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backup {
    Before,
    WhileSpilling,
    WhileMoving,
}

/// What a run was seen to have, to compare restored databases with.
#[derive(Default)]
struct Seen {
    before: Model,
    after: Model,
    backup_end: u64,
    commit_end: u64,
    /// Ends of the log while rows were being moved.
    while_moving: Vec<u64>,
}

/// A large transaction, and a base backup that begins before it, while it spills, or while its rows are moved.
fn run_beside_backup(store: StoreKind, devices: Devices, archive: Arc<dyn Device>, to: &Path, at: Backup) -> Seen {
    let builder = with_little_memory(store).expert(|expert| expert.log_archive_on(archive));
    let db = builder.open_on(devices).unwrap();
    let table = db.table("t").unwrap();
    let mut seen = Seen { before: fill(&db, &table), ..Seen::default() };
    seen.after = seen.before.clone();
    let (mut step, mut tx) = (0, Some(db.begin().unwrap()));
    let mut advance = |seen: &mut Seen| {
        if step < STEPS {
            write_step(tx.as_mut().expect("it is not committed"), &table, &mut seen.after, step);
        } else if let Some(tx) = tx.take() {
            seen.commit_end = tx.commit().unwrap().position().unwrap();
        } else {
            sleep(Duration::from_micros(300));
        }
        step += 1;
    };
    let is_moving = || db.stats().unwrap().transactions.staging_tables > 0;
    let steps_before = match at {
        Backup::Before => 0,
        Backup::WhileSpilling => STEPS / 2,
        Backup::WhileMoving => STEPS + 1,
    };
    (0..steps_before).for_each(|_| advance(&mut seen));
    let (mut calls, is_beside) = (0, at != Backup::Before);
    assert!(at != Backup::WhileMoving || is_moving(), "its rows are not moved yet");
    let backup = db.base_backup(to, &mut |_| {
        calls += 1;
        // The transaction is not over when the backup is.
        if is_beside && (at == Backup::WhileMoving || calls < 4) {
            advance(&mut seen);
        }
    });
    seen.backup_end = backup.unwrap().end_lsn;
    while seen.commit_end == 0 {
        advance(&mut seen);
    }
    while is_moving() {
        seen.while_moving.push(db.stats().unwrap().log.durable_lsn.get());
        sleep(Duration::from_micros(300));
    }
    assert_eq!(committed(&db, &table), seen.after);
    check(&db);
    db.close().unwrap();
    seen
}

/// The state at every moment: of the transaction all or nothing, and a database that was restored while rows were moved moves the
/// others.
#[test]
fn a_restore_completes_what_was_being_moved() {
    let mut restored_while_moving = 0;
    for seed in 0..12u64 {
        let store = [StoreKind::InPlace, StoreKind::LogStructured][seed as usize % 2];
        let at = [Backup::Before, Backup::WhileSpilling, Backup::WhileMoving][seed as usize / 2 % 3];
        let dir = tempfile::tempdir().unwrap();
        let archive: Arc<dyn Device> = MemoryDevice::new("archive", 64 << 20);
        let (of_run, to) = (Arc::clone(&archive), dir.path().join("backup"));
        let run = move || {
            let devices = slow_devices_of(seed, 16 << 20);
            let double_write = devices.double_write.filter(|_| store == StoreKind::InPlace);
            run_beside_backup(store, Devices { double_write, ..devices }, of_run, &to, at)
        };
        let simulation = Simulation::new(seed).cores(2).time_limit(Duration::from_secs(3600));
        let seen = simulation.run(run).expect_finished();
        assert!(at == Backup::WhileMoving || seen.backup_end < seen.commit_end, "{at:?}");

        let moving: Vec<u64> = seen.while_moving.iter().copied().filter(|lsn| *lsn >= seen.backup_end).collect();
        restored_while_moving += moving.len();
        let targets = [seen.backup_end, seen.commit_end - 1, seen.commit_end];
        let targets = targets.into_iter().chain(moving.iter().step_by(moving.len().div_ceil(4).max(1)).copied());
        let targets = targets.filter(|lsn| *lsn >= seen.backup_end).map(Some);
        for (n, target) in targets.chain([None]).enumerate() {
            let restored = dir.path().join(format!("restored-{n}"));
            let backup = dir.path().join("backup");
            let to = target.map_or(RestoreTarget::End, |lsn| RestoreTarget::Lsn(Lsn::new(lsn)));
            let end = Restore::with_archive_on(backup, Arc::clone(&archive)).target(to).run(&restored).unwrap();
            let is_before = target.is_some_and(|lsn| lsn < seen.commit_end);
            let expected = if is_before { &seen.before } else { &seen.after };
            assert_eq!(end.end_lsn.get() < seen.commit_end, is_before);
            for is_read_only in [true, false] {
                let db = Db::builder().create_if_missing(false).read_only(is_read_only).open(&restored).unwrap();
                let table = db.table("t").unwrap();
                assert_eq!(committed(&db, &table), *expected, "{at:?}, {target:?} on {store}");
                check(&db);
                if !is_read_only {
                    wait_until_applied(&db);
                    assert_eq!(committed(&db, &table), *expected, "{at:?}, {target:?} on {store}");
                    check(&db);
                }
                db.close().unwrap();
            }
        }
    }
    assert!(restored_while_moving > 20, "{restored_while_moving}");
}

/// As `db dump` and `db backup` read it.
fn dumped(db: &Db) -> Model {
    let mut found = Model::new();
    RowSelection::default()
        .read(db, &mut |_, row| {
            let Some((key, value)) = row else { return Ok(()) };
            let mut bytes = Vec::new();
            value.read_to_end(&mut bytes).unwrap();
            found.insert(key.to_vec(), bytes);
            Ok(())
        })
        .unwrap();
    found
}

#[test]
fn dumps_and_backups_have_all_of_it_or_nothing() {
    simulate_stores(0..6, |seed, store, devices| {
        let dir = tempfile::tempdir().unwrap();
        let db = with_little_memory(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let before = fill(&db, &table);
        let mut after = before.clone();
        let mut tx = db.begin().unwrap();
        write_all(&mut tx, &table, &mut after);
        let backed_up = |name: &str| {
            let to = dir.path().join(name);
            db.backup(&to).unwrap();
            let copy = Db::builder().open(&to).unwrap();
            let found = committed(&copy, &copy.table("t").unwrap());
            check(&copy);
            copy.close().unwrap();
            found
        };
        let is_staged = || db.stats().unwrap().transactions.staging_tables > 0;
        assert_eq!(dumped(&db), before);
        assert_eq!(backed_up("spilled"), before);
        tx.commit().unwrap();
        assert!(is_staged());
        match seed % 2 {
            0 => assert_eq!(dumped(&db), after),
            _ => assert_eq!(backed_up("moving"), after),
        }
        wait_until_applied(&db);
        assert_eq!(dumped(&db), after);
        assert_eq!(backed_up("moved"), after);
        db.close().unwrap();
    });
}

/// Devices of memory on which power is cut.
struct Machine {
    data: Arc<MemoryDevice>,
    double_write: Option<Arc<MemoryDevice>>,
    logs: Vec<Arc<MemoryDevice>>,
    seed: u64,
}

impl Machine {
    fn new(store: StoreKind, logs: usize, seed: u64) -> Self {
        let double_write = (store == StoreKind::InPlace).then(|| Self::device("doublewrite", 1 << 20, seed * 16 + 1));
        let logs = (0..logs as u64).map(|n| Self::device(&format!("log-{n}"), 4 << 20, seed * 16 + 2 + n)).collect();
        Self { data: Self::device("data", 16 << 20, seed * 16), double_write, logs, seed }
    }

    fn device(name: &str, bytes: u64, seed: u64) -> Arc<MemoryDevice> {
        let us = Duration::from_micros;
        let profile = MemoryProfile {
            write_latency: us(20)..us(200),
            read_latency: us(5)..us(50),
            seed,
            ..MemoryProfile::default()
        };
        MemoryDevice::with_profile(name, bytes, profile)
    }

    fn devices(&self) -> Devices {
        Devices {
            data: self.data.clone(),
            double_write: self.double_write.clone().map(|device| device as Arc<dyn Device>),
            log: self.logs.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect(),
        }
    }

    /// Runs until the power goes, if it does, and then cuts the devices' power. Whether it finished.
    fn run(&self, life: u64, random: &mut Random, run: impl FnOnce() + 'static) -> bool {
        let simulation = Simulation::new(self.seed * 16 + life).cores(2).time_limit(Duration::from_secs(600));
        let outcome = simulation.run(run);
        let (Outcome::PowerCut { .. } | Outcome::Finished(())) = outcome;
        for device in [&self.data].into_iter().chain(&self.double_write).chain(&self.logs) {
            device.power_cut(random);
        }
        matches!(outcome, Outcome::Finished(()))
    }
}

/// After a crash while a transaction spilled, or while its rows were moved, recoveries are cut again and again.
#[test]
fn recoveries_that_are_cut_complete_in_the_end() {
    // Cuts before the database was open, and later with staging tables and without; of transactions that had not committed and of
    // those that had.
    let cuts = Arc::new([[0u64; 3]; 2].map(|of| of.map(AtomicU64::new)));
    for seed in 0..24u64 {
        let (store, commits) = (STORES[seed as usize % 3], seed % 2);
        let (machine, mut random) = (Machine::new(store, 1, seed), Random::with_seed(seed));
        let expected = Arc::new(Mutex::new(Model::new()));
        let builder = move || with_little_memory(store).create_if_missing(false);
        let (devices, first) = (machine.devices(), Arc::clone(&expected));
        let pause = Duration::from_micros(random.u64(0..2000));
        machine.run(0, &mut random, move || {
            let db = with_little_memory(store).open_on(devices).unwrap();
            let table = db.table("t").unwrap();
            let mut model = fill(&db, &table);
            db.checkpoint().unwrap();
            *first.lock().unwrap() = model.clone();
            let mut tx = db.begin().unwrap();
            if commits == 1 {
                write_all(&mut tx, &table, &mut model);
                tx.commit().unwrap();
                *first.lock().unwrap() = model;
            } else {
                (0..3 + seed as u32 % 16).for_each(|step| write_step(&mut tx, &table, &mut model, step));
                // What was spilled becomes durable with it.
                db.checkpoint().unwrap();
            }
            sleep(pause);
            tantalum_rt::power_cut();
        });
        for life in 1..=10 {
            let most_us = 1 << random.u32(6..18);
            let pause = (life < 10).then(|| Duration::from_micros(random.u64(1..most_us)));
            let (devices, expected, cuts) = (machine.devices(), Arc::clone(&expected), Arc::clone(&cuts));
            // As far as the life got.
            let phase = Arc::new(AtomicU64::new(0));
            let reached = Arc::clone(&phase);
            let is_over = machine.run(life, &mut random, move || {
                pause.into_iter().for_each(cut_power_after);
                let db = builder().open_on(devices).unwrap();
                reached.store(1, Relaxed);
                let table = db.table("t").unwrap();
                let expected = expected.lock().unwrap().clone();
                assert_eq!(committed(&db, &table), expected, "seed {seed}, life {life}");
                check(&db);
                wait_until_applied(&db);
                reached.store(2, Relaxed);
                assert_eq!(committed(&db, &table), expected, "seed {seed}, life {life}");
                check(&db);
                if pause.is_some() {
                    sleep(Duration::from_secs(60));
                }
            });
            assert_eq!(is_over, pause.is_none());
            if !is_over {
                cuts[commits as usize][phase.load(Relaxed) as usize].fetch_add(1, Relaxed);
            }
        }
    }
    assert!(cuts.iter().flatten().all(|cuts| cuts.load(Relaxed) > 0), "{cuts:?}");
}

/// With two copies of the log, one is lost while transactions spill and while their rows are moved, and then the power goes.
#[test]
fn a_lost_copy_of_the_log_takes_no_staged_row() {
    // Openings on one copy that found rows of large transactions, and such of which rows were still staged.
    let found_of = Arc::new([0u64; 2].map(AtomicU64::new));
    for seed in 0..30u64 {
        let store = STORES[seed as usize % 3];
        let (mut machine, mut random) = (Machine::new(store, 2, seed), Random::with_seed(seed));
        let builder = move || with_little_memory(store).log_copies(2);
        // The last transaction that was acknowledged, and the last that was begun.
        let rounds = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let lost = random.usize(0..2);
        let (loss, cut) = (random.u64(0..40_000), random.u64(0..20_000));
        let (devices, device, of_run) = (machine.devices(), Arc::clone(&machine.logs[lost]), Arc::clone(&rounds));
        machine.run(0, &mut random, move || {
            let db = builder().open_on(devices).unwrap();
            let table = db.table("t").unwrap();
            fill(&db, &table);
            db.checkpoint().unwrap();
            spawn("loss", move || {
                sleep(Duration::from_micros(loss));
                device.inject(Fault::FailWrites { after: 0 });
                sleep(Duration::from_micros(cut));
                tantalum_rt::power_cut();
            });
            for round in 1..200 {
                of_run[1].store(round, Relaxed);
                let mut tx = db.begin().unwrap();
                (0..800 + round as u32).for_each(|n| tx.put(&table, key(1000 + n), [round as u8; 60]).unwrap());
                tx.commit().unwrap();
                of_run[0].store(round, Relaxed);
            }
            unreachable!("the power goes before");
        });
        machine.logs[lost] = Machine::device(&format!("log-{lost}"), 4 << 20, seed);
        let (devices, of_run, found_of) = (machine.devices(), Arc::clone(&rounds), Arc::clone(&found_of));
        machine.run(1, &mut random, move || {
            let db = open_without(|| builder().create_if_missing(false), devices, lost);
            let table = db.table("t").unwrap();
            let found = committed(&db, &table);
            let rows: Vec<_> = found.range(key(1000)..).collect();
            let round = rows.first().map_or(0, |(_, value)| u64::from(value[0]));
            assert_eq!(rows.len(), if round == 0 { 0 } else { 800 + round as usize }, "seed {seed}, round {round}");
            assert!(rows.iter().all(|(_, value)| **value == [round as u8; 60]), "seed {seed}: rows of one transaction");
            assert!((of_run[0].load(Relaxed)..=of_run[1].load(Relaxed)).contains(&round), "seed {seed}: {round}");
            let is_staged = round > 0 && db.stats().unwrap().transactions.staging_tables > 0;
            found_of[0].fetch_add(u64::from(round > 0), Relaxed);
            found_of[1].fetch_add(u64::from(is_staged), Relaxed);
            check(&db);
            wait_until_applied(&db);
            assert_eq!(committed(&db, &table), found);
            check(&db);
        });
    }
    assert!(found_of.iter().all(|found| found.load(Relaxed) > 3), "{found_of:?}");
}

/// On all devices, or without the blank one if it is refused by name.
fn open_without(builder: impl Fn() -> Builder, mut devices: Devices, blank: usize) -> Db {
    match builder().open_on(devices.clone()) {
        Err(error) if error.about() == Some(devices.log[blank].name()) => {
            devices.log.remove(blank);
            builder().open_on(devices).unwrap()
        }
        opened => opened.unwrap(),
    }
}
