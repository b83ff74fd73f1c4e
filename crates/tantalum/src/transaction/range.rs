//! Ranges: rows in key order, from either end, a batch at a time.
//!
//! A batch covers an interval of keys: what of it lies in one leaf, or less. A serializable transaction first looks how far
//! the next batch reaches, then locks that interval, then reads it; batches grow, there from one row, so a caller that wants
//! only the first row locks little more than that.

use std::{cell::RefCell, fmt, ops::Range, sync::Arc};

use tantalum_log::Lsn;

use super::{
    Content, TransactionState,
    batch::{Batch, End, Lent},
    key_range::{Cut, Interval},
    large_values::load,
    snapshot::View,
    staging::{StagedRow, StagingTree},
    value::Value,
};
use crate::{
    db::Core,
    error::{Error, Result},
    table::{Table, TableUse},
    tree::{LeafPosition, LeafView, Tree},
};

/// The most rows of a batch that is locked.
const LARGEST_LOCKED_BATCH: usize = 64;

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
/// // Without memory for each row:
/// while let Some(row) = rows.next_borrowed() {
///     let (key, value) = row?;
///     assert_eq!((key, value), (&b"b"[..], &b""[..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RangeIter<'s> {
    source: Source<'s>,
    table: Table,
    /// What no batch has covered yet.
    rest: Interval,
    /// What was fetched from each end.
    batches: [Batch; 2],
    /// The most rows of the next batch.
    limit: usize,
    /// The large value that was lent last.
    loaded: Value,
    /// A large value could not be read, after which there are no rows.
    has_failed: bool,
    /// Of a range that may outlive its snapshot.
    _table_use: Option<TableUse>,
}

enum Source<'s> {
    Transaction(&'s RefCell<TransactionState>),
    View(Arc<View>),
}

impl Source<'_> {
    /// The value of a row of the range: it stays, because the row is locked or seen by a view.
    #[cold]
    fn load(&self, content: Content, table: &Table) -> Result<Value> {
        let load_from = |core: &Core, view| {
            core.check_open()?;
            core.if_open(load(content, table, view))
        };
        match self {
            Self::Transaction(transaction) => {
                let transaction = transaction.borrow();
                load_from(transaction.core(), transaction.view.as_deref())
            }
            Self::View(view) => load_from(view.manager.core(), Some(view)),
        }
    }
}

/// What one look at a leaf shows.
struct Look {
    /// The part of the range that the rows are all rows of.
    covered: Interval,
    /// The log must be durable up to here before the rows are returned.
    lsn: Lsn,
    /// The leaf's LSN.
    leaf_lsn: Lsn,
    /// Rows were looked for in staging tables too.
    is_staged: bool,
}

/// What a look shows: the state as a view has it or as it is now, and over it what a transaction has staged.
#[derive(Clone, Copy, Default)]
struct Seen<'a> {
    view: Option<&'a View>,
    own: Option<&'a StagingTree>,
}

impl<'s> RangeIter<'s> {
    pub(super) fn of_transaction(
        transaction: &'s RefCell<TransactionState>,
        table: &Table,
        interval: Interval,
    ) -> Self {
        Self::new(Source::Transaction(transaction), table, interval)
    }

    pub(super) fn of_view(view: Arc<View>, table: TableUse, interval: Interval) -> Self {
        let mut range = Self::new(Source::View(view), table.table(), interval);
        range._table_use = Some(table);
        range
    }

    fn new(source: Source<'s>, table: &Table, rest: Interval) -> Self {
        let limit = match &source {
            Source::Transaction(transaction) if transaction.borrow().view.is_none() => 1,
            _ => usize::MAX,
        };
        Self {
            source,
            table: table.clone(),
            rest,
            batches: Default::default(),
            limit,
            loaded: Value::from(Vec::new()),
            has_failed: false,
            _table_use: None,
        }
    }

    /// As `next`, but the row is shown where the iterator has it, instead of in memory of its own: the fastest way through many
    /// rows.
    #[inline]
    pub fn next_borrowed(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.lend(End::Front)
    }

    /// As `next_back`, otherwise as [`next_borrowed`](Self::next_borrowed).
    #[inline]
    pub fn next_back_borrowed(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.lend(End::Back)
    }

