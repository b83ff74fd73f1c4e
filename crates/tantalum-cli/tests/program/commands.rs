//! What the commands print, and how they end.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{make_database, tantalum, tantalum_with_input};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn json(output: &[u8]) -> serde_json::Value {
    serde_json::from_slice(output).unwrap()
}

#[test]
fn a_dump_of_a_loaded_dump_is_the_same_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second, third) = (dir.path().join("1"), dir.path().join("2"), dir.path().join("3"));
    make_database(&first);
    {
        let db = tantalum::Db::open(&first).unwrap();
        let films = db.table("films").unwrap();
        let mut tx = db.begin().unwrap();
        // More than a record of the log has.
        tx.put(&films, "metropolis", (0..3_000_000u32).map(|at| (at / 7) as u8).collect::<Vec<_>>()).unwrap();
        tx.commit().unwrap();
        db.close().unwrap();
    }
    let dump = tantalum(&["db", "dump", &text(&first)]).ok();
    assert!(dump.starts_with(b"tantalum-dump 1\ntable "));
    assert!(dump.len() > 3_000_000);

    tantalum_with_input(&["db", "load", &text(&second)], &dump).ok();
    assert_eq!(tantalum(&["db", "dump", &text(&second)]).ok(), dump);

    let file = dir.path().join("dump");
    tantalum(&["db", "dump", &text(&second), "--output", &text(&file)]).ok();
    assert_eq!(fs::read(&file).unwrap(), dump);
    tantalum(&["db", "dump", &text(&second), "--output", &text(&file)]).fails(&["exists"]);
    tantalum(&["db", "load", &text(&third), "--input", &text(&file)]).ok();
    tantalum(&["db", "load", &text(&third), "--input", &text(&file)]).fails(&["exists already", "--merge"]);
    tantalum(&["db", "load", &text(&third), "--input", &text(&file), "--merge"]).ok();
    assert_eq!(tantalum(&["db", "dump", &text(&third)]).ok(), dump);

    let names = tantalum(&["db", "dump", &text(&third), "--table", "names"]).ok();
    assert!(names.len() < dump.len());
    tantalum(&["db", "dump", &text(&third), "--table", "unknown"]).fails(&["\"unknown\"", "list the tables"]);
    // A dump that failed leaves nothing.
    let not_made = dir.path().join("out").join("dump");
    fs::create_dir(dir.path().join("out")).unwrap();
    tantalum(&["db", "dump", &text(&third), "--table", "unknown", "-o", &text(&not_made)]).fails(&["list the tables"]);
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 0);
    tantalum(&["db", "dump", &text(&third), "-o", &text(&dir.path().join("no/such/place"))]).fails(&["no/such/place"]);
}

#[test]
fn a_damaged_dump_file_loads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second, file) = (dir.path().join("1"), dir.path().join("2"), dir.path().join("dump"));
    make_database(&first);
    let mut dump = tantalum(&["db", "dump", &text(&first)]).ok();
    let place = dump.len() / 2;
    dump[place] ^= 4;
    fs::write(&file, &dump).unwrap();
    tantalum(&["db", "load", &text(&second), "--input", &text(&file)]).fails(&["dump", "line"]);
    assert!(!second.exists());
    fs::write(&file, &dump[..place]).unwrap();
    tantalum(&["db", "load", &text(&second), "--input", &text(&file)]).fails(&["cut short"]);
}

#[test]
fn commands_describe_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let (db, copy) = (dir.path().join("db"), dir.path().join("copy"));
    make_database(&db);
    let checked = String::from_utf8(tantalum(&["db", "check", &text(&db)]).ok()).unwrap();
    assert!(checked.contains("names") && checked.ends_with(&format!("{} is sound\n", text(&db))), "{checked}");
    tantalum(&["db", "stat", &text(&db)]).ok();
    assert!(json(&tantalum(&["db", "stat", &text(&db), "--json"]).ok()).is_object());
    assert!(json(&tantalum(&["db", "check", &text(&db), "--json"]).ok()).is_object());
    let tables = json(&tantalum(&["db", "tables", &text(&db), "--json"]).ok());
    let rows: u64 = tables.as_array().unwrap().iter().map(|table| table["rows"].as_u64().unwrap()).sum();
    assert_eq!(rows, 210);

    tantalum(&["db", "backup", &text(&db), &text(&copy)]).ok();
    assert_eq!(tantalum(&["db", "dump", &text(&copy)]).ok(), tantalum(&["db", "dump", &text(&db)]).ok());
    tantalum(&["db", "backup", &text(&db), &text(&copy)]).fails(&["copy"]);
}

