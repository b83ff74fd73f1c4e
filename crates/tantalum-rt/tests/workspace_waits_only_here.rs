//! The rule that makes the whole workspace simulable: only this crate uses the standard library's threads, clocks and
//! locks, or `parking_lot`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What no other crate may mention. A standard channel may be sent to and polled, which never waits.
const FORBIDDEN: [&str; 13] = [
    "std::thread",
    "std::time::Instant",
    "Instant::now",
    "SystemTime::now",
    "parking_lot",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::Barrier",
    "std::sync::Once;",
    "sync_channel",
    ".recv()",
    "recv_timeout",
];

/// What no other crate may import from `std`, in whichever nesting of braces.
const FORBIDDEN_IMPORTS: [&str; 6] = ["thread", "Instant", "Mutex", "RwLock", "Condvar", "Barrier"];

#[test]
fn no_other_crate_waits_by_itself() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut offences = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let directory = entry.unwrap().path();
        if directory.file_name().unwrap() == "tantalum-rt" {
            continue;
        }
        for part in ["src", "tests", "benches", "examples"] {
            // Examples of the engine are programs of its users, which have the standard library alone.
            if part == "examples" && directory.file_name().unwrap() == "tantalum" {
                continue;
            }
            let files = if directory.join(part).is_dir() { rust_files(&directory.join(part)) } else { Vec::new() };
            for file in files {
                let code = code_only(&fs::read_to_string(&file).unwrap());
                // Tests keep notes of their own behind one, which no task holds while another runs.
                let found =
                    offences_in(&code).into_iter().filter(|what| part != "tests" || what != "imports std's `Mutex`");
                offences.extend(found.map(|what| format!("{}: {what}", file.display())));
            }
        }
    }
    offences.sort();
    assert!(offences.is_empty(), "use tantalum-rt instead:\n{}", offences.join("\n"));
}

#[test]
fn the_rule_sees_nested_imports() {
    let of = |code: &str| offences_in(&code_only(code)).len();
    assert_eq!(of("use std::{\n    io,\n    sync::{Arc, Mutex},\n};"), 1);
    assert_eq!(of("let t = std::time::SystemTime::now();"), 1);
    assert_eq!(of("use std::sync::{Arc, atomic::AtomicU64};\nuse tantalum_rt::{Instant, Mutex};"), 0);
    assert_eq!(of("// not std::thread\n    /// nor parking_lot"), 0);
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("the source can be listed") {
        let path = entry.expect("the source can be listed").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn code_only(source: &str) -> String {
    source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn offences_in(code: &str) -> Vec<String> {
    let mentioned = FORBIDDEN.iter().filter(|what| code.contains(**what)).map(|what| format!("mentions `{what}`"));
    let imports = code.split("use std::").skip(1).filter_map(|rest| rest.split(';').next());
    let names = imports.flat_map(|import| import.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let imported = names.filter(|name| FORBIDDEN_IMPORTS.contains(name)).map(|name| format!("imports std's `{name}`"));
    mentioned.chain(imported).collect()
}
