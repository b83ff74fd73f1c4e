//! A program that uses the core of the engine alone, without any feature: `.ci/packages` builds it from the packed crates.

use tantalum::{Db, ErrorKind, Result};

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).expect("a directory for the database");
    let db = Db::builder().log_bytes(4 << 20).open(&directory)?;
    let letters = db.table("letters")?;
    db.transact(|tx| ["a", "b", "c"].iter().try_for_each(|letter| tx.put(&letters, letter, "")))?;
    db.close()?;

    // The settings, the places of the log's devices and the log are read again.
    let db = Db::open(&directory)?;
    let letters = db.open_table("letters")?;
    assert_eq!(db.range(&letters, "b"..)?.count(), 2);
    assert_eq!(db.stats()?.log.devices.len(), 1);
    db.close()?;

    // What needs a feature names it, from the program and from the file.
    let refused = Db::builder().control_socket(true).open(&directory).expect_err("the feature is off");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("feature `control`"), "{refused}");
    let file = std::path::Path::new(&directory).join("tantalum.toml");
    let settings = std::fs::read_to_string(&file).expect("there are settings");
    std::fs::write(&file, settings + "control_socket = true\n").expect("the settings are written");
    let refused = Db::open(&directory).expect_err("the feature is off").to_string();
    assert!(refused.contains("tantalum.toml, line") && refused.contains("feature `control`"), "{refused}");
    Ok(())
}
