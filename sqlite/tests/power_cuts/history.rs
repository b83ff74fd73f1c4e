//! The model of one database: what it holds after each commit that was asked for, and which of them must be there after a power cut.

use std::collections::BTreeMap;

use crate::content::Content;

/// A commit of some database.
pub type Commit = (usize, u64);

/// What is known of the commits of a database.
#[derive(Default)]
pub struct History {
    /// By number: the state that the start found, and the commits that were asked for since.
    versions: BTreeMap<u64, Version>,
    /// The last that was acknowledged as durable, or shown to a reader.
    durable: u64,
    /// The last that was acknowledged.
    visible: u64,
}

/// The state after a commit.
#[derive(Default)]
struct Version {
    content: Content,
    /// Commits of other databases that its transaction has read. They come before it.
    needs: Vec<Commit>,
    /// Commits of other databases that are there if this one is, and not if it is not.
    together: Vec<Commit>,
}

impl History {
    /// A database that was found so, and is so from here on.
    pub fn found(n: u64, content: Content) -> Self {
        let versions = BTreeMap::from([(n, Version { content, ..Version::default() })]);
        Self { versions, durable: n, visible: n }
    }

    /// The number of the last commit that was acknowledged.
    pub fn visible(&self) -> u64 {
        self.visible
    }

    /// The highest number of a commit that was asked for.
    pub fn last(&self) -> u64 {
        *self.versions.last_key_value().expect("at least what was found").0
    }

    /// What the database holds after a commit.
    pub fn content(&self, n: u64) -> &Content {
        &self.versions.get(&n).unwrap_or_else(|| panic!("no transaction has asked for commit {n}")).content
    }

    /// A transaction has begun when `least` was acknowledged, and sees the commit `n` with this content.
    pub fn check_seen(&self, n: u64, content: &Content, least: u64) {
        assert!(n >= least, "commit {least} was acknowledged, but a transaction that began later sees {n}");
        assert_eq!(content, self.content(n), "what a transaction sees of commit {n}, and what it is");
    }

    /// A transaction that follows the commit before `n` is about to commit. Without power nothing comes of it; and it may follow one that
    /// failed, of which something may.
    pub fn begin(&mut self, n: u64, content: Content, needs: Vec<Commit>, together: Vec<Commit>, has_power: bool) {
        assert!(!has_power || !self.versions.contains_key(&n), "two transactions follow the commit before {n}");
        let version =
            if has_power { Version { content, needs, together } } else { Version { content, ..Version::default() } };
        self.versions.entry(n).or_insert(version);
    }

    /// A commit that was asked for has not happened, and will not.
    pub fn forget(&mut self, n: u64) {
        self.versions.remove(&n);
    }

    /// The commit was acknowledged.
    pub fn acknowledge(&mut self, n: u64, is_durable: bool) {
        self.visible = self.visible.max(n);
        if is_durable {
            self.show(n);
        }
    }

    /// A reader was shown the commit.
    pub fn show(&mut self, n: u64) {
        self.durable = self.durable.max(n);
    }
}

/// Checks what a start found of all databases.
pub fn check(histories: &[History], found: &[(u64, Content)]) {
    for (database, (history, (n, content))) in histories.iter().zip(found).enumerate() {
        let durable = history.durable;
        assert!(*n >= durable, "database {database}: commit {durable} was durable, but {n} is the last one there");
        assert_eq!(content, history.content(*n), "database {database}: what is there of commit {n}, and what it is");
        for (number, version) in &history.versions {
            let is_there = number <= n;
            for &(other, needed) in &version.needs {
                assert!(
                    !is_there || found[other].0 >= needed,
                    "commit {number} of database {database} has read commit {needed} of database {other}, which is lost"
                );
            }
            for &(other, companion) in &version.together {
                assert_eq!(
                    is_there,
                    found[other].0 >= companion,
                    "commit {number} of database {database} is one with commit {companion} of database {other}"
                );
            }
        }
    }
}
