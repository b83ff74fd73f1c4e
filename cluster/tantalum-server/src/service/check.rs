//! What is refused before anybody looks at the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::api::etcdserverpb::request_op::Request;
use crate::mvcc::{Keys, KeysEnd, REVISION_BYTES, escape};
use crate::refusal::Refusal;

/// Longest key that can be written, in bytes of a row's key.
const MAX_KEY_BYTES: usize = tantalum::limits::max_key_bytes(crate::directory::PAGE_BYTES);

/// A range.
pub fn range(request: &pb::RangeRequest) -> Result<(), Refusal> {
    is_given(&request.key)?;
    if SortOrder::try_from(request.sort_order).is_err() || SortTarget::try_from(request.sort_target).is_err() {
        return Err(Refusal::InvalidSortOption);
    }
    Ok(())
}

/// Whether the store has room for a key: within its history, a revision follows it.
pub fn is_short_enough(key: &[u8]) -> bool {
    key.len() <= MAX_KEY_BYTES && escape(key).len() + REVISION_BYTES <= MAX_KEY_BYTES
}

/// A put.
pub fn put(request: &pb::PutRequest) -> Result<(), Refusal> {
    is_given(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Refusal::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Refusal::LeaseProvided);
    }
    // Zero bytes are escaped.
    if !is_short_enough(&request.key) {
        return Err(Refusal::RequestTooLarge);
    }
    Ok(())
}

/// A deletion.
pub fn delete_range(request: &pb::DeleteRangeRequest) -> Result<(), Refusal> {
    is_given(&request.key)
}

/// A transaction.
pub fn txn(request: &pb::TxnRequest, max_operations: usize) -> Result<(), Refusal> {
    operations(request, max_operations)?;
    // After the number of operations is known to be small.
    written(&request.success)?;
    written(&request.failure)?;
    Ok(())
}

fn is_given(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
}

fn operations(request: &pb::TxnRequest, max_operations: usize) -> Result<(), Refusal> {
    let count = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = max_operations.checked_sub(count).ok_or(Refusal::TooManyOperations)?;
    request.compare.iter().try_for_each(|compare| is_given(&compare.key))?;
    for operation in request.success.iter().chain(&request.failure) {
        match &operation.request {
            Some(Request::RequestRange(request)) => range(request)?,
            Some(Request::RequestPut(request)) => put(request)?,
            Some(Request::RequestDeleteRange(request)) => delete_range(request)?,
            Some(Request::RequestTxn(request)) => operations(request, left)?,
            None => return Err(Refusal::KeyNotFound),
        }
    }
    Ok(())
}

/// The keys that operations write. No key may be put twice, or be put and deleted.
#[derive(Default)]
struct Written {
    puts: BTreeSet<Vec<u8>>,
    /// Deleted intervals, by where they begin; they do not overlap. `None` ends nowhere.
    deletes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Written {
    fn put(&mut self, key: &[u8]) -> Result<(), Refusal> {
        if self.deletes(key) || !self.puts.insert(key.to_vec()) {
            return Err(Refusal::DuplicateKey);
        }
        Ok(())
    }

    fn deletes(&self, key: &[u8]) -> bool {
        let mut before = self.deletes.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        before.next_back().is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < &end[..]))
    }

    fn delete(&mut self, mut start: Vec<u8>, mut end: Option<Vec<u8>>) {
        let is_up_to = |key: &[u8], end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| key <= &end[..]);
        if end.as_ref().is_some_and(|end| *end <= start) {
            return;
        }
        loop {
            // Of those that begin up to its end, the last ends last.
            let mut up_to = match &end {
                Some(end) => self.deletes.range::<Vec<u8>, _>(..=end),
                None => self.deletes.range::<Vec<u8>, _>(..),
            };
            let Some((other, _)) = up_to.next_back().filter(|(_, other_end)| is_up_to(&start, other_end)) else {
                break;
            };
            let other = other.clone();
            end = match (end, self.deletes.remove(&other).flatten()) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
            start = start.min(other);
        }
        self.deletes.insert(start, end);
    }
}

