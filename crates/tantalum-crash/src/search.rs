//! One seed: rounds of load, power cut, recovery and judgement on the same devices.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tantalum_flash::faults::FaultKind;
use tantalum_rt::{Outcome, Random, Simulation};

mod configuration;

use crate::{
    config::Config,
    content::{Key, Version},
    directory,
    faults::{Tolerance, fails_reads, hangs, tolerance},
    feed::{self, Consumer, Stored},
    history::{Event, Fate, History, Recorder},
    load::LoadKind,
    machine::{Fuse, Machine},
    model::{Contents, Rule, judge},
    report::{Failure, Report},
    round::{Cut, Length, START_TIMEOUT, Start, run_start},
    scope::{MEMORY, Scope},
};

/// Virtual time after which a run that goes on is one that never ends.
const TIME_LIMIT: Duration = START_TIMEOUT.saturating_mul(2);
/// Task switches after which a run that goes on is one that never ends.
const STEP_LIMIT: u64 = 20_000_000;
/// Power cuts in a row that may hit recovery, before it is let through.
const CUTS_DURING_RECOVERY_MAX: usize = 4;
/// Whatever the log's latency, a round may be so long.
const LENGTH_LEAST_MAX: Duration = Duration::from_millis(20);
/// Starts in a row that fail, before the database is given up.
const FAILED_STARTS_MAX: usize = 4;
/// Of the faults before a failure, its message has the latest ones.
const FAULTS_SHOWN: usize = 8;

/// Runs one seed: everything is decided by it, and running it again does the same to the byte.
///
/// Power cuts leak the heap that the cut-off tasks own: run many seeds in processes of their own.
///
/// ```no_run
/// let scope = tantalum_crash::Scope::new(tantalum_crash::Options::default())?;
/// let report = tantalum_crash::search(7, &scope)?;
/// assert_eq!(report.seeds, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What was violated. A panic inside the simulation, a deadlock among them, is a failure too.
pub fn search(seed: u64, scope: &Scope) -> Result<Report, Failure> {
    let is_wanted = |protection| scope.options.only.is_empty() || scope.options.only.contains(&protection);
    let config = Arc::new(Config::new(seed, scope));
    let mut report =
        if is_wanted(config.protection) { search_devices(seed, scope, &config)? } else { Report::default() };
    if scope.searches_directories() {
        directory::search(seed, is_wanted, &mut report).map_err(|(configuration, what)| {
            let profiles = vec![MEMORY.to_owned()];
            Failure { seed, profiles, configuration, round: 0, what }
        })?;
    }
    Ok(report)
}

/// The part of a seed in which the database is opened on devices.
fn search_devices(seed: u64, scope: &Scope, config: &Arc<Config>) -> Result<Report, Failure> {
    let machine = Machine::new(config).map_err(|error| scope.failure(seed, 0, error.to_string()))?;
    let mut search = Search::new(seed, scope, config, machine);
    search.run().map_err(|(round, what)| {
        let faults: String =
            search.machine.latest_faults(FAULTS_SHOWN).iter().map(|fault| format!("\n  {fault}")).collect();
        scope.failure(seed, round, what + &faults)
    })?;
    search.report.fingerprint = search.fingerprint.finish();
    Ok(search.report)
}

struct Search {
    seed: u64,
    config: Arc<Config>,
    machine: Arc<Machine>,
    random: Random,
    next_id: Arc<AtomicU32>,
    /// What the last completed recovery found.
    contents: Contents,
    /// What happened since.
    history: History,
    /// Whatever a commit was called for: nothing else may ever be read.
    committed: BTreeSet<(Key, Version)>,
    /// All that staged transactions wrote, also what they replaced before they committed: a device that loses what it says is durable may
    /// bring that back.
    staged: BTreeSet<(Key, Version)>,
    /// The faults that were counted so far.
    counted: BTreeMap<FaultKind, u64>,
    /// What there was since the last completed recovery.
    recent: Recent,
    /// Starts in a row that were given up before recovery had ended.
    failed_starts: usize,
    /// Whether there is a database, and its log is archived.
    has_recovered: bool,
    /// Whether all log devices were lost since the last completed recovery.
    log_is_lost: bool,
    /// Where the archive ended before the log was first made anew since then: what it has got later is not what was lost.
    lost_behind: Option<u64>,
    /// Numbers of log devices that the log went on without.
    left_behind: Vec<u32>,
    /// The archive has the log up to here.
    archived: u64,
    /// Whether a device is there that loses what it says is durable.
    expects_loss: bool,
    /// Whether the database is checked while clients run.
    checks: bool,
    /// What a consumer of the change feed has stored, in starts that have one.
    feed: Option<Stored>,
    /// Whether the consumer ends the feed in the next start.
    feed_ends: bool,
    report: Report,
    fingerprint: <foldhash::quality::FixedState as BuildHasher>::Hasher,
    clock: Duration,
}

