//! What a medium holds, what its volatile cache holds beside it, and what a power cut leaves of the two.
//!
//! Invariant: `current` is `durable` with the `unflushed` effects applied in order. So a flush applies a prefix of
//! them to `durable`, and a power cut some of them, each in whole or in part.

use std::collections::VecDeque;
use std::ops::Range;

use tantalum_rt::Random;

use super::TearUnit;
use crate::Durability;
use crate::sparse::{Part, SparseBytes, parts};

/// A cache of this many writes or bytes begins to write back its oldest by itself, as a real one would.
const CACHED_WRITES_MAX: usize = 8192;
const CACHED_BYTES_MAX: usize = 64 << 20;

/// A change of the contents.
#[derive(Clone)]
pub(super) struct Effect {
    pub(super) offset: u64,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    Write(Box<[u8]>),
    /// So many bytes become zero.
    Discard(usize),
}

/// An effect that has completed but is not durable for certain.
#[derive(Clone)]
struct Unflushed {
    /// Its place in the order of completions.
    completion: u64,
    effect: Effect,
    /// A durable write on top of an unflushed one: it stays in line, but a power cut must not lose it.
    is_certain: bool,
}

/// The medium and its cache.
#[derive(Clone)]
pub(super) struct Contents {
    pub(super) current: SparseBytes,
    durable: SparseBytes,
    unflushed: VecDeque<Unflushed>,
    unflushed_bytes: usize,
    completions: u64,
    has_volatile_cache: bool,
    tear_unit: u64,
}

impl Contents {
    pub(super) fn new(capacity_bytes: u64, has_volatile_cache: bool, tears: TearUnit) -> Self {
        let tear_unit = match tears {
            TearUnit::Sector512 => 512,
            TearUnit::Atomic(bytes) => u64::from(bytes.max(512)),
        };
        let image = SparseBytes::zeroed(capacity_bytes);
        Self {
            current: image.clone(),
            durable: image,
            unflushed: VecDeque::new(),
            unflushed_bytes: 0,
            completions: 0,
            has_volatile_cache,
            tear_unit,
        }
    }

    /// Replaces everything by a medium without anything in its cache.
    pub(super) fn load(&mut self, image: SparseBytes) {
        self.unflushed.clear();
        self.unflushed_bytes = 0;
        self.durable = image.clone();
        self.current = image;
    }

    /// Changes bytes behind everyone's back.
    pub(super) fn corrupt(&mut self, offset: u64, len: usize, mut f: impl FnMut(&mut [u8])) {
        for image in [&mut self.current, &mut self.durable] {
            let mut bytes = vec![0; len];
            image.read(offset, &mut bytes);
            f(&mut bytes);
            image.write(offset, &bytes);
        }
    }

    pub(super) fn grow(&mut self, capacity_bytes: u64) {
        self.current.grow(capacity_bytes);
        self.durable.grow(capacity_bytes);
    }

    /// Cuts off what lies behind so many bytes. What is not flushed and reaches that far goes to the medium before.
    pub(super) fn shrink(&mut self, capacity_bytes: u64) {
        let reaches_beyond = |unflushed: &Unflushed| {
            let effect = &unflushed.effect;
            effect.offset + effect.len() as u64 > capacity_bytes
        };
        while self.unflushed.iter().any(reaches_beyond) {
            self.write_back_oldest();
        }
        self.current.shrink(capacity_bytes);
        self.durable.shrink(capacity_bytes);
    }

    /// A write or discard has completed.
    pub(super) fn complete(&mut self, effect: Effect, durability: Durability) {
        effect.apply(&mut self.current);
        self.completions += 1;
        let is_certain = durability == Durability::Durable;
        if !self.has_volatile_cache || (is_certain && !self.unflushed.iter().any(|u| u.effect.overlaps(&effect))) {
            effect.apply(&mut self.durable);
            return;
        }
        self.unflushed_bytes += effect.cost_bytes();
        self.unflushed.push_back(Unflushed { completion: self.completions, effect, is_certain });
        while self.unflushed.len() > CACHED_WRITES_MAX || self.unflushed_bytes > CACHED_BYTES_MAX {
            self.write_back_oldest();
        }
    }

    /// The effects that have completed up to now, to be named in [`Contents::flush`].
    pub(super) fn completions(&self) -> u64 {
        self.completions
    }

    /// Makes durable what had completed when `completions` was asked for.
    pub(super) fn flush(&mut self, completions: u64) {
        while self.unflushed.front().is_some_and(|oldest| oldest.completion <= completions) {
            self.write_back_oldest();
        }
    }

    fn write_back_oldest(&mut self) {
        if let Some(oldest) = self.unflushed.pop_front() {
            self.unflushed_bytes -= oldest.effect.cost_bytes();
            oldest.effect.apply(&mut self.durable);
        }
    }

    /// A write failed: some of it may have reached the medium nevertheless.
    pub(super) fn fail(&mut self, effect: &Effect, random: &mut Random) {
        for piece in effect.survivors(self.tear_unit, random) {
            self.complete(piece, Durability::Cached);
        }
    }

    /// The power fails while `in_flight` is under way, in no order.
    pub(super) fn power_cut(&mut self, mut in_flight: Vec<Effect>, random: &mut Random) {
        for unflushed in std::mem::take(&mut self.unflushed) {
            if unflushed.is_certain {
                unflushed.effect.apply(&mut self.durable);
            } else {
                unflushed.effect.apply_survivors(&mut self.durable, self.tear_unit, random);
            }
        }
        random.shuffle(&mut in_flight);
        for effect in in_flight {
            effect.apply_survivors(&mut self.durable, self.tear_unit, random);
        }
        self.unflushed_bytes = 0;
        self.current = self.durable.clone();
    }
}

impl Effect {
    fn len(&self) -> usize {
        match &self.change {
            Change::Write(bytes) => bytes.len(),
            Change::Discard(len) => *len,
        }
    }

    /// What keeping it costs.
    fn cost_bytes(&self) -> usize {
        match &self.change {
            Change::Write(bytes) => bytes.len(),
            Change::Discard(_) => 0,
        }
    }

    fn overlaps(&self, other: &Effect) -> bool {
        self.offset < other.offset + other.len() as u64 && other.offset < self.offset + self.len() as u64
    }

    fn apply(&self, image: &mut SparseBytes) {
        match &self.change {
            Change::Write(bytes) => image.write(self.offset, bytes),
            Change::Discard(len) => image.clear(self.offset, *len),
        }
    }

    fn apply_survivors(&self, image: &mut SparseBytes, unit: u64, random: &mut Random) {
        for piece in self.survivors(unit, random) {
            piece.apply(image);
        }
    }

    /// What a power cut leaves of it: all, nothing, or any subset of its units. All and nothing are made common, since
    /// among many units chance would hardly ever bring them.
    fn survivors(&self, unit: u64, random: &mut Random) -> Vec<Effect> {
        match random.u8(0..4) {
            0 => Vec::new(),
            1 => vec![self.clone()],
            _ => self.units(unit).into_iter().filter(|_| random.bool()).collect(),
        }
    }

    /// The parts that are written whole or not at all.
    fn units(&self, unit: u64) -> Vec<Effect> {
        let change = |range: Range<usize>| match &self.change {
            Change::Write(bytes) => Change::Write(bytes[range].into()),
            Change::Discard(_) => Change::Discard(range.len()),
        };
        let units = parts(self.offset, self.len(), unit as usize);
        units
            .map(|Part { range, .. }| Effect { offset: self.offset + range.start as u64, change: change(range) })
            .collect()
    }
}
