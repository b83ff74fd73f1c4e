//! The search for an order of the writers that explains all they read, and a beginning of it that explains what was
//! recovered.
//!
//! Writers with a known place in the log form a chain that is only followed. A *floating* one was cut off inside
//! `commit`: it is tried at the end first, then further and further forward, since it ran when the power went.

use std::{collections::BTreeSet, hash::BuildHasher};

use super::{Contents, Rule, Violation, readers, sources, state::State};
use crate::history::{Fate, Kind, Read, Transaction};

/// How many times a floating writer is placed before the model gives up.
const PLACEMENTS_MAX: u64 = 200_000;

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
    Err(search.explain())
}

struct Floating {
    transaction: usize,
    /// How many of the chain must come before it, as they were acknowledged before it began.
    first_place: usize,
    /// Whoever began after this event comes after it, as its writes were seen by then.
    seen_by: usize,
    /// Without one, it makes no difference whether it was ever there.
    left_a_trace: bool,
    is_placed: bool,
}

struct Search<'a> {
    initial: &'a Contents,
    transactions: &'a [Transaction],
    chain: Vec<usize>,
    floating: Vec<Floating>,
    state: State<'a>,
    placed: Vec<usize>,
    /// Lengths of the beginnings that hold all acknowledged ones and are what was recovered.
    recovered_at: Vec<usize>,
    acknowledged_left: usize,
    /// Situations that lead nowhere.
    dead_ends: BTreeSet<(usize, u64, u64, bool)>,
    placements: u64,
    /// The furthest that the chain could be followed, and why not further.
    furthest: (usize, String),
    /// The beginning with all acknowledged ones that came nearest to the recovered contents: how many keys differed,
    /// and some of them.
    nearest: Option<(usize, String)>,
    was_ordered: bool,
    reader_violation: Option<Violation>,
}

impl<'a> Search<'a> {
    fn new(initial: &'a Contents, transactions: &'a [Transaction], recovered: &'a Contents) -> Self {
        let writers = (0..transactions.len())
            .filter(|&n| transactions[n].fate != Fate::RolledBack && !transactions[n].writes.is_empty());
        let (mut chain, unplaced): (Vec<_>, Vec<_>) = writers.partition(|&n| transactions[n].position.is_some());
        chain.sort_by_key(|&n| transactions[n].position);
        let acknowledged = chain.iter().chain(&unplaced).filter(|&&n| transactions[n].fate == Fate::Acknowledged);
        let acknowledged_left = acknowledged.count();
        let floating = unplaced.into_iter().map(|n| Floating::new(transactions, &chain, recovered, n)).collect();
        Self {
            initial,
            transactions,
            chain,
            floating,
            state: State::new(initial, recovered),
            placed: Vec::new(),
            recovered_at: Vec::new(),
            acknowledged_left,
            dead_ends: BTreeSet::new(),
            placements: 0,
            furthest: (0, String::new()),
            nearest: None,
            was_ordered: false,
            reader_violation: None,
        }
    }

    /// Places in the log must not contradict who was acknowledged before whom began.
    fn check_real_time(&self) -> Result<(), Violation> {
        let mut latest: Option<&Transaction> = None;
        for transaction in self.chain.iter().map(|&n| &self.transactions[n]) {
            if let (Some(before), Some(end)) = (latest, transaction.ended)
                && end < before.begun
            {
                let detail = format!(
                    "T{} was acknowledged before T{} began, but comes after it in the log",
                    transaction.id, before.id
                );
                return Err(Violation { rule: Rule::Isolation, detail });
            }
            if latest.is_none_or(|latest| latest.begun < transaction.begun) {
                latest = Some(transaction);
            }
        }
        Ok(())
    }

    /// Completes the order from the chain's place `from` on; what was placed so far stays. Leaves all as it was when
    /// that is impossible.
    fn explore(&mut self, from: usize) -> bool {
        let situation = (from, self.mask(), self.fingerprint(), !self.recovered_at.is_empty());
        if self.dead_ends.contains(&situation) {
            return false;
        }
        let mut place = from;
        loop {
            self.note_survivors();
            if place == self.chain.len() {
                if self.is_complete() {
                    return true;
                }
                break;
            }
            if !self.can_follow(place) {
                break;
            }
            self.push(self.chain[place]);
            place += 1;
        }
        loop {
            for n in 0..self.floating.len() {
                if self.can_float(n, place) {
                    self.floating[n].is_placed = true;
                    self.push(self.floating[n].transaction);
                    if self.explore(place) {
                        return true;
                    }
                    self.pop();
                    self.floating[n].is_placed = false;
                }
            }
            if place == from {
                break;
            }
            self.pop();
            place -= 1;
        }
        // Readers depend on the way, and not only on where it has led.
        if self.reader_violation.is_none() {
            self.dead_ends.insert(situation);
        }
        false
    }

