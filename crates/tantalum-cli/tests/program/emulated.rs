//! Emulated devices wherever a device's path is asked for, log devices that stall on purpose, and benchmarks in virtual
//! time.

use std::{fs, path::Path};

use crate::common::{Run, make_database, tantalum};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}

fn run(command: &[&str], options: &[&str]) -> Run {
    tantalum(&[command, options].concat())
}

const TPCC: [&str; 4] = ["bench", "tpcc", "--tiny", "--simulate"];
const KV: [&str; 10] = ["bench", "kv", "--keys", "500", "--rounds", "1", "--seconds", "0.05", "--clients", "1,4"];
const STICKS: [&str; 4] = ["--log", "emulated:usb-c", "--log", "emulated:usb-c"];

#[test]
fn the_same_seed_gives_the_same_result_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let file = text(&dir.path().join("result.json"));
    let measure = |seed: &str| {
        let options = [&STICKS[..], &["--clients", "8", "--seconds", "2", "--seed", seed, "--json", &file]].concat();
        let output = String::from_utf8(run(&TPCC, &options).ok()).unwrap();
        for word in
            ["virtual time, 2 virtual cores", "emulated:usb-c #2", "amplification", "simulated seconds a second"]
        {
            assert!(output.contains(word), "{word}: {output}");
        }
        fs::read(&file).unwrap()
    };
    let first = measure("1");
    assert!(measure("1") == first, "the same command, the same JSON");
    assert!(measure("2") != first);
    let result = json(&first);
    assert_eq!(result["is_consistent"], true);
    assert_eq!(result["configuration"]["world"]["clock"], "virtual");
    assert_eq!(result["run"]["seconds"], 2.0);
    let devices = result["emulated_devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    assert!(devices.iter().all(|device| device["host_writes"].as_u64().unwrap() > 0), "{devices:?}");
}

#[test]
fn more_cpu_for_each_transaction_makes_fewer_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = text(&dir.path().join("result.json"));
    let committed = |cpu: &[&str]| {
        let options = [&["--clients", "4", "--seconds", "1", "--json", &file][..], cpu].concat();
        run(&TPCC, &options).ok();
        json(&fs::read(&file).unwrap())["run"]["total"]["committed"].as_u64().unwrap()
    };
    // On ideal devices the cores alone are the limit: two of them, or one.
    let two = committed(&["--cpu-per-transaction", "1ms"]);
    let one = committed(&["--cpu-per-transaction", "1ms", "--cores", "1"]);
    assert!((1800..=2000).contains(&two) && (900..=1000).contains(&one), "{two} and {one}");
}

#[test]
fn log_and_data_lie_on_emulated_devices_in_either_world() {
    let dir = tempfile::tempdir().unwrap();
    let file = text(&dir.path().join("result.json"));
    let places = ["--data", "emulated:durassd", "--log", "emulated:nvme-plp", "--json", &file];
    for world in [&[][..], &["--simulate"]] {
        let small = ["bench", "tpcc", "--tiny", "--clients", "4", "--seconds", "0.2", "--buffer-pool", "1M"];
        run(&small, &[&places[..], world].concat()).ok();
        let result = json(&fs::read(&file).unwrap());
        assert_eq!(result["is_consistent"], true);
        assert_eq!(result["emulated_devices"].as_array().unwrap().len(), 2);

        let log = ["--log", "emulated:nvme-plp", "--log-partitions", "2", "--json", &file];
        run(&KV, &[&log[..], world].concat()).ok();
        let result = json(&fs::read(&file).unwrap());
        assert_eq!(result["configuration"]["log_devices"], 2);
        for measured in result["results"].as_array().unwrap() {
            assert!(measured["ratio_to_raw_depth_1"].as_f64().unwrap() > 0.0, "{measured}");
        }
    }
}

