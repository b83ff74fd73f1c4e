//! Commands that the host waits for: in the order of their arrival, of which the disk sees the first few.

use super::SECTOR_BYTES;
use super::arm::Span;
use super::geometry::Place;
use crate::writeback::overlay;
use crate::{Nanos, Ticket};

/// What a command wants.
#[derive(Debug)]
pub(super) enum Work {
    Read,
    /// A write that ends on the platter.
    Through(Vec<u8>),
    /// A write that ends in memory, as soon as there is room.
    Cached(Vec<u8>),
    /// The same, and then a flush.
    Flushed(Vec<u8>),
}

/// A command that no decision was made about.
#[derive(Debug)]
pub(super) struct Command {
    pub ticket: Ticket,
    /// When the electronics have understood it.
    pub ready: Nanos,
    pub offset: u64,
    pub len: u64,
    pub place: Place,
    pub work: Work,
}

impl Command {
    pub fn data(&self) -> Option<&[u8]> {
        match &self.work {
            Work::Read => None,
            Work::Through(data) | Work::Cached(data) | Work::Flushed(data) => Some(data),
        }
    }

    pub fn wants_room(&self) -> bool {
        matches!(self.work, Work::Cached(_) | Work::Flushed(_))
    }

    pub fn span(&self) -> Span {
        Span {
            sector: self.offset / SECTOR_BYTES,
            count: self.len / SECTOR_BYTES,
            is_write: !matches!(self.work, Work::Read),
        }
    }

    fn overlaps(&self, offset: u64, len: u64) -> bool {
        self.offset < offset + len && offset < self.offset + self.len
    }
}

/// The queue, on both sides of the interface.
#[derive(Debug)]
pub(super) struct Queue {
    commands: Vec<Command>,
    depth: usize,
}

impl Queue {
    pub fn new(depth: u32) -> Self {
        Self { commands: Vec::new(), depth: depth as usize }
    }

    pub fn push(&mut self, command: Command) {
        debug_assert!(self.commands.last().is_none_or(|last| last.ticket < command.ticket), "tickets go up");
        self.commands.push(command);
    }

    /// The commands that the disk can choose from; the others wait at the host.
    pub fn visible(&self) -> &[Command] {
        &self.commands[..self.commands.len().min(self.depth)]
    }

    pub fn find(&self, ticket: Ticket) -> Option<&Command> {
        self.commands.binary_search_by_key(&ticket, |command| command.ticket).ok().map(|index| &self.commands[index])
    }

    /// The command at `index`, or if it is a write, the first of those that must come before it.
    pub fn first_of(&self, mut index: usize) -> usize {
        while self.commands[index].data().is_some()
            && let Some(earlier) = self.overlapping_write(index, self.commands[index].offset, self.commands[index].len)
        {
            index = earlier;
        }
        index
    }

    fn overlapping_write(&self, before: usize, offset: u64, len: u64) -> Option<usize> {
        let is_in_the_way = |command: &Command| command.data().is_some() && command.overlaps(offset, len);
        self.commands[..before].iter().position(is_in_the_way)
    }

    /// The first command that waits for room in memory, if the disk sees it and it overtakes nothing there.
    pub fn next_for_room(&self) -> Option<(usize, &Command)> {
        let index = self.visible().iter().position(Command::wants_room)?;
        (self.first_of(index) == index).then(|| (index, &self.commands[index]))
    }

    /// Whether a write that ends in memory may pass everything that waits.
    pub fn lets_pass(&self, offset: u64, len: u64) -> bool {
        !self.commands.iter().any(Command::wants_room)
            && self.overlapping_write(self.commands.len(), offset, len).is_none()
    }

    pub fn take(&mut self, index: usize) -> Command {
        self.commands.remove(index)
    }

    /// Copies what waits to be written to the range over `buffer`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        for command in &self.commands {
            if let Some(data) = command.data() {
                overlay(command.offset, data, offset, buffer);
            }
        }
    }

    pub fn clear(&mut self) {
        self.commands.clear();
    }
}
