//! `tantalum probe`: what it prints, writes and refuses.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
};

use crate::common::{tantalum, tantalum_with_input};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn an_emulated_drive_is_probed_in_virtual_time_and_its_settings_make_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&directory.path().join(name));
    let (db, json, html) = (path("db"), path("p.json"), path("p.html"));
    let outputs = ["--write-config", &db, "--json", &json, "--html", &html];
    let command = ["probe", "ssd-2008", "--quick", "--size", "32M"];
    let output = String::from_utf8(tantalum(&[&command[..], &outputs].concat()).ok()).unwrap();
    for word in ["256 MiB are written", "of virtual time", "power-safe: consistent", "page_store", "log_hiding", "Gap"]
    {
        assert!(output.to_lowercase().contains(&word.to_lowercase()), "{word}: {output}");
    }
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["advice"]["power_safe"]["verdict"], "consistent");
    assert!(report["found"]["written_bytes"].as_u64() <= report["plan"]["write_bytes"].as_u64());
    let html = fs::read_to_string(&html).unwrap();
    for figure in ["Figure 3", "Figure 4", "Figure 5", "Figure 6"] {
        assert!(html.contains(figure), "{figure}");
    }
    let again = tantalum(&[&command[..], &["--write-config", &db]].concat());
    again.fails(&["tantalum.toml exists", "--force"]);
    // A database that is made there takes what was recommended.
    let input = b"tantalum-dump 1\n";
    let sum = format!("end 0 0 {:08x}\n", crc32c::crc32c(input));
    tantalum_with_input(&["db", "load", &db], &[&input[..], sum.as_bytes()].concat()).ok();
    let stat = tantalum(&["db", "stat", &db, "--json"]).ok();
    let stat: serde_json::Value = serde_json::from_slice(&stat).unwrap();
    let page = report["advice"]["costs"]["page_bytes"].clone();
    assert_eq!(stat["page_bytes"], page, "{stat}");
}

#[test]
fn what_was_reported_is_held_against_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&directory.path().join(name));
    let (data, record) = (path("data"), path("record"));
    let write = ["probe", "powercut-write", &data, "--record", &record, "--size", "1M", "--writes", "300"];
    tantalum(&write).ok();
    tantalum(&write).fails(&["exists", "--destructive"]);
    let check = tantalum(&["probe", "powercut-check", &data, &record, "--json"]).ok();
    let outcome: serde_json::Value = serde_json::from_slice(&check).unwrap();
    assert_eq!((&outcome["reported"], &outcome["lost"]), (&300.into(), &0.into()), "{outcome}");

    // The newest write of the last slot comes back as it was before.
    let reported = fs::read_to_string(&record).unwrap();
    let slot: usize = reported.lines().last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let mut bytes = fs::read(&data).unwrap();
    bytes[slot * 16384..slot * 16384 + 512].fill(0);
    fs::write(&data, bytes).unwrap();
    let lost = tantalum(&["probe", "powercut-check", &data, &record]);
    assert_eq!(lost.code, Some(1));
    assert!(String::from_utf8(lost.out).unwrap().contains("1 lost"));

    fs::write(&record, reported.replace(" durable", " somehow")).unwrap();
    tantalum(&["probe", "powercut-check", &data, &record]).fails(&["line 1", "durable|cached"]);
    tantalum(&["probe", "powercut-write", &path("other"), "--to", "127.0.0.1:1"]).fails(&["powercut-listen"]);
}

#[test]
fn a_listener_keeps_reports_and_refuses_everything_else() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record");
    let listen = ["probe", "powercut-listen", "127.0.0.1:0", record.to_str().unwrap()];
    let mut listener = std::process::Command::new(env!("CARGO_BIN_EXE_tantalum"))
        .args(listen)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let mut stream = std::net::TcpStream::connect(first.strip_prefix("listening at ").unwrap()).unwrap();
    stream.write_all(b"tantalum-powercut 1 7 4096 10 durable\n1 3\n2 4\n2 5\nsomething else\n").unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(listener.wait().unwrap().success());
    assert!(said.iter().any(|line| line.contains("2 writes are kept") && line.contains("refused")), "{said:?}");
    assert_eq!(fs::read_to_string(&record).unwrap(), "tantalum-powercut 1 7 4096 10 durable\n1 3\n2 4\n");
}

#[test]
fn what_exists_is_only_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    let bytes: Vec<u8> = (0..33 << 20).map(|n: u32| (n % 251) as u8).collect();
    fs::write(&file, &bytes).unwrap();
    let output = tantalum(&["probe", &text(&file), "--quick", "--size", "32M"]).ok();
    let output = String::from_utf8(output).unwrap();
    assert!(output.contains("nothing is written") && output.contains("--destructive"), "{output}");
    assert!(fs::read(&file).unwrap() == bytes);
    fs::write(&file, b"small").unwrap();
    tantalum(&["probe", &text(&file), "--quick"]).fails(&["too few"]);
    tantalum(&["probe", &text(directory.path()), "--size", "1M"]).fails(&["too few", "32 MiB"]);
    tantalum(&["probe", "emulated:nothing"]).fails(&["nothing"]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing stays behind");
}
