//! Fills a table with numbered rows by a bulk load:
//! `cargo run --release -p tantalum --example bulk_load -- DIRECTORY [ROWS]`. The directory must not exist.

use std::path::Path;

use tantalum::Db;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("give the directory of a new database")?;
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse::<u64>())?;
    run(directory.as_ref(), rows)
}

fn run(directory: &Path, rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::builder().open(directory)?;
    // Values that cannot be compressed.
    let mut state = 1u64;
    let mut value = [0; VALUE_BYTES];
    let mut next_value = || {
        for part in value.chunks_mut(8) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
        }
        value
    };
    let report = db.bulk_load("rows", (0..rows).map(|number| (u128::from(number).to_be_bytes(), next_value())))?;
    let stored = db.stats()?.store.pages_stored;
    println!("{rows} rows loaded; {} pages built, {stored} stored", report.pages);
    db.close()?;
    Ok(())
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("db"), 10_000).unwrap();
}
