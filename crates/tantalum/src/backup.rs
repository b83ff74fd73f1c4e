//! Online backup: a snapshot, row by row, into a fresh database.
//!
//! The copy is complete when its directory has its name: it is written beside it and renamed as the last step.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use crate::{
    db::Db,
    error::{Error, Result},
    options::Builder,
    table::Table,
    transaction::RangeIter,
};

/// Bytes of keys and values in one of the copy's transactions.
const BATCH_BYTES: usize = 128 << 10;

/// Copies `db` into the new directory `to`.
pub(crate) fn run(db: &Db, to: &Path) -> Result<()> {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    for path in [to, &partial] {
        if path.exists() {
            return Err(Error::Exists { path: path.display().to_string() });
        }
    }
    let copied = copy(db, &partial).and_then(|()| {
        fs::rename(&partial, to).map_err(|error| Error::io(to, "rename the finished copy to", error))?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(|error| Error::io(parent, "make durable", error))
    });
    if copied.is_err() {
        // The first error says more than one about the remains.
        let _removed = fs::remove_dir_all(&partial);
    }
    copied
}

fn copy(db: &Db, to: &Path) -> Result<()> {
    let mut builder: Builder = Db::builder().page_size(db.page_bytes());
    // Everything that does not name the places of this database's files.
    builder.settings.buffer_pool_bytes = db.settings().buffer_pool_bytes;
    builder.settings.log_bytes = db.settings().log_bytes;
    builder.settings.lock_timeout_ms = db.settings().lock_timeout_ms;
    builder.settings.early_lock_release = db.settings().early_lock_release;
    builder.settings.isolation = db.settings().isolation;
    let copy = builder.open(to)?;
    let snapshot = db.snapshot()?;
    for from in db.open_tables() {
        let rows = match snapshot.range(&from, ..) {
            // Dropped since the list was made: not there any more.
            Err(Error::TableDropped { .. }) => continue,
            rows => rows?,
        };
        copy_table(rows, &copy, &copy.table(from.name())?)?;
    }
    copy.close()
}

/// Copies rows in transactions of moderate size, or as large as the copy's log takes.
fn copy_table(rows: RangeIter<'_>, copy: &Db, to: &Table) -> Result<()> {
    let (mut tx, mut bytes) = (copy.begin()?, 0);
    for row in rows {
        let (key, value) = row?;
        bytes += key.len() + value.len();
        if bytes > BATCH_BYTES {
            std::mem::replace(&mut tx, copy.begin()?).commit_async()?;
            bytes = 0;
        }
        match tx.put(to, &key, &value) {
            Err(Error::TransactionTooLarge { .. }) => {
                std::mem::replace(&mut tx, copy.begin()?).commit_async()?;
                bytes = 0;
                tx.put(to, &key, &value)?;
            }
            put => put?,
        }
    }
    tx.commit().map(drop)
}
