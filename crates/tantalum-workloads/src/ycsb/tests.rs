//! YCSB at a small scale: each mix on threads, blocking and pipelined, and after a crash among inserts.

use crate::ErrorKind;
use std::sync::Arc;

use tantalum::Db;

use super::*;
use crate::driver::{self, Options, RunReport};

const PARAMETERS: Parameters = Parameters { records: 500, fields: 3, field_bytes: 20, seed: 5, random_percent: 100 };

fn open(directory: &tempfile::TempDir) -> Db {
    Db::builder().log_bytes(8 << 20).open(directory.path()).unwrap()
}

fn load(db: &Db) -> Ycsb {
    Ycsb::load_or_reuse(db, PARAMETERS, 2, &mut |_| ()).unwrap()
}

fn run(ycsb: Ycsb, clients: usize, steps: u64) -> RunReport {
    driver::run(&Arc::new(ycsb), Options::transactions(clients, steps), &mut |_| ()).unwrap()
}

fn rows(db: &Db) -> Vec<usize> {
    let table = db.table(TABLE_NAMES[1]).unwrap();
    db.snapshot().unwrap().range(&table, ..).unwrap().map(|row| row.unwrap().1.len()).collect()
}

#[test]
fn each_mix_does_what_it_is_defined_as() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let mut records = 500;
    for (mix, kinds) in [
        (Mix::A, [50, 50, 0, 0, 0]),
        (Mix::B, [95, 5, 0, 0, 0]),
        (Mix::C, [100, 0, 0, 0, 0]),
        (Mix::D, [95, 0, 5, 0, 0]),
        (Mix::E, [0, 0, 5, 95, 0]),
        (Mix::F, [50, 0, 0, 0, 50]),
    ] {
        for async_depth in [1, 5] {
            let report = run(load(&db).with_mix(mix).with_async_depth(async_depth), 4, 150);
            let counts: Vec<u64> = report.kinds.iter().map(|kind| kind.committed).collect();
            assert_eq!(counts.iter().sum::<u64>(), 600, "{mix:?}");
            for (&count, percent) in counts.iter().zip(kinds) {
                assert!(count.abs_diff(6 * percent) <= 60 && (count == 0) == (percent == 0), "{mix:?}: {counts:?}");
            }
            records += counts[Kind::Insert as usize] as usize;
            assert_eq!(rows(&db).len(), records, "{mix:?}: inserts make new records");
        }
    }
    assert!(rows(&db).iter().all(|&bytes| bytes == PARAMETERS.record_bytes()));
}

#[test]
fn records_that_a_crash_left_out_are_made_up_for() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let ycsb = load(&db);
    for number in [500, 502, 505] {
        ycsb.insert(number, &[0; 60]).unwrap().commit().unwrap();
    }
    drop(ycsb);
    let ycsb = Ycsb::open(&db).unwrap().expect("it is loaded");
    assert_eq!(rows(&db).len(), 506);
    assert_eq!(ycsb.records.reserve(), 506);
    ycsb.read(503).unwrap();
    assert!(matches!(ycsb.read(506), Err(error) if error.kind() == ErrorKind::NotFound));
}

#[test]
fn fields_repeat_what_of_them_is_random() {
    let parameters = Parameters { random_percent: 33, ..PARAMETERS };
    let mut random = Random::with_seed(1);
    let record = record(&parameters, &mut random);
    assert_eq!(record.len(), 60);
    for field in record.chunks(20) {
        assert_eq!(field[7..14], field[..7]);
        assert_eq!(field[14..], field[..6]);
    }
    assert_ne!(record[..7], record[20..27]);
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    Ycsb::load_or_reuse(&db, parameters, 1, &mut |_| ()).unwrap();
    assert_eq!(Ycsb::open(&db).unwrap().unwrap().parameters(), parameters);
    let other = Ycsb::load_or_reuse(&db, PARAMETERS, 1, &mut |_| ()).map(drop);
    assert!(matches!(&other, Err(error) if error.kind() == ErrorKind::Mismatch));
}

#[test]
fn earlier_versions_stored_no_share_of_random_fields() {
    let earlier = [&500u64.to_le_bytes()[..], &3u32.to_le_bytes(), &20u32.to_le_bytes(), &5u64.to_le_bytes()].concat();
    assert_eq!(PARAMETERS.encode_stored(), earlier);
    assert_eq!(Parameters::decode_stored(&earlier).unwrap(), PARAMETERS);
    Parameters::decode_stored(&earlier[1..]).unwrap_err();
}

#[test]
fn an_update_changes_one_field() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let ycsb = load(&db);
    let read = || db.snapshot().unwrap().get(&ycsb.table, key(7)).unwrap().unwrap().to_vec();
    let before = read();
    ycsb.update(7, 1, &[b'!'; 20]).unwrap().commit().unwrap();
    assert_eq!(read(), [&before[..20], &[b'!'; 20], &before[40..]].concat());
    let mut tx = db.begin().unwrap();
    tx.put(&ycsb.table, key(7), b"short").unwrap();
    tx.commit().unwrap();
    assert!(matches!(ycsb.read(7), Err(error) if error.kind() == ErrorKind::Corrupt));
    let other = Ycsb::load_or_reuse(&db, Parameters { fields: 4, ..PARAMETERS }, 1, &mut |_| ()).map(drop);
    assert!(matches!(&other, Err(error) if error.kind() == ErrorKind::Mismatch));
}
