//! What happens inside the simulation: recovery, checks, clients, until the power goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tantalum::{Builder, Db, Devices, ErrorKind, Isolation, StoreKind, Table};
use tantalum_device::Device;
use tantalum_log::{ArchiveOptions, Log, LogOptions};
use tantalum_rt::{Random, spawn};

use crate::{
    beside::{
        check_again_and_again, check_archive, compact_again_and_again, follow_left_behind, watch_archive, watch_copies,
    },
    checks::{check, check_nothing_is_staged},
    client::{Client, Shared},
    config::{Config, Units},
    feed::{Consumer, follow},
    history::{Event, Kind, Recorder},
    load::Load,
    machine::{Fuse, Machine},
    operator::Operator,
    reading::read_only,
    rows::read_everything,
    stop::{Stop, is_closed},
};

/// Virtual time after which a start that is not to be cut is one that hangs.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(1800);

/// Transactions of one start.
const TRANSACTIONS_MAX: u32 = 4000;

/// Before one in so many starts, the database is opened for reading only.
const READERS_EVERY: u64 = 8;

/// After one in so many starts, nothing but rows is read before clients begin: other pages still await redo then.
const UNCHECKED_EVERY: u64 = 3;

/// At which of the points that a client's commits come to one of them panics, at most.
const PANIC_POINT_MAX: f64 = 500.0;

/// When the power goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Not at all: each client runs so many transactions, then the database is closed.
    Never { transactions: usize },
    /// Not at all: after so much time the database is closed, while clients use it.
    ByClosing(Duration),
    /// Counted from the moment at which the devices get power.
    DuringStart(Length),
    /// Counted from the start of the recovery.
    DuringRecovery(Length),
    /// Counted from the start of the clients.
    DuringLoad(Length),
}

/// How long it takes until the power goes: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    /// Virtual time.
    pub time: Duration,
    /// Device operations, if they count too.
    pub operations: Option<u64>,
}

impl Length {
    /// Lets the power go when this has passed from now on. If time decides, `last` is called right before.
    fn start(self, fuse: &Fuse, last: impl FnOnce() + Send + 'static) {
        spawn("power", move || {
            tantalum_rt::sleep(self.time);
            last();
            tantalum_rt::power_cut()
        });
        if let Some(operations) = self.operations {
            fuse.light(operations);
        }
    }
}

/// What one start of the database is given.
pub(crate) struct Start {
    pub config: Arc<Config>,
    pub machine: Arc<Machine>,
    /// The log's devices are new, and what was on them is in the archive.
    pub log_is_lost: bool,
    /// Devices that the log went on without.
    pub left_behind: Vec<u32>,
    pub fuse: Arc<Fuse>,
    pub cut: Cut,
    /// Whether a checker task checks the database while clients run. The clients then create and drop tables too.
    pub checks: bool,
    pub seed: u64,
    pub recorder: Recorder,
    pub next_id: Arc<AtomicU32>,
    /// The consumer of the change feed, in starts that have one.
    pub feed: Option<Consumer>,
}

/// The root task. Returns the virtual time at the orderly end.
pub(crate) fn run_start(start: Start) -> Duration {
    let recorder = start.recorder.clone();
    if let Err(stop) = run_until_the_end(start) {
        recorder.record(stop.into_event());
    }
    Duration::from_nanos(tantalum_rt::now().as_nanos())
}

