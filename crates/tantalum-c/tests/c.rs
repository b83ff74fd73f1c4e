//! The C programs, compiled by `cc` against the library and run: `tests/c/api.c`, which calls every function, also with
//! AddressSanitizer, and the example.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What a static library of Rust needs of the system.
const SYSTEM: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// Whether there is a C compiler. Where there is none, the tests say so and check nothing.
fn has_cc() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no C compiler `cc`");
    }
    found
}

/// The newest static library that cargo has made for these tests.
fn library() -> PathBuf {
    let built = std::env::current_exe().unwrap();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libtantalum_c") && name.ends_with(".a")
    };
    let files = fs::read_dir(built.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(is_library).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the static library beside the test")
}

/// Compiles a program, or says why the compiler does not.
fn compile(source: &str, to: &Path, flags: &[&str]) -> Result<(), String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
        .args(flags)
        .arg("-I")
        .arg(directory.join("include"))
        .arg(directory.join(source))
        .arg(library())
        .args(SYSTEM)
        .arg("-o")
        .arg(to)
        .output()
        .unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn run_api(flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("api");
    compile("tests/c/api.c", &program, flags).unwrap();
    let output = Command::new(&program).arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_function_does_what_the_header_says() {
    if has_cc() {
        run_api(&[]);
    }
}

#[test]
fn address_sanitizer_finds_no_leak_and_no_bad_access() {
    if !has_cc() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sanitizer = "-fsanitize=address";
    let empty = directory.path().join("empty.c");
    fs::write(&empty, "int main(void) { return 0; }\n").unwrap();
    let tried = Command::new("cc").arg(sanitizer).arg(&empty).arg("-o").arg(directory.path().join("empty")).output();
    if !tried.unwrap().status.success() {
        println!("skipped: `cc` has no AddressSanitizer");
        return;
    }
    run_api(&[sanitizer]);
}

#[test]
fn the_example_is_a_shell() {
    if !has_cc() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("shell");
    compile("examples/shell.c", &program, &[]).unwrap();
    let mut shell = Command::new(&program)
        .arg(directory.path().join("accounts.db"))
        .arg("accounts")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script =
        "put alice 100\nadd alice -30\nadd bob 5\nget alice\nget carol\ndelete bob\nput bert 7\nscan b\nsing\n";
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected =
        "70\nthere is no such row\nbert = 7\nput KEY VALUE, get KEY, add KEY NUMBER, delete KEY, scan [PREFIX]\n";
    assert_eq!(printed, expected);
}
