//! The search for an order of the writers that explains all they read, and a beginning of it that explains what was
//! recovered.
//!
//! Writers with a known place in the log form a chain that is only followed. A *floating* one was cut off inside
//! `commit`: it comes after all that were in the log when its client called `commit`, and is tried there first, since a
//! commit soon has its place and then waits long for the device.
//!
//! What was recovered says most of where a floating one stands: a beginning that has overwritten a recovered version for good is
//! followed no further. If that leaves nothing, the search is repeated without it, to tell what is wrong.

use std::{
    collections::{BTreeSet, HashSet},
    hash::BuildHasher,
};

use super::{
    Contents, Rule, Violation,
    followed::{Followed, Moments},
    readers,
    remaining::Remaining,
    sources,
    state::State,
};
use crate::history::{Fate, Kind, Read, Transaction};

/// Rows and readers looked at before the model gives up: some ten seconds.
const STEPS_MAX: u64 = 200_000_000;

/// Situations that are remembered as dead ends: some hundred MiB.
const DEAD_ENDS_MAX: usize = 4_000_000;

/// How many floating writers the model can keep apart.
const FLOATING_MAX: usize = 64;

/// An order of the writers.
#[derive(Debug)]
pub(super) struct Order {
    /// The writers in order, as numbers in the list of transactions.
    pub writers: Vec<usize>,
    /// How many of them, from the first on, are what recovery found.
    pub survivors: usize,
}

/// Finds an order, or says what stands against it.
pub(super) fn find(initial: &Contents, transactions: &[Transaction], recovered: &Contents) -> Result<Order, Violation> {
    let mut search = Search::new(initial, transactions, recovered);
    search.check_real_time()?;
    if search.floating.len() > FLOATING_MAX {
        let detail = format!("{} unfinished commits", search.floating.len());
        return Err(Violation { rule: Rule::Undecided, detail });
    }
    if search.explore(0) {
        let survivors = *search.recovered_at.last().expect("an order is complete only with its survivors");
        return Ok(Order { writers: search.placed, survivors });
    }
    if search.steps < STEPS_MAX && search.reader_violation.is_none() {
        search.explore_any_recovery();
    }
    Err(search.explain())
}

struct Floating {
    transaction: usize,
    /// How many of the chain must come before it: those in the log when it called commit, those whose writes it overwrote as
    /// others saw, and those whose writes others saw before it began.
    first_place: usize,
    /// How many of the chain may come before it: those that did not see its writes, nor began after others had.
    last_place: usize,
    /// Another transaction saw its writes, or may have.
    was_met: bool,
    /// Without one, it makes no difference whether it was ever there.
    left_a_trace: bool,
    /// The place that it was given.
    placed_at: Option<usize>,
}

struct Search<'a> {
    initial: &'a Contents,
    transactions: &'a [Transaction],
    chain: Vec<usize>,
    floating: Vec<Floating>,
    state: State<'a>,
    remaining: Remaining<'a>,
    placed: Vec<usize>,
    /// Lengths of the beginnings that hold all acknowledged ones and are what was recovered.
    recovered_at: Vec<usize>,
    acknowledged_left: usize,
    /// Transactions that had not ended when the first floating one began.
    late_readers: Vec<usize>,
    /// Those of them that write nothing, so that a moment between writers is all they need.
    followed: Followed<'a>,
    /// For each number of placed writers, what became of the readers that are followed then.
    moments: Vec<Moments>,
    /// With snapshot isolation, for each number of placed writers, a hash of the whole way to them.
    ways: Option<Vec<u64>>,
    hasher: foldhash::quality::FixedState,
    /// Whatever was recovered will do.
    accepts_any_recovery: bool,
    /// Situations that lead nowhere.
    dead_ends: HashSet<(usize, u64, u64, u128, bool), foldhash::quality::FixedState>,
    /// Rows and readers that were looked at.
    steps: u64,
    /// The furthest that the chain could be followed, and why not further.
    furthest: (usize, String),
    /// The beginning with all acknowledged ones that came nearest to the recovered contents: how many keys differed,
    /// and some of them.
    nearest: Option<(usize, String)>,
    was_ordered: bool,
    /// The first complete order that failed for its readers, and how many did.
    reader_violation: Option<Violation>,
    reader_violations: u64,
}