fn run_until_the_end(start: Start) -> Result<(), Stop> {
    let Start { config, machine, log_is_lost, left_behind, fuse, cut, checks, seed, recorder, next_id, feed } = start;
    let last = recorder.clone();
    let timeout = Length { time: START_TIMEOUT, operations: None };
    timeout.start(&fuse, move || last.record(Event::TimedOut(tantalum_rt::list_tasks())));
    if let Cut::DuringStart(length) = cut {
        length.start(&fuse, || ());
    }
    machine.power_on();
    if let Cut::DuringRecovery(length) = cut {
        length.start(&fuse, || ());
    }
    let (devices, spares) = (machine.devices(&fuse)?, machine.spares(&fuse));
    let all: Vec<_> = devices.log.iter().chain(&spares).cloned().collect();
    let archive = machine.archive(&fuse);
    // Faults, copies and spares would make it a question which devices are used.
    let is_certain = config.has_sound_devices() && config.log_copies == 1 && spares.is_empty();
    let read = match seed.is_multiple_of(READERS_EVERY) && is_certain && !log_is_lost {
        true => read_only(
            |archive| builder(&config, archive),
            devices.clone(),
            archive.clone(),
            config.load.key_pad,
            &recorder,
        )?,
        false => None,
    };
    let db = match log_is_lost {
        true => rebuild(&config, devices.clone(), archive.clone(), &recorder)?,
        false => open(&config, devices.clone(), &spares, archive.clone())?,
    };
    check_archive(&db, &config)?;
    if config.log_copies > 1 && follow_left_behind(&db, left_behind, config.logs[0].latency * 5, &recorder)? {
        recorder.record(Event::OnlyLeftBehind);
        return Ok(());
    }
    if config.may_lose_log_devices() {
        watch_copies(&db, config.logs[0].latency * 50, &recorder)?;
    }
    let recovery = db.stats()?.recovery;
    recorder.count("logs made anew from their archives", u64::from(log_is_lost));
    recorder.count("torn pages repaired", recovery.torn_pages);
    recorder.count("log records replayed", recovery.records);
    recorder.count("pages that awaited redo after an opening", recovery.pages_waiting);
    match seed.is_multiple_of(UNCHECKED_EVERY) {
        true => recorder.count("openings after which rows were read at once", u64::from(recovery.pages_waiting > 0)),
        false => check(&db, &recorder)?,
    }
    let contents = read_everything(&db.snapshot()?, &followed(&db)?, config.load.key_pad)?;
    if read.is_some_and(|read| read != contents) {
        let what = "a database that was opened for reading only shows something else than is recovered";
        return Err(Stop::Violation(what.to_owned()));
    }
    let feed = feed.map(|consumer| consumer.catch_up(&db, &contents, &config, &recorder)).transpose()?;
    let is_empty = contents.is_empty();
    recorder.record(Event::Recovered { contents, log_end: recovery.end_lsn.get() });
    let tables = (0..config.load.tables).map(|n| db.table(&table_name(n))).collect::<tantalum::Result<Vec<_>>>()?;
    if config.uses_up_segments && !matches!(cut, Cut::Never { transactions: 0 }) {
        use_up_segments(&db, config.page_size)?;
    }
    let transactions = match cut {
        Cut::Never { transactions } => Some(transactions),
        Cut::DuringStart(_) | Cut::DuringRecovery(_) | Cut::ByClosing(_) => None,
        Cut::DuringLoad(length) => {
            let (db, config, recorder) = (db.clone(), Arc::clone(&config), recorder.clone());
            length.start(&fuse, move || {
                if let Err(stop) = count(&db, &config, &recorder) {
                    recorder.record(stop.into_event());
                }
            });
            None
        }
    };
    let id_max = next_id.load(Ordering::Relaxed).saturating_add(TRANSACTIONS_MAX);
    let shared = Shared {
        db: db.clone(),
        tables,
        load: Arc::new(Load {
            drops_tables: config.load.drops_tables || checks || config.compacts_beside_clients,
            ..config.load.clone()
        }),
        page_size: config.page_size,
        kind: if config.is_serializable { Kind::Serializable } else { Kind::SnapshotIsolation },
        recorder: recorder.clone(),
        next_id,
        id_max,
    };
    // Before any client uses them.
    let fills = is_empty && transactions != Some(0);
    let mut bulk_loads = match fills && config.load.bulk_loads {
        true => (0..config.load.tables).map(|n| db.begin_bulk_load(&table_name(n))).collect::<tantalum::Result<_>>()?,
        false => Vec::new(),
    };
    let is_closed_meanwhile = matches!(cut, Cut::ByClosing(_));
    let panics = (config.panics && transactions.is_none() && !is_closed_meanwhile).then(|| {
        let mut random = Random::with_seed(seed ^ 0x9a_21c5);
        // Early points as often as late ones by order of magnitude; a commit comes to about ten.
        (random.usize(0..config.load.clients), 1 + (PANIC_POINT_MAX.powf(random.f64())) as u64)
    });
    let clients: Vec<_> = (0..config.load.clients)
        .map(|number| {
            let client = Client::new(shared.clone(), number, seed.wrapping_add(number as u64));
            let mut client = match panics {
                Some((panicking, point)) if panicking == number => client.that_panics_at(point),
                _ => client,
            };
            let recorder = recorder.clone();
            let fills = fills && number == 0;
            let bulk_loads = std::mem::take(&mut bulk_loads);
            spawn(format!("client-{number}"), move || {
                let result = match fills {
                    true if bulk_loads.is_empty() => client.fill(),
                    true => client.fill_in_bulk(bulk_loads),
                    false => Ok(()),
                };
                let result = match result.and_then(|()| client.run(transactions)) {
                    // What was placed in the log before is durable.
                    Err(Stop::Failed(error)) if is_closed_meanwhile && is_closed(&error) => client.finish_all(),
                    result => result,
                };
                if let Err(stop) = result {
                    let is_report = matches!(stop, Stop::Failed(_) | Stop::Poisoned(_));
                    recorder.record(stop.into_event());
                    // The others go on with what still works.
                    if !is_report {
                        tantalum_rt::power_cut();
                    }
                }
            })
        })
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let consumer = feed.map(|feed| follow(&db, feed, &config, &recorder, &stop, seed));
    let changes = !spares.is_empty();
    let operator = ((changes || config.log_copies > 1) && transactions != Some(0)).then(|| {
        let operator = Operator {
            db: db.clone(),
            devices: all,
            changes,
            random: Random::with_seed(seed),
            pause: config.logs[0].latency * 200,
            may_fail: config.faults.is_any(),
            recorder: recorder.clone(),
            stop: Arc::clone(&stop),
        };
        spawn("operator", move || operator.run())
    });
    let watcher = (config.archive.is_some() && transactions != Some(0)).then(|| {
        let (db, config) = (db.clone(), Arc::clone(&config));
        let (recorder, stop, pause) = (recorder.clone(), Arc::clone(&stop), config.logs[0].latency * 5);
        spawn("archive-watcher", move || {
            if let Err(end) = watch_archive(&db, &config, &recorder, &stop, pause) {
                recorder.record(end.into_event());
            }
        })
    });
    let checker = checks.then(|| {
        let (db, recorder, stop, pause) = (db.clone(), recorder.clone(), Arc::clone(&stop), config.data.latency * 20);
        spawn("checker", move || check_again_and_again(&db, &recorder, &stop, pause))
    });
    let compactor = (config.compacts_beside_clients && transactions != Some(0)).then(|| {
        let (db, recorder, stop, pause) = (db.clone(), recorder.clone(), Arc::clone(&stop), config.data.latency * 20);
        spawn("compactor", move || compact_again_and_again(&db, &recorder, &stop, pause))
    });
    let again = match cut {
        Cut::ByClosing(time) => {
            tantalum_rt::sleep(time);
            db.clone().close()?;
            recorder.count("databases closed beside clients", 1);
            check_closed(&db, &shared.tables[0])?;
            // Clients that still run must not be in the way. With copies, or other devices by now, opening takes more.
            match config.log_copies == 1 && spares.is_empty() {
                true => Some(open(&config, devices, &spares, archive)?),
                false => None,
            }
        }
        _ => None,
    };
    for client in clients {
        client.join().map_err(|_| Stop::Violation("a client panicked".to_owned()))?;
    }
    drop(shared);
    if transactions.is_none() && !is_closed_meanwhile {
        tantalum_rt::power_cut();
    }
    stop.store(true, Ordering::Release);
    for task in checker.into_iter().chain(consumer) {
        task.join().map_err(|_| Stop::Violation("the checker or the consumer panicked".to_owned()))?;
    }
    if let Some(compactor) = compactor {
        compactor.join().map_err(|_| Stop::Violation("the compactor panicked".to_owned()))?;
    }
    if let Some(operator) = operator {
        operator.join().map_err(|_| Stop::Violation("the operator panicked".to_owned()))?;
    }
    if let Some(watcher) = watcher {
        watcher.join().map_err(|_| Stop::Violation("the archive's watcher panicked".to_owned()))?;
    }
    let db = match again {
        Some(again) => again,
        None if is_closed_meanwhile => return Ok(()),
        None => db,
    };
    check(&db, &recorder)?;
    // Damage to any page that awaits redo, also to one that is free by now, stops checkpoints, and with them all that moves rows.
    check_nothing_is_staged(&db, config.faults.is_any() || config.loses_writes(), &recorder)?;
    count(&db, &config, &recorder)?;
    db.close()?;
    Ok(())
}

