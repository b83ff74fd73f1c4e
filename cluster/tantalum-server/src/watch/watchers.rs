//! The watchers of a stream: what each wants, and how far it is.

use std::collections::BTreeMap;

use prost::Message;

use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::watch_create_request::FilterType;
use crate::api::mvccpb::Event as EventOfKey;
use crate::api::mvccpb::event::EventType;
use crate::mvcc::{Event, Keys, KeysEnd};

/// Of a watcher that was not made, and of what concerns all of a stream.
pub const NO_WATCHER: i64 = -1;

/// A watcher.
pub struct Watcher {
    keys: Keys,
    /// The revision that it has to see next.
    pub next: i64,
    skips_puts: bool,
    skips_deletes: bool,
    pub wants_previous: bool,
    pub wants_fragments: bool,
    pub wants_progress: bool,
    /// Whether something was sent since it was last told how far it is.
    pub is_fresh: bool,
}

/// The watchers of a stream, by their numbers.
#[derive(Default)]
pub struct Watchers {
    pub by_id: BTreeMap<i64, Watcher>,
    next_id: i64,
}

impl Watchers {
    /// Adds a watcher while the store is at revision `current`. Returns its number, or etcd's reason why it cannot be.
    pub fn create(&mut self, request: &pb::WatchCreateRequest, current: i64) -> Result<i64, &'static str> {
        // No key is the smallest.
        let key: &[u8] = if request.key.is_empty() { &[0] } else { &request.key };
        let keys = Keys::new(key, &request.range_end);
        if matches!(&keys.end, KeysEnd::Before(end) if *end <= keys.start) {
            return Err("mvcc: watcher range is empty");
        }
        let id = if request.watch_id == 0 {
            while self.by_id.contains_key(&self.next_id) {
                self.next_id += 1;
            }
            self.next_id += 1;
            self.next_id - 1
        } else if self.by_id.contains_key(&request.watch_id) {
            return Err("mvcc: duplicate watch ID provided on the WatchStream");
        } else {
            request.watch_id
        };
        let skips = |filter: FilterType| request.filters.contains(&(filter as i32));
        let watcher = Watcher {
            keys,
            next: if request.start_revision == 0 { current + 1 } else { request.start_revision },
            skips_puts: skips(FilterType::Noput),
            skips_deletes: skips(FilterType::Nodelete),
            wants_previous: request.prev_kv,
            wants_fragments: request.fragment,
            wants_progress: request.progress_notify,
            is_fresh: false,
        };
        self.by_id.insert(id, watcher);
        Ok(id)
    }

    /// The revision that the watcher that is furthest behind has to see next.
    pub fn furthest_behind(&self) -> Option<i64> {
        self.by_id.values().map(|watcher| watcher.next).min()
    }
}

impl Watcher {
    /// What it wants of some events.
    pub fn select(&self, events: &[Event]) -> Vec<EventOfKey> {
        let wants = |event: &&Event| {
            let is_skipped = if event.is_delete { self.skips_deletes } else { self.skips_puts };
            !is_skipped && event.revision.main >= self.next && self.keys.contains(&event.key_value.key)
        };
        let convert = |event: &Event| EventOfKey {
            r#type: if event.is_delete { EventType::Delete } else { EventType::Put } as i32,
            kv: Some(event.key_value.clone()),
            prev_kv: None,
        };
        events.iter().filter(wants).map(convert).collect()
    }
}