    /// The key of the row that `next` would return, which is passed over: its value is not read where it is large.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let films = db.table("films")?;
    /// for film in ["alien", "brazil", "contact"] {
    ///     db.put(&films, film, [7; 100_000])?;
    /// }
    /// let mut rows = db.range(&films, ..)?;
    /// assert_eq!(rows.next_key().transpose()?.unwrap(), b"alien");
    /// assert_eq!(rows.next_back_key().transpose()?.unwrap(), b"contact");
    /// assert_eq!(std::iter::from_fn(|| rows.next_key()).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_key(&mut self) -> Option<Result<Value>> {
        self.next_unread().map(|row| Ok(row?.0))
    }

    /// As `next_back`, otherwise as [`next_key`](Self::next_key).
    pub fn next_back_key(&mut self) -> Option<Result<Value>> {
        self.next_back_unread().map(|row| Ok(row?.0))
    }

    #[inline]
    fn lend(&mut self, end: End) -> Option<Result<(&[u8], &[u8])>> {
        let from = match self.ready(end) {
            Ok(from) => from,
            Err(error) => return Some(Err(error)),
        };
        let Self { source, table, batches, loaded, has_failed, .. } = self;
        let row = batches[from as usize].lend(end)?.and_then(|(key, value)| match value {
            Lent::Bytes(value) => Ok((key, value)),
            Lent::Large(reference) => {
                *loaded = source.load(Content::Large(reference), table).inspect_err(|_| *has_failed = true)?;
                Ok((key, &loaded[..]))
            }
        });
        Some(row)
    }

    #[inline]
    fn take(&mut self, end: End) -> Option<Result<(Value, Value)>> {
        let row = self.take_unread(end)?.and_then(|(key, content)| match content {
            Content::Bytes(value) => Ok((key, value)),
            large => {
                let value = self.source.load(large, &self.table).inspect_err(|_| self.has_failed = true)?;
                Ok((key, value))
            }
        });
        Some(row)
    }

    /// As `next`, but does not read a large value.
    pub(crate) fn next_unread(&mut self) -> Option<Result<(Value, Content)>> {
        self.take_unread(End::Front)
    }

    /// As `next_back`, but does not read a large value.
    pub(crate) fn next_back_unread(&mut self) -> Option<Result<(Value, Content)>> {
        self.take_unread(End::Back)
    }

    #[inline]
    fn take_unread(&mut self, end: End) -> Option<Result<(Value, Content)>> {
        match self.ready(end) {
            Ok(from) => self.batches[from as usize].take(end),
            Err(error) => Some(Err(error)),
        }
    }

    /// The end whose batch has the next row from one end; if it is empty, there is none.
    #[inline]
    fn ready(&mut self, end: End) -> Result<End> {
        let has_failed = self.has_failed || self.batches.iter().any(Batch::has_failed);
        let has_row = !self.batches[end as usize].is_empty() && !has_failed;
        if has_row { Ok(end) } else { self.make_ready(end) }
    }

    fn make_ready(&mut self, end: End) -> Result<End> {
        if self.has_failed || self.batches.iter().any(Batch::has_failed) {
            self.give_up();
        }
        while self.batches[end as usize].is_empty() && !self.rest.is_empty() {
            if let Err(error) = self.fetch(end) {
                self.give_up();
                return Err(error);
            }
        }
        // What the other end has fetched is all that is left.
        Ok(if self.batches[end as usize].is_empty() { end.other() } else { end })
    }

    fn give_up(&mut self) {
        self.rest = Interval::new(Cut::Max, Cut::Max);
        self.batches.iter_mut().for_each(Batch::clear);
    }

    /// Fetches the next batch from one end of what is left.
    fn fetch(&mut self, end: End) -> Result<()> {
        let limit = self.limit;
        self.limit = limit.saturating_mul(2).min(LARGEST_LOCKED_BATCH.max(limit));
        let (table, rest, batch) = (&self.table, &self.rest, &mut self.batches[end as usize]);
        let look = match &self.source {
            Source::View(view) => {
                let core = &view.manager.core;
                core.check_open()?;
                let seen = Seen { view: Some(view), own: None };
                let look = core.if_open(look(table, rest, end, limit, seen, batch))?;
                core.pool.flush(look.lsn)?;
                look
            }
            Source::Transaction(transaction) => transaction.borrow_mut().fetch(table, rest, end, limit, batch)?,
        };
        debug_assert!(!look.covered.is_empty(), "every batch makes progress");
        match end {
            End::Front => self.rest.lower = look.covered.upper,
            End::Back => self.rest.upper = look.covered.lower,
        }
        Ok(())
    }
}