impl<'a> Search<'a> {
    fn new(initial: &'a Contents, transactions: &'a [Transaction], recovered: &'a Contents) -> Self {
        let writers = (0..transactions.len())
            .filter(|&n| transactions[n].fate != Fate::RolledBack && !transactions[n].writes.is_empty());
        let (mut chain, unplaced): (Vec<_>, Vec<_>) = writers.partition(|&n| transactions[n].position.is_some());
        chain.sort_by_key(|&n| transactions[n].position);
        let acknowledged = chain.iter().chain(&unplaced).filter(|&&n| transactions[n].fate == Fate::Acknowledged);
        let acknowledged_left = acknowledged.count();
        let first_floating = unplaced.iter().map(|&n| transactions[n].begun).min().unwrap_or(usize::MAX);
        let is_late = |t: &Transaction| t.ended.is_none_or(|end| end > first_floating);
        let late_readers: Vec<_> = (0..transactions.len()).filter(|&n| is_late(&transactions[n])).collect();
        let floating_keys: BTreeSet<_> =
            unplaced.iter().flat_map(|&n| transactions[n].writes.keys()).copied().collect();
        let reads_a_floating_key = |n: &&usize| {
            let covers = |read: &Read| floating_keys.iter().any(|&key| sources::covers(read, key));
            transactions[**n].reads.iter().any(covers)
        };
        let only_read = late_readers.iter().filter(|n| readers::only_reads(&transactions[**n]));
        let (decisive, others): (Vec<&usize>, Vec<_>) = only_read.partition(reads_a_floating_key);
        let followed = Followed::new(transactions, &chain, decisive.into_iter().chain(others).copied());
        let floating: Vec<_> =
            unplaced.into_iter().map(|n| Floating::new(transactions, &chain, recovered, n)).collect();
        let to_float = floating.iter().filter(|floating| floating.left_a_trace).map(|floating| floating.transaction);
        let to_come = chain.iter().copied().chain(to_float).map(|n| &transactions[n]);
        let remaining = Remaining::new(initial, recovered, to_come);
        let is_snapshot_isolated = transactions.iter().any(|transaction| transaction.kind == Kind::SnapshotIsolation);
        let mut search = Self {
            initial,
            transactions,
            chain,
            floating,
            state: State::new(initial, recovered),
            remaining,
            placed: Vec::new(),
            recovered_at: Vec::new(),
            acknowledged_left,
            late_readers,
            followed,
            moments: Vec::new(),
            ways: is_snapshot_isolated.then(|| vec![0]),
            hasher: foldhash::quality::FixedState::with_seed(0),
            accepts_any_recovery: false,
            dead_ends: HashSet::default(),
            steps: 0,
            furthest: (0, String::new()),
            nearest: None,
            was_ordered: false,
            reader_violation: None,
            reader_violations: 0,
        };
        search.moments = vec![search.followed.start(&search.state)];
        search
    }

    /// Places in the log must not contradict real time: a transaction that was in the log before another called commit comes first.
    fn check_real_time(&self) -> Result<(), Violation> {
        let mut latest: Option<&Transaction> = None;
        for transaction in self.chain.iter().map(|&n| &self.transactions[n]) {
            if let Some(before) = latest.filter(|before| transaction.was_placed_before(before)) {
                let detail = format!(
                    "T{} was in the log before T{} called commit, but comes after it there",
                    transaction.id, before.id
                );
                return Err(Violation { rule: Rule::Isolation, detail });
            }
            if latest.is_none_or(|latest| latest.called < transaction.called) {
                latest = Some(transaction);
            }
        }
        Ok(())
    }

