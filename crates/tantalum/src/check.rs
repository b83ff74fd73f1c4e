//! Proves that a database is sound, or says where it is not.
//!
//! Trees are walked under latches while transactions go on, so a page may be allocated or freed between the walk and the look
//! at the space map. What seems wrong with the use of pages counts only if it is so in several rounds.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    db::Core,
    error::Result,
    page::{PageId, header},
    tree::{Problem, TreeReport},
};

/// How often something must be wrong with a page's use to be wrong.
const ROUNDS: usize = 3;
/// More problems than this are not listed.
const PROBLEMS_MAX: usize = 100;

/// What [`Db::check`](crate::Db::check) found.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// assert!(db.check()?.is_sound());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The tables, by name, the catalog not included.
    pub tables: Vec<TableReport>,
    /// Pages that tables and the catalog use.
    pub pages_used: u64,
    /// What is wrong, at most a hundred entries; empty if all is well.
    problems: Vec<String>,
}

/// One table in a [`CheckReport`].
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct TableReport {
    /// The table's name.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Pages, those of large values included.
    pub pages: u64,
    /// Pages of large values.
    pub overflow_pages: u64,
    /// Levels of the tree.
    pub height: u32,
    /// How full the pages are on average, from 0 to 1.
    pub fill: f64,
}

impl CheckReport {
    /// What is wrong, each with the page and what was expected.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks everything.
pub(crate) fn run(core: &Core) -> Result<CheckReport> {
    let mut round = Round::run(core)?;
    for _ in 1..ROUNDS {
        // Damage to a tree is seen under its latches and needs no second look.
        if round.misuses.is_empty() || !round.problems.is_empty() {
            break;
        }
        let again = Round::run(core)?;
        let misuses = round.misuses.intersection(&again.misuses).cloned().collect();
        round = Round { misuses, ..again };
    }
    let mut problems = round.problems;
    core.pool.store().check(&mut |what| problems.push(what))?;
    problems.extend(round.misuses.into_iter().map(|(page, what)| format!("page {page}: {what}")));
    problems.truncate(PROBLEMS_MAX);
    Ok(CheckReport { tables: round.tables, pages_used: round.pages_used, problems })
}

/// One walk through everything.
struct Round {
    tables: Vec<TableReport>,
    pages_used: u64,
    problems: Vec<String>,
    /// Pages that are used twice, or used and free, or neither.
    misuses: BTreeSet<(PageId, String)>,
}

impl Round {
    fn run(core: &Core) -> Result<Self> {
        let mut round = Self { tables: Vec::new(), pages_used: 0, problems: Vec::new(), misuses: BTreeSet::new() };
        let mut users: BTreeMap<PageId, String> = BTreeMap::new();
        let catalog = core.catalog.tree();
        let (_, problems) = round.walk("the catalog", &mut users, |visit| catalog.check(visit))?;
        round.problems.extend(problems);
        for table in core.catalog.tables() {
            // Not dropped meanwhile: its pages would be freed under the walk.
            let Ok(_use) = table.enter(core.log().log_id()) else { continue };
            let (report, problems) = round.walk(table.name(), &mut users, |visit| table.tree().check(visit))?;
            round.problems.extend(problems);
            round.tables.extend(report.map(|report| TableReport::of(table.name(), report)));
        }
        round.pages_used = users.len() as u64;
        round.compare(core, &users)?;
        Ok(round)
    }

    fn walk(
        &mut self,
        name: &str,
        users: &mut BTreeMap<PageId, String>,
        check: impl FnOnce(&mut dyn FnMut(PageId)) -> Result<Result<TreeReport, Vec<Problem>>>,
    ) -> Result<(Option<TreeReport>, Vec<String>)> {
        let mut twice = Vec::new();
        let result = check(&mut |page| {
            if let Some(other) = users.insert(page, name.to_owned()) {
                twice.push((page, format!("used by {name} and again by {other}")));
            }
        })?;
        self.misuses.extend(twice);
        Ok(match result {
            Ok(report) => (Some(report), Vec::new()),
            Err(problems) => (None, problems.iter().map(|problem| format!("{name}: {problem}")).collect()),
        })
    }

    /// Every page that is used must be allocated, and every page that is allocated used.
    fn compare(&mut self, core: &Core, users: &BTreeMap<PageId, String>) -> Result<()> {
        let mut allocated = BTreeSet::new();
        core.space.for_each_allocated(&mut |page| {
            allocated.insert(page);
        })?;
        for (page, user) in users.iter().filter(|(page, _)| !allocated.contains(page)) {
            self.misuses.insert((*page, format!("used by {user}, but free in the space map")));
        }
        // A tree that could not be walked has pages that nobody has visited.
        if self.problems.is_empty() {
            let dropped = core.catalog.unfinished_drops();
            let is_dropped = |page: PageId| {
                let owner = core.pool.pin(page).map(|page| header::owner(&page.read()));
                owner.is_ok_and(|owner| dropped.contains(&owner))
            };
            let unused = allocated.iter().filter(|page| !users.contains_key(page));
            for page in unused.filter(|page| dropped.is_empty() || !is_dropped(**page)) {
                self.misuses.insert((*page, "in use in the space map, but no table uses it".into()));
            }
        }
        Ok(())
    }
}

impl TableReport {
    fn of(name: &str, report: TreeReport) -> Self {
        Self {
            name: name.into(),
            rows: report.entries,
            pages: report.pages,
            overflow_pages: report.overflow_pages,
            height: report.height,
            fill: report.fill,
        }
    }
}
