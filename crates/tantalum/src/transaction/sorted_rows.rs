//! Rows in key order, for the writes of a transaction. A transaction that writes in key order, as many do, pays for one comparison.

use std::{
    collections::{BTreeMap, btree_map},
    iter::from_fn,
};

use super::{Content, Value, key_range::Interval};

/// What is to become of a key: `None` deletes it.
type Write = Option<Content>;

/// Keys and what is to become of them. No key is in both parts.
#[derive(Debug, Default)]
pub(super) struct SortedRows {
    /// In key order: what came above all that was here already.
    run: Vec<(Value, Write)>,
    /// What came between.
    rest: BTreeMap<Value, Write>,
}

impl SortedRows {
    pub fn is_empty(&self) -> bool {
        self.run.is_empty() && self.rest.is_empty()
    }

    pub fn len(&self) -> usize {
        self.run.len() + self.rest.len()
    }

    pub fn get(&self, key: &[u8]) -> Option<&Write> {
        match self.find(key) {
            Ok(at) => Some(&self.run[at].1),
            Err(_) => self.rest.get(key),
        }
    }

    /// Sets what is to become of a key, unless `allows` forbids it, which is told what was to become of it before.
    pub fn set<E>(
        &mut self,
        key: Value,
        write: Write,
        allows: impl FnOnce(Option<&Write>) -> Result<(), E>,
    ) -> Result<Option<Write>, E> {
        match self.find(&key) {
            Ok(at) => {
                let present = &mut self.run[at].1;
                allows(Some(present))?;
                Ok(Some(std::mem::replace(present, write)))
            }
            Err(at) if at == self.run.len() && self.rest.last_key_value().is_none_or(|(last, _)| *last < key) => {
                allows(None)?;
                if at == 0 {
                    // Many transactions write one row.
                    self.run.reserve_exact(1);
                }
                self.run.push((key, write));
                Ok(None)
            }
            Err(_) => match self.rest.entry(key) {
                btree_map::Entry::Occupied(mut present) => {
                    allows(Some(present.get()))?;
                    Ok(Some(present.insert(write)))
                }
                btree_map::Entry::Vacant(place) => {
                    allows(None)?;
                    place.insert(write);
                    Ok(None)
                }
            },
        }
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Write> {
        match self.find(key) {
            Ok(at) => Some(self.run.remove(at).1),
            Err(_) => self.rest.remove(key),
        }
    }

    /// All rows in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Write)> {
        merged(self.run.iter().map(|(key, write)| (key, write)), self.rest.iter())
    }

    /// The rows of an interval, which must not be empty, in key order.
    pub fn range(&self, interval: &Interval) -> impl Iterator<Item = (&Value, &Write)> {
        let run = self.run.iter().map(|(key, write)| (key, write));
        let first = self.run.partition_point(|(key, _)| interval.lower.is_after(key));
        let run = run.skip(first).take_while(|(key, _)| interval.contains(key));
        merged(run, self.rest.range::<[u8], _>(interval.bounds()))
    }

    /// The place of a key in the run, or where it would be: mostly at the end.
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        match self.run.last() {
            Some((last, _)) if **last >= *key => self.run.binary_search_by(|(present, _)| (**present).cmp(key)),
            _ => Err(self.run.len()),
        }
    }
}

/// Rows of two iterators, each in key order and without a key of the other, in key order.
fn merged<'a>(
    a: impl Iterator<Item = (&'a Value, &'a Write)>,
    b: impl Iterator<Item = (&'a Value, &'a Write)>,
) -> impl Iterator<Item = (&'a Value, &'a Write)> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    from_fn(move || match (a.peek(), b.peek()) {
        (Some((first, _)), Some((second, _))) if first > second => b.next(),
        (Some(_), _) => a.next(),
        (None, _) => b.next(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first_byte(content: &Content) -> u8 {
        match content {
            Content::Bytes(value) => value[0],
            Content::Large(_) => unreachable!("none is large"),
        }
    }

    type Model = BTreeMap<Vec<u8>, Option<u8>>;

    fn shown<'a>(rows: impl Iterator<Item = (&'a Value, &'a Write)>) -> Vec<(Vec<u8>, Option<u8>)> {
        rows.map(|(key, write)| (key.to_vec(), write.as_ref().map(first_byte))).collect()
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(
            steps in prop::collection::vec((0u8..24, 0u8..4, any::<u8>()), 0..60),
            bounds in (0u8..24, 0u8..24),
        ) {
            let (mut rows, mut model) = (SortedRows::default(), Model::new());
            for (key, step, value) in steps {
                let bytes = [key];
                let write = (step > 1).then_some(value);
                if step == 0 {
                    let removed = rows.remove(&bytes).map(|write| write.as_ref().map(first_byte));
                    prop_assert_eq!(removed, model.remove(&bytes[..]));
                    continue;
                }
                let expected = model.insert(bytes.to_vec(), write);
                let value = write.map(|value| Value::from([value].as_slice()).into());
                let before = rows.set(Value::from(bytes.as_slice()), value, |_| Ok::<_, ()>(()));
                prop_assert_eq!(before.unwrap().map(|write| write.as_ref().map(first_byte)), expected);
            }
            prop_assert_eq!((rows.len(), rows.is_empty()), (model.len(), model.is_empty()));
            let all: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(shown(rows.iter()), all.clone());
            for key in 0u8..24 {
                let found = rows.get(&[key]).map(|write| write.as_ref().map(first_byte));
                prop_assert_eq!(found, model.get(&[key][..]).copied());
            }
            let interval = Interval::of([bounds.0].as_slice()..[bounds.1].as_slice());
            if !interval.is_empty() {
                let within: Vec<_> = all.into_iter().filter(|(key, _)| (bounds.0..bounds.1).contains(&key[0])).collect();
                prop_assert_eq!(shown(rows.range(&interval)), within);
            }
        }
    }

    #[test]
    fn what_is_forbidden_changes_nothing() {
        let mut rows = SortedRows::default();
        for key in ["b", "a", "c"] {
            let key = Value::from(key.as_bytes());
            assert_eq!(rows.set(key.clone(), None, |_| Err(7)), Err(7));
            assert!(rows.get(&key).is_none());
            assert_eq!(rows.set(key, None, |before| if before.is_none() { Ok(()) } else { Err(8) }), Ok(None));
        }
        assert_eq!(rows.set(Value::from(b"a".as_slice()), None, |before| before.map_or(Ok(()), |_| Err(9))), Err(9));
        assert_eq!(rows.len(), 3);
    }
}
