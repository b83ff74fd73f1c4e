//! A base backup, an archive of the log, and the way back to the moment before a mishap.
//!
//! `cargo run -p tantalum --example point_in_time -- /path/to/directory`

use std::{env, path::Path};

use tantalum::{Db, Lsn, Restore, RestoreTarget, Result, TypedTable};

fn main() -> Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-point-in-time").into());
    run(path.as_ref())
}

fn accounts(db: &Db) -> Result<TypedTable<String, i64>> {
    Ok(db.table("accounts")?.typed())
}

fn run(directory: &Path) -> Result<()> {
    // In earnest, archive and backups are on other hardware than the database.
    let [database, archive, backup, restored] =
        ["accounts.db", "archive", "backup", "restored.db"].map(|name| directory.join(name));

    // The log is kept in the archive, a moment behind its end.
    let db = Db::builder().log_archive(&archive).open(&database)?;
    let of_db = accounts(&db)?;
    db.transact(|tx| of_db.put(tx, "alice", &100))?;

    // Copies pages, while transactions go on.
    let made = db.base_backup(&backup, &mut |_| {})?;
    println!("base backup of {} bytes", made.bytes);

    // Work goes on. A commit tells its place in the log; a time would do as well (`RestoreTarget::Time`).
    let mut tx = db.begin()?;
    of_db.put(&mut tx, "bob", &20)?;
    let good = tx.commit()?;

    // The mishap, durable.
    db.transact(|tx| of_db.delete_range(tx, ..))?;
    assert_eq!(of_db.range(&db, ..)?.count(), 0);
    db.close()?;

    // A database of its own; the first is not touched.
    let target = good.position().map_or(RestoreTarget::End, |position| RestoreTarget::Lsn(Lsn::new(position)));
    Restore::new(&backup, &archive).target(target).run(&restored)?;
    let db = Db::open(&restored)?;
    let of_restored = accounts(&db)?;
    for row in of_restored.range(&db, ..)? {
        let (name, amount) = row?;
        println!("{name}: {amount}");
    }
    assert_eq!(of_restored.get(&db, "alice")?, Some(100));
    assert_eq!(of_restored.get(&db, "bob")?, Some(20), "committed before the mishap, and after the backup");
    db.close()
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path()).unwrap();
}