/// What there was since the last completed recovery.
#[derive(Default)]
struct Recent {
    faults: BTreeSet<FaultKind>,
    was_cut: bool,
    was_reported: bool,
    was_lost: bool,
}

/// Whether the search can go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// The engine says again and again that the database cannot be opened.
    GivenUp,
}

impl Search {
    fn new(seed: u64, scope: &Scope, config: &Arc<Config>, machine: Machine) -> Self {
        Self {
            seed,
            machine: Arc::new(machine),
            random: Random::with_seed(seed ^ 0x7461_6e74_616c_756d),
            config: Arc::clone(config),
            next_id: Arc::new(AtomicU32::new(0)),
            contents: Contents::new(),
            history: History::default(),
            committed: BTreeSet::new(),
            staged: BTreeSet::new(),
            counted: BTreeMap::new(),
            recent: Recent::default(),
            failed_starts: 0,
            has_recovered: false,
            log_is_lost: false,
            lost_behind: None,
            left_behind: Vec::new(),
            archived: 0,
            expects_loss: scope.options.profiles.is_empty() && config.loses_writes(),
            checks: false,
            feed: None,
            feed_ends: false,
            report: Report { seeds: 1, ..Report::default() },
            fingerprint: foldhash::quality::FixedState::with_seed(0).build_hasher(),
            clock: Duration::ZERO,
        }
    }

    fn run(&mut self) -> Result<(), (usize, String)> {
        self.note_configuration();
        let result = self.run_rounds();
        self.count_faults();
        self.settle_faults();
        self.report.count("dumps that exceeded the capacitors", self.machine.dump_overruns());
        self.report.count("transactions", u64::from(self.next_id.load(Ordering::Relaxed)));
        result
    }

    fn run_rounds(&mut self) -> Result<(), (usize, String)> {
        let rounds = self.config.rounds;
        for round in 0..rounds {
            for cut in self.plan_round() {
                if self.step(cut).map_err(|what| (round, what))? == Step::GivenUp {
                    return Ok(());
                }
            }
        }
        // The last starts are not cut: an orderly end, and a start after it.
        for transactions in [10, 0] {
            if self.step(Cut::Never { transactions }).map_err(|what| (rounds, what))? == Step::GivenUp {
                return Ok(());
            }
        }
        self.run_beside_clients()?;
        if feed::is_followed(self.seed, &self.config) { self.run_with_consumer() } else { Ok(()) }
    }

    /// At the end too: a consumer of the change feed follows, across power cuts and an orderly end.
    fn run_with_consumer(&mut self) -> Result<(), (usize, String)> {
        (self.checks, self.feed) = (false, Some(Stored::default()));
        // In the start that is cut in recovery, perhaps while the feed is being ended, or in the next.
        let ends_in = Random::with_seed(self.seed ^ 0xfeed_e4d5).usize(2..4);
        for start in 0..7 {
            self.feed_ends = start == ends_in;
            let cut = match start {
                2 => Cut::DuringRecovery(self.length(1.0, 300.0)),
                5 => Cut::Never { transactions: 20 },
                6 => Cut::Never { transactions: 0 },
                _ => Cut::DuringLoad(self.length(20.0, 400.0)),
            };
            if self.step(cut).map_err(|what| (self.config.rounds, what))? == Step::GivenUp {
                break;
            }
        }
        Ok(())
    }