impl TransactionState {
    /// The next batch of a range as this transaction sees it, locked if its isolation asks for that.
    fn fetch(&mut self, table: &Table, rest: &Interval, end: End, limit: usize, batch: &mut Batch) -> Result<Look> {
        self.check_running()?;
        let sees =
            Seen { view: self.view.as_deref(), own: self.staged.as_ref().and_then(|staged| staged.tree(table.id())) };
        let seen = self.core().if_open(look(table, rest, end, limit, sees, batch));
        let mut seen = self.abort_if_retryable(seen)?;
        if self.view.is_none() {
            let (locked, planned_lsn) = (seen.covered.clone(), seen.leaf_lsn);
            let waited = self.lock_range(table, &locked)?;
            // Only now does the interval stand still. The leaf tells nothing of staged rows.
            let may_be_staged = seen.is_staged || table.staging().has_any();
            let is_unchanged = |lsn: Lsn| !waited && !may_be_staged && lsn == planned_lsn;
            if !self.leaf_lsn(table, &locked, end)?.is_some_and(is_unchanged) {
                let own = self.staged.as_ref().and_then(|staged| staged.tree(table.id()));
                seen = look(table, &locked, end, usize::MAX, Seen { view: None, own }, batch)?;
            }
        }
        self.core().check_open()?;
        self.read_lsn = self.read_lsn.max(seen.lsn);
        let own = self.writes.range(table.id(), &seen.covered).map(|(key, value)| (key.clone(), value.clone()));
        batch.overlay(own.collect())?;
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
    let begins_inside = leaf.lower().is_empty() || interval.lower.is_at_or_after(leaf.lower());
    let lower = if begins_inside { interval.lower.clone() } else { Cut::before(leaf.lower()) };
    let upper = match leaf.upper() {
        Some(fence) if interval.upper.is_after(fence) => Cut::before(fence),
        _ => interval.upper.clone(),
    };
    Interval::new(lower, upper)
}

/// Reads at most `limit` rows at one end of an interval, from one leaf and what is staged for it.
fn look(table: &Table, rest: &Interval, end: End, limit: usize, seen: Seen<'_>, batch: &mut Batch) -> Result<Look> {
    // First: a row that is not staged any more is in the leaf.
    let staged = match table.staging().has_any() {
        true => Some(StagedLook::new(table, rest, end, limit, seen)?),
        false => None,
    };
    let within = staged.as_ref().map_or(rest, |staged| &staged.covered);
    let (covered, leaf_lsn) = fill(table.tree(), within, end, limit, batch)?;
    let until = seen.view.and_then(|view| view.loaded_since(table));
    if until.is_some() {
        batch.clear();
    }
    let mut lsn = batch.read_large(table.tree())?;
    let (own, is_staged) = match staged {
        Some(staged) => {
            lsn = lsn.max(staged.lsn);
            // The oldest first.
            for rows in staged.committed.into_iter().rev() {
                batch.overlay(made(rows, &covered))?;
            }
            (made(staged.own, &covered), true)
        }
        None => (Vec::new(), false),
    };
    if let Some(view) = seen.view {
        // Asked after the leaf was looked at: what has been overwritten since is here as well, and the same.
        batch.overlay(view.manager.versions.get_range(
            table.id(),
            &covered,
            view.snapshot,
            until.unwrap_or(u64::MAX),
        )?)?;
        lsn = view.shown_lsn(lsn);
    }
    batch.overlay(own)?;
    Ok(Look { covered, lsn, leaf_lsn, is_staged })
}

/// What is staged for a part of a range.
struct StagedLook {
    /// The part.
    covered: Interval,
    /// What a transaction has staged itself.
    own: Vec<StagedRow>,
    /// What others have committed, the newest first.
    committed: Vec<Vec<StagedRow>>,
    /// How far the log must be durable before these are returned.
    lsn: Lsn,
}

impl StagedLook {
    fn new(table: &Table, rest: &Interval, end: End, limit: usize, seen: Seen<'_>) -> Result<Self> {
        let mut look = Self { covered: rest.clone(), own: Vec::new(), committed: Vec::new(), lsn: Lsn::ZERO };
        if let Some(own) = seen.own {
            (look.covered, look.own, _) = own.range(&look.covered, end, limit)?;
        }
        let up_to = seen.view.map_or(u64::MAX, |view| view.snapshot.number);
        for (_, staged) in table.staging().committed(up_to) {
            let (covered, rows, lsn) = staged.range(&look.covered, end, limit)?;
            look.covered = covered;
            if !rows.is_empty() {
                look.lsn = look.lsn.max(lsn);
            }
            look.committed.push(rows);
        }
        Ok(look)
    }
}

/// What staged rows make of the keys of an interval.
fn made(rows: Vec<StagedRow>, interval: &Interval) -> Vec<(Value, Option<Content>)> {
    let within = rows.into_iter().filter(|(key, _)| interval.contains(key));
    within.filter_map(|(key, write)| Some((key, write.made()?))).collect()
}

/// Takes at most `limit` entries of one leaf into a batch, at one end of an interval. Returns the part of the interval that they are all
/// entries of, and the leaf's LSN.
pub(super) fn fill(tree: &Tree, rest: &Interval, end: End, limit: usize, batch: &mut Batch) -> Result<(Interval, Lsn)> {
    tree.read_leaf(position(rest, end), |leaf| {
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
        batch.fill(&leaf, indices)?;
        Ok::<_, Error>((covered, leaf.lsn()))
    })?
}

fn indices_in(leaf: &LeafView<'_>, interval: &Interval) -> Result<Range<usize>> {
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

impl Iterator for RangeIter<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(End::Front)
    }
}

impl DoubleEndedIterator for RangeIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(End::Back)
    }
}

impl fmt::Debug for RangeIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeIter").field("table", &self.table).field("rest", &self.rest).finish_non_exhaustive()
    }
}