/// Writes the same pages again and again until the store cleans segments, so that it does so beside the clients. The model does not
/// follow the table.
fn use_up_segments(db: &Db, page_size: usize) -> Result<(), Stop> {
    let table = db.table("filler")?;
    for round in 0..100_u8 {
        if db.stats()?.store.log_structured.is_none_or(|store| store.segments_cleaned > 0) {
            break;
        }
        let mut transaction = db.begin()?;
        for key in 0..32_u8 {
            transaction.put(&table, [key], vec![round; page_size / 3])?;
        }
        transaction.commit()?;
        db.checkpoint()?;
    }
    Ok(())
}

/// A database that was closed answers nothing any more.
fn check_closed(db: &Db, table: &Table) -> Result<(), Stop> {
    let answers = [
        db.begin().err(),
        db.snapshot().err(),
        db.get(table, "").err(),
        db.table("another").err(),
        db.drop_table("another").err(),
        db.checkpoint().err(),
        db.check().err(),
    ];
    match answers.iter().find(|answer| !matches!(&answer, Some(error) if is_closed(error))) {
        None => Ok(()),
        Some(answer) => Err(Stop::Violation(format!("a closed database answers {answer:?}"))),
    }
}

/// What the log did with late writes since it was opened, and what the page store did. A session that ends by a count of
/// operations is not counted.
fn count(db: &Db, config: &Config, recorder: &Recorder) -> Result<(), Stop> {
    let stats = db.stats()?;
    recorder.count("pages read ahead", stats.pool.read_ahead);
    recorder.count("rows logged as the bytes that differ", stats.pool.patched_rows);
    recorder.count("writes that were deferred", stats.transactions.deferred_writes);
    recorder.count("staged or deferred rows that were moved", stats.transactions.rows_moved);
    if let Some(store) = stats.store.in_page {
        recorder.count("merges of erase units", store.merges);
        recorder.count("merges that carried active records over", store.merges_with_carry);
        recorder.count("records of aborted groups that merges dropped", store.records_dropped);
        recorder.count("merges that were avoided by overflow", store.merges_avoided);
        recorder.count("merges that freed overflow units", store.cleanings);
        recorder.count("erase units that compactions moved", store.units_moved);
        recorder.count("logical units that compactions gave back", store.units_forgotten);
        if store.failed_writes > 0 && !config.faults.is_any() {
            return Err(Stop::Violation(format!(
                "{} writes failed, of a store that breaks no rule",
                store.failed_writes
            )));
        }
    }
    if let Some(store) = stats.store.log_structured {
        recorder.count("segments that were cleaned", store.segments_cleaned);
        recorder.count("databases with pages kept apart by lifetime", u64::from(store.page_streams > 2));
        recorder.count("segments that compactions emptied", store.segments_packed);
        recorder.count("segments that compactions cut off", store.segments_cut_off);
        recorder.count("pages that cleaning moved", store.pages_moved);
        let page_bytes = store.pages_stored * config.page_size as u64;
        recorder.count("bytes of pages that compression saved", page_bytes.saturating_sub(store.bytes_stored));
        recorder.count("checkpoints of the page map", store.checkpoints);
        recorder.count("appends that recovery followed", store.appends_rolled_forward);
        recorder.count("waits for a free segment", store.waits);
    }
    let log = stats.log;
    recorder.count("late log writes", log.hiding.outliers);
    recorder.count("late log writes given to another device", log.hiding.reissued);
    recorder.count("late log writes that another device saved", log.hiding.won);
    recorder.count("log writes of devices that failed or hung", log.reissued);
    if let Some(archive) = log.archive {
        recorder.count("log writes that the archive had first", archive.completed);
        recorder.count("archives set aside", u64::from(archive.set_aside.is_some()));
    }
    Ok(())
}

