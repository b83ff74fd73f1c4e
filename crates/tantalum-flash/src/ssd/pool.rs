//! The buffer pool: sectors that the host wrote and flash does not hold yet, in a queue for each channel and placement handle.
//!
//! A sector written again while it waits makes the older copy superfluous, once the newer write is complete; a power
//! cut before that still finds the older one. Room in the pool is accounted ahead of time (a write waits for the
//! program that makes room), but a frame's bytes stay until that program is done.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tantalum_device::sparse::Piece;

use super::mirror::Mirror;
use crate::Nanos;

/// Never, or not known yet.
const NEVER: Nanos = Nanos::MAX;
const NO_FRAME: u32 = u32::MAX;
const NO_PLACE: u32 = u32::MAX;

/// A sector in the pool.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) unit: u32,
    pub(super) piece: Piece,
    /// From when on it counts: its write is complete, or its data is there, as the drive promises.
    pub(super) ready: Nanos,
    /// From when on a newer write of the sector counts.
    superseded: Nanos,
    /// When flash holds it.
    programmed: Nanos,
    /// Where the mirror keeps it, while it is in a queue.
    place: u32,
}

/// The pool's frames and queues.
#[derive(Debug)]
pub(super) struct Pool {
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// The newest frame of each sector.
    newest: Vec<u32>,
    queues: Vec<VecDeque<u32>>,
    /// How far the flusher has come on each channel: it does not go back, so of two versions that wait, it never
    /// programs the older one after the newer, whatever their placement.
    clocks: Vec<Nanos>,
    /// Nothing begins of a queue before this, as long as it stays as it is.
    idle_until: Vec<Nanos>,
    /// Frames whose end is known, by that end.
    ending: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// The same ends, of the frames whose room no command has been given yet.
    leaving: BinaryHeap<Reverse<Nanos>>,
    occupied: usize,
    limit: usize,
    /// What outlives the program.
    mirror: Option<Mirror>,
}