#[test]
fn commands_describe_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    make_database(&db);
    let by_directory = json(&tantalum(&["log", "inspect", &text(&db), "--json"]).ok());
    let by_path = json(&tantalum(&["log", "inspect", &text(&db.join("log-0")), "--json"]).ok());
    assert_eq!(by_directory, by_path);
    assert_eq!(by_directory["devices"].as_array().unwrap().len(), 1);
    tantalum(&["log", "inspect", &text(&db), "--requests"]).ok();
    let verified = json(&tantalum(&["log", "verify", &text(&db), "--json"]).ok());
    assert_eq!(verified["damage"].as_array().unwrap().len(), 0);
}

#[test]
fn commands_describe_and_prune_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let (db, archive) = (dir.path().join("db"), dir.path().join("archive"));
    make_database(&db);
    tantalum(&["log", "archive", "list", &text(&db)]).fails(&["log_archive"]);
    let settings = fs::read_to_string(db.join("tantalum.toml")).unwrap();
    fs::write(db.join("tantalum.toml"), format!("{settings}log_archive = {:?}\n", text(&archive))).unwrap();
    let open = || tantalum::Db::open(&db).unwrap();
    let fill = |database: &tantalum::Db| {
        let table = database.table("names").unwrap();
        for n in 0..20u32 {
            let mut transaction = database.begin().unwrap();
            transaction.put(&table, n.to_be_bytes(), [n as u8; 1000]).unwrap();
            transaction.commit().unwrap();
        }
    };
    // Each session begins a segment.
    for _ in 0..3 {
        let database = open();
        fill(&database);
        database.close().unwrap();
    }
    let database = open();
    fill(&database);
    let list = json(&tantalum(&["log", "archive", "list", &text(&archive), "--json"]).ok());
    let by_directory = json(&tantalum(&["log", "archive", "list", &text(&db), "--json"]).ok());
    assert_eq!(list["log_id"], by_directory["log_id"]);
    assert!(list["segments"].as_array().unwrap().len() >= 3);
    tantalum(&["log", "archive", "list", &text(&archive)]).ok();
    let verified = json(&tantalum(&["log", "archive", "verify", &text(&archive), "--json"]).ok());
    assert_eq!(verified["damage"].as_array().unwrap().len(), 0);
    assert!(verified["records"].as_u64().unwrap() > 20);
    database.close().unwrap();
    let oldest = list["segments"][0]["place"].as_str().unwrap();
    let intact = fs::read(oldest).unwrap();
    let damaged: Vec<u8> = intact.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 4096 + 100)).collect();
    fs::write(oldest, damaged).unwrap();
    let run = tantalum(&["log", "archive", "verify", &text(&archive)]);
    let said = String::from_utf8(run.out.clone()).unwrap();
    assert!(said.contains(oldest) && said.contains("offset 4096"), "{said}");
    run.fails(&["damaged in 1 places"]);
    fs::write(oldest, intact).unwrap();

    let prune = |more: &[&str]| {
        let archive = text(&archive);
        let arguments = [&["log", "archive", "prune", &archive, "--json"][..], more].concat();
        json(&tantalum(&arguments).ok())
    };
    let count = |pruned: &serde_json::Value| pruned["removed"].as_array().unwrap().len();
    assert_eq!(count(&prune(&["--keep-hours", "1"])), 0);
    let dry = prune(&["--keep-bytes", "0", "--dry-run"]);
    assert!(count(&dry) >= 2);
    let pruned = prune(&["--keep-bytes", "0"]);
    assert_eq!(count(&pruned), count(&dry));
    assert_eq!(count(&prune(&["--keep-bytes", "0"])), 0);
    assert_eq!(tantalum(&["log", "archive", "prune", &text(&archive)]).code, Some(2), "what to keep must be said");

    tantalum(&["log", "archive", "verify", &text(dir.path())]).fails(&["not an archive"]);
}

