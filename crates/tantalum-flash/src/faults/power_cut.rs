//! What a power cut does to writes, beyond what the model below does by itself.
//!
//! Each block of each recent write has a fate; most often the model's own. When power has returned the fates are laid
//! over what the model then holds. Invariant: a fate of a survivable fault is only given to writes at stake, so that a
//! block ends as the last covered write left it, or as a later write at stake did.

use std::collections::BTreeMap;
use std::ops::Range;

use tantalum_device::WriteCache;
use tantalum_rt::Random;

use super::history::{Damage, Overlay, Record};
use super::schedule::{Hit, is_within};
use super::{FaultKind, Parameters};
use crate::{Model, Nanos, Shape};

/// How far back a map goes at most: losses up to 700 ms after completion were reported of real drives.
pub(super) const ROLLBACK: Nanos = 700_000_000;
/// For how long protected memory holds what flash does not, at most.
pub(super) const DUMP: Nanos = 100_000_000;

/// What becomes of a block of a write.
#[derive(Debug, Clone)]
enum Fate {
    /// What the model says.
    Inner,
    Absent,
    Present,
    Bytes(Vec<u8>),
}

/// A power cut that is not over before the device answers again.
#[derive(Debug)]
pub(super) struct Cut {
    at: Nanos,
    shape: Shape,
    records: Vec<Record>,
    /// By record and block.
    fates: Vec<Vec<Fate>>,
    /// Damage beside the writes.
    beside: Vec<(u64, Damage)>,
    /// Whether the model's own outcome is not all.
    matters: bool,
}

impl Cut {
    pub(super) fn new(at: Nanos, shape: Shape, records: Vec<Record>) -> Self {
        let block = shape.logical_block as usize;
        let fate = |record: &Record| if record.is_dropped { Fate::Absent } else { Fate::Inner };
        let fates = records.iter().map(|record| vec![fate(record); record.new.len() / block]).collect();
        let matters = records.iter().any(|record| record.is_dropped || !record.beneath.is_empty());
        Self { at, shape, records, fates, beside: Vec::new(), matters }
    }

    fn block(&self) -> u64 {
        u64::from(self.shape.logical_block)
    }

    /// Blocks of a write that are there together or not at all.
    fn atom(&self) -> usize {
        (self.shape.atomic_write_bytes / self.shape.logical_block).max(1) as usize
    }

    /// The records that a fault of this kind can harm, or with those under way can.
    pub(super) fn concerned(&self, kind: FaultKind, parameters: &Parameters, range: Option<&Range<u64>>) -> Vec<usize> {
        let is_volatile = self.shape.write_cache == WriteCache::Volatile;
        let promises_atoms = self.shape.atomic_write_bytes > 0;
        let concerns = |index: usize| {
            let record = &self.records[index];
            let at_stake = record.is_at_stake(self.at);
            let completed_since = |back: Nanos| !at_stake && record.done > self.at.saturating_sub(back);
            match kind {
                FaultKind::LoseUnsynced | FaultKind::LoseSubset | FaultKind::PrefixTear | FaultKind::ScatteredTear => {
                    at_stake
                }
                FaultKind::SectorShear | FaultKind::SectorGarbage => at_stake && !promises_atoms,
                FaultKind::NeighbourDamage => at_stake && !self.neighbours(index).is_empty(),
                FaultKind::FlushReorder => {
                    is_volatile && !at_stake && self.records[index + 1..].iter().any(|r| r.submitted >= record.secured)
                }
                FaultKind::MapRollback => {
                    !self.shape.rotational && completed_since(parameters.back.unwrap_or(ROLLBACK))
                }
                FaultKind::WeakCapacitor => self.is_protected() && completed_since(parameters.back.unwrap_or(DUMP)),
                _ => false,
            }
        };
        let is_touched = |&index: &usize| {
            let record = &self.records[index];
            !self.fates[index].is_empty() && is_within(range, record.offset, record.len())
        };
        (0..self.records.len()).filter(is_touched).filter(|&index| concerns(index)).collect()
    }

    /// Only memory that outlives the power makes writes atomic that are larger than what the medium writes at once.
    fn is_protected(&self) -> bool {
        let shape = &self.shape;
        shape.write_cache == WriteCache::None && !shape.rotational && shape.atomic_write_bytes > 0
    }

