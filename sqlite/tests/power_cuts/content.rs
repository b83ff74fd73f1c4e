//! What a SQLite database holds, in SQL and in the model, and random changes to both.
//!
//! Each database counts its commits: the table `state` has the number of the last, and every transaction that writes raises it. So the
//! commits of a database are in order, and what it holds after one has a number.

use std::{collections::BTreeMap, sync::Arc};

use rusqlite::{OptionalExtension, params};
use tantalum_rt::Random;

use crate::session::{Session, Stop};

/// Rows that are put have keys below.
const KEYS: i64 = 40;

type Rows = BTreeMap<i64, Arc<str>>;

/// The content of a database.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The table `t`.
    pub rows: Rows,
    /// The table `copy`, if there is one.
    pub copy: Option<Rows>,
    /// Whether `t` has an index.
    pub is_indexed: bool,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short =
            |rows: &Rows| rows.iter().map(|(key, value)| format!("{key}: {}", shown(value))).collect::<Vec<_>>();
        let copy = self.copy.as_ref().map(short);
        f.debug_struct("Content")
            .field("rows", &short(&self.rows))
            .field("copy", &copy)
            .field("is_indexed", &self.is_indexed)
            .finish()
    }
}

fn shown(value: &str) -> String {
    format!("{:.12}… of {}", value, value.len())
}

/// The statements that make a new database.
pub const SCHEMA: &str = "
    CREATE TABLE t (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE state (n INTEGER, id INTEGER, value TEXT);
    CREATE TRIGGER put AFTER UPDATE ON state WHEN new.id IS NOT NULL BEGIN
        INSERT OR REPLACE INTO t VALUES (new.id, new.value);
    END;
    INSERT INTO state VALUES (0, NULL, NULL);";

/// Raises the number in the table `state`.
pub fn count_commit(session: &Session, schema: &str) -> Result<(), Stop> {
    session.run(&format!("UPDATE {schema}.state SET n = n + 1, id = NULL, value = NULL"))
}

/// A row to be put.
pub fn random_row(random: &mut Random) -> (i64, Arc<str>) {
    let len = match random.u32(0..60) {
        0 => random.usize(0..40_000),
        1..10 => random.usize(0..3000),
        _ => random.usize(0..200),
    };
    let word = format!("{:x} ", random.u32(..));
    let mut value = word.repeat(len / word.len() + 1);
    value.truncate(len);
    (random.i64(0..KEYS), value.into())
}

/// Number and content of a database. In a transaction, all of one moment.
pub fn read(session: &Session, schema: &str) -> Result<(u64, Content), Stop> {
    session.ask(|connection| {
        let n = connection.query_row(&format!("SELECT n FROM {schema}.state"), [], |row| row.get::<_, i64>(0))?;
        let rows = |table: &str| {
            let mut statement = connection.prepare(&format!("SELECT id, value FROM {schema}.{table} ORDER BY id"))?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?.into())))?;
            rows.collect::<rusqlite::Result<Rows>>()
        };
        let has = |name: &str| {
            let sql = format!("SELECT 1 FROM {schema}.sqlite_schema WHERE name = '{name}'");
            Ok::<_, rusqlite::Error>(connection.query_row(&sql, [], |_| Ok(())).optional()?.is_some())
        };
        let copy = if has("copy")? { Some(rows("copy")?) } else { None };
        Ok((n as u64, Content { rows: rows("t")?, copy, is_indexed: has("i")? }))
    })
}

/// Changes a database within a transaction, and the content in the same way.
pub fn change(session: &Session, schema: &str, content: &mut Content, random: &mut Random) -> Result<(), Stop> {
    let (a, b) = (random.i64(0..KEYS), random.i64(0..KEYS));
    let rows = &mut content.rows;
    let put = format!("INSERT OR REPLACE INTO {schema}.t VALUES (?1, ?2)");
    match random.u32(0..24) {
        0..8 => {
            let (key, value) = random_row(random);
            session.execute(&put, params![key, &*value])?;
            rows.insert(key, value);
        }
        8 | 9 => {
            for _ in 0..random.u32(0..50) {
                let (key, value) = random_row(random);
                session.execute(&put, params![key, &*value])?;
                rows.insert(key, value);
            }
        }
        10..13 => {
            let more = random_row(random).1;
            let sql = format!("UPDATE {schema}.t SET value = value || ?1 WHERE id > ?2 AND length(value) < 3000");
            session.execute(&sql, params![&*more, a])?;
            for value in rows.range_mut(a + 1..).map(|(_, value)| value).filter(|value| value.len() < 3000) {
                *value = format!("{value}{more}").into();
            }
        }
        13..16 => {
            let (first, last) = (a.min(b), a.min(b) + random.i64(0..15));
            session.execute(&format!("DELETE FROM {schema}.t WHERE id BETWEEN ?1 AND ?2"), params![first, last])?;
            rows.retain(|key, _| !(first..=last).contains(key));
        }
        16 | 17 => {
            session.execute(&format!("UPDATE OR REPLACE {schema}.t SET id = ?2 WHERE id = ?1"), params![a, b])?;
            if let Some(value) = rows.remove(&a) {
                rows.insert(b, value);
            }
        }
        // Fails as a whole, halfway, if a key is there.
        18 | 19 => {
            let sql =
                format!("INSERT INTO {schema}.t SELECT id + ?1, value FROM {schema}.t WHERE id < ?2 ORDER BY id DESC");
            let copied: Rows = rows.range(..b).map(|(key, value)| (key + a, Arc::clone(value))).collect();
            let is_refused = copied.keys().any(|key| rows.contains_key(key));
            let is_done = session.unless_constraint(&sql, params![a, b])?;
            assert_eq!(is_done, !is_refused, "{sql}");
            if is_done {
                rows.extend(copied);
            }
        }
        20 => {
            session.run(&format!("DELETE FROM {schema}.t"))?;
            rows.clear();
        }
        21 | 22 => {
            session.run(&match content.is_indexed {
                true => format!("DROP INDEX {schema}.i"),
                false => format!("CREATE INDEX {schema}.i ON t (value, id)"),
            })?;
            content.is_indexed ^= true;
        }
        _ => {
            session.run(&match content.copy {
                Some(_) => format!("DROP TABLE {schema}.copy"),
                None => format!("CREATE TABLE {schema}.copy AS SELECT * FROM {schema}.t ORDER BY id"),
            })?;
            content.copy = if content.copy.is_some() { None } else { Some(content.rows.clone()) };
        }
    }
    Ok(())
}