    /// What some seeds do at the end, so that what all do before does not depend on it.
    fn run_beside_clients(&mut self) -> Result<(), (usize, String)> {
        let rounds = self.config.rounds;
        self.checks = self.config.checks_beside_clients;
        let checked = if self.checks { 3 } else { 0 };
        let closed = if self.config.closes_beside_clients { 3 } else { 0 };
        for start in 0..checked + closed {
            self.checks &= start < checked;
            let length = self.length(20.0, 400.0);
            let cut = match start {
                0..2 if checked > 0 => Cut::DuringLoad(length),
                2 if checked > 0 => Cut::Never { transactions: 20 },
                _ => Cut::ByClosing(length.time),
            };
            if self.step(cut).map_err(|what| (rounds, what))? == Step::GivenUp {
                return Ok(());
            }
        }
        if checked + closed > 0 {
            self.step(Cut::Never { transactions: 0 }).map_err(|what| (rounds, what))?;
        }
        Ok(())
    }

    /// Some cuts during recovery, or none, and one in the middle of the load.
    fn plan_round(&mut self) -> Vec<Cut> {
        let cuts_during_recovery = [0, 0, 1, 2, CUTS_DURING_RECOVERY_MAX][self.random.usize(0..5)];
        let mut cuts = Vec::new();
        let slowest = self.config.drives().map(|drive| drive.start_latency).max().unwrap_or_default();
        for _ in 0..cuts_during_recovery {
            cuts.push(if self.random.u8(0..4) == 0 {
                Cut::DuringStart(Length { time: slowest.mul_f64(1.2 * self.random.f64()), operations: None })
            } else {
                Cut::DuringRecovery(self.length(1.0, 300.0))
            });
        }
        let (shortest, longest) = match self.config.load.kind {
            LoadKind::Mixed => (2.0, 400.0),
            LoadKind::Uniform => (2.0, 30.0),
            // It takes some time until the file is full and grows.
            LoadKind::Growing => (200.0, 2000.0),
        };
        cuts.push(Cut::DuringLoad(self.length(shortest, longest)));
        cuts
    }

    /// So many latencies of a device at random, short ones as often as long ones by order of magnitude.
    fn length(&mut self, min: f64, max: f64) -> Length {
        let latencies = min * (max / min).powf(self.random.f64());
        let drives: Vec<_> = self.config.drives().collect();
        // Mostly those of the log, which come first, and which clients wait for. A uniform load is about what a short
        // round leaves in the log for the next one.
        let logs = self.config.logs.len();
        let count = if self.config.load.kind == LoadKind::Uniform || self.random.bool() { logs } else { drives.len() };
        let latency = drives[self.random.usize(0..count)].latency;
        // While a slow device does little, a fast log could do more than the model can look through.
        let fastest = drives[..logs].iter().map(|drive| drive.latency).min().unwrap_or_default();
        let time = latency.mul_f64(latencies).min(LENGTH_LEAST_MAX + fastest.mul_f64(max));
        let operations = self.random.bool().then(|| 1 + (latencies * self.random.f64() * 3.0) as u64);
        if self.config.faults.hang() && self.random.bool() {
            // Long enough for a hang timeout to pass.
            let time = Duration::from_secs(self.random.u64(10..60));
            return Length { time, operations: Some(operations.unwrap_or(latencies as u64 * 3 + 1)) };
        }
        Length { time, operations }
    }

