//! Reading a device in large chunks, a little at a time, and the next chunks while this one is worked on.

use std::collections::VecDeque;
use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device};
use tantalum_rt::{JoinHandle, spawn};

use super::Progress;
use crate::Result;
use crate::format::BLOCK;

/// Bytes of one read.
const CHUNK_BYTES: u64 = 1 << 20;

/// Reads under way while a chunk is worked on: more than one, so that the device does not wait for the next to begin.
const AHEAD: usize = 2;

/// A device, and the part of it that was read last.
#[derive(Debug)]
pub(crate) struct Chunks {
    device: Arc<dyn Device>,
    chunk: Chunk,
    /// What follows the chunk, each read by a task of its own.
    ahead: VecDeque<Ahead>,
    /// Up to here more will be asked for.
    ahead_to: u64,
    /// The memory of chunks that are done with.
    spare: Vec<AlignedBuffer>,
    /// What was asked for last, if it lies in several chunks.
    joined: Vec<u8>,
}

/// Some bytes of a device.
#[derive(Debug)]
struct Chunk {
    offset: u64,
    end: u64,
    /// At least as long as the chunk.
    memory: AlignedBuffer,
}

/// A read that is under way.
#[derive(Debug)]
struct Ahead {
    offset: u64,
    end: u64,
    task: JoinHandle<Result<Chunk>>,
}

impl Ahead {
    /// Waits for the read. Neither what it read nor why it could not matters.
    fn memory(self) -> Option<AlignedBuffer> {
        self.task.join().ok().and_then(Result::ok).map(|chunk| chunk.memory)
    }
}

impl Chunk {
    fn none() -> Chunk {
        Chunk { offset: 0, end: 0, memory: AlignedBuffer::zeroed(0) }
    }

    fn read(device: &dyn Device, offset: u64, end: u64, memory: Option<AlignedBuffer>) -> Result<Chunk> {
        let bytes = (end - offset) as usize;
        let memory = memory.filter(|memory| memory.len() >= bytes);
        let mut memory = memory.unwrap_or_else(|| AlignedBuffer::zeroed(bytes));
        device.read(offset, &mut memory[..bytes])?;
        Ok(Chunk { offset, end, memory })
    }

    fn bytes(&self, offset: u64, end: u64) -> &[u8] {
        &self.memory[(offset - self.offset) as usize..(end - self.offset) as usize]
    }
}

impl Chunks {
    pub(crate) fn new(device: Arc<dyn Device>) -> Chunks {
        let (ahead, spare, joined) = (VecDeque::new(), Vec::new(), Vec::new());
        Chunks { device, chunk: Chunk::none(), ahead, ahead_to: 0, spare, joined }
    }

    /// Whatever is asked for later lies before `end`, a multiple of the block, and most of what lies before it is asked for.
    pub(crate) fn ahead_to(&mut self, end: u64) {
        self.ahead_to = end;
    }

    /// `bytes` bytes at `offset`, or those up to `end`, a multiple of the block. Nothing past it is read ahead, unless
    /// [`ahead_to`](Self::ahead_to) says that it will be wanted.
    pub(crate) fn read(&mut self, offset: u64, bytes: u64, end: u64, progress: &Progress) -> Result<&[u8]> {
        let until = end.min(offset + bytes);
        let end = end.max(self.ahead_to);
        if !(self.chunk.offset..self.chunk.end).contains(&offset) {
            self.go_to(offset / BLOCK as u64 * BLOCK as u64, end, progress)?;
        }
        if until <= self.chunk.end {
            return Ok(self.chunk.bytes(offset, until));
        }
        self.joined.clear();
        self.joined.extend_from_slice(self.chunk.bytes(offset, self.chunk.end));
        while self.chunk.end < until {
            self.go_to(self.chunk.end, end, progress)?;
            let chunk = &self.chunk;
            self.joined.extend_from_slice(chunk.bytes(chunk.offset, chunk.end.min(until)));
        }
        Ok(&self.joined)
    }

