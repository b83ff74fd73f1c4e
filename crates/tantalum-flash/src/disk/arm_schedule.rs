//! What the arm does next: whatever it reaches first of all that waits, by the distance and the angle.
//!
//! Promises: a decision is made when the arm is free, among what is known then, and nothing that is asked later changes
//! it. Writes of the same sectors keep their order. Nothing waits for ever: what is older than the limit goes first.

use super::arm::Span;
use super::cache::Note;
use super::queue::{Command, Work};
use super::{HardDisk, SECTOR_BYTES};
use crate::link::nanos;
use crate::writeback::Run;
use crate::{Nanos, Ticket};

/// A flush that waits for the cache.
#[derive(Debug)]
pub(super) struct Flush {
    pub ticket: Ticket,
    pub ready: Nanos,
    /// The number of the last write that it waits for.
    pub through: u64,
}

/// What is being written to the platters.
#[derive(Debug)]
pub(super) struct Transfer {
    pub begin: Nanos,
    pub offset: u64,
    pub data: Vec<u8>,
    /// The number of the oldest write whose flush waits for it.
    pub oldest: u64,
    /// Whether the write was acknowledged to the host.
    pub is_acknowledged: bool,
}

/// Something that the arm can do.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// A command, by its place in the queue.
    Command(usize),
    /// A run of the cache, by its offset.
    Run(u64),
}

impl HardDisk {
    /// Everything that happens before `now`. What happens at `now` may depend on what is still to be asked then.
    pub(super) fn advance(&mut self, now: Nanos) {
        loop {
            let free_at = self.arm.free_at();
            if free_at > now {
                break;
            }
            self.end_transfer();
            self.admit(free_at);
            self.end_flushes(free_at);
            let Some(at) = self.next_decision() else { break };
            if at >= now {
                break;
            }
            self.decide(at);
        }
        self.ending.retain(|&(_, end)| end > now);
    }

    fn end_transfer(&mut self) {
        if let Some(transfer) = self.writing.take() {
            self.platters.write(transfer.offset, &transfer.data);
        }
    }

    /// Takes writes that wait for memory into it, as far as there is room.
    fn admit(&mut self, at: Nanos) {
        while let Some((index, command)) = self.queue.next_for_room()
            && self.has_room(command.offset, command.len)
        {
            let command = self.queue.take(index);
            let done = command.ready.max(at) + self.link.transfer(command.len as usize);
            match command.work {
                Work::Cached(data) => {
                    self.hold(command.offset, data, done);
                    self.ending.push((command.ticket, done));
                }
                Work::Flushed(data) => {
                    self.hold(command.offset, data, done);
                    let through = self.cache.latest();
                    self.flushes.push(Flush { ticket: command.ticket, ready: done, through });
                }
                Work::Read | Work::Through(_) => {}
            }
        }
    }

    /// Ends the flushes that wait for nothing more at `at`.
    fn end_flushes(&mut self, at: Nanos) {
        if self.flushes.is_empty() {
            return;
        }
        let oldest = self.oldest_unwritten();
        let ending = &mut self.ending;
        self.flushes.retain(|flush| {
            let is_over = flush.through < oldest;
            if is_over {
                ending.push((flush.ticket, flush.ready.max(at)));
            }
            !is_over
        });
    }

    /// The number of the oldest write that is not on the platters.
    pub(super) fn oldest_unwritten(&self) -> u64 {
        let writing = self.writing.as_ref().map_or(u64::MAX, |transfer| transfer.oldest);
        self.cache.oldest().min(writing)
    }

    /// When the arm is free and has something to do.
    fn next_decision(&self) -> Option<Nanos> {
        let commands = self.queue.visible().iter().map(|command| command.ready);
        let runs = self.cache.runs.runs().map(|(_, run)| run.note.ready);
        Some(commands.chain(runs).min()?.max(self.arm.free_at()))
    }

    /// Sends the arm to what it chooses.
    fn decide(&mut self, at: Nanos) {
        match self.choose(at) {
            Some(Choice::Command(index)) => {
                let command = self.queue.take(self.queue.first_of(index));
                self.serve(at, command);
            }
            Some(Choice::Run(offset)) => {
                let Run { data, note } = self.cache.runs.take(offset).expect("it was chosen from the cache");
                self.send(at, offset, data, note.oldest, true);
            }
            None => debug_assert!(false, "there is something to do at {at}"),
        }
    }

