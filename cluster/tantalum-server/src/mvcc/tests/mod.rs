//! The store against a model, and what is known of single requests.

mod model;
mod random;
mod requests;

use std::sync::Arc;

use tantalum::{Db, Table};
use tempfile::TempDir;

use super::*;

/// A store of its own.
struct Store {
    _directory: TempDir,
    db: Db,
    tables: Vec<Table>,
    keyspace: Keyspace,
}

impl Store {
    fn new() -> Store {
        let directory = tempfile::tempdir().expect("a directory");
        let db = Db::builder().log_bytes(8 << 20).open(directory.path().join("db")).expect("open");
        let tables = TABLES.iter().map(|name| db.table(name).expect("a table")).collect();
        Store { _directory: directory, db, tables, keyspace: Keyspace::new(Arc::default()) }
    }

    /// Applies a command as openraft does.
    fn apply(&self, command: &Command) -> Answer {
        let mut transaction = self.db.begin().expect("begin");
        let answer = self.keyspace.execute(&mut transaction, &self.tables, command).expect("the database works");
        transaction.commit_async().expect("commit");
        answer
    }

    fn read<T>(&self, read: impl FnOnce(View<'_>) -> Result<T, Failed>) -> Result<T, Refusal> {
        match read_store(&self.db, &self.tables, read) {
            Ok(value) => Ok(value),
            Err(Failed::Refused(refusal)) => Err(refusal),
            Err(Failed::Database(error)) => panic!("{error}"),
        }
    }

    fn range(&self, request: &pb::RangeRequest) -> Result<pb::RangeResponse, Refusal> {
        self.read(|view| range(view, request, view.revision()?))
    }

    /// The revisions that have rows, of the events and of the history.
    fn rows(&self) -> (Vec<Revision>, Vec<Revision>) {
        let read = |table: usize| {
            let transaction = self.db.begin_with(Isolation::SnapshotIsolation).expect("begin");
            let rows = transaction.range(&self.tables[table], ..).expect("range");
            let revision = |row: tantalum::Result<(tantalum::Value, tantalum::Value)>| {
                let (key, _) = row.expect("read");
                Revision::from_bytes(&key[key.len() - REVISION_BYTES..]).expect("a revision")
            };
            let mut revisions: Vec<_> = rows.map(revision).collect();
            revisions.sort();
            revisions
        };
        (read(rows::REVISIONS), read(rows::HISTORY))
    }
}

fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() }
}