    /// Completes the order from the chain's place `from` on; what was placed so far stays. Leaves all as it was when
    /// that is impossible.
    fn explore(&mut self, from: usize) -> bool {
        let settled = self.moments_now().settled;
        let situation = (from, self.mask(), self.fingerprint(), settled, !self.recovered_at.is_empty());
        let violations = self.reader_violations;
        if self.dead_ends.contains(&situation) {
            return false;
        }
        let mut place = from;
        let found = loop {
            self.note_survivors();
            if self.is_recovery_lost() {
                break false;
            }
            if let Some(found) = self.branch(place) {
                break found;
            }
            if place == self.chain.len() {
                break self.is_complete();
            }
            if !self.can_follow(place) {
                break false;
            }
            self.push(self.chain[place], true);
            place += 1;
        };
        if found {
            return true;
        }
        for _ in from..place {
            self.pop();
        }
        // Readers that are not followed depend on the way, and not only on where it has led.
        if self.reader_violations == violations && self.dead_ends.len() < DEAD_ENDS_MAX {
            self.dead_ends.insert(situation);
        }
        false
    }

    /// Looks for an order of the writers, whatever was recovered.
    fn explore_any_recovery(&mut self) {
        self.accepts_any_recovery = true;
        self.dead_ends.clear();
        self.steps = 0;
        self.explore(0);
    }

    /// Whether no beginning was what was recovered, and none will be.
    fn is_recovery_lost(&self) -> bool {
        !self.accepts_any_recovery && self.recovered_at.is_empty() && self.remaining.lost() > 0
    }

    /// Completes the order with a floating writer at `place`, or else without one there; `None` when none can stand
    /// there.
    fn branch(&mut self, place: usize) -> Option<bool> {
        let mut branched = false;
        for n in 0..self.floating.len() {
            if self.can_float(n, place) {
                branched = true;
                self.floating[n].placed_at = Some(place);
                self.push(self.floating[n].transaction, false);
                if self.explore(place) {
                    return Some(true);
                }
                self.pop();
                self.floating[n].placed_at = None;
            }
        }
        if !branched {
            return None;
        }
        if place == self.chain.len() {
            return Some(self.is_complete());
        }
        if !self.can_follow(place) {
            return Some(false);
        }
        self.push(self.chain[place], true);
        let found = self.explore(place + 1);
        if !found {
            self.pop();
        }
        Some(found)
    }

    /// What the rest of the search depends on: the contents, or with snapshot isolation the whole way to them.
    fn fingerprint(&self) -> u64 {
        match &self.ways {
            None => self.state.fingerprint(),
            Some(ways) => *ways.last().expect("there is one for no writers"),
        }
    }

    fn mask(&self) -> u64 {
        self.floating
            .iter()
            .enumerate()
            .fold(0, |mask, (n, floating)| mask | u64::from(floating.placed_at.is_some()) << n)
    }

    fn note_survivors(&mut self) {
        if self.acknowledged_left > 0 || self.recovered_at.last() == Some(&self.placed.len()) {
            return;
        }
        if self.state.equals_recovered() {
            self.recovered_at.push(self.placed.len());
        } else if self.nearest.as_ref().is_none_or(|(differing, _)| self.state.differing() < *differing) {
            self.nearest = Some((self.state.differing(), self.state.differences()));
        }
    }

    /// Whether an order of the whole chain also explains the recovered contents and all readers.
    fn is_complete(&mut self) -> bool {
        self.was_ordered = true;
        if self.accepts_any_recovery {
            return true;
        }
        let Some(&survivors) = self.recovered_at.last() else { return false };
        // The places of floating writers matter most to readers that ran beside them, so the search checks these first.
        let late = self.late_readers.clone();
        let all: Vec<_> = (0..self.transactions.len()).collect();
        let check = |search: &mut Self, readers: &[usize]| {
            search.steps += (search.placed.len() * (1 + readers.len() / 16)) as u64;
            readers::check(search.initial, search.transactions, &search.placed, survivors, readers)
        };
        let are_settled = self.followed.are_settled(self.moments_now());
        if !are_settled && self.reader_violation.is_some() {
            return false;
        }
        match check(self, &late).and_then(|()| check(self, &all)) {
            Ok(()) => true,
            Err(violation) => {
                // What the search follows is a part of the situation.
                self.reader_violations += u64::from(are_settled);
                self.reader_violation.get_or_insert(violation);
                false
            }
        }
    }