    /// What the rest of the search depends on: the contents, or with snapshot isolation the whole way to them.
    fn fingerprint(&self) -> u64 {
        if self.transactions.iter().all(|transaction| transaction.kind != Kind::SnapshotIsolation) {
            return self.state.fingerprint();
        }
        foldhash::quality::FixedState::with_seed(0).hash_one(&self.placed)
    }

    fn mask(&self) -> u64 {
        self.floating.iter().enumerate().fold(0, |mask, (n, floating)| mask | u64::from(floating.is_placed) << n)
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
        let Some(&survivors) = self.recovered_at.last() else { return false };
        match readers::check(self.initial, self.transactions, &self.placed, survivors) {
            Ok(()) => true,
            Err(violation) => {
                self.reader_violation.get_or_insert(violation);
                false
            }
        }
    }

    fn can_follow(&mut self, place: usize) -> bool {
        let transaction = &self.transactions[self.chain[place]];
        let is_too_late = |floating: &Floating| !floating.is_placed && floating.seen_by < transaction.begun;
        let contradiction = if self.floating.iter().any(is_too_late) {
            Some("what an unfinished commit wrote was seen before it began".to_owned())
        } else {
            self.contradiction(self.chain[place])
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
        let may_stand_here = floating.left_a_trace && !floating.is_placed && place >= floating.first_place;
        if !may_stand_here || self.placements >= PLACEMENTS_MAX {
            return false;
        }
        let fits = self.contradiction(self.floating[n].transaction).is_none();
        self.placements += u64::from(fits);
        fits
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

    fn push(&mut self, n: usize) {
        let transaction = &self.transactions[n];
        self.acknowledged_left -= usize::from(transaction.fate == Fate::Acknowledged);
        self.state.apply(transaction);
        self.placed.push(n);
    }

    fn pop(&mut self) {
        let n = self.placed.pop().expect("as many steps back as forward");
        self.acknowledged_left += usize::from(self.transactions[n].fate == Fate::Acknowledged);
        self.state.undo();
        if self.recovered_at.last().is_some_and(|&length| length > self.placed.len()) {
            self.recovered_at.pop();
        }
    }

    fn explain(self) -> Violation {
        let (rule, detail) = if self.placements >= PLACEMENTS_MAX {
            let found = self.reader_violation.map_or_else(String::new, |violation| format!("; in one, {violation}"));
            (Rule::Undecided, format!("{} unfinished commits, too many orders{found}", self.floating.len()))
        } else if let Some(violation) = self.reader_violation {
            return violation;
        } else if self.was_ordered {
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
        let acknowledged_before = |&&w: &&usize| transactions[w].ended.is_some_and(|end| end < transaction.begun);
        let first_place = chain.iter().rposition(|w| acknowledged_before(&w)).map_or(0, |place| place + 1);
        let sees_it = |reads: &[Read]| {
            reads.iter().flat_map(sources::versions).any(|(_, version)| version.transaction == transaction.id)
        };
        let observers: Vec<_> = transactions.iter().filter(|t| sees_it(&t.reads)).collect();
        let seen_by = observers.iter().filter_map(|t| t.ended).chain(transaction.ended).min().unwrap_or(usize::MAX);
        let deletes = transaction.writes.values().any(Option::is_none);
        let is_there = recovered.values().any(|version| version.transaction == transaction.id);
        let may_be_meant = |read: &Read| matches!(read, Read::IsPresent(key) if transaction.writes.contains_key(key));
        let was_met = !observers.is_empty() || transactions.iter().any(|t| t.reads.iter().any(may_be_meant));
        let left_a_trace = deletes || is_there || was_met || transaction.fate == Fate::Acknowledged;
        Self { transaction: n, first_place, seen_by, left_a_trace, is_placed: false }
    }
}
