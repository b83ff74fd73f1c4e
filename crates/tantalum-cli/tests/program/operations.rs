//! `bench linkbench` and `bench ycsb`: the same result for the same seed, databases that stay, and what they refuse.

use std::fs;

use crate::common::tantalum;

const LINKBENCH: [&str; 4] = ["bench", "linkbench", "--nodes", "300"];
const YCSB: [&str; 6] = ["bench", "ycsb", "--records", "400", "--field-bytes", "20"];

#[test]
fn the_same_seed_gives_the_same_result_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("result.json").display().to_string();
    let workloads = ["a", "B", "c", "d", "e", "f"].map(|name| [&YCSB[..], &["--workload", name]].concat());
    for bench in [LINKBENCH.to_vec()].into_iter().chain(workloads) {
        let measure = |seed| {
            let options = ["--simulate", "--log", "emulated:durassd", "--clients", "6", "--seconds", "0.05"];
            let output = [&["--async-depth", "3", "--seed", seed, "--json", &file][..], &options].concat();
            let shown = String::from_utf8(tantalum(&[&bench[..], &output].concat()).ok()).unwrap();
            assert!(shown.contains("each keeps 3 commits under way") && shown.contains("p99.9"), "{shown}");
            fs::read(&file).unwrap()
        };
        let first = measure("1");
        assert!(measure("1") == first, "{bench:?}: the same command, the same JSON");
        assert!(measure("2") != first, "{bench:?}");
        let result: serde_json::Value = serde_json::from_slice(&first).unwrap();
        assert_eq!(result["benchmark"], bench[1]);
        assert_eq!(result["is_consistent"], true);
        assert!(result["run"]["total"]["committed"].as_u64().unwrap() > 50, "{result}");
        assert!(result["run"]["total"]["latency"]["p75_us"].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn a_database_is_used_again_with_its_parameters_only() {
    let dir = tempfile::tempdir().unwrap();
    let small = |name: &str| {
        let db = dir.path().join(name).display().to_string();
        move |options: &[&str]| {
            let place = ["--dir", &db, "--seconds", "0.1", "--clients", "3", "--log-bytes", "4M"];
            tantalum(&[options, &place].concat())
        }
    };
    for (bench, other, parameters) in [
        (&LINKBENCH[..], ["--nodes", "301"], "300 nodes"),
        (&YCSB[..], ["--records", "500"], "400 records of 10 fields"),
    ] {
        let run = small(bench[1]);
        run(&[bench, &["--reuse"]].concat()).fails(&["no database here"]);
        let first = String::from_utf8(run(bench).ok()).unwrap();
        assert!(first.contains("loaded in") && first.contains(parameters), "{first}");
        let again = String::from_utf8(run(&[bench, &["--reuse"]].concat()).ok()).unwrap();
        assert!(again.contains("the database was loaded before"), "{again}");
        run(&[&bench[..2], &other].concat()).fails(&[parameters, other[1]]);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for (options, words) in [
        (&["bench", "linkbench", "--nodes", "0"][..], &["nodes = 0", "1 to"][..]),
        (&["bench", "ycsb", "--fields", "0"], &["fields = 0"]),
        (&["bench", "ycsb", "--fields", "1000", "--field-bytes", "60000"], &["1 MiB"]),
        (&["bench", "ycsb", "--seconds=-1"], &["--seconds -1"]),
    ] {
        tantalum(&[options, &["--simulate"]].concat()).fails(words);
    }
    for usage in [&["linkbench", "--clients", "0"][..], &["ycsb", "--async-depth", "0"], &["ycsb", "--workload", "g"]] {
        assert_eq!(tantalum(&[&["bench"], usage].concat()).code, Some(2), "{usage:?}");
    }
}
