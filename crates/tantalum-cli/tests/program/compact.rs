//! `db compact`: in the process that has a database open, or in one that is closed.

use crate::common::tantalum;
use tantalum::{Db, StoreKind};

#[test]
fn space_is_given_back_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    for is_open in [true, false] {
        let path = dir.path().join(format!("db-{is_open}"));
        let db = Db::builder().log_bytes(16 << 20).control_socket(true).open(&path).unwrap();
        for first in 0..40u32 {
            let rows = db.table("rows").unwrap();
            let mut tx = db.begin().unwrap();
            (0..100).for_each(|key| tx.put(&rows, (100 * first + key).to_be_bytes(), [7; 1000]).unwrap());
            tx.commit().unwrap();
        }
        let kept = db.table("kept").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&kept, "key", "value").unwrap();
        tx.commit().unwrap();
        db.drop_table("rows").unwrap();
        let open = if is_open { Some(db) } else { db.close().map(|()| None).unwrap() };
        let path = path.to_str().unwrap();
        let report: serde_json::Value =
            serde_json::from_slice(&tantalum(&["db", "compact", path, "--json"]).ok()).unwrap();
        let bytes = |field: &str| report[field].as_u64().unwrap();
        assert!(bytes("data_bytes_before") > 4 << 20 && bytes("data_bytes_after") < 1 << 20, "{report}");
        let table = String::from_utf8(tantalum(&["db", "compact", path]).ok()).unwrap();
        assert!(table.contains("data file now") && table.lines().all(|line| line.len() <= 80), "{table}");
        if let Some(db) = open {
            assert_eq!(db.get(&kept, "key").unwrap().as_deref(), Some(&b"value"[..]));
        }
        tantalum(&["db", "check", path]).ok();
        let store = tempfile::tempdir().unwrap();
        let other = store.path().join("db");
        Db::builder().page_store(StoreKind::InPageLogging).open(&other).unwrap().close().unwrap();
        let told = String::from_utf8(tantalum(&["db", "compact", other.to_str().unwrap()]).ok()).unwrap();
        assert!(told.contains("data file now") && !told.contains("keeps its size"), "{told}");
        let segments = store.path().join("segments");
        Db::builder().page_store(StoreKind::LogStructured).open(&segments).unwrap().close().unwrap();
        let told = String::from_utf8(tantalum(&["db", "compact", segments.to_str().unwrap()]).ok()).unwrap();
        assert!(told.contains("of it, not on disk") && !told.contains("keeps its size"), "{told}");
    }
    tantalum(&["db", "compact", dir.path().join("nothing").to_str().unwrap()]).fails(&["nothing"]);
}