    fn can_follow(&mut self, place: usize) -> bool {
        let transaction = &self.transactions[self.chain[place]];
        let is_too_late = |floating: &Floating| floating.placed_at.is_none() && floating.last_place <= place;
        let contradiction = if self.floating.iter().any(is_too_late) {
            Some("what an unfinished commit wrote was seen by it, or before it began".to_owned())
        } else {
            self.stranded_by(self.chain[place]).or_else(|| self.contradiction(self.chain[place]))
        };
        match contradiction {
            None => true,
            Some(contradiction) => {
                if self.furthest.1.is_empty() || place > self.furthest.0 {
                    self.furthest = (place, format!("T{} ({:?}): {contradiction}", transaction.id, transaction.fate));
                }
                false
            }
        }
    }

    /// Whether floating writer `n` can stand here.
    fn can_float(&mut self, n: usize, place: usize) -> bool {
        let floating = &self.floating[n];
        let may_stand_here = floating.left_a_trace
            && floating.placed_at.is_none()
            && (floating.first_place..=floating.last_place).contains(&place)
            && !self.was_tried_the_other_way(n, place);
        if !may_stand_here || self.steps >= STEPS_MAX {
            return false;
        }
        let writer = self.floating[n].transaction;
        self.steps += (1 + self.followed.count(self.moments_now()) + self.transactions[writer].reads.len()) as u64;
        self.stranded_by(writer).is_none() && self.contradiction(writer).is_none()
    }

    fn moments_now(&self) -> Moments {
        *self.moments.last().expect("there is one for no writers")
    }

    /// A followed reader for which no moment would be left if writer `n` were the next.
    fn stranded_by(&self, n: usize) -> Option<String> {
        let reader = self.followed.stranded_by(self.moments_now(), &self.transactions[n])?;
        Some(format!("no moment would be left at which all is so that T{} ({:?}) read", reader.id, reader.fate))
    }

    /// Whether floating writer `n` would follow one right before it that comes after it in the list, though the
    /// history does not tell in which order they are.
    fn was_tried_the_other_way(&self, n: usize, place: usize) -> bool {
        let Some(&last) = self.placed.last() else { return false };
        let is_last = |m: &Floating| m.transaction == last && m.placed_at == Some(place);
        self.floating[n + 1..].iter().any(|m| is_last(m) && self.are_unordered(&self.floating[n], m))
    }

    /// Whether the history does not tell in which order these stand.
    fn are_unordered(&self, a: &Floating, b: &Floating) -> bool {
        let [x, y] = [a, b].map(|floating| &self.transactions[floating.transaction]);
        let meet = x.writes.keys().any(|key| y.writes.contains_key(key))
            || x.reads.iter().any(|read| y.writes.keys().any(|&key| sources::covers(read, key)))
            || y.reads.iter().any(|read| x.writes.keys().any(|&key| sources::covers(read, key)));
        !a.was_met && !b.was_met && !meet
    }

    /// What stands against writer `n` being the next: a serializable one must see what is there now; a snapshot isolated
    /// one what was there at some moment after its begin and after the last other write of its keys.
    fn contradiction(&mut self, n: usize) -> Option<String> {
        let transaction = &self.transactions[n];
        let contradiction = self.state.contradiction(&transaction.reads)?;
        if transaction.kind == Kind::Serializable {
            return Some(contradiction);
        }
        let first = readers::first_moment(self.transactions, &self.placed, n);
        self.steps += 1 + (self.placed.len() - first) as u64;
        let mut moment = self.placed.len();
        let mut agrees = false;
        while moment > first && !agrees {
            moment -= 1;
            self.state.undo();
            agrees = self.state.agrees(&transaction.reads);
        }
        for &again in &self.placed[moment..] {
            self.state.apply(&self.transactions[again]);
        }
        (!agrees).then_some(contradiction)
    }

    /// Places a writer: the next of the chain, or a floating one.
    fn push(&mut self, n: usize, is_of_chain: bool) {
        let transaction = &self.transactions[n];
        let now = self.moments_now();
        self.steps += (1 + self.followed.count(now) + transaction.writes.len()) as u64;
        self.acknowledged_left -= usize::from(transaction.fate == Fate::Acknowledged);
        self.remaining.place(&mut self.state, transaction);
        self.placed.push(n);
        if let Some(ways) = &mut self.ways {
            ways.push(self.hasher.hash_one((ways.last(), n)));
        }
        self.moments.push(self.followed.step(now, transaction, is_of_chain, &self.state));
    }