#[test]
fn what_a_device_does_not_promise_is_left_out_on_your_word_only_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = text(&dir.path().join("result.json"));
    let ordinary = ["--data", "emulated:ssd-a", "--log", "emulated:ssd-a", "--clients", "4", "--seconds", "0.2"];
    let bench = |options: &[&str]| {
        let output =
            String::from_utf8(run(&TPCC, &[&ordinary[..], &["--json", &file], options].concat()).ok()).unwrap();
        (output, json(&fs::read(&file).unwrap())["database"].clone())
    };
    run(&TPCC, &[&ordinary[..], &["--barriers", "off"]].concat()).fails(&["ssd-a", "volatile", "trust-device"]);

    let (output, storage) = bench(&[]);
    assert!(!output.contains("UNSAFE"), "{output}");
    assert_eq!(storage["barriers"]["setting"], "auto");
    assert_eq!(storage["barriers"]["sent_to"].as_array().unwrap().len(), 3);
    assert_eq!(storage["torn_page_protection"], "double-write");

    let (output, storage) = bench(&["--barriers", "trust-device", "--protection", "trust-device"]);
    assert_eq!(output.matches("UNSAFE: ").count(), 4, "{output}");
    assert_eq!(storage["trusted_by_setting"].as_array().unwrap().len(), 4);
    assert_eq!(storage["barriers"]["trusted"].as_array().unwrap().len(), 3);
}

#[test]
fn a_database_on_devices_in_files_stays() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let profile = dir.path().join("stick.toml");
    fs::write(&profile, run(&["device", "show", "usb-b", "--toml"], &[]).ok()).unwrap();
    let log = format!("emulated:{}:stick", profile.display());
    let bench = ["bench", "tpcc", "--tiny", "--seconds", "0", "--log-bytes", "2M", "--dir"];
    run(&bench, &[&text(&db), "--log", &log, "--log", "emulated:usb-c:other", "--data", "emulated:durassd:disk"]).ok();
    for name in ["stick", "other", "disk"] {
        assert!(db.join(name).is_file(), "{name}");
    }
    assert!(!db.join("log-0").exists() && !db.join("data").exists());

    run(&["db", "check", &text(&db)], &[]).ok();
    let stat = json(&run(&["db", "stat", &text(&db), "--json"], &[]).ok());
    assert_eq!(stat["log"]["devices"].as_array().unwrap().len(), 2);
    let dump = run(&["db", "dump", &text(&db)], &[]).ok();
    let copy = dir.path().join("copy");
    run(&["db", "backup", &text(&db), &text(&copy)], &[]).ok();
    assert!(run(&["db", "dump", &text(&copy)], &[]).ok() == dump);
    run(&["bench", "tpcc", "--tiny", "--seconds", "0", "--reuse", "--dir", &text(&db)], &[]).ok();

    // The log, by the directory and by its devices.
    let by_directory = json(&run(&["log", "inspect", &text(&db), "--json"], &[]).ok());
    let at = |spec: &str, name: &str| format!("emulated:{spec}:{}", db.join(name).display());
    let paths = [at(&text(&profile), "stick"), at("usb-c", "other")];
    let by_path = json(&run(&["log", "inspect", &paths[0], &paths[1], "--json"], &[]).ok());
    assert_eq!(by_directory["log_id"], by_path["log_id"]);
    assert_eq!(by_path["devices"].as_array().unwrap().len(), 2);
    run(&["log", "verify", &text(&db)], &[]).ok();

    fs::rename(db.join("other"), dir.path().join("away")).unwrap();
    run(&["db", "check", &text(&db)], &[]).fails(&["emulated:usb-c:other", "is missing"]);
    assert!(!db.join("other").exists(), "nothing was put in its place");
    fs::rename(dir.path().join("away"), db.join("other")).unwrap();
    run(&["db", "check", &text(&db)], &[]).ok();
}

#[test]
fn contents_in_memory_are_refused_where_they_would_be_missed() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let remedy = "emulated:usb-c:FILE";
    let bench = ["bench", "tpcc", "--tiny", "--seconds", "0", "--dir"];
    run(&bench, &[&text(&db), "--log", "emulated:usb-c"]).fails(&["memory", remedy]);
    assert!(!db.join("tantalum.toml").exists());
    run(&bench, &[&text(&db), "--log-bytes", "2M"]).ok();

    make_database(&dir.path().join("toml"));
    let settings = dir.path().join("toml/tantalum.toml");
    fs::write(&settings, "log_devices = [\"emulated:usb-c\"]\n").unwrap();
    // As long as the database knows where its log is, the settings are not needed.
    run(&["db", "check"], &[&text(&dir.path().join("toml"))]).ok();
    fs::remove_file(dir.path().join("toml/log-devices.toml")).unwrap();
    for command in [["db", "check"], ["log", "inspect"]] {
        run(&command, &[&text(&dir.path().join("toml"))]).fails(&[remedy]);
    }
}

