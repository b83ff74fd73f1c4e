//! Benchmarks with `--io-trace`, and `lab io-trace`.

use std::{fs, path::Path};

use crate::common::tantalum;
use serde_json::Value;

/// Files of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).unwrap()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// The trace called `name`, analysed.
    fn analysis(&self, name: &str) -> Value {
        tantalum(&["lab", "io-trace", &self.at(name), "--json", &self.at("analysis")]).ok();
        self.json("analysis")["traces"][0].clone()
    }
}

/// TPC-C in virtual time on two drives, with the result in `NAME.json`, and in NAME the trace, if it is wanted.
fn tpcc(files: &Files, store: &str, name: &str, is_traced: bool) {
    let (json, trace) = (files.at(&format!("{name}.json")), files.at(name));
    let mut arguments = vec!["bench", "tpcc", "--tiny", "--simulate", "--clients", "8", "--seconds", "1"];
    arguments.extend(["--warm-up", "0.2", "--buffer-pool", "512k", "--log-partitions", "2", "--json", &json]);
    // So small a log needs checkpoints, which write pages.
    arguments.extend(["--log-bytes", "4M"]);
    arguments.extend(["--data", "emulated:intel-x25e", "--log", "emulated:nvme-plp", "--page-store", store]);
    if is_traced {
        arguments.extend(["--io-trace", &trace]);
    }
    tantalum(&arguments).ok();
}

/// The sum of a field of the operations of these kinds, on devices of these uses.
fn sum(trace: &Value, uses: &[&str], kinds: &[&str], field: &str) -> u64 {
    let devices = trace["devices"].as_array().unwrap().iter();
    let devices = devices.filter(|device| uses.contains(&device["used_for"].as_str().unwrap()));
    let operations = devices.flat_map(|device| device["operations"].as_array().unwrap());
    let wanted = operations.filter(|operation| kinds.contains(&operation["operation"].as_str().unwrap()));
    wanted.map(|operation| operation[field].as_u64().unwrap()).sum()
}

/// The commands that the drive gets for all writes: two for one of more than its largest.
fn write_commands(trace: &Value, uses: &[&str]) -> u64 {
    const LARGEST_COMMAND: u64 = 128 << 10;
    let devices = trace["devices"].as_array().unwrap().iter();
    let devices = devices.filter(|device| uses.contains(&device["used_for"].as_str().unwrap()));
    let operations = devices.flat_map(|device| device["operations"].as_array().unwrap());
    let writes = operations.filter(|operation| WRITES.contains(&operation["operation"].as_str().unwrap()));
    let classes = writes.flat_map(|write| write["sizes"].as_array().unwrap());
    let commands = classes.map(|class| {
        let up_to_bytes = class["up_to_bytes"].as_u64().unwrap();
        assert!(up_to_bytes <= 2 * LARGEST_COMMAND, "two are enough: {class}");
        class["requests"].as_u64().unwrap() * up_to_bytes.div_ceil(LARGEST_COMMAND)
    });
    commands.sum()
}

const WRITES: [&str; 3] = ["write", "durable-write", "delivered-write"];

#[test]
fn a_trace_counts_what_the_devices_count_and_changes_nothing() {
    for store in ["in-place", "log-structured"] {
        let files = Files::new();
        tpcc(&files, store, "untraced", false);
        tpcc(&files, store, "traced", true);
        tpcc(&files, store, "again", true);
        assert_eq!(files.read("untraced.json"), files.read("traced.json"), "{store}: the same result");
        assert!(files.read("traced") == files.read("again"), "{store}: the same trace");

        let (trace, result) = (files.analysis("traced"), files.json("traced.json"));
        for (name, uses) in [("emulated:nvme-plp", &["log"][..]), ("emulated:intel-x25e", &["data", "double-write"])] {
            let devices = result["emulated_devices"].as_array().unwrap();
            let device = devices.iter().find(|device| device["name"] == name).unwrap();
            for (counter, kinds, field) in [
                ("host_written_bytes", &WRITES[..], "bytes"),
                ("host_reads", &["read"], "requests"),
                ("host_read_bytes", &["read"], "bytes"),
                ("flushes", &["flush"], "requests"),
            ] {
                let (traced, counted) = (sum(&trace, uses, kinds, field), device[counter].as_u64().unwrap());
                assert_eq!(traced, counted, "{store}: {counter} of {name}");
                // The log is written only, and to a drive whose cache survives.
                assert!(counted > 0 || name == "emulated:nvme-plp", "{store}: no {counter} of {name}");
            }
            let commands = write_commands(&trace, uses);
            assert_eq!(Some(commands), device["host_writes"].as_u64(), "{store}: writes of {name}");
        }
        let transactions = trace["totals"]["transactions"].as_u64().unwrap();
        assert!(transactions > result["run"]["total"]["committed"].as_u64().unwrap(), "with those of the warm-up");
        assert_eq!(transactions, result["run"]["ended"].as_u64().unwrap());
        assert_eq!(trace["totals"]["pages_stored"], result["database"]["store"]["pages_stored"]);
        let medium = &trace["totals"]["media"][1];
        assert_eq!(medium["medium_bytes"], result["emulated_devices"][1]["media_written_bytes"]);
        assert_eq!(medium["writes"], result["emulated_devices"][1]["host_writes"]);
    }
}

