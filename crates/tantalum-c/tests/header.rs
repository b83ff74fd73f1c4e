//! `include/tantalum.h` is generated: `WRITE_DOCS=1 cargo test -p tantalum-c --test header`. Every function is explained in it.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{fs, path::Path};

/// The modules, in the order in which a reader of the header needs them.
const MODULES: [&str; 6] = ["status", "bytes", "database", "transaction", "snapshot", "cursor"];

fn generated() -> String {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_directory.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in MODULES {
        builder = builder.with_src(crate_directory.join(format!("src/{module}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tantalum.h");
    let generated = generated();
    if std::env::var_os("WRITE_DOCS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == generated,
        "include/tantalum.h is out of date: WRITE_DOCS=1 cargo test -p tantalum-c --test header"
    );
}

#[test]
fn every_exported_function_is_in_the_header_and_says_how_it_fails() {
    let header = generated();
    for module in MODULES {
        let source =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{module}.rs"))).unwrap();
        let exported = source.split("#[unsafe(no_mangle)]").skip(1);
        for (text, before) in exported.zip(source.split("#[unsafe(no_mangle)]")) {
            let name = text.split_once("extern \"C\" fn ").unwrap().1.split_once('(').unwrap().0;
            assert!(header.contains(&format!(" {name}(")) || header.contains(&format!("*{name}(")), "{name}");
            let doc = before.rsplit("\n\n").next().unwrap();
            assert!(
                doc.contains("Returns TANTALUM_") || doc.contains("Returns what") || doc.contains("Never fails"),
                "{name}: {doc}"
            );
        }
    }
}
