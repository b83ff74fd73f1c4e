//! What was written lately: what it replaced, and from when on the device had promised to keep it; and the damage that lies over
//! what the model holds, block by block, until it is written over.
//!
//! Writes are kept only for plans with faults that undo writes. A cache is finite: beyond a limit the oldest writes count as having
//! reached the medium by themselves.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tantalum_rt::Random;

use crate::{Model, Nanos};

const RECORDS_MAX: usize = 4096;
const BYTES_MAX: usize = 16 << 20;

/// A write.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) offset: u64,
    /// What it wrote.
    pub(super) new: Vec<u8>,
    /// What was there before.
    pub(super) old: Vec<u8>,
    /// Damaged blocks that it wrote over.
    pub(super) beneath: Vec<(u64, Damage)>,
    pub(super) submitted: Nanos,
    /// When the host saw it complete; [`Nanos::MAX`] if it has not.
    pub(super) done: Nanos,
    /// From when on a completed flush or forced unit access covers it; [`Nanos::MAX`] if none does.
    pub(super) secured: Nanos,
    /// Whether its own completion covers it.
    pub(super) is_durable: bool,
    /// A flush failed for it: no later one covers it, and it is lost with the power.
    pub(super) is_dropped: bool,
    /// Parts that the host discarded since: the write no longer determines what they hold.
    pub(super) void: Vec<Range<u64>>,
}

impl Record {
    pub(super) fn len(&self) -> u64 {
        self.new.len() as u64
    }

    /// Whether the device may lose it in a cut at this time.
    pub(super) fn is_at_stake(&self, at: Nanos) -> bool {
        self.secured > at
    }
}

/// Writes by the order of their submission.
#[derive(Debug)]
pub(super) struct History {
    records: VecDeque<Record>,
    /// The number of the first record.
    first: u64,
    bytes: usize,
    /// How long covered writes are kept.
    keep: Nanos,
}

impl History {
    pub(super) fn new(keep: Nanos) -> Self {
        Self { records: VecDeque::new(), first: 0, bytes: 0, keep }
    }

    /// Takes a write; returns its number.
    pub(super) fn push(&mut self, record: Record) -> u64 {
        self.bytes += record.new.len();
        self.records.push_back(record);
        self.first + self.records.len() as u64 - 1
    }

    fn get(&mut self, number: u64) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// A write has ended for the host, or will at `done`.
    pub(super) fn complete(&mut self, number: u64, done: Nanos) {
        if let Some(record) = self.get(number) {
            record.done = done;
            if record.is_durable {
                record.secured = record.secured.min(done);
            }
        }
    }

    /// A flush that was submitted at `submitted` ends at `done`.
    pub(super) fn flushed(&mut self, submitted: Nanos, done: Nanos) {
        for record in self.records.iter_mut().filter(|record| record.done <= submitted && !record.is_dropped) {
            record.secured = record.secured.min(done);
        }
    }

    /// A flush at `now` fails: what it would have covered is never covered.
    pub(super) fn flush_failed(&mut self, now: Nanos) {
        for record in self.records.iter_mut().filter(|record| record.done <= now && record.is_at_stake(now)) {
            record.is_dropped = true;
        }
    }

    /// A write at `now` is among those for which a flush failed.
    pub(super) fn drop_write(&mut self, number: u64) {
        if let Some(record) = self.get(number) {
            record.is_dropped = true;
        }
    }

    /// The host has discarded a range: no earlier write determines what it holds from now on.
    pub(super) fn discard(&mut self, offset: u64, len: u64) {
        for record in &mut self.records {
            if record.offset < offset + len && offset < record.offset + record.len() {
                record.void.push(offset..offset + len);
            }
        }
    }

    /// Forgets what can no longer be undone.
    pub(super) fn prune(&mut self, now: Nanos) {
        while let Some(oldest) = self.records.front() {
            let is_over = oldest.secured.saturating_add(self.keep) <= now;
            if !is_over && self.records.len() <= RECORDS_MAX && self.bytes <= BYTES_MAX {
                break;
            }
            self.bytes -= oldest.new.len();
            self.records.pop_front();
            self.first += 1;
        }
    }

    /// Everything: the power is cut.
    pub(super) fn take(&mut self) -> Vec<Record> {
        self.first += self.records.len() as u64;
        self.bytes = 0;
        std::mem::take(&mut self.records).into()
    }
}

/// What a block holds in truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Damage {
    Bytes(Vec<u8>),
    Unreadable,
}

/// Damaged blocks by their offset in bytes.
#[derive(Debug, Clone)]
pub(super) struct Overlay {
    block: u64,
    blocks: BTreeMap<u64, Damage>,
}

impl Overlay {
    pub(super) fn new(block: u64) -> Self {
        Self { block, blocks: BTreeMap::new() }
    }

    pub(super) fn is_damaged(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    pub(super) fn insert(&mut self, block: u64, damage: Damage) {
        self.blocks.insert(block, damage);
    }

    /// What was damaged of a range of whole blocks, and is no longer.
    pub(super) fn remove(&mut self, offset: u64, len: u64) -> Vec<(u64, Damage)> {
        let mut removed = Vec::new();
        while let Some((&block, _)) = self.blocks.range(offset..offset + len).next() {
            removed.extend(self.blocks.remove_entry(&block));
        }
        removed
    }

    /// Puts damage over what was read of whole blocks; returns the first block that cannot be read.
    pub(super) fn patch(&self, offset: u64, buffer: &mut [u8]) -> Option<u64> {
        let mut unreadable = None;
        for (&at, damage) in self.blocks.range(offset..offset + buffer.len() as u64) {
            let target = &mut buffer[(at - offset) as usize..][..self.block as usize];
            match damage {
                Damage::Bytes(bytes) => target.copy_from_slice(bytes),
                Damage::Unreadable => {
                    target.fill(0);
                    unreadable.get_or_insert(at);
                }
            }
        }
        unreadable
    }

    /// Flips bits of a block, unless it cannot be read anyway.
    pub(super) fn rot(&mut self, inner: &dyn Model, block: u64, bits: u32, random: &mut Random) {
        let mut bytes = vec![0; self.block as usize];
        inner.peek(block, &mut bytes);
        if self.patch(block, &mut bytes).is_none() {
            // Bits that all differ, so that none flips back.
            let mut places: Vec<usize> = (0..bytes.len() * 8).collect();
            let count = (bits as usize).min(places.len());
            for number in 0..count {
                places.swap(number, random.usize(number..bytes.len() * 8));
                let bit = places[number];
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.insert(block, Damage::Bytes(bytes));
        }
    }

    /// Takes the damaged bytes; what cannot be read stays.
    pub(super) fn drain_bytes(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut taken = Vec::new();
        self.blocks.retain(|&block, damage| match damage {
            Damage::Bytes(bytes) => {
                taken.push((block, std::mem::take(bytes)));
                false
            }
            Damage::Unreadable => true,
        });
        taken
    }
}
