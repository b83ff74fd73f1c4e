//! Ranges: rows in key order, from either end, a batch at a time.
//!
//! A batch covers an interval of keys: what of it lies in one leaf, or less. A serializable transaction first looks how far
//! the next batch reaches, then locks that interval, then reads it; batches grow, there from one row, so a caller that wants
//! only the first row locks little more than that.

use std::{collections::BTreeMap, collections::VecDeque, fmt};

use tantalum_log::Lsn;

use super::{
    Transaction, Value,
    key_range::{Cut, Interval},
    snapshot::View,
};
use crate::{
    error::Result,
    table::Table,
    tree::{LeafPosition, LeafView},
};

/// Rows of the first batch where batches are locked, and where they are not; and of the largest.
const FIRST_LOCKED_ROWS: usize = 1;
const FIRST_BATCH_ROWS: usize = 8;
const LARGEST_BATCH_ROWS: usize = 64;

type Row = (Value, Value);

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// The rows of a range, from [`Transaction::range`] or [`Snapshot::range`](crate::Snapshot::range). After an error it ends.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let letters = db.table("letters")?;
/// let mut tx = db.begin()?;
/// for letter in ["a", "b", "c"] {
///     tx.put(&letters, letter, "")?;
/// }
/// let mut rows = tx.range(&letters, "a"..)?;
/// assert_eq!(rows.next().transpose()?.unwrap().0, b"a");
/// assert_eq!(rows.next_back().transpose()?.unwrap().0, b"c");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RangeIter<'s> {
    source: Source<'s>,
    table: Table,
    /// What no batch has covered yet.
    rest: Interval,
    front: VecDeque<Row>,
    back: VecDeque<Row>,
    batch_rows: usize,
}

enum Source<'s> {
    Transaction(&'s mut Transaction),
    View(&'s View),
}

/// What one look at a leaf shows.
struct Look {
    rows: Vec<Row>,
    /// The part of the range that the rows are all rows of.
    covered: Interval,
    lsn: Lsn,
}

impl<'s> RangeIter<'s> {
    pub(super) fn of_transaction(transaction: &'s mut Transaction, table: &Table, interval: Interval) -> Self {
        Self::new(Source::Transaction(transaction), table, interval)
    }

    pub(super) fn of_view(view: &'s View, table: &Table, interval: Interval) -> Self {
        Self::new(Source::View(view), table, interval)
    }

    fn new(source: Source<'s>, table: &Table, rest: Interval) -> Self {
        let (front, back) = (VecDeque::new(), VecDeque::new());
        let batch_rows = match &source {
            Source::Transaction(transaction) if transaction.view.is_none() => FIRST_LOCKED_ROWS,
            _ => FIRST_BATCH_ROWS,
        };
        Self { source, table: table.clone(), rest, front, back, batch_rows }
    }

    fn next_from(&mut self, end: End) -> Option<Result<Row>> {
        loop {
            let row = match end {
                End::Front => self.front.pop_front(),
                End::Back => self.back.pop_back(),
            };
            if let Some(row) = row {
                return Some(Ok(row));
            }
            if self.rest.is_empty() {
                // What the other end has fetched is all that is left.
                return match end {
                    End::Front => self.back.pop_front(),
                    End::Back => self.front.pop_back(),
                }
                .map(Ok);
            }
            if let Err(error) = self.fetch(end) {
                self.rest = Interval::new(Cut::Max, Cut::Max);
                self.front.clear();
                self.back.clear();
                return Some(Err(error));
            }
        }
    }

    /// Fetches the next batch from one end of what is left.
    fn fetch(&mut self, end: End) -> Result<()> {
        let limit = self.batch_rows;
        self.batch_rows = (2 * limit).min(LARGEST_BATCH_ROWS);
        let look = match &mut self.source {
            Source::View(view) => look(&self.table, &self.rest, end, limit, Some(view))?,
            Source::Transaction(transaction) => transaction.fetch(&self.table, &self.rest, end, limit)?,
        };
        debug_assert!(!look.covered.is_empty(), "every batch makes progress");
        match end {
            End::Front => {
                self.rest.lower = look.covered.upper;
                self.front.extend(look.rows);
            }
            End::Back => {
                self.rest.upper = look.covered.lower;
                for row in look.rows.into_iter().rev() {
                    self.back.push_front(row);
                }
            }
        }
        Ok(())
    }
}

impl Transaction {
    /// The next batch of a range as this transaction sees it, locked if its isolation asks for that.
    fn fetch(&mut self, table: &Table, rest: &Interval, end: End, limit: usize) -> Result<Look> {
        self.check_running()?;
        let mut seen = look(table, rest, end, limit, self.view.as_ref())?;
        if self.view.is_none() {
            let (locked, planned_lsn) = (seen.covered.clone(), seen.lsn);
            let waited = self.lock_range(table, &locked)?;
            // Only now does the interval stand still.
            let is_unchanged = |lsn: Lsn| !waited && lsn == planned_lsn;
            if !self.leaf_lsn(table, &locked, end)?.is_some_and(is_unchanged) {
                seen = look(table, &locked, end, usize::MAX, None)?;
            }
            self.read_lsn = self.read_lsn.max(seen.lsn);
        }
        let own = self.writes.range(table.id(), &seen.covered).map(|(key, value)| (key.clone(), value.clone()));
        overlay(&mut seen.rows, own.collect());
        Ok(seen)
    }

    /// The LSN of the leaf at one end of an interval, if it holds the whole interval.
    fn leaf_lsn(&self, table: &Table, interval: &Interval, end: End) -> Result<Option<Lsn>> {
        table.tree().read_leaf(position(interval, end), |leaf| {
            let whole = part_in_leaf(&leaf, interval) == *interval;
            whole.then(|| leaf.lsn())
        })
    }
}

/// The leaf at one end of an interval.
fn position(interval: &Interval, end: End) -> LeafPosition<'_> {
    match end {
        End::Front => match &interval.lower {
            Cut::At(key, _) => LeafPosition::Containing(key),
            Cut::Min | Cut::Max => LeafPosition::First,
        },
        End::Back => match &interval.upper {
            // Nothing lies before the empty key; the range is then what is just before it, in the first leaf.
            Cut::At(key, false) if key.is_empty() => LeafPosition::First,
            Cut::At(key, false) => LeafPosition::Before(key),
            Cut::At(key, true) => LeafPosition::Containing(key),
            Cut::Min | Cut::Max => LeafPosition::Last,
        },
    }
}