    /// One start of the database until its power is cut, or its orderly end; then the judgement.
    fn step(&mut self, cut: Cut) -> Result<Step, String> {
        let (recorder, events) = Recorder::new();
        let fuse = Fuse::new(self.random.bool());
        let seed = self.random.u64(..);
        if self.config.cuts_at_head && matches!(cut, Cut::DuringRecovery(_) | Cut::DuringLoad(_)) {
            // Two for superblocks, two for the slots of the page map's root.
            fuse.light_at_head(Random::with_seed(seed).u64(1..=4));
        }
        let start = Start {
            config: Arc::clone(&self.config),
            machine: Arc::clone(&self.machine),
            log_is_lost: self.log_is_lost,
            left_behind: self.left_behind.clone(),
            fuse,
            cut,
            checks: self.checks,
            seed,
            recorder,
            next_id: Arc::clone(&self.next_id),
            feed: self.feed.as_ref().map(|stored| {
                let Stored { position, ending, .. } = *stored;
                Consumer { stored: position, ending, ends: std::mem::take(&mut self.feed_ends) }
            }),
        };
        let simulation = Simulation::new(start.seed)
            .cores(self.config.cores)
            .start_at(self.clock)
            .time_limit(self.clock + TIME_LIMIT)
            .step_limit(STEP_LIMIT);
        let root = move || run_start(start);
        let outcome = catch_unwind(AssertUnwindSafe(|| simulation.run(root)));
        if let Err(panic) = outcome {
            return Err(format!("panic: {}", message(panic.as_ref())));
        }
        self.count_faults();
        let mut seen = Seen::default();
        while let Ok(event) = events.try_recv() {
            self.take(event, &mut seen)?;
        }
        let is_cut_short = matches!(outcome, Ok(Outcome::PowerCut { .. }));
        if let Ok(Outcome::Finished(now) | Outcome::PowerCut { at: now }) = outcome {
            self.clock = now;
        }
        if let Some(tasks) = seen.timed_out.take().filter(|_| !self.has_hung()) {
            return Err(format!("it hangs: no end after {START_TIMEOUT:?}{tasks}"));
        }
        if is_cut_short {
            self.recent.was_cut = true;
            self.report.count("power cuts", 1);
            self.report.count("power cuts during recovery", u64::from(!seen.recovered));
            self.report.count("power cuts while devices start", u64::from(matches!(cut, Cut::DuringStart(_))));
        }
        if is_cut_short || seen.gave_up {
            // After a report the machine is switched off and on, too: an operator would try that first.
            self.cut_devices();
        } else {
            // A log that was closed is archived as a whole.
            self.archived = self.archived.max(self.history.acknowledged_up_to());
        }
        self.lose_logs()?;
        if is_cut_short && seen.may_lose_device && !self.log_is_lost && self.random.bool() {
            self.lose_device()?;
        }
        assert!(seen.recovered || seen.gave_up || is_cut_short, "a start that is not cut ends after its recovery");
        self.clock.hash(&mut self.fingerprint);
        self.failed_starts = if seen.gave_up && !seen.recovered { self.failed_starts + 1 } else { 0 };
        if self.failed_starts < FAILED_STARTS_MAX && !seen.only_left_behind {
            return Ok(Step::Done);
        }
        self.report.count("databases given up after a report", 1);
        Ok(Step::GivenUp)
    }

    /// Decides what the devices have lost. What was under way at the cut is known by the virtual clock, so this is done on
    /// it too.
    fn cut_devices(&mut self) {
        let (machine, mut random) = (Arc::clone(&self.machine), self.random.fork());
        let simulation = Simulation::new(0).start_at(self.clock);
        simulation.run(move || machine.power_cut(&mut random)).expect_finished();
    }

    /// Takes all log devices away, if the seed wants it so, and puts new ones in their place.
    fn lose_logs(&mut self) -> Result<(), String> {
        let one_in = self.config.archive.as_ref().map_or(0, |archive| archive.loses_log_one_in);
        if one_in == 0 || !self.has_recovered || self.log_is_lost || self.random.u8(0..one_in) > 0 {
            return Ok(());
        }
        let machine = self.machine.with_new_logs(&self.config, self.clock).map_err(|error| error.to_string())?;
        self.machine = Arc::new(machine);
        self.log_is_lost = true;
        self.report.count("logs lost with all their devices", 1);
        Ok(())
    }

    /// One log device burns with everything on it. A blank one has its place.
    fn lose_device(&mut self) -> Result<(), String> {
        let (machine, mut random, config) = (Arc::clone(&self.machine), self.random.fork(), Arc::clone(&self.config));
        let simulation = Simulation::new(0).start_at(self.clock);
        let poorer = simulation.run(move || machine.without_a_log_device(&config, &mut random)).expect_finished();
        self.machine = Arc::new(poorer.map_err(|error| error.to_string())?);
        self.report.count("log devices lost with a copy", 1);
        Ok(())
    }

