//! The way back to savepoints of a transaction that has spilled: what its keys had before each write, in a staging table of its
//! own, by the number of the write.

use std::{collections::BTreeMap, sync::Arc};

use tantalum_store::TableId;

use super::{ROW_HEAD_BYTES, StagedWrite, Stager, StagingTree, spill::Group};
use crate::{
    error::{Error, ErrorKind, Result},
    transaction::{Content, Manager, TransactionState, Value, locks::TransactionId, write_set::Undo},
    tree::Tree,
};

/// Bytes of keys and values that are brought back at a time, about.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of a row before the key.
const HEAD_BYTES: usize = 4 + 2;

/// What keys had before writes, of which the first has number 0.
#[derive(Debug)]
pub(in crate::transaction) struct UndoLog {
    staged: Arc<StagingTree>,
}

impl UndoLog {
    pub fn into_tree(self) -> Arc<StagingTree> {
        self.staged
    }
}

impl TransactionState {
    /// Moves what is needed to undo writes from memory to the undo log.
    pub(super) fn spill_undo(&mut self, manager: &Manager) -> Result<()> {
        if self.writes.history().is_empty() {
            return Ok(());
        }
        let is_operation = !self.is_committing;
        let tree = self.undo_tree(manager, is_operation)?;
        let mut group = Group::new(manager, &tree, is_operation);
        for at in 0..self.writes.history().len() {
            let Undo { table, .. } = self.writes.history()[at];
            self.staging_tree(table)?;
            let Undo { key, before, .. } = &self.writes.history()[at];
            let limit = tree.inline_limit() - HEAD_BYTES - key.len() - ROW_HEAD_BYTES;
            let small = |content: &Option<Content>| {
                content.as_ref().map(|content| self.small_enough(table, content, limit)).transpose()
            };
            let before = before.as_ref().map(small).transpose()?;
            let number = (self.writes.spilled_history() + at) as u64;
            group.push(number.to_be_bytes().as_slice().into(), encode(&Undo { table, key: key.clone(), before }))?;
        }
        group.append()
    }

    fn undo_tree(&mut self, manager: &Manager, is_operation: bool) -> Result<Tree> {
        let staged = self.staged.as_mut().expect("writes are staged before what they undo");
        if let Some(undo) = &staged.undo {
            return Ok(undo.staged.tree().clone());
        }
        // It belongs to no table.
        let tree = manager.create_staging(TableId(0), is_operation)?;
        let stager = Arc::new(Stager::new(TransactionId(0)));
        staged.undo = Some(UndoLog { staged: Arc::new(StagingTree::new(tree.clone(), &stager)) });
        Ok(tree)
    }

    /// Takes back every write since `mark`, of a transaction that has spilled: in memory and in the staging tables.
    ///
    /// # Errors
    /// Some writes are then taken back and others not.
    pub(in crate::transaction) fn unstage_to(&mut self, mark: usize) -> Result<()> {
        let manager = Arc::clone(self.manager());
        loop {
            let mut chunk: BTreeMap<TableId, BTreeMap<Value, Option<Option<Content>>>> = BTreeMap::new();
            let mut bytes = 0;
            // The newest first: what a key had before the oldest of its writes counts.
            while bytes < CHUNK_BYTES
                && let Some(Undo { table, key, before }) = self.last_undo(mark)?
            {
                bytes += key.len() + before.iter().flatten().map(Content::memory_bytes).sum::<usize>() + 64;
                chunk.entry(table).or_default().insert(key, before);
            }
            if chunk.is_empty() {
                return Ok(());
            }
            for (table, rows) in chunk {
                let tree = self.staging_tree(table)?;
                let mut group = Group::new(&manager, &tree, true);
                let limit = tree.inline_limit() - ROW_HEAD_BYTES;
                for (key, before) in rows {
                    self.writes.forget(table, &key);
                    let small = |content: Option<Content>| {
                        content.map(|content| self.small_enough(table, &content, limit)).transpose()
                    };
                    let before = before.map(small).transpose()?;
                    group.push(key, StagedWrite::encode(before.as_ref()))?;
                }
                group.append()?;
            }
        }
    }

    /// Takes the newest write's undo out, if it is not before `mark`.
    fn last_undo(&mut self, mark: usize) -> Result<Option<Undo>> {
        let (undo, number) = self.writes.pop_history(mark);
        if undo.is_some() || number.is_none() {
            return Ok(undo);
        }
        let number = number.unwrap_or_default() as u64;
        let log = self.staged.as_ref().and_then(|staged| staged.undo.as_ref());
        let row = log.map(|log| log.staged.tree().read_bytes(&number.to_be_bytes(), |row| row.map(Value::from)));
        let row = row.transpose()?.flatten();
        let undo = row.and_then(|row| decode(&row)).ok_or_else(|| {
            let what = format!("write {number} of a transaction cannot be undone: its row is damaged; run it again");
            Error::new(ErrorKind::Corrupt, what)
        })?;
        Ok(Some(undo))
    }
}

/// Table, length of the key, key, and what it had, as staged rows say it.
fn encode(undo: &Undo) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + undo.key.len());
    bytes.extend_from_slice(&undo.table.0.to_le_bytes());
    bytes.extend_from_slice(&(undo.key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&undo.key);
    bytes.extend_from_slice(&StagedWrite::encode(undo.before.as_ref()));
    bytes
}

fn decode(bytes: &[u8]) -> Option<Undo> {
    let (table, rest) = bytes.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (key, before) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let before = StagedWrite::decode(before.into()).ok()??.made();
    Some(Undo { table: TableId(u32::from_le_bytes(*table)), key: key.into(), before })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Reference;

    #[test]
    fn what_a_key_had_is_read_back() {
        let value = |bytes: &[u8]| Content::from(Value::from(bytes));
        let large = Reference { id: 7, length: 9, born: 3 };
        for before in
            [None, Some(None), Some(Some(value(b"v"))), Some(Some(value(b""))), Some(Some(Content::Large(large)))]
        {
            let undo = Undo { table: TableId(7), key: b"key".as_slice().into(), before };
            assert_eq!(decode(&encode(&undo)), Some(undo));
        }
        assert_eq!(decode(b""), None);
        assert_eq!(decode(&[0; 6]), None);
    }
}
