//! The reaper: deletes large values that are marked, some small ones or a group of pieces at a time, in the applier's task.
//!
//! A bounded number of dead values is known in memory. Beyond that the marks in the value trees are looked through again, as at
//! opening. A value that a snapshot sees rests until that snapshot is over.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{Instant, Mutex};
use tantalum_store::TableId;

use super::{PieceKey, ValueTree, mark_key, parse_piece_key, piece_key};
use crate::{
    error::{Error, ErrorKind, Result},
    table::Table,
    transaction::{
        Manager,
        append::{Part, PartTree, Purpose},
        staging::is_too_much,
        versions::SnapshotId,
    },
    tree::{LeafPosition, LeafWrite, Reference},
};

/// So many dead values are known in memory at most.
const KNOWN_MAX: usize = 1 << 16;
/// Pieces and marks that are deleted in one group, at most.
const GROUP_ROWS: usize = 256;
/// Values that are deleted in one group, at most.
const GROUP_VALUES: usize = 16;
/// If more dead values that no snapshot sees wait, commits wait until as many have gone as they add, and a value that is written before
/// its commit until one has.
const BEHIND: u64 = 32;
/// Marks are looked through when so many values were tried since the last time, or none is left to be tried: that reads all marks.
const LOOK_AFTER: usize = 32;
/// How long it rests when a value could not be deleted.
const PAUSE: Duration = Duration::from_secs(1);

/// A value by its table's number and its own.
type ValueKey = (TableId, u64);

/// A value that no row names any more.
#[derive(Clone, Debug)]
struct Dead {
    table: Table,
    born: u64,
    /// No snapshot that begins at or behind this end of the log sees it.
    died: u64,
}

/// The dead values of a database.
#[derive(Debug, Default)]
pub(in crate::transaction) struct Reaper {
    state: Mutex<State>,
    /// How many are known, and how many tables are to be looked through.
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    dead: BTreeMap<ValueKey, Dead>,
    /// Those of which it is not known that a snapshot sees them.
    next: VecDeque<ValueKey>,
    /// The others, by such a snapshot.
    seen: BTreeMap<SnapshotId, Vec<ValueKey>>,
    /// How many snapshots were over when `seen` was last looked at.
    ended: u64,
    /// The marks of these tables are to be looked through, from that of this value on.
    tables: BTreeMap<TableId, (Table, u64)>,
    /// Values of which the deletion was tried since marks were last looked through.
    tried: usize,
    /// So many are tried alone, since one of them could not be deleted with others.
    alone: usize,
    not_before: Option<Instant>,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transaction) enum Reaped {
    /// There is nothing to do now.
    Nothing,
    /// There may be more to do.
    Some,
    /// So many values have gone, or pieces of one.
    Values(usize),
    /// It rests, and then tries again.
    Failed,
}

impl State {
    /// False if there is no room for it.
    fn add(&mut self, id: u64, dead: Dead) -> bool {
        let key = (dead.table.id(), id);
        if self.dead.len() >= KNOWN_MAX {
            return false;
        }
        if self.dead.insert(key, dead).is_none() {
            self.next.push_back(key);
        }
        true
    }

    fn is_resting(&self) -> bool {
        self.not_before.is_some_and(|at| at > tantalum_rt::now())
    }

    /// What is seen by snapshots that are over is looked at again.
    fn release(&mut self, ended: u64, is_alive: impl Fn(SnapshotId) -> bool) {
        if self.ended == ended {
            return;
        }
        self.ended = ended;
        let over: Vec<_> = self.seen.keys().copied().filter(|snapshot| !is_alive(*snapshot)).collect();
        for snapshot in over {
            self.next.extend(self.seen.remove(&snapshot).unwrap_or_default());
        }
    }

    fn has_table(&self) -> bool {
        !self.tables.is_empty() && self.dead.len() < KNOWN_MAX / 2
    }

    /// The table that is to be looked through now.
    fn next_table(&mut self) -> Option<(Table, u64)> {
        if !self.has_table() || !(self.next.is_empty() || self.tried >= LOOK_AFTER) {
            return None;
        }
        self.tried = 0;
        self.tables.pop_first().map(|(_, table)| table)
    }
}

