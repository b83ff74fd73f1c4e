//! openraft's own tests of storage.
#![cfg(feature = "openraft")]
#![allow(missing_docs)] // of the macro's type

use std::sync::Arc;

use openraft::alias::EntryOf;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, StorageError};
use tantalum::{Db, Table, Transaction};
use tantalum_device::{Device, MemoryDevice};
use tantalum_raft::openraft_storage::{Application, LogStore, StateMachine};
use tantalum_raft::{RaftLog, RaftLogOptions};
use tempfile::TempDir;

openraft::declare_raft_types!(pub Config: D = String, R = u64);

struct Words;

impl Application<Config> for Words {
    fn apply(&self, transaction: &mut Transaction, tables: &[Table], entry: &EntryOf<Config>) -> tantalum::Result<u64> {
        match &entry.payload {
            EntryPayload::Normal(word) => Ok(transaction.increment(&tables[0], word, 1)? as u64),
            _ => Ok(0),
        }
    }
}

/// Stores of new groups, with a cache of so many bytes.
struct Builder(usize);

impl StoreBuilder<Config, LogStore<Config>, StateMachine<Config, Words>, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore<Config>, StateMachine<Config, Words>), StorageError<Config>> {
        let directory = tempfile::tempdir().expect("a directory");
        let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("a", 2 << 20), MemoryDevice::new("b", 2 << 20)];
        let options = RaftLogOptions { cache_bytes: self.0, ..RaftLogOptions::default() };
        RaftLog::create(devices.clone(), &options).expect("create");
        let log = RaftLog::open(devices, &options).expect("open");
        let db = Db::builder().log_bytes(8 << 20).open(directory.path().join("db")).expect("open");
        let machine = StateMachine::new(db, 1, &["words"], Words).expect("its tables");
        Ok((directory, LogStore::new(log.group(1)), machine))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite_passes() {
    Suite::test_all(Builder(1 << 20)).await.expect("all of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite_passes_without_a_cache() {
    Suite::test_all(Builder(0)).await.expect("all of it");
}