#[test]
fn bad_names_of_devices_say_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let held = text(&dir.path().join("held"));
    fs::write(&held, "x").unwrap();
    let in_file = format!("emulated:usb-c:{held}");
    for (name, words) in [
        ("emulated:", &["emulated:PROFILE", "usb-c"][..]),
        ("emulated:usb-z", &["usb-z", "usb-c", "TOML"]),
        ("emulated:usb-c:", &["FILE"]),
        ("log-0", &["--simulate", "emulated:PROFILE"]),
        (&in_file, &[&held, "exists", "remove it"]),
    ] {
        run(&TPCC, &["--log", name]).fails(words);
        if name.starts_with("emulated:") && name != in_file {
            run(&["bench", "kv", "--log", name], &[]).fails(words);
            run(&["device", "bench", name], &[]).fails(words);
            run(&["device", "show", name], &[]).fails(words);
            run(&["log", "inspect", name], &[]).fails(&words[..1.min(words.len())]);
        }
    }
    run(&KV, &["--simulate"]).fails(&["--log emulated:PROFILE"]);
    for usage in [
        &["--simulate", "--dir", "x"][..],
        &["--simulate", "--keep"],
        &["--cores", "2"],
        &["--simulate", "--cpu-per-transaction", "0us"],
        &["--simulate", "--cores", "0"],
    ] {
        assert_eq!(run(&["bench", "tpcc"], usage).code, Some(2), "{usage:?}");
    }
}

#[test]
fn device_bench_measures_a_device_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stick");
    let name = format!("emulated:usb-c:{}", file.display());
    let quick = ["device", "bench", &name, "--size", "16M", "--operations", "50", "--only", "overlapping"];
    run(&quick, &[]).ok();
    assert!(!file.exists(), "it goes as it came");
    fs::write(&file, "mine").unwrap();
    run(&quick, &[]).fails(&["exists", "--destroy-contents"]);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    run(&quick, &["--destroy-contents"]).ok();
    assert!(fs::metadata(&file).unwrap().len() > 4);
}

fn commits_of_one_client(log: &str) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("result.json").display().to_string();
    let bench = ["bench", "kv", "--simulate", "--keys", "200", "--rounds", "1", "--seconds", "0.5", "--clients", "1"];
    tantalum(&[&bench[..], &["--log", log, "--json", &file]].concat()).ok();
    let result = json(&fs::read(&file).unwrap());
    result["results"][0]["commits_per_second"].as_f64().unwrap()
}

#[test]
fn a_stalling_log_device_commits_only_between_its_stalls() {
    // In virtual time, so exact: half of the time half of the commits.
    let healthy = commits_of_one_client("emulated:nvme-plp");
    let stalled = commits_of_one_client("stalled:50ms/100ms:emulated:nvme-plp");
    assert!((0.45..0.55).contains(&(stalled / healthy)), "{stalled} of {healthy}");
}

#[test]
fn a_file_that_stalls_is_made_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").display().to_string();
    let bench = ["bench", "tpcc", "--tiny", "--seconds", "0", "--log-bytes", "2M", "--dir", &db];
    tantalum(&[&bench[..], &["--log", "stalled:1ms/20ms:slow", "--log", "quick"]].concat()).ok();
    assert_eq!(fs::metadata(format!("{db}/slow")).unwrap().len(), 2 << 20);
    for command in [["db", "check"], ["log", "verify"]] {
        tantalum(&[&command[..], &[&db]].concat()).ok();
    }
    fs::remove_file(format!("{db}/slow")).unwrap();
    tantalum(&["db", "check", &db]).fails(&["slow"]);
}

#[test]
fn a_wrong_name_tells_what_it_should_be() {
    let bench = ["bench", "kv", "--seconds", "0.1", "--log"];
    for bad in ["stalled:x", "stalled:1s/1s:log", "stalled:1ms/1s:"] {
        tantalum(&[&bench[..], &[bad]].concat()).fails(&["stalled:STALL/PERIOD:DEVICE"]);
    }
}