/// Opens the database on new log devices. An archive whose device is sound leads there, whatever faults the other devices have.
fn rebuild(
    config: &Config,
    devices: Devices,
    archive: Option<Arc<dyn Device>>,
    recorder: &Recorder,
) -> Result<Db, Stop> {
    let options = LogOptions { archive: archive.clone().map(ArchiveOptions::on_device), ..LogOptions::default() };
    Log::rebuild(options, &mut |_| {})
        .and_then(|log| {
            recorder.record(Event::ArchiveEnds(log.end_lsn().get()));
            builder(config, archive).expert(|expert| expert.rebuild_log()).open_on(devices)
        })
        .map_err(|error| match error {
            error if config.archive_is_sound() && error.kind() == ErrorKind::NotArchived => {
                Stop::Violation(error.to_string())
            }
            error => error.into(),
        })
}

/// Opens the database. If devices come and go or burn, on those that it does not refuse by name; a new one on its own.
fn open(
    config: &Config,
    devices: Devices,
    spares: &[Arc<dyn Device>],
    archive: Option<Arc<dyn Device>>,
) -> Result<Db, Stop> {
    let [created, opened] = config.log_hiding;
    let changes_devices = !spares.is_empty() || config.may_lose_log_devices();
    if !changes_devices && created == opened {
        return Ok(builder(config, archive).open_on(devices)?);
    }
    let mut given = devices.clone();
    given.log.extend_from_slice(spares);
    loop {
        match builder(config, archive.clone()).create_if_missing(false).open_on(given.clone()) {
            // There is no superblock: the very thing that creation goes by.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(builder(config, archive).expert(|expert| expert.log_hiding(created)).open_on(devices)?);
            }
            Err(error) if error.kind() == ErrorKind::NotAMember && changes_devices && given.log.len() > 1 => {
                let refused = given.log.iter().position(|device| error.about() == Some(device.name()));
                given.log.remove(refused.ok_or(error)?);
            }
            opened => return Ok(opened?),
        }
    }
}

