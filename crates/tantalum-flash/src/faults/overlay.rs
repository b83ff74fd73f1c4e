//! Damage that lies over what the model holds, block by block, until it is written over.

use std::collections::BTreeMap;

use tantalum_rt::Random;

use crate::Model;

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