    /// The fault happens to `concerned` records; returns the place to name.
    pub(super) fn happen(
        &mut self,
        kind: FaultKind,
        hit: &Hit,
        concerned: &[usize],
        random: &mut Random,
    ) -> (u64, u64) {
        self.matters = true;
        let first = &self.records[concerned[0]];
        let mut place = (first.offset, first.len());
        match kind {
            FaultKind::LoseUnsynced => concerned.iter().for_each(|&index| self.set(index, Fate::Absent)),
            FaultKind::LoseSubset => {
                for &index in concerned {
                    self.set(index, if random.bool() { Fate::Present } else { Fate::Absent });
                }
            }
            FaultKind::PrefixTear | FaultKind::ScatteredTear => {
                concerned.iter().for_each(|&index| self.tear(index, kind == FaultKind::PrefixTear, random));
            }
            FaultKind::SectorShear | FaultKind::SectorGarbage => {
                place = self.spoil(concerned[random.usize(..concerned.len())], kind, random);
            }
            FaultKind::NeighbourDamage => {
                let neighbours = self.neighbours(concerned[random.usize(..concerned.len())]);
                place = (neighbours[random.usize(..neighbours.len())], self.block());
                self.beside.push((place.0, Damage::Unreadable));
            }
            FaultKind::FlushReorder => place = self.reorder(concerned, random),
            FaultKind::MapRollback => place = self.roll_back(concerned, hit, random),
            _ => place = self.dump_in_part(concerned, hit, random),
        }
        place
    }

    fn set(&mut self, index: usize, fate: Fate) {
        self.fates[index].fill(fate);
    }

    fn tear(&mut self, index: usize, is_prefix: bool, random: &mut Random) {
        let atom = self.atom();
        let atoms = self.fates[index].chunks_mut(atom);
        let prefix = random.usize(..=atoms.len());
        for (number, blocks) in atoms.enumerate() {
            let is_there = if is_prefix { number < prefix } else { random.bool() };
            blocks.fill(if is_there { Fate::Present } else { Fate::Absent });
        }
    }

    /// One block of a write becomes neither new nor old. Returns it.
    fn spoil(&mut self, index: usize, kind: FaultKind, random: &mut Random) -> (u64, u64) {
        let size = self.shape.logical_block as usize;
        let number = random.usize(..self.fates[index].len());
        let record = &self.records[index];
        let span = number * size..(number + 1) * size;
        let mut bytes = record.new[span.clone()].to_vec();
        if kind == FaultKind::SectorShear {
            let from = random.usize(1..size);
            bytes[from..].copy_from_slice(&record.old[span.start + from..span.end]);
        } else {
            random.fill(&mut bytes);
        }
        let place = (record.offset + span.start as u64, size as u64);
        self.fates[index][number] = Fate::Bytes(bytes);
        place
    }

    /// Blocks that share cells, or a border, with a write at stake, and are not at stake themselves.
    fn neighbours(&self, index: usize) -> Vec<u64> {
        let (record, block) = (&self.records[index], self.block());
        let candidates: Vec<u64> = if self.shape.rotational {
            let end = record.offset + record.len();
            let before = record.offset.checked_sub(block);
            before.into_iter().chain((end < self.shape.capacity_bytes).then_some(end)).collect()
        } else {
            // A translation layer programs pages in the order of their writes.
            let earlier = self.records[..index].iter().rfind(|earlier| !earlier.is_at_stake(self.at));
            earlier
                .map(|earlier| (0..earlier.len() / block).map(|n| earlier.offset + n * block).collect())
                .unwrap_or_default()
        };
        let is_free = |&at: &u64| {
            !self.records.iter().any(|r| r.is_at_stake(self.at) && r.offset < at + block && at < r.offset + r.len())
        };
        candidates.into_iter().filter(is_free).collect()
    }

    /// Loses some of the covered records, and keeps what was written after they were covered.
    fn reorder(&mut self, concerned: &[usize], random: &mut Random) -> (u64, u64) {
        let certain = random.usize(..concerned.len());
        let lost: Vec<usize> =
            concerned.iter().enumerate().filter(|&(n, _)| n == certain || random.bool()).map(|(_, &i)| i).collect();
        let covered = lost.iter().map(|&index| self.records[index].secured).min().expect("one is certain");
        for index in 0..self.records.len() {
            if lost.contains(&index) {
                self.set(index, Fate::Absent);
            } else if self.records[index].submitted >= covered && self.records[index].is_at_stake(self.at) {
                self.set(index, Fate::Present);
            }
        }
        (self.records[lost[0]].offset, self.records[lost[0]].len())
    }

