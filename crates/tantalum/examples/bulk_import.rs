//! Imports lines of text, in any order, by a bulk load: sorted first, then built page by page, all of them or none.
//!
//! `cargo run --release -p tantalum --example bulk_import -- NEW.db < rows.csv`, with lines `NUMBER,TEXT`.

use std::{
    env,
    error::Error,
    io::{self, BufRead},
    path::Path,
};

use tantalum::{BulkLoadReport, Db, TypedTable};

type Texts = TypedTable<u64, String>;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("give the directory of a new database")?;
    let report = import(path.as_ref(), io::stdin().lock())?;
    println!("{} rows of {} bytes in {} pages", report.rows, report.row_bytes, report.pages);
    Ok(())
}

fn import(path: &Path, lines: impl BufRead) -> Result<BulkLoadReport, Box<dyn Error>> {
    let db = Db::open(path)?;
    let texts: Texts = db.table("texts")?.typed();
    // Keys as bytes are in the order of the numbers, so sorting either does.
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line?;
        let row = line.split_once(',').and_then(|(key, text)| Some((key.parse::<u64>().ok()?, text.to_owned())));
        rows.push(row.ok_or_else(|| format!("line {number} is not NUMBER,TEXT: {line:?}"))?);
    }
    rows.sort();
    // Of several lines with one number, the first counts.
    rows.dedup_by_key(|(number, _)| *number);
    let report = db.bulk_load("texts", rows.iter().map(|(number, text)| (texts.key(number), text)))?;
    db.close()?;
    Ok(report)
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let lines: String = (0..5000).map(|n| format!("{},text {n}\n", n * 7919 % 5000)).collect();
    assert_eq!(import(&path, lines.as_bytes()).unwrap().rows, 5000);
    let db = Db::open(&path).unwrap();
    let texts: Texts = db.table("texts").unwrap().typed();
    assert!(texts.range(&db, ..).unwrap().map(|row| row.unwrap().0).eq(0..5000));
    assert_eq!(texts.get(&db, 7919 % 5000).unwrap().as_deref(), Some("text 1"));
    db.close().unwrap();
    assert!(import(&dir.path().join("other"), &b"1,a\nb\n"[..]).unwrap_err().to_string().contains("line 2"));
}