    fn pop(&mut self) {
        let n = self.placed.pop().expect("as many steps back as forward");
        self.acknowledged_left += usize::from(self.transactions[n].fate == Fate::Acknowledged);
        self.remaining.take_back(&mut self.state, &self.transactions[n]);
        self.moments.pop();
        if let Some(ways) = &mut self.ways {
            ways.pop();
        }
        if self.recovered_at.last().is_some_and(|&length| length > self.placed.len()) {
            self.recovered_at.pop();
        }
    }

    fn explain(self) -> Violation {
        // That no order explains what was recovered is certain if it was asked why.
        let (rule, detail) = if self.steps >= STEPS_MAX && !self.accepts_any_recovery {
            let found = self.reader_violation.map_or_else(String::new, |violation| format!("; in one, {violation}"));
            (Rule::Undecided, format!("{} unfinished commits, too many orders{found}", self.floating.len()))
        } else if let Some(violation) = self.reader_violation {
            return violation;
        } else if self.was_ordered || self.steps >= STEPS_MAX {
            let nearest =
                self.nearest.map_or_else(String::new, |(differing, keys)| format!("{differing} keys: {keys}"));
            (
                Rule::Durability,
                format!("no beginning of the log with all acknowledged commits fits; nearest, {nearest}"),
            )
        } else {
            (Rule::Isolation, format!("no order of the transactions explains {}", self.furthest.1))
        };
        Violation { rule, detail }
    }
}

impl Floating {
    fn new(transactions: &[Transaction], chain: &[usize], recovered: &Contents, n: usize) -> Self {
        let transaction = &transactions[n];
        let after = |must_be_before: &dyn Fn(&Transaction) -> bool| {
            chain.iter().rposition(|&w| must_be_before(&transactions[w])).map_or(0, |place| place + 1)
        };
        let ended_before = |w: &Transaction, event| w.ended.is_some_and(|end| end < event);
        let earlier = transactions.iter().filter(|observer| ended_before(observer, transaction.begun));
        let earlier_reads = earlier.flat_map(|observer| &observer.reads).flat_map(sources::versions);
        let seen_before: BTreeSet<u32> = earlier_reads.map(|(_, version)| version.transaction).collect();
        let mut first_place = after(&|w| w.was_placed_before(transaction) || seen_before.contains(&w.id));
        let mut last_place = chain.len();
        let mut was_met = false;
        let mut seen_by = transaction.ended.unwrap_or(usize::MAX);
        for observer in transactions {
            let versions = observer.reads.iter().flat_map(sources::versions);
            for (key, _) in versions.filter(|(_, version)| version.transaction == transaction.id) {
                was_met = true;
                seen_by = seen_by.min(observer.ended.unwrap_or(usize::MAX));
                first_place =
                    first_place.max(after(&|w| w.writes.contains_key(&key) && ended_before(w, observer.begun)));
                let place = chain.iter().position(|&w| transactions[w].id == observer.id);
                last_place = last_place.min(place.unwrap_or(chain.len()));
            }
            let may_be_meant =
                |read: &Read| matches!(read, Read::IsPresent(key) if transaction.writes.contains_key(key));
            was_met |= observer.reads.iter().any(may_be_meant);
        }
        let began_too_late = chain.iter().position(|&w| transactions[w].begun > seen_by);
        last_place = last_place.min(began_too_late.unwrap_or(chain.len()));
        let mut is_there = false;
        for (key, _) in recovered.iter().filter(|(_, version)| version.transaction == transaction.id) {
            is_there = true;
            let must_be_there = |w: &Transaction| w.fate == Fate::Acknowledged && w.writes.contains_key(key);
            first_place = first_place.max(after(&must_be_there));
        }
        let deletes = transaction.writes.values().any(Option::is_none);
        // Both were there: one that was lost, until the power went.
        let was_there = matches!(transaction.fate, Fate::Acknowledged | Fate::Lost);
        let left_a_trace = deletes || is_there || was_met || was_there;
        Self { transaction: n, first_place, last_place, was_met, left_a_trace, placed_at: None }
    }
}
