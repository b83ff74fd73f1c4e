//! `tantalum top` where standard output is no terminal: JSON, and what it says when it cannot show anything. What is drawn is tested
//! beside it.

use crate::common::{small, tantalum};

#[test]
fn an_object_is_printed_for_each_interval() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let db = small().control_socket(true).open(path).unwrap();
    let top = ["top", path, "--json", "--interval", "0.1", "--count", "3"];
    let said = String::from_utf8(tantalum(&top).ok()).unwrap();
    let readings: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(readings.len(), 3);
    for reading in &readings {
        assert_eq!(reading["process"], std::process::id());
        assert!(reading["seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(reading["devices"].as_array().unwrap().len(), 1);
        assert_eq!(reading["pages"]["memory_bytes"], 1 << 20);
    }
    let no_terminal = tantalum(&["top", path]);
    assert_eq!(no_terminal.code, Some(2));
    assert!(no_terminal.err.contains("no terminal") && no_terminal.err.contains("--json"), "{}", no_terminal.err);
    db.close().unwrap();
    tantalum(&top).fails(&["control.sock", "tantalum db stat"]);
    for wrong in [["--interval", "0"], ["--interval", "x"], ["--count", "0"]] {
        assert_eq!(tantalum(&[&top[..3], &wrong].concat()).code, Some(2), "{wrong:?}");
    }
}