    fn take(&mut self, event: Event, seen: &mut Seen) -> Result<(), String> {
        format!("{event:?}").hash(&mut self.fingerprint);
        let tolerance = self.tolerance();
        match event {
            Event::Violation(what) => return Err(what),
            Event::Reported(what) if tolerance < Tolerance::Errors => return Err(format!("unexpected error: {what}")),
            Event::Reported(_) => {
                seen.gave_up = true;
                self.recent.was_reported = true;
                self.report.count("failures reported", 1);
            }
            Event::Poisoned(what) if !self.config.panics => return Err(format!("stopped without a panic: {what}")),
            Event::Poisoned(_) => seen.gave_up = true,
            Event::Unsound(what) if !self.may_fail_reads() && tolerance < Tolerance::Loss => {
                return Err(format!("the check finds: {what}"));
            }
            Event::Unsound(_) => {
                seen.gave_up = true;
                self.recent.was_reported = true;
                self.report.count("problems that the check found", 1);
            }
            Event::Oddity(what) if tolerance < Tolerance::Loss => return Err(what),
            Event::Oddity(_) => {
                seen.gave_up = true;
                self.recent.was_lost = true;
                self.report.count("oddities read", 1);
            }
            Event::LeftBehind(numbers) => self.left_behind = numbers,
            Event::OnlyLeftBehind => {
                seen.gave_up = true;
                seen.only_left_behind = true;
                self.report.count("logs on devices that were left behind, given up", 1);
            }
            Event::TimedOut(tasks) => seen.timed_out = Some(tasks),
            Event::Staged(versions) => self.staged.extend(versions),
            Event::MayLoseLogDevice => seen.may_lose_device = true,
            Event::Count(name, n) => self.report.count(name, n),
            Event::FeedBegins { position, rows } => {
                self.feed.iter_mut().for_each(|feed| feed.begin(position, rows.clone()))
            }
            Event::FeedEnds(ending) => self.feed.iter_mut().for_each(|feed| feed.ending = ending),
            Event::Fed { position, writes } => self.feed.as_mut().map_or(Ok(()), |feed| feed.take(position, writes))?,
            Event::Archived(lsn) => self.archived = self.archived.max(lsn),
            Event::ArchiveEnds(lsn) => {
                self.lost_behind.get_or_insert(lsn);
            }
            Event::Recovered { contents, log_end } => {
                seen.recovered = true;
                self.has_recovered = true;
                let (archived, is_lost) = (self.archived, std::mem::take(&mut self.log_is_lost));
                if log_end < archived && tolerance < Tolerance::Loss {
                    return Err(format!("the archive had the log up to LSN {archived}, but it ends at LSN {log_end}"));
                }
                if let Some(feed) = &mut self.feed {
                    feed.check(&contents, self.history.acknowledged())?;
                }
                let lost_behind = self.lost_behind.take().filter(|_| is_lost);
                self.judge(contents, lost_behind, tolerance)?;
            }
            event => {
                let is_acknowledged = matches!(event, Event::Acknowledged { .. });
                self.report.count("acknowledged", u64::from(is_acknowledged));
                if let Event::Commit { writes, .. } = &event {
                    let written = writes.iter().filter_map(|(&key, &version)| Some((key, version?)));
                    self.committed.extend(written);
                }
                self.history.add(event);
            }
        }
        Ok(())
    }