impl Reaper {
    /// A group that ends at `end` has replaced or deleted values.
    pub fn add(&self, values: Vec<(Table, Reference)>, end: u64) {
        self.change(|state| {
            for (table, Reference { id, born, .. }) in values {
                if !state.add(id, Dead { table: table.clone(), born, died: end }) {
                    state.tables.insert(table.id(), (table, 0));
                }
            }
        });
    }

    /// Values written for a transaction that is over may be dead.
    fn look_for(&self, table: &Table) {
        self.change(|state| {
            state.tables.insert(table.id(), (table.clone(), 0));
        });
    }

    fn change<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = f(&mut state);
        self.waiting.store((state.dead.len() + state.tables.len()) as u64, Ordering::Release);
        done
    }

    /// Dead values that are known, and tables whose marks are to be looked through.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether there is anything to do, now or when it no longer rests.
    pub fn has_work(&self) -> bool {
        self.waiting() > 0 && {
            let state = self.state.lock();
            !state.next.is_empty() || state.has_table()
        }
    }

    /// Whether there is anything to do now.
    pub fn is_due(&self) -> bool {
        self.has_work() && !self.state.lock().is_resting()
    }

    /// Whether so many values wait to be deleted that what adds to them waits too.
    pub fn is_behind(&self) -> bool {
        self.waiting() > BEHIND && {
            let state = self.state.lock();
            state.next.len() as u64 > BEHIND && !state.is_resting()
        }
    }

    /// When it goes on after a failure, if it rests.
    pub fn rests_until(&self) -> Option<Instant> {
        self.state.lock().not_before.filter(|at| *at > tantalum_rt::now())
    }

    fn rest(&self) {
        self.state.lock().not_before = Some(tantalum_rt::now() + PAUSE);
    }
}

impl Manager {
    /// Values written for a transaction that is over, or before the database was opened, may be dead.
    pub(in crate::transaction) fn look_for_dead_values(&self, table: &Table) {
        if table.values().is_some() {
            self.reaper.look_for(table);
            self.wake_applier();
        }
    }

    /// A snapshot has ended, which perhaps saw dead values.
    pub(in crate::transaction) fn reap_unseen(&self) {
        if self.reaper.waiting() > 0 {
            self.release_unseen();
            self.wake_applier();
        }
    }

    /// Gives up the oldest snapshot, if dead values stay because snapshots see them. False if none does.
    pub(in crate::transaction) fn give_up_seers(&self, cause: &Error) -> bool {
        let has_seen = !self.reaper.state.lock().seen.is_empty();
        let is_given_up = has_seen && self.versions.give_up_oldest(cause);
        self.reap_unseen();
        is_given_up
    }

    /// Deletes dead values, or pieces of one, or looks for dead ones. Only the applier's task calls this: while it does, no staged rows
    /// are moved, so the marks of a committed staging table are those of values that it still names.
    pub(in crate::transaction) fn reap_step(&self) -> Reaped {
        if !self.reaper.is_due() {
            return Reaped::Nothing;
        }
        if let Some((table, from)) = self.reaper.change(State::next_table) {
            let Err(error) = self.look_through(&table, from) else { return Reaped::Some };
            self.warn(&table, &error, "marks of large values could not be read");
            self.reaper.change(|state| {
                state.tables.entry(table.id()).or_insert((table, from));
            });
            self.reaper.rest();
            return Reaped::Failed;
        }
        let Some((table, ids)) = self.next_values() else {
            self.release_unseen();
            return Reaped::Some;
        };
        let reaped = self.reap_group(&table, &ids);
        let is_alone = ids.len() == 1;
        self.reaper.change(|state| {
            state.tried += ids.len();
            let keys = ids.iter().map(|id| (table.id(), *id));
            match reaped {
                Ok(gone) => {
                    state.alone = state.alone.saturating_sub(gone);
                    keys.clone().take(gone).for_each(|key| drop(state.dead.remove(&key)));
                    keys.skip(gone).rev().for_each(|key| state.next.push_front(key));
                }
                Err(_) if is_alone => {
                    state.alone = state.alone.saturating_sub(1);
                    state.next.extend(keys);
                }
                Err(_) => {
                    state.alone = ids.len();
                    keys.rev().for_each(|key| state.next.push_front(key));
                }
            }
        });
        match reaped {
            Ok(gone) => {
                self.counters.values_freed.fetch_add(gone as u64, Ordering::Relaxed);
                Reaped::Values(gone)
            }
            Err(_) if !is_alone => Reaped::Some,
            Err(error) => {
                self.warn(&table, &error, "a large value could not be deleted");
                self.reaper.rest();
                Reaped::Failed
            }
        }
    }

