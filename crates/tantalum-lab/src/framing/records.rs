//! The records of a trace, one by one.

use std::io::Read;

use super::{Damage, FrameReader, field};
use crate::error::Result;

/// An iterator over the records of a trace, which ends after the first error. Each chunk is checked before any of its records is
/// given.
#[derive(Debug)]
pub(crate) struct Records<R, T> {
    frames: FrameReader<R>,
    /// Numbers of a record.
    each: usize,
    decode: fn(&[u64]) -> Result<T, Damage>,
    /// Of the chunk, in reverse.
    left: Vec<T>,
    /// What stands behind the last record, once that was reached.
    trailer: Vec<u8>,
    is_over: bool,
}

impl<R: Read, T> Records<R, T> {
    /// The records behind the header, of `each` numbers.
    pub fn new(frames: FrameReader<R>, each: usize, decode: fn(&[u64]) -> Result<T, Damage>) -> Self {
        Self { frames, each, decode, left: Vec::new(), trailer: Vec::new(), is_over: false }
    }

    /// Whether nothing is left: the end was reached, or an error.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What stands behind the last record; empty before that was reached, and where there is no such thing.
    pub fn trailer(&self) -> &[u8] {
        &self.trailer
    }

    /// The error for damage in the part that was read last.
    pub fn damaged(&self, damage: Damage) -> crate::Error {
        self.frames.damaged(damage)
    }

    /// Reads a chunk. False at the end.
    fn next_chunk(&mut self) -> Result<bool> {
        let Some(numbers) = self.frames.next_chunk()? else {
            self.trailer = self.frames.end()?;
            return Ok(false);
        };
        let records = match numbers.len() % self.each {
            0 => numbers.rchunks(self.each).map(self.decode).collect(),
            _ => field("a chunk's length", numbers.len() as u64),
        };
        self.left = records.map_err(|damage| self.damaged(damage))?;
        Ok(true)
    }
}

impl<R: Read, T> Iterator for Records<R, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            if let Some(record) = self.left.pop() {
                return Some(Ok(record));
            }
            match self.next_chunk() {
                Ok(goes_on) => self.is_over = !goes_on,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
