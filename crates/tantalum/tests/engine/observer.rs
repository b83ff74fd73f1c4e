//! A page observer receives what happens to pages, and nothing else.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use tantalum::{Builder, Db, PageChange, PageId, PageObserver, PageOperation};

#[derive(Default)]
struct Seen {
    changes: Mutex<Vec<(PageId, PageChange)>>,
    written: Mutex<Vec<PageId>>,
}

impl PageObserver for Seen {
    fn changed(&self, page: PageId, change: PageChange) {
        self.changes.lock().unwrap().push((page, change));
    }

    fn written(&self, page: PageId) {
        self.written.lock().unwrap().push(page);
    }
}

impl Seen {
    /// How many changes there were of this kind since the last call, and their bytes.
    fn take(&self, operation: PageOperation) -> (usize, u32) {
        let mut changes = self.changes.lock().unwrap();
        let (taken, left) = changes.drain(..).partition::<Vec<_>, _>(|(_, change)| change.operation == operation);
        *changes = left;
        (taken.len(), taken.iter().map(|(_, change)| change.bytes).sum())
    }
}

fn builder() -> Builder {
    Db::builder().log_bytes(8 << 20)
}

#[test]
fn each_change_and_each_written_page_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let db = builder().expert(|expert| expert.observe_pages(seen.clone())).open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    db.checkpoint().unwrap();
    seen.changes.lock().unwrap().clear();
    seen.written.lock().unwrap().clear();

    let write = |value: Option<&[u8]>| {
        let mut tx = db.begin().unwrap();
        match value {
            Some(value) => tx.put(&table, b"key", value).unwrap(),
            None => drop(tx.delete(&table, b"key").unwrap()),
        }
        tx.commit().unwrap();
    };
    write(Some(&[1; 100]));
    let (inserts, bytes) = seen.take(PageOperation::Insert);
    assert!(inserts == 1 && (100..140).contains(&bytes), "{inserts} of {bytes} bytes");
    write(Some(&[2; 50]));
    let (updates, bytes) = seen.take(PageOperation::Update);
    assert!(updates == 1 && (50..90).contains(&bytes), "{updates} of {bytes} bytes");
    assert!(seen.written.lock().unwrap().is_empty(), "nothing asked for it");
    write(None);
    let changed: BTreeSet<PageId> = seen.changes.lock().unwrap().iter().map(|(page, _)| *page).collect();
    assert_eq!(seen.take(PageOperation::Delete).0, 1);
    assert!(seen.changes.lock().unwrap().is_empty());

    db.checkpoint().unwrap();
    let written: BTreeSet<PageId> = seen.written.lock().unwrap().drain(..).collect();
    assert!(written.is_superset(&changed), "{changed:?} {written:?}");
    db.close().unwrap();

    // What recovery repeats is not reported, and without an observer nothing is.
    let db = builder().open(directory.path()).unwrap();
    db.table("u").unwrap();
    db.close().unwrap();
    assert!(seen.changes.lock().unwrap().is_empty());
}