/// What of an interval belongs to a leaf.
fn part_in_leaf(leaf: &LeafView<'_>, interval: &Interval) -> Interval {
    // The first leaf's lower fence is the empty key: nothing lies before it.
    let lower = if leaf.lower().is_empty() { Cut::Min } else { Cut::before(leaf.lower()) };
    let upper = leaf.upper().map_or(Cut::Max, Cut::before);
    Interval::new(interval.lower.clone().max(lower), interval.upper.clone().min(upper))
}

/// Reads at most `limit` rows at one end of an interval, from one leaf, as `view` or as they are now.
fn look(table: &Table, rest: &Interval, end: End, limit: usize, view: Option<&View>) -> Result<Look> {
    table.tree().read_leaf(position(rest, end), |leaf| {
        let mut covered = part_in_leaf(&leaf, rest);
        let mut indices = indices_in(&leaf, &covered)?;
        if indices.len() > limit {
            match end {
                End::Front => {
                    indices.end = indices.start + limit;
                    covered.upper = Cut::after(leaf.key(indices.end - 1)?);
                }
                End::Back => {
                    indices.start = indices.end - limit;
                    covered.lower = Cut::before(leaf.key(indices.start)?);
                }
            }
        }
        let mut key = Vec::new();
        let rows = indices.map(|index| leaf.show(index, &mut key, |key, value| (Value::from(key), Value::from(value))));
        let mut rows = rows.collect::<Result<Vec<Row>>>()?;
        if let Some(view) = view {
            overlay(&mut rows, view.manager.versions.find_range(table.id(), &covered, view.number));
        }
        Ok(Look { rows, covered, lsn: leaf.lsn() })
    })?
}

fn indices_in(leaf: &LeafView<'_>, interval: &Interval) -> Result<std::ops::Range<usize>> {
    let first_beyond = |cut: &Cut| -> Result<usize> {
        match cut {
            Cut::Min => Ok(0),
            Cut::Max => Ok(leaf.len()),
            Cut::At(key, after) => {
                let index = leaf.lower_bound(key)?;
                let is_skipped = *after && index < leaf.len() && leaf.key(index)? == **key;
                Ok(index + usize::from(is_skipped))
            }
        }
    };
    let start = first_beyond(&interval.lower)?;
    Ok(start..first_beyond(&interval.upper)?.max(start))
}

/// Puts `rows_over` in the place of the rows with the same keys; `None` takes a row away.
fn overlay(rows: &mut Vec<Row>, rows_over: Vec<(Value, Option<Value>)>) {
    if rows_over.is_empty() {
        return;
    }
    let mut merged: BTreeMap<Value, Value> = std::mem::take(rows).into_iter().collect();
    for (key, value) in rows_over {
        match value {
            Some(value) => drop(merged.insert(key, value)),
            None => drop(merged.remove(&key)),
        }
    }
    *rows = merged.into_iter().collect();
}

impl Iterator for RangeIter<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_from(End::Front)
    }
}

impl DoubleEndedIterator for RangeIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_from(End::Back)
    }
}

impl fmt::Debug for RangeIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeIter").field("table", &self.table).field("rest", &self.rest).finish_non_exhaustive()
    }
}
