//! When planes, channels and links are free: each serves one operation at a time.

use std::collections::VecDeque;

use super::Geometry;
use crate::Nanos;

/// When each plane and channel is free: operations on one of them follow each other.
#[derive(Debug, Clone)]
pub struct Lines {
    planes: Vec<Nanos>,
    channels: Vec<Channel>,
}

#[derive(Debug, Clone, Default)]
struct Channel {
    line: Line,
    /// When the last program's data crossed.
    last_program: Nanos,
}

impl Lines {
    /// Everything free from the start.
    pub fn new(geometry: &Geometry) -> Self {
        let channels = vec![Channel::default(); geometry.channels as usize];
        Self { planes: vec![0; geometry.planes() as usize], channels }
    }

    /// Everything is free; from now on a channel serves whatever is ready, while a read waits for its plane. Programs keep their order:
    /// what a power cut leaves relies on it.
    pub(super) fn let_reads_pass(&mut self) {
        self.channels.fill(Channel { line: Line::new(true), last_program: 0 });
    }

    /// When the plane is free.
    pub fn plane_free(&self, plane: u32) -> Nanos {
        self.planes[plane as usize]
    }

    /// Reads into the register, then over the channel. Returns when the data is there.
    pub(super) fn read(&mut self, at: Nanos, plane: u32, channel: u32, array: Nanos, transfer: Nanos) -> Nanos {
        let (plane, channel) = (&mut self.planes[plane as usize], &mut self.channels[channel as usize]);
        let ready = at.max(*plane) + array;
        *plane = channel.line.take(ready, transfer) + transfer;
        *plane
    }

    /// Carries data over the channel, then programs it. Returns when programming starts and when it is done.
    pub(super) fn program(
        &mut self,
        at: Nanos,
        plane: u32,
        channel: u32,
        transfer: Nanos,
        array: Nanos,
    ) -> (Nanos, Nanos) {
        let (plane, channel) = (&mut self.planes[plane as usize], &mut self.channels[channel as usize]);
        let ready = at.max(*plane).max(channel.last_program);
        channel.last_program = channel.line.take(ready, transfer);
        let start = channel.last_program + transfer;
        *plane = start + array;
        (start, *plane)
    }

    /// Occupies the plane alone. Returns start and end.
    pub(super) fn erase(&mut self, at: Nanos, plane: u32, array: Nanos) -> (Nanos, Nanos) {
        let plane = &mut self.planes[plane as usize];
        let start = at.max(*plane);
        *plane = start + array;
        (start, *plane)
    }

    /// The plane goes on with what it does.
    pub(super) fn busy_until(&mut self, plane: u32, done: Nanos) {
        let free = &mut self.planes[plane as usize];
        *free = done.max(*free);
    }

    /// The power was cut: nothing is under way any more.
    pub(super) fn stop(&mut self, now: Nanos) {
        for free in &mut self.planes {
            *free = (*free).min(now);
        }
        for channel in &mut self.channels {
            channel.line.stop(now);
            channel.last_program = channel.last_program.min(now);
        }
    }
}

/// The times at which a channel, or a link, is taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    passes: bool,
    /// Nothing is free before.
    floor: Nanos,
    /// The times after it that are taken, in their order, none next to another.
    taken: VecDeque<(Nanos, Nanos)>,
}

/// Of more times than these, the earliest gaps are forgotten: they are long past.
const REMEMBERED: usize = 64;

impl Line {
    /// Free from the start. With `passes`, what is ready comes first: one that will need it late, since it waits for something else,
    /// does not keep others from it until then. Else it serves in the order of the calls.
    pub(crate) fn new(passes: bool) -> Self {
        Self { passes, ..Self::default() }
    }

    /// Takes it for so long, as early as may be, not before `at`. Returns from when on.
    pub(crate) fn take(&mut self, at: Nanos, length: Nanos) -> Nanos {
        let end = self.taken.back().map_or(self.floor, |(_, until)| *until);
        let mut begin = at.max(if self.passes { self.floor } else { end });
        // Most come in the order in which they are served: the last times are looked at first.
        let mut place = self.taken.len();
        while place > 0 && self.taken[place - 1].1 > begin {
            place -= 1;
        }
        while let Some(&(from, until)) = self.taken.get(place)
            && begin + length > from
        {
            begin = begin.max(until);
            place += 1;
        }
        let (mut from, mut until) = (begin, begin + length);
        if let Some(&(next, end)) = self.taken.get(place)
            && next == until
        {
            until = end;
            self.taken.remove(place);
        }
        if place > 0 && self.taken[place - 1].1 == from {
            place -= 1;
            from = self.taken[place].0;
            self.taken.remove(place);
        }
        self.taken.insert(place, (from, until));
        if self.taken.len() > REMEMBERED {
            self.floor = self.taken.pop_front().map_or(self.floor, |(_, until)| until);
        }
        begin
    }

    /// Free from `now` on, whatever had taken it.
    pub(crate) fn stop(&mut self, now: Nanos) {
        self.floor = self.floor.min(now);
        self.taken.retain(|(from, _)| *from < now);
        if let Some((_, until)) = self.taken.back_mut() {
            *until = now.min(*until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_late_leaves_the_time_before_free() {
        let mut line = Line::new(true);
        assert_eq!(line.take(0, 10), 0);
        assert_eq!(line.take(100, 10), 100, "it waits for something else");
        assert_eq!(line.take(5, 20), 10);
        assert_eq!(line.take(5, 70), 30);
        assert_eq!(line.take(5, 1), 110, "there is no room before");
        line.stop(35);
        assert_eq!(line.take(0, 10), 35);
    }

    #[test]
    fn where_nothing_passes_all_wait_for_the_one_before() {
        let mut line = Line::new(false);
        assert_eq!([(0, 10), (100, 10), (5, 20)].map(|(at, length)| line.take(at, length)), [0, 100, 110]);
        line.stop(105);
        assert_eq!(line.take(0, 10), 105);
    }

    #[test]
    fn it_serves_one_at_a_time_however_many_are_remembered() {
        let mut line = Line::new(true);
        let mut served: Vec<Nanos> = (0..1000).map(|number| line.take(number % 7 * 1000 + number * 15, 10)).collect();
        served.sort_unstable();
        assert!(served.windows(2).all(|pair| pair[0] + 10 <= pair[1]));
        assert!(line.taken.len() <= REMEMBERED);
    }
}
