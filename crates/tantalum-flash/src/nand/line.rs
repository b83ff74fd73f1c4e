//! When something is taken that serves one operation at a time.

use std::collections::VecDeque;

use crate::Nanos;

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
    fn what_is_needed_late_keeps_nobody_from_the_time_before() {
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
