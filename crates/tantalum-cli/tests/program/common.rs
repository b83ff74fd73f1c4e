//! Runs the program and looks at what it says.

use std::{
    ffi::OsStr,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

/// How a run of the program ended.
pub struct Run {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Run {
    fn new(output: Output) -> Self {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!err.contains("panicked"), "{err}");
        Self { code: output.status.code(), out: output.stdout, err }
    }

    /// Standard output of a run that must succeed.
    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The error of a run that must fail: one line that contains all `words`.
    #[track_caller]
    pub fn fails(self, words: &[&str]) -> String {
        assert_eq!(self.code, Some(1), "{}", self.err);
        let line = self.err.lines().last().unwrap_or_default().to_owned();
        assert!(line.starts_with("error: "), "{}", self.err);
        for word in words {
            assert!(line.contains(word), "{word:?} is not in {line:?}");
        }
        line
    }
}

fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("RUST_LOG");
    command
}

/// Runs `tantalum` with these arguments.
pub fn tantalum(arguments: &[impl AsRef<OsStr>]) -> Run {
    tantalum_with_input(arguments, &[])
}

/// As [`tantalum`], with `input` on standard input.
pub fn tantalum_with_input(arguments: &[impl AsRef<OsStr>], input: &[u8]) -> Run {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    // The program may give up before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    Run::new(child.wait_with_output().unwrap())
}

/// Settings that make a database small and quick to create.
pub fn small() -> tantalum::Builder {
    tantalum::Db::builder().log_bytes(2 << 20).buffer_pool_bytes(1 << 20)
}

/// A small closed database with some rows in two tables.
pub fn make_database(dir: &Path) {
    let db = small().open(dir).unwrap();
    let (names, blobs) = (db.table("names").unwrap(), db.table("b l\u{f6}bs").unwrap());
    for batch in 0..10u32 {
        let mut transaction = db.begin().unwrap();
        for n in 0..20 {
            let key = format!("key-{:04}", batch * 20 + n);
            transaction.put(&names, key.as_bytes(), format!("value {n}").as_bytes()).unwrap();
        }
        transaction.put(&blobs, [0, 255, batch as u8, b' ', b'\\', b'\n'], vec![batch as u8; 3000]).unwrap();
        transaction.commit().unwrap();
    }
    db.close().unwrap();
}