/// The least that the engine takes.
const LEAST_VERSION_BYTES: u64 = 16 << 10;
/// Memory for about three writes.
const TRANSACTION_MEMORY_BYTES: u64 = 1200;

fn builder(config: &Config, archive: Option<Arc<dyn Device>>) -> Builder {
    let isolation = if config.is_serializable { Isolation::Serializable } else { Isolation::SnapshotIsolation };
    let builder = match config.units {
        None => config.segments.map_or_else(Db::builder, |segments| segments.configure(Db::builder())),
        Some(Units { unit, region, carry_over_percent }) => {
            Db::builder().page_store(StoreKind::InPageLogging).expert(|expert| {
                expert.erase_unit_bytes(unit).log_region_bytes(region).carry_over_percent(carry_over_percent)
            })
        }
    };
    let builder = builder
        .page_size(config.page_size as u32)
        .buffer_pool_bytes((config.pool_pages * config.page_size) as u64)
        .isolation(isolation)
        .expert(|expert| expert.early_lock_release(config.early_lock_release).log_hiding(config.log_hiding[1]))
        .log_copies(config.log_copies)
        .expert(|expert| expert.log_layout(config.log.of_engine()));
    let builder = config.writing.configure(builder);
    let builder = if config.load.holds_snapshots {
        builder.expert(|expert| expert.version_bytes(LEAST_VERSION_BYTES))
    } else {
        builder
    };
    let builder = if config.load.stages { builder.transaction_memory_bytes(TRANSACTION_MEMORY_BYTES) } else { builder };
    match archive {
        Some(device) => builder.expert(|expert| expert.log_archive_on(device)),
        None => builder,
    }
}

/// The tables that the model follows, as far as they exist.
pub(crate) fn followed(db: &Db) -> Result<Vec<(u8, Table)>, Stop> {
    let mut tables = Vec::new();
    for name in db.tables()? {
        if let Some(number) = name.strip_prefix("table-").and_then(|number| number.parse().ok()) {
            tables.push((number, db.table(&name)?));
        }
    }
    Ok(tables)
}

pub(crate) fn table_name(number: u8) -> String {
    format!("table-{number}")
}
