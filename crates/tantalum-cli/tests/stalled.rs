//! Log devices that stall on purpose.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod common;

use common::tantalum;

fn p50_of_one_client(log: &str) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("result.json").display().to_string();
    let bench = ["bench", "kv", "--simulate", "--keys", "200", "--rounds", "1", "--seconds", "3", "--clients", "1"];
    tantalum(&[&bench[..], &["--log", log, "--json", &file]].concat()).ok();
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    result["results"][0]["commits_per_second"].as_f64().unwrap()
}

#[test]
fn a_stalling_log_device_commits_only_between_its_stalls() {
    // In virtual time, so exact: half of the time half of the commits.
    let healthy = p50_of_one_client("emulated:nvme-plp");
    let stalled = p50_of_one_client("stalled:50ms/100ms:emulated:nvme-plp");
    assert!((0.45..0.55).contains(&(stalled / healthy)), "{stalled} of {healthy}");
}

#[test]
fn a_file_that_stalls_is_made_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").display().to_string();
    let bench = ["bench", "tpcc", "--tiny", "--seconds", "0", "--log-bytes", "2M", "--dir", &db];
    tantalum(&[&bench[..], &["--log", "stalled:1ms/20ms:slow", "--log", "quick"]].concat()).ok();
    assert_eq!(std::fs::metadata(format!("{db}/slow")).unwrap().len(), 2 << 20);
    for command in [["db", "check"], ["log", "verify"]] {
        tantalum(&[&command[..], &[&db]].concat()).ok();
    }
    std::fs::remove_file(format!("{db}/slow")).unwrap();
    tantalum(&["db", "check", &db]).fails(&["slow"]);
}

#[test]
fn a_wrong_name_tells_what_it_should_be() {
    let bench = ["bench", "kv", "--seconds", "0.1", "--log"];
    for bad in ["stalled:x", "stalled:1s/1s:log", "stalled:1ms/1s:"] {
        tantalum(&[&bench[..], &[bad]].concat()).fails(&["stalled:STALL/PERIOD:DEVICE"]);
    }
}