/// As etcd's `checkIntervals`: deletions of this level, then the transactions inside, of which only one side runs, then the puts.
fn written(operations: &[pb::RequestOp]) -> Result<Written, Refusal> {
    let mut all = Written::default();
    for operation in operations {
        if let Some(Request::RequestDeleteRange(request)) = &operation.request {
            let Keys { start, end } = Keys::new(&request.key, &request.range_end);
            let end = match end {
                KeysEnd::Single => Some([&start[..], &[0]].concat()),
                KeysEnd::Before(end) => Some(end),
                KeysEnd::Unbounded => None,
            };
            all.delete(start, end);
        }
    }
    for operation in operations {
        let Some(Request::RequestTxn(inner)) = &operation.request else { continue };
        let (success, failure) = (written(&inner.success)?, written(&inner.failure)?);
        for key in &success.puts {
            all.put(key)?;
        }
        for key in failure.puts.difference(&success.puts) {
            all.put(key)?;
        }
        for (start, end) in success.deletes.into_iter().chain(failure.deletes) {
            all.delete(start, end);
        }
    }
    for operation in operations {
        if let Some(Request::RequestPut(request)) = &operation.request {
            all.put(&request.key)?;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_of(key: &str) -> pb::RequestOp {
        let put = pb::PutRequest { key: key.into(), ..Default::default() };
        pb::RequestOp { request: Some(Request::RequestPut(put)) }
    }

    fn delete_of(key: &str, range_end: &str) -> pb::RequestOp {
        let delete = pb::DeleteRangeRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
        pb::RequestOp { request: Some(Request::RequestDeleteRange(delete)) }
    }

    fn txn_of(success: Vec<pb::RequestOp>, failure: Vec<pb::RequestOp>) -> pb::RequestOp {
        let txn = pb::TxnRequest { success, failure, ..Default::default() };
        pb::RequestOp { request: Some(Request::RequestTxn(txn)) }
    }

    #[test]
    fn a_key_is_written_once() {
        let check = |success: Vec<pb::RequestOp>| txn(&pb::TxnRequest { success, ..Default::default() }, 128);
        let duplicate = Err(Refusal::DuplicateKey);
        assert_eq!(check(vec![put_of("a"), put_of("b")]), Ok(()));
        assert_eq!(check(vec![put_of("a"), put_of("a")]), duplicate);
        assert_eq!(check(vec![put_of("b"), delete_of("a", "c")]), duplicate);
        assert_eq!(check(vec![put_of("c"), delete_of("a", "c")]), Ok(()));
        assert_eq!(check(vec![put_of("c"), delete_of("a", "\0")]), duplicate);
        assert_eq!(check(vec![delete_of("a", "c"), delete_of("b", "d"), delete_of("b", "")]), Ok(()));
        assert_eq!(check(vec![delete_of("a", "c"), delete_of("b", "d"), put_of("c")]), duplicate);
        assert_eq!(check(vec![delete_of("f", "g"), delete_of("a", "b"), delete_of("b", "f"), put_of("ff")]), duplicate);
        // One side of a transaction inside runs.
        assert_eq!(check(vec![txn_of(vec![put_of("a")], vec![put_of("a")])]), Ok(()));
        assert_eq!(check(vec![put_of("a"), txn_of(vec![put_of("a")], vec![])]), duplicate);
        assert_eq!(check(vec![put_of("a"), txn_of(vec![], vec![delete_of("a", "")])]), duplicate);
        assert_eq!(check(vec![txn_of(vec![put_of("a")], vec![]), txn_of(vec![], vec![put_of("a")])]), duplicate);
        assert_eq!(check(vec![delete_of("a", ""), txn_of(vec![put_of("a")], vec![])]), duplicate);
        // As in etcd, deletions of a transaction inside do not count for the puts of another.
        assert_eq!(check(vec![txn_of(vec![put_of("a")], vec![]), txn_of(vec![delete_of("a", "")], vec![])]), Ok(()));
    }

    #[test]
    fn operations_are_counted_along_each_way_down() {
        let deep = (0..10).fold(put_of("a"), |inner, _| txn_of(vec![inner], vec![]));
        let request = pb::TxnRequest { success: vec![deep], ..Default::default() };
        assert_eq!(txn(&request, 11), Ok(()));
        assert_eq!(txn(&request, 10), Err(Refusal::TooManyOperations));
        let empty = pb::TxnRequest { failure: vec![pb::RequestOp { request: None }], ..Default::default() };
        assert_eq!(txn(&empty, 128), Err(Refusal::KeyNotFound));
    }

    #[test]
    fn keys_that_no_row_takes_are_refused() {
        let check = |key: Vec<u8>| put(&pb::PutRequest { key, ..Default::default() });
        assert_eq!(check(vec![b'a'; MAX_KEY_BYTES - 18]), Ok(()));
        assert_eq!(check(vec![b'a'; MAX_KEY_BYTES - 17]), Err(Refusal::RequestTooLarge));
        assert_eq!(check(vec![0; MAX_KEY_BYTES / 2]), Err(Refusal::RequestTooLarge));
    }
}