    /// The next values that no snapshot sees, of one table, in their order. `None` if there are none, or snapshots see those that were
    /// looked at.
    fn next_values(&self) -> Option<(Table, Vec<u64>)> {
        self.reaper.change(|state| {
            let most = if state.alone > 0 { 1 } else { GROUP_VALUES };
            let (mut of, mut ids) = (None::<Table>, Vec::new());
            while ids.len() < most
                && let Some(key) = state.next.pop_front()
            {
                let Some(dead) = state.dead.get(&key) else { continue };
                if of.as_ref().is_some_and(|of| of.id() != key.0) {
                    state.next.push_front(key);
                    break;
                }
                match self.versions.seer(dead.born, dead.died) {
                    None => {
                        of.get_or_insert_with(|| dead.table.clone());
                        ids.push(key.1);
                    }
                    Some(snapshot) => {
                        state.seen.entry(snapshot).or_default().push(key);
                        // It may have ended meanwhile.
                        state.ended = u64::MAX;
                    }
                }
            }
            ids.sort_unstable();
            of.map(|table| (table, ids))
        })
    }

    fn release_unseen(&self) {
        let (ended, is_alive) = (self.versions.ended(), |snapshot| self.versions.is_alive(snapshot));
        self.reaper.state.lock().release(ended, is_alive);
    }

    fn warn(&self, table: &Table, error: &Error, what: &'static str) {
        if self.core().check_open().is_ok() {
            tantalum_rt::tracing::warn!(table = table.name(), %error, "{what}; it is tried again");
        }
    }

    /// Notes what the marks of a table say.
    fn look_through(&self, table: &Table, from: u64) -> Result<()> {
        let Some(_not_dropped) = table.staging().unless_retired() else { return Ok(()) };
        let Some(values) = table.values() else { return Ok(()) };
        let mut marks = Vec::new();
        values.marks(from, &mut |id, mark| {
            marks.push((id, mark));
            marks.len() < KNOWN_MAX
        })?;
        let mut rest = marks.last().filter(|_| marks.len() >= KNOWN_MAX).map(|(id, _)| id + 1);
        // After the marks: a staging table whose marks were read is there by now, or over.
        let staging = table.staging().ids();
        // A view that began before this sees them perhaps, even if nothing was logged since.
        let died = self.core().pool.end().get() + 1;
        self.reaper.change(|state| {
            for (id, mark) in marks {
                let dead = || Dead { table: table.clone(), born: mark.born, died };
                if staging.contains(&mark.owner) || state.dead.contains_key(&(table.id(), id)) || state.add(id, dead())
                {
                    continue;
                }
                rest = Some(id);
                break;
            }
            if let Some(from) = rest {
                state.tables.entry(table.id()).or_insert((table.clone(), from));
            }
        });
        Ok(())
    }

    /// Deletes the first of these values, or some pieces of the first one. The mark of a value goes with the last of its pieces. Returns
    /// how many are gone.
    fn reap_group(&self, table: &Table, ids: &[u64]) -> Result<usize> {
        let Some(_not_dropped) = table.staging().unless_retired() else { return Ok(ids.len()) };
        let Some(values) = table.values() else { return Ok(ids.len()) };
        self.leave_log_space()?;
        self.delete(&values, ids, self.group_rows().min(GROUP_ROWS))
    }

    fn delete(&self, values: &Arc<ValueTree>, ids: &[u64], most_rows: usize) -> Result<usize> {
        let (mut marks, mut pieces, mut gone) = (Vec::new(), Vec::new(), 0);
        for &id in ids {
            let used = marks.len() + pieces.len();
            if used > 0 && used + 2 > most_rows {
                break;
            }
            if values.mark(id)?.is_some() {
                let (of_value, is_all) = pieces_of(values, id, most_rows.saturating_sub(used + 2).max(1))?;
                if !is_all {
                    // It is for groups of its own.
                    if used == 0 {
                        pieces = of_value;
                    }
                    break;
                }
                marks.push(mark_key(id));
                pieces.extend(of_value);
            }
            gone += 1;
        }
        if marks.is_empty() && pieces.is_empty() {
            return Ok(gone);
        }
        values.note_ids()?;
        let keys = marks.iter().map(|key| &key[..]).chain(pieces.iter().map(|key| &key[..]));
        let writes = keys.map(|key| LeafWrite { key, value: None }).collect();
        let part = Part { tree: PartTree::Values(Arc::clone(values)), writes };
        match self.append(&[part], &Purpose::Applier) {
            Err(error) if is_too_much(&error) && (pieces.len() > 1 || marks.len() > 1) => {
                return self.delete(values, ids, (marks.len() + pieces.len()) / 2);
            }
            appended => appended?,
        };
        // A leaf from before a split has pieces that are found by walking over it, but not by searching for their keys.
        if marks.is_empty()
            && let Some((id, _)) = parse_piece_key(&pieces[0])
            && pieces_of(values, id, 1)?.0.first() == pieces.first()
        {
            return Err(not_deleted(id));
        }
        Ok(gone)
    }
}