    /// The nearest of what is known at `at`. Commands that the host waits for pass destaging, unless a flush, or a
    /// command that wants room in the cache, waits for that.
    fn choose(&self, at: Nanos) -> Option<Choice> {
        let is_late = |ready: Nanos| at.saturating_sub(ready) > nanos(self.parameters.age_limit_us);
        let known = || self.queue.visible().iter().enumerate().filter(|(_, command)| command.ready <= at);
        let through = self.flushes.iter().map(|flush| flush.through).max();
        let wanted = |oldest: u64| through.is_none_or(|through| oldest <= through);
        let reach_run = |(offset, _): (u64, &Run<Note>)| {
            let place = self.geometry.locate(offset / SECTOR_BYTES);
            (self.arm.reach(&self.geometry, at, place, true), Choice::Run(offset))
        };
        let runs = || self.cache.runs.runs().filter(|(_, run)| run.note.ready <= at);
        let nearest_run = || {
            let for_flush =
                runs().filter(|(_, run)| wanted(run.note.oldest)).map(reach_run).min_by_key(|&(begin, _)| begin);
            for_flush.or_else(|| runs().map(reach_run).min_by_key(|&(begin, _)| begin))
        };
        if self.flushes.first().is_some_and(|flush| is_late(flush.ready))
            && let Some((_, run)) = nearest_run()
        {
            return Some(run);
        }
        if let Some((index, _)) = known().next().filter(|(_, command)| is_late(command.ready)) {
            return Some(Choice::Command(index));
        }
        let nearest = known()
            .map(|(index, command)| {
                let is_write = command.span().is_write;
                (self.arm.reach(&self.geometry, at, command.place, is_write), Choice::Command(index))
            })
            .min_by_key(|&(begin, _)| begin);
        let a_request_waits = through.is_some() || known().any(|(_, command)| command.wants_room());
        if nearest.is_some() && !a_request_waits {
            return nearest.map(|(_, choice)| choice);
        }
        nearest.into_iter().chain(nearest_run()).min_by_key(|&(begin, _)| begin).map(|(_, choice)| choice)
    }

    /// Sends the arm for a command.
    fn serve(&mut self, at: Nanos, command: Command) {
        let span = command.span();
        let Command { ticket, offset, len, work, .. } = command;
        match work {
            Work::Read => {
                let end = self.go(at, span);
                self.counters.media_reads += 1;
                self.read_on(span, end);
                // The interface carries sectors while others pass; the last one is left.
                self.ending.push((ticket, end + self.link.transfer(SECTOR_BYTES as usize)));
            }
            Work::Through(data) | Work::Cached(data) => {
                let oldest = self.cache.remove(offset, len).unwrap_or(u64::MAX);
                let end = self.send(at, offset, data, oldest, false);
                self.ending.push((ticket, end));
            }
            Work::Flushed(data) => {
                let through = self.cache.latest();
                let oldest = self.cache.remove(offset, len).unwrap_or(through);
                let ready = self.send(at, offset, data, oldest, false);
                self.flushes.push(Flush { ticket, ready, through });
            }
        }
    }

    fn go(&mut self, at: Nanos, span: Span) -> Nanos {
        if let Some(read_ahead) = &mut self.read_ahead {
            read_ahead.leave(at);
        }
        self.arm.go(&self.geometry, at, span).end
    }

    /// Sends the arm to write; returns when it has.
    fn send(&mut self, at: Nanos, offset: u64, data: Vec<u8>, oldest: u64, is_acknowledged: bool) -> Nanos {
        let span = Span { sector: offset / SECTOR_BYTES, count: data.len() as u64 / SECTOR_BYTES, is_write: true };
        let begin = self.arm.plan(&self.geometry, at, span).begin;
        let end = self.go(at, span);
        self.counters.media_written_bytes += data.len() as u64;
        self.writing = Some(Transfer { begin, offset, data, oldest, is_acknowledged });
        end
    }

    /// The earliest time at which a command that waits may have ended, if the arm goes for it as soon as it can.
    pub(super) fn earliest(&self, now: Nanos, command: &Command) -> Nanos {
        let depart = self.arm.free_at().max(command.ready).max(now);
        if command.wants_room() {
            return depart + self.link.transfer(command.len as usize);
        }
        let is_write = !matches!(command.work, Work::Read);
        let last = if is_write { 0 } else { self.link.transfer(SECTOR_BYTES as usize) };
        self.arm.plan(&self.geometry, depart, command.span()).end + last
    }
}
