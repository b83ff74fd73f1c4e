//! What was acknowledged before `kill -9` is there afterwards: the workload `reopen` fails if it is not. And what the program says
//! of itself.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{
    path::Path,
    process::{Command, Output},
};

fn peers(directory: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(["--rounds", "1", "--keys", "2000", "--log-mib", "64", "--cache-mib", "8", "--fill-mib", "1"]);
    command.arg("--dir").arg(directory).args(options).output().unwrap()
}

fn survives_a_kill(engine: &str) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("result.json");
    let output =
        peers(directory.path(), &["--engine", engine, "--workload", "reopen", "--json", json.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let reopened = &result["results"][0];
    assert_eq!((&reopened["engine"], &reopened["errors"]), (&engine.into(), &serde_json::json!([])));
    assert!(reopened["p50_us"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn tantalum_survives_a_kill() {
    survives_a_kill("tantalum");
}

#[test]
fn rocksdb_survives_a_kill() {
    survives_a_kill("rocksdb");
}

#[test]
fn lmdb_survives_a_kill() {
    survives_a_kill("lmdb");
}

#[test]
fn sqlite_survives_a_kill() {
    survives_a_kill("sqlite");
}

#[test]
fn redb_survives_a_kill() {
    survives_a_kill("redb");
}

#[test]
fn fjall_survives_a_kill() {
    survives_a_kill("fjall");
}

#[test]
fn every_workload_runs_on_every_engine_and_becomes_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let html = directory.path().join("page.html");
    let small = ["--seconds", "0.05", "--records", "500", "--load-rows", "2000", "--clients", "2", "--in-flight", "8"];
    let page = ["--all", "--html", html.to_str().unwrap()];
    let output = peers(directory.path(), &[&small[..], &page].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    let page = std::fs::read_to_string(html).unwrap();
    for workload in [
        "update",
        "update-10",
        "transfer-contended",
        "ycsb-f",
        "scan",
        "cold-read",
        "bulk-load",
        "huge-transaction",
        "reopen",
    ] {
        assert!(table.contains(&format!("\n{workload}: ")), "{workload}: {table}");
        assert!(page.contains(&format!("<h2>{workload}</h2>")), "{workload}");
    }
    assert!(page.contains("<svg") && table.contains("tantalum over the fastest peer"), "{table}");
}

#[test]
fn bad_options_are_refused_with_their_names() {
    let directory = tempfile::tempdir().unwrap();
    for (options, named) in [
        (&["--seconds", "0"][..], "--seconds 0"),
        (&["--engine", "raw", "--workload", "scan"], "scan"),
        (&["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
    ] {
        let output = peers(directory.path(), options);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(named), "{message}");
    }
}