    /// Undoes what completed after some moment.
    fn roll_back(&mut self, concerned: &[usize], hit: &Hit, random: &mut Random) -> (u64, u64) {
        let back = hit.parameters.back.unwrap_or_else(|| random.u64(1..=ROLLBACK));
        let latest = concerned.iter().map(|&index| self.records[index].done).max().expect("some are concerned");
        let moment = self.at.saturating_sub(back).min(latest - 1);
        let mut place = None;
        for index in 0..self.records.len() {
            let record = &self.records[index];
            if record.done > moment && is_within(hit.range.as_ref(), record.offset, record.len()) {
                place.get_or_insert((record.offset, record.len()));
                self.set(index, Fate::Absent);
            }
        }
        place.expect("the latest completed after the moment")
    }

    /// Dumps the oldest blocks of protected memory; the others are lost.
    fn dump_in_part(&mut self, concerned: &[usize], hit: &Hit, random: &mut Random) -> (u64, u64) {
        let mut order = concerned.to_vec();
        order.sort_by_key(|&index| self.records[index].done);
        let blocks: usize = order.iter().map(|&index| self.fates[index].len()).sum();
        let share = hit.parameters.share.unwrap_or_else(|| random.f64());
        let mut room = ((share * blocks as f64) as usize).min(blocks - 1);
        let mut place = None;
        for index in order {
            let dumped = room.min(self.fates[index].len());
            room -= dumped;
            if dumped < self.fates[index].len() {
                let offset = self.records[index].offset + dumped as u64 * self.block();
                place.get_or_insert((offset, self.records[index].len() - dumped as u64 * self.block()));
            }
            self.fates[index][dumped..].fill(Fate::Absent);
        }
        place.expect("at least one block is lost")
    }

    /// Lays the fates over what the model holds since power returned.
    pub(super) fn resolve(&self, inner: &dyn Model, overlay: &mut Overlay) {
        if !self.matters {
            return;
        }
        let size = self.block();
        let mut blocks: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
        for (index, record) in self.records.iter().enumerate() {
            for number in 0..self.fates[index].len() {
                let at = record.offset + number as u64 * size;
                if !record.void.iter().any(|void| void.contains(&at)) {
                    blocks.entry(at).or_default().push((index, number));
                }
            }
        }
        for (at, writes) in blocks {
            // What was damaged after it was written stays so.
            if !overlay.is_damaged(at)
                && let Some(damage) = self.resolve_block(inner, at, &writes)
            {
                overlay.insert(at, damage);
            }
        }
        for (at, damage) in &self.beside {
            overlay.insert(*at, damage.clone());
        }
    }

    /// What a block holds, if it is not what the model says.
    fn resolve_block(&self, inner: &dyn Model, at: u64, writes: &[(usize, usize)]) -> Option<Damage> {
        let size = self.shape.logical_block as usize;
        let part = |number: usize| number * size..(number + 1) * size;
        let mut found = vec![0; size];
        inner.peek(at, &mut found);
        let newest = writes.iter().rposition(|&(index, number)| self.records[index].new[part(number)] == found);
        let (first, number) = writes[0];
        let beneath = self.records[first].beneath.iter().find(|(block, _)| *block == at);
        let base = match (beneath, newest) {
            (Some((_, damage)), _) => damage.clone(),
            (None, Some(_)) => Damage::Bytes(self.records[first].old[part(number)].to_vec()),
            (None, None) => Damage::Bytes(found.clone()),
        };
        let survivors = writes.iter().enumerate().rev().find_map(|(position, &(index, number))| {
            let new = || Damage::Bytes(self.records[index].new[part(number)].to_vec());
            match &self.fates[index][number] {
                Fate::Inner => (newest >= Some(position)).then(new),
                Fate::Absent => None,
                Fate::Present => Some(new()),
                Fate::Bytes(bytes) => Some(Damage::Bytes(bytes.clone())),
            }
        });
        let truth = survivors.unwrap_or(base);
        (truth != Damage::Bytes(found)).then_some(truth)
    }
}