impl Pool {
    /// With a mirror, what waits is kept there as well.
    pub(super) fn new(units: u32, channels: u32, handles: u32, limit: usize, mirror: Option<Mirror>) -> Self {
        let queues = (channels * handles) as usize;
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            newest: vec![NO_FRAME; units as usize],
            queues: vec![VecDeque::new(); queues],
            clocks: vec![0; channels as usize],
            idle_until: vec![0; queues],
            ending: BinaryHeap::new(),
            leaving: BinaryHeap::new(),
            occupied: 0,
            limit,
            mirror,
        }
    }

    /// What the mirror has kept since before the program began, in the order of the writes.
    pub(super) fn mirrored(&self) -> Vec<(u32, Piece)> {
        self.mirror.as_ref().map_or(Vec::new(), Mirror::sectors)
    }

    /// A command's sectors are all in the queues.
    pub(super) fn commit(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.commit();
        }
    }

    /// The newest bytes of a sector, if the pool holds it.
    pub(super) fn newest(&self, unit: u32) -> Option<&Piece> {
        self.frames.get(self.newest[unit as usize] as usize).map(|frame| &frame.piece)
    }

    /// Lets go of frames that flash holds at `now`, or that are superseded.
    pub(super) fn release(&mut self, now: Nanos) {
        while let Some(&Reverse((end, frame))) = self.ending.peek()
            && end <= now
        {
            self.ending.pop();
            let unit = self.frames[frame as usize].unit as usize;
            if self.newest[unit] == frame {
                self.newest[unit] = NO_FRAME;
            }
            self.frames[frame as usize].piece = None;
            self.free.push(frame);
        }
    }

    /// When there is room for so many sectors, if that is known; takes it.
    pub(super) fn take_room(&mut self, sectors: usize, mut at: Nanos) -> Option<Nanos> {
        while let Some(&Reverse(end)) = self.leaving.peek()
            && (end <= at || self.occupied + sectors > self.limit)
        {
            at = at.max(end);
            self.leaving.pop();
            self.occupied -= 1;
        }
        if self.occupied + sectors > self.limit {
            return None;
        }
        self.occupied += sectors;
        Some(at)
    }

    /// Puts a sector, whose room was taken, into the queue. Returns whether an older copy waits there in vain.
    pub(super) fn push(&mut self, queue: u32, unit: u32, piece: Piece, ready: Nanos) -> bool {
        let place = self.mirror.as_mut().map_or(NO_PLACE, |mirror| mirror.keep(unit, &piece));
        let new = Frame { unit, piece, ready, superseded: NEVER, programmed: NEVER, place };
        let frame = match self.free.pop() {
            Some(frame) => {
                self.frames[frame as usize] = new;
                frame
            }
            None => {
                self.frames.push(new);
                (self.frames.len() - 1) as u32
            }
        };
        let older = std::mem::replace(&mut self.newest[unit as usize], frame);
        self.queues[queue as usize].push_back(frame);
        self.idle_until[queue as usize] = 0;
        match self.frames.get_mut(older as usize) {
            Some(older) => {
                older.superseded = older.superseded.min(ready);
                if let (Some(mirror), true) = (&mut self.mirror, older.place != NO_PLACE) {
                    mirror.supersede(std::mem::replace(&mut older.place, NO_PLACE));
                }
                older.programmed == NEVER
            }
            None => false,
        }
    }

    /// Forgets a sector of a channel: it need not reach flash.
    pub(super) fn forget(&mut self, channel: u32, unit: u32) {
        for queue in (channel as usize..self.queues.len()).step_by(self.clocks.len()) {
            self.idle_until[queue] = 0;
            for &frame in &self.queues[queue] {
                let frame = &mut self.frames[frame as usize];
                if frame.unit == unit {
                    frame.superseded = 0;
                    release(&mut self.mirror, frame);
                }
            }
        }
        let newest = std::mem::replace(&mut self.newest[unit as usize], NO_FRAME);
        if let Some(frame) = self.frames.get_mut(newest as usize) {
            frame.superseded = 0;
        }
    }

    /// Whether nothing of the queue begins until `now`, as far as is known.
    pub(super) fn is_idle(&self, queue: u32, now: Nanos) -> bool {
        self.queues[queue as usize].is_empty() || now < self.idle_until[queue as usize]
    }

    /// Whether nothing waits in a queue.
    pub(super) fn is_drained(&self, queue: u32) -> bool {
        self.queues[queue as usize].is_empty()
    }

    /// Chooses what to program next: up to `limit` sectors of a queue whose channel's planes are free at `free`, all of them
    /// ready. Returns when that can begin; a lone sector waits `patience` for others to share its page. `None` if
    /// nothing waits, or nothing can begin until `until`.
    pub(super) fn next_batch(
        &mut self,
        queue: u32,
        limit: usize,
        free: Nanos,
        patience: Nanos,
        until: Nanos,
        batch: &mut Vec<u32>,
    ) -> Option<Nanos> {
        batch.clear();
        let channel = queue as usize % self.clocks.len();
        let mut start = free.max(self.clocks[channel]);
        self.drop_superseded(queue, start);
        let waiting = &self.queues[queue as usize];
        let deadline = self.frames[*waiting.front()? as usize].ready.saturating_add(patience);
        for &frame in waiting {
            let ready = self.frames[frame as usize].ready;
            if batch.len() == limit || (!batch.is_empty() && ready > start.max(deadline)) {
                break;
            }
            if self.frames[frame as usize].superseded > start.max(ready) {
                start = start.max(ready);
                batch.push(frame);
            }
        }
        if batch.len() < limit {
            start = start.max(deadline);
        }
        // Two versions of a sector may both have been candidates; the older one is superfluous by now.
        batch.retain(|&frame| self.frames[frame as usize].superseded > start);
        if start > until || batch.is_empty() {
            self.idle_until[queue as usize] = if batch.is_empty() { 0 } else { start };
            return None;
        }
        self.idle_until[queue as usize] = 0;
        self.clocks[channel] = start;
        Some(start)
    }

    /// The batch is being programmed. Room for its sectors, and for superseded ones before them, is there at `done`.
    pub(super) fn programmed(&mut self, queue: u32, batch: &[u32], done: Nanos) {
        let queue = &mut self.queues[queue as usize];
        for &frame in batch {
            let at = queue.iter().position(|&queued| queued == frame).expect("a batch comes from its queue");
            queue.remove(at);
            self.frames[frame as usize].programmed = done;
            release(&mut self.mirror, &mut self.frames[frame as usize]);
            self.ending.push(Reverse((done, frame)));
            self.leaving.push(Reverse(done));
        }
    }

    /// Removes the frames at the head of a queue that are superseded at `at`.
    fn drop_superseded(&mut self, queue: u32, at: Nanos) {
        while let Some(&frame) = self.queues[queue as usize].front() {
            let superseded = self.frames[frame as usize].superseded;
            if superseded > at.max(self.frames[frame as usize].ready) {
                return;
            }
            self.queues[queue as usize].pop_front();
            release(&mut self.mirror, &mut self.frames[frame as usize]);
            self.ending.push(Reverse((superseded, frame)));
            self.leaving.push(Reverse(superseded));
        }
    }

    /// A sector of the batch.
    pub(super) fn frame(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    /// What the pool alone holds at `now`: of every sector the version that counts, in the order of their writes.
    pub(super) fn unwritten(&self, now: Nanos) -> Vec<(u32, Piece)> {
        let free: std::collections::BTreeSet<u32> = self.free.iter().copied().collect();
        let used = self.frames.iter().enumerate().filter(|(index, _)| !free.contains(&(*index as u32)));
        let counts = |frame: &Frame| frame.ready <= now && frame.superseded > now && frame.programmed > now;
        let mut unwritten: Vec<&Frame> = used.map(|(_, frame)| frame).filter(|frame| counts(frame)).collect();
        unwritten.sort_by_key(|frame| (frame.ready, frame.unit));
        unwritten.into_iter().map(|frame| (frame.unit, frame.piece.clone())).collect()
    }

    /// Empties the pool.
    pub(super) fn clear(&mut self) {
        let (units, channels, limit) = (self.newest.len(), self.clocks.len(), self.limit);
        let handles = self.queues.len() / channels;
        let mut mirror = self.mirror.take();
        if let Some(mirror) = &mut mirror {
            mirror.clear();
        }
        *self = Self::new(units as u32, channels as u32, handles as u32, limit, mirror);
    }
}

/// The mirror need not keep the frame any more.
fn release(mirror: &mut Option<Mirror>, frame: &mut Frame) {
    if let (Some(mirror), true) = (mirror, frame.place != NO_PLACE) {
        mirror.release(std::mem::replace(&mut frame.place, NO_PLACE));
    }
}
