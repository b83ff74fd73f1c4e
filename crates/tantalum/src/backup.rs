//! Online backup: a snapshot, row by row, into a fresh database.
//!
//! The copy is complete when its directory has its name: it is written beside it and renamed as the last step.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    db::{Db, sync_parent},
    error::{self, ErrorKind, Result},
    options::{Builder, Settings},
    table::Table,
    transaction::{Content, Snapshot, Value},
};

/// Bytes of keys and values in one of the copy's transactions: the log of a new database takes it.
const BATCH_BYTES: usize = 48 << 10;

/// Copies `db` into the new directory `to`.
pub(crate) fn run(db: &Db, to: &Path) -> Result<()> {
    whole_directory(to, |partial| copy(db, partial))
}

/// Has `make` make a directory, which is at `to` as a whole or not at all, whenever the power goes.
pub(crate) fn whole_directory<T>(to: &Path, make: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    for path in [to, &partial] {
        if path.exists() {
            return Err(error::exists(path.display()));
        }
    }
    let made = make(&partial).and_then(|made| {
        fs::rename(&partial, to).map_err(|error| error::io(to, "give the finished directory the name", error))?;
        sync_parent(to)?;
        Ok(made)
    });
    if made.is_err() {
        // The first error says more than one about the remains.
        let _removed = fs::remove_dir_all(&partial);
    }
    made
}

fn copy(db: &Db, to: &Path) -> Result<()> {
    let mut builder: Builder = Db::builder();
    let &Settings {
        erase_unit_bytes,
        carry_over_percent,
        segment_bytes,
        segment_fill_percent,
        discard_segments,
        page_streams,
        page_compression,
        metadata_writes,
        ..
    } = db.settings();
    builder.settings = Settings {
        page_size: Some(db.page_bytes()),
        page_store: Some(db.superblock().store_kind),
        // The region's size depends on the device's blocks.
        erase_unit_bytes,
        carry_over_percent,
        segment_bytes,
        segment_fill_percent,
        discard_segments,
        page_streams,
        page_compression,
        metadata_writes,
        ..db.settings().without_places()
    };
    builder.is_copy = true;
    let copy = builder.open(to)?;
    let snapshot = db.snapshot()?;
    for from in db.open_tables() {
        match snapshot.range(&from, ..) {
            // Dropped since the list was made: not there any more.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            rows => drop(rows?),
        }
        let to = copy.table(from.name())?;
        copy_table(&snapshot, &from, &copy, &to)?;
        if from.has_change_feed() {
            copy.start_change_feed(&to)?;
        }
    }
    copy.close()
}

/// Copies rows in transactions of moderate size. A large value has one of its own, and is not read as a whole.
fn copy_table(snapshot: &Snapshot, from: &Table, copy: &Db, to: &Table) -> Result<()> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut rows = snapshot.range(from, ..)?;
    while let Some(row) = rows.next_unread() {
        let (key, content) = row?;
        let value = match content {
            Content::Bytes(value) => value,
            large if large.len() <= BATCH_BYTES as u64 => snapshot.value_of(large, from)?,
            large => {
                let mut tx = copy.begin()?;
                tx.put_from(to, &key, snapshot.reader_of(large, from)?)?;
                tx.commit()?;
                continue;
            }
        };
        bytes += key.len() + value.len();
        if bytes > BATCH_BYTES {
            put(copy, to, &batch)?;
            batch.clear();
            bytes = key.len() + value.len();
        }
        batch.push((key, value));
    }
    put(copy, to, &batch)
}

/// Puts rows into the copy in one transaction, or in as many as its log and its buffer pool ask for.
fn put(copy: &Db, to: &Table, rows: &[(Value, Value)]) -> Result<()> {
    let whole = || {
        let mut tx = copy.begin()?;
        rows.iter().try_for_each(|(key, value)| tx.put(to, key, value))?;
        tx.commit_async().map(drop)
    };
    match whole() {
        Err(error) if error.kind() == ErrorKind::TransactionTooLarge && rows.len() > 1 => {
            let (first, second) = rows.split_at(rows.len() / 2);
            put(copy, to, first)?;
            put(copy, to, second)
        }
        done => done,
    }
}
