//! A zone, and what is under way for it.

use std::collections::VecDeque;

use tantalum_device::sparse::Piece;

use crate::{Contents, Nanos};

/// A zone. Counts are in sectors.
#[derive(Debug, Clone, Default)]
pub(super) struct Zone {
    /// Its blocks, in the order in which its pages go to them; none while it is empty.
    pub blocks: Vec<Option<u32>>,
    /// What was written: the write pointer.
    pub written: u32,
    /// What flash was given of it.
    pub programmed: u32,
    /// The rest.
    pub waiting: VecDeque<Waiting>,
    /// Whether it takes no more, though it was not written to the end.
    pub is_finished: bool,
    /// Writes that have not completed: when they will, and the pointer behind them. They complete in their order.
    pub under_way: VecDeque<(Nanos, u32)>,
    /// The pointer behind the writes that have completed.
    pub completed: u32,
    /// When the latest command for it completes.
    pub last_done: Nanos,
    /// What happens to it at a time ahead.
    pub change: Option<(Nanos, Change)>,
}

/// A sector in memory that flash was not given yet.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub piece: Piece,
    /// When its write completes.
    pub ready: Nanos,
    /// Where the mirror keeps it.
    pub place: Option<u32>,
}

/// What a command makes of a zone when it completes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// It is empty, and was this zone until then.
    Reset { before: Box<Zone> },
    /// It is full.
    Finish,
}

impl Zone {
    pub fn is_empty(&self) -> bool {
        self.written == 0 && !self.is_finished && !self.is_being_reset()
    }

    pub fn is_being_reset(&self) -> bool {
        matches!(self.change, Some((_, Change::Reset { .. })))
    }

    /// Whether it takes no writes, of a zone with so many sectors.
    pub fn is_full(&self, sectors: u32) -> bool {
        self.is_finished || self.written == sectors || matches!(self.change, Some((_, Change::Finish)))
    }

    /// Whether it counts as partly written. It does until the command ends that changes that.
    pub fn is_active(&self, sectors: u32) -> bool {
        match &self.change {
            Some((_, Change::Reset { before })) => before.is_active(sectors) || self.written > 0,
            _ => self.written > 0 && self.written < sectors && !self.is_finished,
        }
    }

    pub fn changes_by(&self, now: Nanos) -> bool {
        self.change.as_ref().is_some_and(|(done, _)| *done <= now)
    }

    /// Notes which writes have completed.
    pub fn note_completed(&mut self, now: Nanos) {
        while let Some(&(done, end)) = self.under_way.front()
            && done <= now
        {
            self.under_way.pop_front();
            self.completed = end;
        }
    }

    /// Whether nothing happens to it until a command comes.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty() && self.change.is_none()
    }
}

/// What a file keeps of each zone that its blocks do not tell; in memory, nothing.
#[derive(Debug)]
pub(super) struct Marks(Option<Contents>);

impl Marks {
    /// The zone is what its blocks say.
    pub const NONE: u8 = 0;
    /// It is finished.
    pub const FINISHED: u8 = 1;
    /// Its blocks are being erased.
    pub const RESETTING: u8 = 2;

    pub fn new(area: Option<Contents>) -> Self {
        Self(area)
    }

    pub fn set(&mut self, zone: u32, mark: u8) {
        if let Some(area) = &mut self.0 {
            area.write(zone.into(), &[mark]);
        }
    }

    pub fn get(&self, zone: u32) -> u8 {
        let mut mark = [Self::NONE];
        if let Some(area) = &self.0 {
            area.read(zone.into(), &mut mark);
        }
        mark[0]
    }
}