/// The study's Figure 12, in numbers.
#[test]
fn in_place_writes_are_scattered_and_appends_are_not() {
    let files = Files::new();
    let share = |store: &str| {
        tpcc(&files, store, store, true);
        let trace = files.analysis(store);
        let data =
            trace["devices"].as_array().unwrap().iter().find(|device| device["used_for"] == "data").unwrap().clone();
        let count = |field: &str| data["writes"][field].as_f64().unwrap();
        assert!(count("requests") > 20.0, "{store}: {data}");
        count("sequential") / count("requests")
    };
    let (in_place, appends) = (share("in-place"), share("log-structured"));
    assert!(in_place < 0.5 && appends > 0.9, "{in_place} {appends}");
}

#[test]
fn every_benchmark_can_be_traced() {
    let files = Files::new();
    let simulated = ["--simulate", "--data", "emulated:intel-x25e"];
    let quick = ["--seconds", "0.2", "--buffer-pool", "1M"];
    let graph = ["linkbench", "--nodes", "500", "--log", "emulated:mtron"];
    let records = ["ycsb", "--records", "500", "--log", "emulated:mtron", "--archive", "emulated:mtron"];
    let documents = ["ycsb", "--records", "500", "--store", "append-only"];
    let keys = ["kv", "--keys", "500", "--clients", "2", "--rounds", "2", "--log", "emulated:mtron"];
    for (workload, uses) in [
        (&graph[..], &["data", "double-write", "log"][..]),
        (&records, &["data", "double-write", "log", "archive"]),
        (&documents, &["data"]),
        (&keys, &["data", "double-write", "log"]),
    ] {
        let trace = files.at("trace");
        tantalum(&[&["bench"], workload, &simulated, &quick, &["--io-trace", &trace]].concat()).ok();
        let trace = files.analysis("trace");
        let devices: Vec<_> = trace["devices"].as_array().unwrap().iter().map(|one| one["used_for"].clone()).collect();
        assert_eq!(devices, uses, "{workload:?}");
        assert!(trace["totals"]["transactions"].as_u64().unwrap() > 100, "{workload:?}: {}", trace["totals"]);
        let last = uses.last().unwrap();
        assert!(sum(&trace, &[last], &WRITES, "requests") > 0, "{workload:?}: {trace}");
    }
}

#[test]
fn files_of_a_directory_are_traced_in_real_time() {
    let files = Files::new();
    let (dir, trace, plots) = (files.at("db"), files.at("trace"), files.at("plots"));
    let bench = ["bench", "tpcc", "--tiny", "--clients", "2", "--seconds", "0.3", "--dir", &dir];
    // The log is one file throughout.
    let log = ["--log-bytes", "4M", "--log-initial-bytes", "4M"];
    tantalum(&[&bench[..], &log, &["--io-trace", &trace]].concat()).ok();
    let shown = String::from_utf8(tantalum(&["lab", "io-trace", &trace, "--plot", &plots]).ok()).unwrap();
    for word in ["2 clients", "log", "write", "p99", "<= 4 KiB", "begin where the last ended", "a transaction takes"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let svg = |name: &str| fs::read_to_string(Path::new(&plots).join(name)).unwrap();
    assert!(svg("addresses-of-log.svg").contains("writes") && svg("request-sizes.svg").contains("log: "));

    // Of several, each has plots of its own.
    tantalum(&["lab", "io-trace", &trace, &trace, "--plot", &plots]).ok();
    assert_eq!(svg("1-addresses-of-log.svg"), svg("2-addresses-of-log.svg"));
}

#[test]
fn damaged_traces_are_refused_with_the_place() {
    let files = Files::new();
    tpcc(&files, "in-place", "trace", true);
    let trace = files.read("trace");
    let mut flipped = trace.clone();
    flipped[5000] ^= 1;
    fs::write(files.at("cut"), &trace[..trace.len() / 2]).unwrap();
    fs::write(files.at("flipped"), flipped).unwrap();
    fs::write(files.at("empty"), []).unwrap();
    let remedy = "bench tpcc --io-trace";
    tantalum(&["lab", "io-trace", &files.at("cut")]).fails(&["cut", "ends too early", "at byte", remedy]);
    tantalum(&["lab", "io-trace", &files.at("flipped")]).fails(&["flipped", "checksum", "at byte", remedy]);
    tantalum(&["lab", "io-trace", &files.at("empty")]).fails(&["empty", "ends too early", "at byte 0", remedy]);
    tantalum(&["lab", "io-trace", &files.at("missing")]).fails(&["missing", "check that the file exists"]);
    tantalum(&["lab", "trace", &files.at("trace")]).fails(&["tantalum lab io-trace"]);
    let nowhere = files.at("no/such/place");
    tantalum(&["bench", "tpcc", "--tiny", "--simulate", "--io-trace", &nowhere]).fails(&["no/such/place"]);
}