    /// Compares what recovery found with what clients know.
    /// If all log devices were lost, the commits behind the archive's end are `lost`, acknowledged or not.
    fn judge(&mut self, contents: Contents, lost: Option<u64>, tolerance: Tolerance) -> Result<(), String> {
        let mut history = std::mem::take(&mut self.history).into_transactions();
        if let Some(end) = lost {
            for transaction in &mut history {
                transaction.lose_behind(end);
            }
            let count = history.iter().filter(|lost| lost.fate == Fate::Lost && !lost.writes.is_empty()).count();
            self.report.count("acknowledged commits lost with all log devices, not archived yet", count as u64);
        }
        match judge(&self.contents, &history, &contents) {
            Ok(judgement) => {
                self.report.count("unknown commits found", judgement.survived);
                self.report.count("unknown commits absent", judgement.lost);
            }
            Err(violation) if tolerance < Tolerance::Loss => return Err(violation.to_string()),
            Err(violation) => {
                let is_known = |row| self.committed.contains(&row) || self.staged.contains(&row);
                let invented = contents.iter().find(|&(&key, &version)| !is_known((key, version)));
                if let Some((key, version)) = invented {
                    return Err(format!("key {key} holds {version}, which was never committed"));
                }
                self.recent.was_lost = true;
                self.report.count("losses that no device reported", u64::from(violation.rule != Rule::Undecided));
            }
        }
        self.report.count("recoveries checked", 1);
        self.report.schedules += u64::from(self.recent.was_cut);
        for profile in self.config.profiles() {
            self.report.profiles.entry(profile).or_default().schedules += u64::from(self.recent.was_cut);
        }
        self.settle_faults();
        self.contents = contents;
        Ok(())
    }

    /// Takes note of the faults that happened since the last time.
    fn count_faults(&mut self) {
        let machine = Arc::clone(&self.machine);
        for (kind, count) in machine.faults() {
            let before = self.counted.insert(kind, count).unwrap_or(0);
            if count > before {
                self.recent.faults.insert(kind);
                self.report.fault(kind).injected += count - before;
            }
        }
    }

    /// What the recent faults have come to.
    fn settle_faults(&mut self) {
        let Recent { faults, was_reported, was_lost, .. } = std::mem::take(&mut self.recent);
        if self.expects_loss {
            // Whatever came of them, it need not be their doing.
            return;
        }
        for kind in faults {
            let counts = self.report.fault(kind);
            match (was_lost, was_reported) {
                (true, _) => counts.lost += 1,
                (false, true) => counts.reported += 1,
                (false, false) => counts.survived += 1,
            }
        }
    }

    /// What may happen after the faults that there were.
    fn tolerance(&self) -> Tolerance {
        let is_on_raw_flash = self.config.data.is_raw_flash();
        let of_faults =
            self.counted.iter().filter(|(_, count)| **count > 0).map(|(&kind, _)| tolerance(kind, is_on_raw_flash));
        let of_devices = if self.expects_loss { Tolerance::Loss } else { Tolerance::Nothing };
        of_faults.fold(of_devices, Tolerance::max)
    }

    /// Whether a page may be one that the check cannot read.
    fn may_fail_reads(&self) -> bool {
        self.counted.iter().any(|(&kind, count)| *count > 0 && fails_reads(kind))
    }

    /// Whether a device hung, so that tasks that need it wait.
    fn has_hung(&self) -> bool {
        self.counted.iter().any(|(&kind, count)| *count > 0 && hangs(kind))
    }
}

/// What one start brought.
#[derive(Default)]
struct Seen {
    recovered: bool,
    /// Whether a task that used the database did not go on: for an error, a problem that the check found, or something
    /// odd.
    gave_up: bool,
    may_lose_device: bool,
    only_left_behind: bool,
    /// What each task waited for when the start timed out.
    timed_out: Option<String>,
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// The search found (its seeds 54723 and 84003 at the time) that a start could end with something odd, read right after
    /// recovery on a device that had lost a write, and that it took this for the end of no kind.
    #[test]
    fn what_is_odd_ends_a_start() {
        let scope = Scope::new(Options::default()).expect("the default can be searched");
        let config = Arc::new(Config::new(1, &scope));
        let machine = Machine::new(&config).expect("it is built");
        let mut search = Search::new(1, &scope, &config, machine);
        search.counted.insert(FaultKind::LostWrite, 1);
        let mut seen = Seen::default();
        search.take(Event::Oddity("key 1 holds garbage".into()), &mut seen).expect("a lost write may do that");
        assert!(seen.gave_up && search.recent.was_lost);
        search.counted.clear();
        search.expects_loss = false;
        search.take(Event::Oddity("key 1 holds garbage".into()), &mut seen).expect_err("nothing may do that");
    }
}