#[cold]
fn not_deleted(id: u64) -> Error {
    let what = format!(
        "a piece of large value {id} is there after it was deleted: a page of its table has what it had before"
    );
    Error::new(ErrorKind::Corrupt, format!("{what}; check the database, and restore it from a backup"))
}

/// The first pieces that are left of a value, at most `most`, and whether these are all.
fn pieces_of(values: &ValueTree, id: u64, most: usize) -> Result<(Vec<PieceKey>, bool)> {
    let (mut keys, mut from) = (Vec::new(), piece_key(id, 0).to_vec());
    loop {
        let next = values.tree().read_leaf(LeafPosition::Containing(&from), |leaf| {
            for index in leaf.lower_bound(&from)?..leaf.len() {
                match parse_piece_key(&leaf.key(index)?) {
                    Some((found, end)) if found == id && keys.len() < most => keys.push(piece_key(id, end)),
                    Some((found, _)) if found == id => return Ok(Some(None)),
                    _ => return Ok(None),
                }
            }
            Ok::<_, Error>(leaf.upper().map(|upper| Some(upper.to_vec())))
        })??;
        match next {
            None => return Ok((keys, true)),
            Some(None) => return Ok((keys, false)),
            Some(Some(upper)) => from = upper,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Mark, Writer},
        *,
    };
    use crate::{
        StoreKind,
        transaction::{piece_key, versions::tests::database},
        tree::LeafValue,
    };

    const ID: u64 = 1000;

    fn write(manager: &Manager, values: &Arc<ValueTree>, ends: impl Iterator<Item = u32>) {
        let keys: Vec<PieceKey> = ends.map(|end| piece_key(ID, end)).collect();
        let writes = keys.iter().map(|key| LeafWrite { key, value: Some(LeafValue::Bytes(&[7; 100])) }).collect();
        manager.append(&[Part { tree: PartTree::Values(Arc::clone(values)), writes }], &Purpose::Applier).unwrap();
    }

    /// A leaf that has the rows which it had before it was split, as a device leaves it that loses a write.
    #[test]
    fn pieces_that_stay_when_they_are_deleted_are_damage() {
        let db = database(StoreKind::InPlace);
        let table = db.table("t").unwrap();
        let manager = db.manager();
        let values = manager.values_of(&table, Writer::Applier).unwrap();
        values.new_id().unwrap(); // divides the tree
        let mark = (mark_key(ID), Mark { owner: TableId(0), born: 0 }.encode());
        let writes = vec![LeafWrite { key: &mark.0, value: Some(LeafValue::Bytes(&mark.1)) }];
        manager.append(&[Part { tree: PartTree::Values(Arc::clone(&values)), writes }], &Purpose::Applier).unwrap();
        write(manager, &values, (100..3000).step_by(100));
        let first = piece_key(ID, 0);
        let leaf = || values.tree().read_leaf(LeafPosition::Containing(&first), |leaf| leaf.page_id()).unwrap();
        let page = db.pool().pin(leaf()).unwrap();
        let before = page.read().to_vec();
        write(manager, &values, (150..1000).step_by(100));
        assert_eq!(leaf(), page.id(), "the pieces behind it have gone to another leaf");
        let mut guard = page.write();
        let lsn = guard.lsn();
        guard.redo(lsn).copy_from_slice(&before);
        drop(guard);

        let ended = (0..100).map(|_| manager.delete(&values, &[ID], 8)).find(|deleted| !matches!(deleted, Ok(0)));
        let error = ended.expect("it does not go on for ever").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}