/// A response cut into several of fewer than `max_bytes`, as far as events allow; the last one says that it is the last.
pub fn fragments(response: pb::WatchResponse, max_bytes: usize) -> Vec<pb::WatchResponse> {
    if response.encoded_len() < max_bytes || response.events.len() < 2 {
        return vec![response];
    }
    let (events, head) = {
        let mut response = response;
        (std::mem::take(&mut response.events), pb::WatchResponse { fragment: true, ..response })
    };
    let mut all = Vec::new();
    let mut part = head.clone();
    let mut bytes = part.encoded_len();
    for event in events {
        let more = event.encoded_len();
        // The field's number and its length.
        let more = more + 1 + prost::length_delimiter_len(more);
        if !part.events.is_empty() && bytes + more >= max_bytes {
            all.push(std::mem::replace(&mut part, head.clone()));
            bytes = head.encoded_len();
        }
        bytes += more;
        part.events.push(event);
    }
    part.fragment = false;
    all.push(part);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::mvccpb::KeyValue;
    use crate::mvcc::Revision;

    fn event(key: &str, main: i64, is_delete: bool) -> Event {
        let key_value = KeyValue { key: key.into(), mod_revision: main, value: vec![7; 100], ..KeyValue::default() };
        Event { revision: Revision { main, sub: 0 }, is_delete, key_value }
    }

    #[test]
    fn watchers_get_what_they_want_from_where_they_are() {
        let events: Vec<_> =
            (2..20).map(|main| event(["a", "b", "c"][main as usize % 3], main, main % 4 == 0)).collect();
        let mut watchers = Watchers::default();
        let create = |key: &str, range_end: &str, start_revision, filter: Option<FilterType>| pb::WatchCreateRequest {
            key: key.into(),
            range_end: range_end.into(),
            start_revision,
            filters: filter.map(|filter| filter as i32).into_iter().collect(),
            ..Default::default()
        };
        let mut selected = |request: pb::WatchCreateRequest| -> Vec<i64> {
            let id = watchers.create(&request, 10).expect("it can be");
            let events = watchers.by_id[&id].select(&events);
            events.into_iter().map(|event| event.kv.expect("it has a key").mod_revision).collect()
        };
        assert_eq!(selected(create("a", "", 0, None)), [12, 15, 18]);
        assert_eq!(selected(create("a", "", 3, Some(FilterType::Noput))), [12]);
        assert_eq!(selected(create("a", "c", 12, Some(FilterType::Nodelete))), [13, 15, 18, 19]);
        assert_eq!(selected(create("", "\0", 17, None)), [17, 18, 19]);
        assert_eq!(watchers.furthest_behind(), Some(3));
        assert_eq!(watchers.by_id.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(watchers.create(&create("b", "a", 0, None), 10).is_err());
        assert!(watchers.create(&pb::WatchCreateRequest { watch_id: 3, ..create("a", "", 0, None) }, 10).is_err());
        assert_eq!(watchers.create(&pb::WatchCreateRequest { watch_id: 9, ..create("a", "", 0, None) }, 10), Ok(9));
    }

    #[test]
    fn fragments_have_all_events_once_and_the_last_is_marked() {
        let watcher = pb::WatchCreateRequest { range_end: b"\0".to_vec(), start_revision: 1, ..Default::default() };
        let mut watchers = Watchers::default();
        let id = watchers.create(&watcher, 1).expect("it can be");
        let events: Vec<_> = (2..52).map(|main| event("a", main, false)).collect();
        let events = watchers.by_id[&id].select(&events);
        let whole = pb::WatchResponse { watch_id: 5, events: events.clone(), ..Default::default() };
        assert_eq!(fragments(whole.clone(), 1 << 20), std::slice::from_ref(&whole));
        for max_bytes in [1, 200, 1000, 3000] {
            let parts = fragments(whole.clone(), max_bytes);
            assert!(parts.len() > 1 && parts.iter().all(|part| part.watch_id == 5));
            assert!(parts.iter().all(|part| part.encoded_len() < max_bytes || part.events.len() == 1));
            let marks: Vec<_> = parts.iter().map(|part| part.fragment).collect();
            assert!(!marks[marks.len() - 1] && marks[..marks.len() - 1].iter().all(|mark| *mark));
            assert_eq!(parts.into_iter().flat_map(|part| part.events).collect::<Vec<_>>(), events);
        }
    }
}