    /// Makes the chunk that holds `start` the present one, and keeps reading ahead, up to `end`.
    fn go_to(&mut self, start: u64, end: u64, progress: &Progress) -> Result<()> {
        while let Some(skipped) = self.ahead.pop_front_if(|ahead| ahead.end <= start) {
            self.spare.extend(skipped.memory());
        }
        if self.ahead.front().is_some_and(|ahead| ahead.offset > start) {
            self.stop_reading();
        }
        let first = self.ahead.pop_front();
        let first_end = end.min(start + CHUNK_BYTES);
        let mut next = self.ahead.back().or(first.as_ref()).map_or(first_end, |last| last.end);
        while self.ahead.len() < AHEAD && next < end {
            next = self.read_ahead(next, end);
        }
        let chunk = match first {
            Some(first) => first.task.join_or_panic()?,
            None => Chunk::read(&*self.device, start, first_end, self.spare.pop())?,
        };
        progress.add(chunk.end - chunk.offset);
        self.spare.push(std::mem::replace(&mut self.chunk, chunk).memory);
        Ok(())
    }

    /// Begins to read a chunk, and tells where it ends.
    fn read_ahead(&mut self, offset: u64, end: u64) -> u64 {
        let end = end.min(offset + CHUNK_BYTES);
        let (device, memory) = (Arc::clone(&self.device), self.spare.pop());
        let task = spawn("log-read-ahead", move || Chunk::read(&*device, offset, end, memory));
        self.ahead.push_back(Ahead { offset, end, task });
        end
    }

    /// Waits for the reads that are under way.
    fn stop_reading(&mut self) {
        self.spare.extend(self.ahead.drain(..).filter_map(Ahead::memory));
    }
}

impl Drop for Chunks {
    /// The device has rest when recovery ends.
    fn drop(&mut self) {
        self.stop_reading();
    }
}

/// `bytes` bytes from `offset`, which may lie anywhere in the device's blocks.
pub(crate) fn read_unaligned(device: &dyn Device, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let start = offset / BLOCK as u64 * BLOCK as u64;
    let mut blocks = vec![0; (offset + bytes - start).next_multiple_of(BLOCK as u64) as usize];
    device.read(start, &mut blocks)?;
    blocks.truncate((offset + bytes - start) as usize);
    blocks.drain(..(offset - start) as usize);
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_device::{MemoryDevice, MemoryProfile};
    use tantalum_rt::{Random, Simulation, now};

    use super::*;

    const SECTION_BYTES: u64 = 2 << 20;
    const SECTIONS: u64 = 8;

    /// A device with a number in each eight bytes.
    fn numbered() -> Arc<MemoryDevice> {
        let latency = Duration::from_millis(1);
        let profile = MemoryProfile { read_latency: latency..latency, ..MemoryProfile::default() };
        let device = MemoryDevice::with_profile("numbered", SECTIONS * SECTION_BYTES, profile);
        let bytes: Vec<u8> = (0..device.capacity_bytes() / 8).flat_map(u64::to_le_bytes).collect();
        device.load(&bytes);
        device
    }

    /// Reads pieces one after the other, now and then leaving some out, and tells how long it took.
    fn walk(ahead: bool, skips: bool) -> Duration {
        let device = numbered();
        let mut chunks = Chunks::new(Arc::clone(&device) as Arc<dyn Device>);
        let (mut random, progress) = (Random::with_seed(1), Progress::unwatched());
        let start = now();
        for section in 0..SECTIONS {
            let end = (section + 1) * SECTION_BYTES;
            if ahead {
                chunks.ahead_to(device.capacity_bytes());
            }
            let mut offset = section * SECTION_BYTES;
            while offset < end {
                let bytes = random.u64(1..40) * 8192;
                let found = chunks.read(offset, bytes, end, &progress).expect("read");
                assert_eq!(found.len() as u64, bytes.min(end - offset), "nothing of the next section");
                assert_eq!(found[..8], (offset / 8).to_le_bytes());
                assert_eq!(found[found.len() - 8..], ((offset + found.len() as u64) / 8 - 1).to_le_bytes());
                offset += bytes;
                if skips && random.u8(0..8) == 0 {
                    offset += random.u64(1..1000) * 4096;
                }
            }
        }
        start.elapsed()
    }

    #[test]
    fn what_is_read_is_what_was_asked_for_and_sections_follow_without_a_pause() {
        for seed in 0..3 {
            Simulation::new(seed)
                .run(|| {
                    let (ahead, at_hand) = (walk(true, false), walk(false, false));
                    assert!(ahead < at_hand, "{ahead:?} {at_hand:?}");
                    walk(true, true);
                    walk(false, true);
                })
                .expect_finished();
        }
    }
}