#[test]
fn a_device_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let found = json(&tantalum(&["device", "show", &text(dir.path()), "--json"]).ok());
    assert!(found["logical_block_bytes"].as_u64().unwrap() >= 512);
    assert!(!found["advice"].as_array().unwrap().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    tantalum(&["device", "show", "/nowhere/at/all"]).fails(&["/nowhere/at/all"]);
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    make_database(&db);
    let mut child = Command::new(env!("CARGO_BIN_EXE_tantalum"))
        .args(["db", "dump", &text(&db)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_command_line_that_makes_no_sense_has_exit_code_two() {
    for arguments in [&["db"][..], &["db", "dump"], &["crash", "--seeds", "9..3"], &["crash", "--only", "luck"], &["x"]]
    {
        assert_eq!(tantalum(arguments).code, Some(2), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["db", "load", "--help"], &["crash", "--help"], &["--version"]] {
        tantalum(arguments).ok();
    }
}

#[test]
fn a_few_seeds_of_the_crash_search_pass() {
    let dir = tempfile::tempdir().unwrap();
    let result = dir.path().join("result.json");
    let run = |jobs| {
        tantalum(&["crash", "--seeds", "0..6", "--jobs", jobs, "--json", &text(&result)]).ok();
        json(&fs::read(&result).unwrap())
    };
    let (first, second) = (run("1"), run("2"));
    assert_eq!(first["failures"].as_array().unwrap().len(), 0);
    assert!(first["report"]["counts"]["power cuts"].as_u64().unwrap() > 0);
    let fingerprint = |run: &serde_json::Value| run["report"]["fingerprint"].clone();
    assert_eq!(fingerprint(&first), fingerprint(&second), "the same seeds do the same, to the byte");

    // What a device would lose.
    let lossy = ["crash", "--seeds", "0..4", "--profile", "durassd", "--no-faults", "--capacitors", "0"];
    tantalum(&lossy).fails(&["seeds failed"]);
    tantalum(&["crash", "--profile", "luck"]).fails(&["luck", "durassd"]);
    let plan = dir.path().join("plan.toml");
    fs::write(&plan, "[rates]\nluck = 1.0\n").unwrap();
    tantalum(&["crash", "--faults", &text(&plan)]).fails(&["plan.toml", "luck"]);
}

#[test]
fn device_bench_measures_a_file_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&dir.path().join(name));
    let bench = |path: &str, options: &[&str]| {
        let quick = ["device", "bench", path, "--size", "8M", "--operations", "50", "--seconds", "0.05"];
        tantalum(&[&quick[..], options].concat())
    };
    let (own, results, plots) = (at("own"), at("results.json"), at("plots"));
    let run = bench(&own, &["--json", &results, "--svg", &plots, "--only", "back-to-back", "--only", "mixed"]);
    let output = String::from_utf8(run.ok()).unwrap();
    for word in ["logical block", "seed 42", "mixed", "back-to-back", "p99.9"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    assert!(!Path::new(&own).exists());
    let found = json(&fs::read(&results).unwrap());
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
    assert_eq!(found["configuration"]["seed"], 42);
    for plot in ["plots/mixed.svg", "plots/back-to-back.svg"] {
        assert!(fs::read_to_string(at(plot)).unwrap().starts_with("<svg"));
    }

    // In a directory, then on something that exists.
    bench(&text(dir.path()), &["--only", "overlapping"]).ok();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "results and plots");
    fs::write(&own, vec![7; 8 << 20]).unwrap();
    bench(&own, &["--only", "overlapping"]).fails(&["exists", "--destroy-contents"]);
    assert!(fs::read(&own).unwrap().iter().all(|&byte| byte == 7));
    bench(&own, &["--only", "overlapping", "--destroy-contents"]).ok();
    assert!(fs::read(&own).unwrap().iter().any(|&byte| byte != 7));
    bench(&own, &["--only", "all"]).fails(&["\"all\"", "random-read"]);
    tantalum(&["device", "bench", &at("new"), "--size", "4k"]).fails(&["too few"]);
}

#[test]
fn emulated_devices_are_listed_shown_and_measured() {
    let list = json(&tantalum(&["device", "list", "--json"]).ok());
    let names: Vec<_> = list.as_array().unwrap().iter().map(|profile| profile["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"durassd"), "{names:?}");
    for name in names {
        let shown = String::from_utf8(tantalum(&["device", "show", name]).ok()).unwrap();
        assert!(shown.contains("fitted") && shown.contains("capacity"), "{shown}");
    }
    let bench = |path: &str| {
        let quick = ["--size", "16M", "--operations", "200", "--only", "writes-per-flush"];
        tantalum(&[&["device", "bench", path], &quick[..]].concat())
    };
    let measured = bench("durassd").ok();
    assert!(String::from_utf8(measured.clone()).unwrap().contains("virtual time"));
    let named_so = bench("emulated:durassd").ok();
    let lines = |output: &[u8]| {
        String::from_utf8(output.to_vec()).unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&measured), lines(&named_so), "the same seed measures the same");
    bench("emulated:nobody").fails(&["nobody", "durassd"]);
}

#[test]
fn raw_flash_is_measured_by_its_own_rules() {
    let dir = tempfile::tempdir().unwrap();
    let (file, plots) = (text(&dir.path().join("results.json")), text(&dir.path().join("plots")));
    let bench = |only: &str| {
        let quick = ["--operations", "100", "--json", &file, "--svg", &plots, "--only", only];
        tantalum(&[&["device", "bench", "nand-k9wag08u1a"], &quick[..]].concat())
    };
    let shown = String::from_utf8(bench("operations").ok()).unwrap();
    assert!(shown.contains("erase a block") && shown.contains("1.50 ms"), "{shown}");
    bench("planes-program").ok();
    let results = json(&fs::read(&file).unwrap());
    assert_eq!(results["configuration"]["layout"]["page_bytes"], 2048);
    assert_eq!(results["results"][0]["rows"][1]["job"]["planes"], 2);
    assert!(fs::read_to_string(dir.path().join("plots/planes-program.svg")).unwrap().contains("requests per second"));
    bench("two-streams").fails(&["two-streams", "operations, sequential-read"]);
}

#[test]
fn the_lab_lists_what_is_published_and_runs_it() {
    let list = json(&tantalum(&["lab", "list", "--json"]).ok());
    let listed = String::from_utf8(tantalum(&["lab", "list"]).ok()).unwrap();
    for published in list.as_array().unwrap() {
        assert!(listed.contains(published["id"].as_str().unwrap()), "{published}: {listed}");
    }
    assert!(listed.contains("ipl.table3.queries"), "{listed}");

    let dir = tempfile::tempdir().unwrap();
    let file = text(&dir.path().join("results.json"));
    let shown = String::from_utf8(tantalum(&["lab", "run", "fl.ssd.peak*", "--json", &file]).ok()).unwrap();
    for word in ["published", "measured", "deviation", "fitted", "250"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let results = json(&fs::read(&file).unwrap());
    assert_eq!(results["experiments"][0]["id"], "fl.ssd.peak_bandwidth");
    assert_eq!(results["experiments"][0]["findings"]["comparisons"].as_array().unwrap().len(), 3);
    tantalum(&["lab", "run", "nothing"]).fails(&["nothing", "lab list"]);
}

#[test]
fn the_tables_of_a_document_are_written_from_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let id = "fl.fig3.disk_small_write";
    tantalum(&["lab", "run", id, "--json", &at("json")]).ok();
    let document = "Before.\n<!-- results fl.fig3* -->\nold\n<!-- end -->\nAfter.\n";
    fs::write(at("results.md"), document).unwrap();
    let report = ["lab", "report", "--from", &at("json"), "--markdown", &at("results.md")];
    tantalum(&report).ok();
    let filled = fs::read_to_string(at("results.md")).unwrap();
    assert!(filled.starts_with("Before.\n") && filled.ends_with("<!-- end -->\nAfter.\n"), "{filled}");
    assert!(filled.contains("| `fl.fig3.disk_small_write` | 3 numbers | 6.00 ms |") && !filled.contains("old"));
    fs::write(at("results.md"), document.replace("fl.fig3*", "fl.fig3* ds.*")).unwrap();
    tantalum(&report).fails(&["ds.*", "not among the results"]);
    assert!(fs::read_to_string(at("results.md")).unwrap().contains("old"), "a document is not emptied");
    let refused = tantalum(&["lab", "report", "--from", &at("json")]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("--out"), "{}", refused.err);
}

#[test]
fn a_run_is_traced_and_the_trace_analysed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&dir.path().join(name));
    let bench = |trace: &str| {
        let options =
            ["--clients", "4", "--seconds", "1", "--buffer-pool", "1M", "--page-size", "8k", "--trace", trace];
        tantalum(&[&["bench", "tpcc", "--tiny", "--simulate"], &options[..]].concat()).ok();
        fs::read(trace).unwrap()
    };
    let trace = bench(&at("trace"));
    assert!(bench(&at("again")) == trace, "the same run, the same trace");

    let analyse = ["lab", "trace", &at("trace"), "--json", &at("json"), "--plot", &at("plots")];
    let shown = String::from_utf8(tantalum(&analyse).ok()).unwrap();
    for word in ["1 warehouse", "4 clients", "pages of 8 KiB", "buffer pool of 1 MiB", "t_IPL", "whole page"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let result = json(&fs::read(dir.path().join("json")).unwrap());
    let traced = &result["traces"][0];
    let count = |kind: &str| traced[kind]["count"].as_u64().unwrap();
    assert!(count("inserts") > 100 && count("updates") > 100 && count("deletes") > 10, "{traced}");
    assert_eq!(traced["by_count"]["regions"].as_array().unwrap().len(), 8);
    assert!(fs::read_to_string(dir.path().join("plots/merges.svg")).unwrap().contains("<svg"));

    // Each sector takes one change and each write takes one, so none is saved.
    let single = ["lab", "trace", &at("trace"), "--records-per-sector", "1", "--json", &at("json")];
    tantalum(&single).ok();
    let single = json(&fs::read(dir.path().join("json")).unwrap());
    let more = single["traces"][0]["by_count"]["sector_writes"].as_u64().unwrap();
    assert!(more > traced["by_count"]["sector_writes"].as_u64().unwrap());

    fs::write(at("cut"), &trace[..trace.len() / 2]).unwrap();
    tantalum(&["lab", "trace", &at("cut")]).fails(&["cut", "ends too early", "bench tpcc --trace"]);
    tantalum(&["lab", "trace", &at("missing")]).fails(&["missing", "check that the file exists"]);
    tantalum(&["bench", "tpcc", "--tiny", "--simulate", "--trace", &at("no/such/place")]).fails(&["no/such/place"]);
}

/// A dump is loaded into a database with the other page store, whose erase units can be looked at.
#[test]
fn an_erase_unit_is_shown_with_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("1"), dir.path().join("2"));
    make_database(&first);
    let dump = tantalum(&["db", "dump", &text(&first)]).ok();
    tantalum_with_input(&["db", "load", &text(&second), "--page-store", "in-page-logging"], &dump).ok();
    assert_eq!(tantalum(&["db", "dump", &text(&second)]).ok(), dump);
    let stat = json(&tantalum(&["db", "stat", &text(&second), "--json"]).ok());
    assert_eq!(stat["page_store"], "in-page-logging");
    let units = stat["store"]["in_page"]["units"].as_u64().unwrap() + 2;
    let inspect =
        |unit: u64| json(&tantalum(&["db", "inspect", &text(&second), "--unit", &unit.to_string(), "--json"]).ok());
    let is_home = |unit: &serde_json::Value| unit["purpose"] == "home" && unit["is_present"] == true;
    let home = (2..units).map(inspect).find(is_home).expect("a database has pages");
    let sectors = home["sectors"].as_array().unwrap();
    let records: Vec<_> = sectors.iter().flat_map(|sector| sector["records"].as_array().unwrap()).collect();
    // What the load has changed is not merged yet.
    assert!(!records.is_empty() && records.iter().all(|record| record["status"] == "committed"), "{records:?}");
    let unit = home["unit"].to_string();
    let shown = tantalum(&["db", "inspect", &text(&second), "--unit", &unit]).ok();
    assert!(String::from_utf8_lossy(&shown).contains("home, in use"));
    assert_eq!(inspect(0)["purpose"], "superblock");
    tantalum(&["db", "inspect", &text(&second), "--unit", &units.to_string()]).fails(&["has units 0 to"]);
    tantalum(&["db", "inspect", &text(&first), "--unit", "2"]).fails(&["in-page-logging"]);
    tantalum(&["db", "inspect", &text(&first), "--segment", "2"]).fails(&["log-structured", "in-place"]);
    let other = text(&dir.path().join("3"));
    let refused = tantalum_with_input(&["db", "load", &other, "--page-store", "elsewhere"], &dump);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

/// YCSB's baseline: what was put is there when the tree is opened again, by the same run and by the next.
#[test]
fn an_append_only_tree_is_loaded_once_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, result) = (text(&dir.path().join("tree")), text(&dir.path().join("result.json")));
    let bench = |records: &str, more: &[&str]| {
        let basic =
            ["bench", "ycsb", "--store", "append-only", "--records", records, "--dir", &tree, "--seconds", "0.2"];
        let rest = ["--clients", "2", "--tree-bytes", "256M", "--json", &result];
        tantalum(&[&basic[..], &rest, more].concat())
    };
    let tree_of = |output: &[u8]| {
        assert!(String::from_utf8_lossy(output).contains("consistency: ok"));
        json(&fs::read(dir.path().join("result.json")).unwrap())
    };
    let first = tree_of(&bench("500", &["--batch-size", "10"]).ok());
    assert!(first["load_seconds"].is_number() && first["tree"]["documents"] == 500, "{first}");
    let (updates, flushes) = (&first["tree"]["updates"], &first["tree"]["flushes"]);
    // The last flush is asked for at the end.
    assert!(flushes.as_u64().unwrap() <= updates.as_u64().unwrap() / 10 + 1, "{first}");
    let second = tree_of(&bench("500", &["--workload", "c"]).ok());
    assert!(second["load_seconds"].is_null() && second["tree"]["updates"] == 0, "{second}");
    bench("400", &[]).fails(&["500 documents", "--records"]);
    bench("500", &["--workload", "d"]).fails(&["append-only", "A, B and C"]);
    bench("500", &["--page-size", "4096"]).fails(&["page-size", "append-only"]);
    tantalum(&["bench", "ycsb", "--batch-size", "2"]).fails(&["--store append-only"]);
    let simulated = ["bench", "ycsb", "--store", "append-only", "--simulate", "--records", "500", "--seconds", "0.1"];
    tantalum(&[&simulated[..], &["--data", "emulated:durassd"]].concat()).ok();
}

