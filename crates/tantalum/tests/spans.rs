//! Spans of `tracing`, with the feature `spans`. A test alone: the subscriber is that of the process, since callsites that several threads
//! meet first are not sure to see one of a thread.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use tantalum::Db;
use tantalum_rt::task_name;
use tracing::{
    Event, Subscriber,
    span::{Attributes, Id, Record},
};

/// Notes which spans are entered within which.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// The names of all spans, by their numbers from 1 on.
    names: Vec<&'static str>,
    /// Those that each thread has entered.
    within: BTreeMap<String, Vec<u64>>,
    /// The names of those that were, with those around them.
    paths: BTreeSet<String>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "tantalum"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut state = self.0.lock().unwrap();
        state.names.push(span.metadata().name());
        Id::from_u64(state.names.len() as u64)
    }

    fn enter(&self, span: &Id) {
        let mut state = self.0.lock().unwrap();
        let Seen { names, within, paths } = &mut *state;
        let within = within.entry(task_name()).or_default();
        within.push(span.into_u64());
        let path: Vec<_> = within.iter().map(|id| names[*id as usize - 1]).collect();
        paths.insert(path.join("/"));
    }

    fn exit(&self, span: &Id) {
        let last = self.0.lock().unwrap().within.entry(task_name()).or_default().pop();
        assert_eq!(last, Some(span.into_u64()), "spans lie within each other");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}

#[test]
fn what_takes_time_is_in_spans() {
    let dir = tempfile::tempdir().unwrap();
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    let db = Db::builder().log_bytes(4 << 20).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    db.put(&table, "a", "1").unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let entered = spans.0.lock().unwrap().paths.clone();
    for path in ["open", "commit", "commit/flush", "checkpoint"] {
        assert!(entered.contains(path), "{path} is not in {entered:?}");
    }
}
