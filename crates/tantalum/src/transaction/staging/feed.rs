//! The rows of a large transaction that the [change feed](crate::change_feed) is to have: in sections of their own, before its commit.

use std::{mem::take, sync::atomic::Ordering};

use tantalum_log::Lsn;

use super::{End, Interval, StagingTree};
use crate::{
    buffer::ChangeGroup,
    change_feed::section::Section,
    error::Result,
    table::Table,
    transaction::{Content, Manager, Value},
};

/// The largest value, in bytes, that the feed has as a whole.
const VALUE_BYTES: usize = 64 << 10;
/// Rows that are read at a time.
const ROWS: usize = 64;

/// Writes parts of what a transaction will have written, if it commits.
pub(super) struct PartWriter<'m> {
    manager: &'m Manager,
    number: u64,
    /// No part lies before it.
    start: Lsn,
    /// Rows that are logged.
    rows: u64,
}

impl<'m> PartWriter<'m> {
    /// For the transaction with this number, which no other has in this session.
    pub fn new(manager: &'m Manager, number: u64) -> Self {
        Self { manager, number, start: manager.core().log().end_lsn(), rows: 0 }
    }

    /// Logs all that is staged for a table, in ascending order of the keys.
    pub fn append_staged(&mut self, table: &Table, staged: &StagingTree) -> Result<()> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut rest = Interval::of(..);
        while !rest.is_empty() {
            let (covered, found, _) = staged.range(&rest, End::Front, ROWS)?;
            for (key, write) in found {
                let Some(made) = write.made() else { continue };
                let made = made.map(|content| self.whole(table, content)).transpose()?;
                let more = key.len() + made.as_ref().map_or(0, Content::memory_bytes);
                if bytes + more > self.manager.group_bytes() && !rows.is_empty() {
                    self.append(table, &take(&mut rows))?;
                    bytes = 0;
                }
                bytes += more;
                rows.push((key, made));
            }
            rest.lower = covered.upper;
        }
        if rows.is_empty() { Ok(()) } else { self.append(table, &rows) }
    }

    /// A large value that the feed is to have as a whole.
    fn whole(&self, table: &Table, content: Content) -> Result<Content> {
        match content {
            Content::Large(reference) if reference.length as usize <= self.manager.feed_value_bytes() => {
                let value = table.values().map(|values| values.load(reference)).transpose()?.flatten();
                Ok(value.map_or(content, Content::from))
            }
            content => Ok(content),
        }
    }

    fn append(&mut self, table: &Table, rows: &[(Value, Option<Content>)]) -> Result<()> {
        let mut section = Section::part(self.number);
        section.table(table.name(), rows.len() as u64);
        rows.iter().for_each(|(key, content)| section.row(key, content.as_ref()));
        let section = section.into_bytes();
        self.manager.leave_log_space()?;
        let core = self.manager.core();
        core.space.supplied(|reservation| {
            ChangeGroup::with(&core.pool, Some(reservation)).append_with(0, 0, &section, |_| ())
        })?;
        self.rows += rows.len() as u64;
        self.manager.note_fed(rows.len() as u64, section.len());
        Ok(())
    }

    /// What the record of the commit says; nothing if there are no parts.
    pub fn finish(self) -> Vec<u8> {
        match self.rows {
            0 => Vec::new(),
            rows => Section::commit_of_parts(self.number, self.start.get(), rows),
        }
    }
}

impl Manager {
    /// The largest value, in bytes, that the change feed has as a whole.
    pub(in crate::transaction) fn feed_value_bytes(&self) -> usize {
        VALUE_BYTES.min(self.group_bytes())
    }

    /// Counts rows, and the bytes of their section.
    pub(in crate::transaction) fn note_fed(&self, rows: u64, bytes: usize) {
        self.counters.changes_fed.fetch_add(rows, Ordering::Relaxed);
        self.counters.change_feed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