/// A dump is loaded into a log-structured database, whose segments can be looked at.
#[test]
fn a_segment_is_shown_with_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("1"), dir.path().join("2"));
    make_database(&first);
    let dump = tantalum(&["db", "dump", &text(&first)]).ok();
    tantalum_with_input(&["db", "load", &text(&second), "--page-store", "log-structured"], &dump).ok();
    assert_eq!(tantalum(&["db", "dump", &text(&second)]).ok(), dump);
    tantalum(&["db", "check", &text(&second)]).ok();
    let stat = json(&tantalum(&["db", "stat", &text(&second), "--json"]).ok());
    assert_eq!(stat["page_store"], "log-structured");
    let segments = stat["store"]["log_structured"]["segments"].as_u64().unwrap();
    let inspect = |segment: u64| {
        json(&tantalum(&["db", "inspect", &text(&second), "--segment", &segment.to_string(), "--json"]).ok())
    };
    let is_written = |segment: &serde_json::Value| segment["state"] == "closed";
    let written = (0..segments).map(inspect).find(is_written).expect("a database has pages");
    let entries: Vec<_> = written["appends"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|append| append["entries"].as_array().unwrap())
        .filter(|entry| entry["is_live"] == true)
        .collect();
    assert!(!entries.is_empty(), "{written}");
    let shown = tantalum(&["db", "inspect", &text(&second), "--segment", &written["segment"].to_string()]).ok();
    assert!(String::from_utf8_lossy(&shown).contains("closed, "));
    tantalum(&["db", "inspect", &text(&second), "--segment", &segments.to_string()]).fails(&["has segments 0 to"]);
    let neither = tantalum(&["db", "inspect", &text(&second)]);
    assert!(neither.code == Some(2) && neither.err.contains("--unit"), "{}", neither.err);
}

#[test]
fn an_interrupted_benchmark_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    // While it loads, which takes far longer than it is given.
    let mut bench = Command::new(env!("CARGO_BIN_EXE_tantalum"))
        .args(["bench", "ycsb", "--records", "100000000"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(bench.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("opened tantalum-bench-"), "{line}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    rustix::process::kill_process(rustix::process::Pid::from_child(&bench), rustix::process::Signal::INT).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn completions_and_manual_pages_cover_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "fish", "zsh"] {
        let script = String::from_utf8(tantalum(&["completions", shell]).ok()).unwrap();
        assert!(script.contains("compact") && script.contains("rounds"), "{shell}");
    }
    let pages = dir.path().join("man");
    tantalum(&["man", &text(&pages)]).ok();
    let page = fs::read_to_string(pages.join("tantalum-db-compact.1")).unwrap();
    assert!(page.contains("Give space back"), "{page}");
    tantalum(&["man", &text(&pages.join("tantalum.1"))]).fails(&["tantalum.1"]);
}
