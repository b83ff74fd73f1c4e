//! What must hold of the graph at every moment, checked on one snapshot.

use std::collections::BTreeMap;
use std::iter::Peekable;

use tantalum::Db;

use super::schema::{Count, KeyParts, Link, ListId, Listed, Tables};
use crate::conditions::{Condition, Verdicts};
use crate::error::Result;

/// What each condition demands.
pub const CONDITIONS: [&str; 3] = [
    "each count is that of the visible links of its node and type",
    "each visible link stands in its list, with its time, version and data",
    "each entry of a list is of a visible link",
];

/// What a link and its entry in the list have in common.
#[derive(PartialEq, Eq)]
struct Shown {
    time: u64,
    version: u32,
    data: Vec<u8>,
}

/// Visible links of a list, by their other ends.
type Links = BTreeMap<u64, Shown>;

/// The list that a row belongs to, and the link if it is visible.
type Found = (ListId, Option<(u64, Shown)>);

/// Checks all conditions on a snapshot of the database; clients may write meanwhile.
///
/// # Errors
/// If a row does not decode, or the engine fails. A condition that does not hold is not an error here.
pub fn check(db: &Db) -> Result<Vec<Condition>> {
    let (tables, snapshot) = (Tables::open(db)?, db.snapshot()?);
    let mut verdicts = Verdicts::new(CONDITIONS);
    let mut links = snapshot.range(&tables.link, ..)?.map(|row| link(&row?)).peekable();
    let mut listed = snapshot.range(&tables.link_list, ..)?.map(|row| entry(&row?)).peekable();
    let mut counts = snapshot.range(&tables.link_count, ..)?.map(|row| count(&row?)).peekable();
    loop {
        let next = [peek(&mut links)?, peek(&mut listed)?, peek(&mut counts)?];
        let Some(list) = next.into_iter().flatten().min() else { break };
        let (visible, entries) = (gather(&mut links, list)?, gather(&mut listed, list)?);
        let mut counted = 0;
        if let Some((_, count)) = counts.next_if(|row| is_of(row, list)).transpose()? {
            counted = count;
        }
        let place = || format!("node {}, type {}", list.id1, list.link_type);
        verdicts.equal(1, place, ("count", counted as i64), ("visible links", visible.len() as i64));
        for (id2, link) in &visible {
            let holds = entries.get(id2) == Some(link);
            verdicts.check(2, holds, || format!("{}, to node {id2}", place()));
        }
        for id2 in entries.keys() {
            verdicts.check(3, visible.contains_key(id2), || format!("{}, to node {id2}", place()));
        }
    }
    Ok(verdicts.into_conditions())
}

/// The list to which the next row belongs.
fn peek<T>(rows: &mut Peekable<impl Iterator<Item = Result<(ListId, T)>>>) -> Result<Option<ListId>> {
    match rows.peek() {
        Some(Ok((list, _))) => Ok(Some(*list)),
        Some(Err(error)) => Err(error.clone()),
        None => Ok(None),
    }
}

fn is_of<T>(row: &Result<(ListId, T)>, list: ListId) -> bool {
    row.as_ref().is_ok_and(|(of, _)| *of == list)
}

/// The visible links of a list.
fn gather(rows: &mut Peekable<impl Iterator<Item = Result<Found>>>, list: ListId) -> Result<Links> {
    let mut links = Links::new();
    while let Some(row) = rows.next_if(|row| is_of(row, list)) {
        links.extend(row?.1);
    }
    Ok(links)
}

type Row = (tantalum::Value, tantalum::Value);

fn link((key, row): &Row) -> Result<Found> {
    let mut parts = KeyParts::of("linkbench_link", key);
    let (list, id2) = (parts.list()?, parts.number()?);
    parts.end()?;
    let link = Link::decode(row)?;
    let shown = || Shown { time: link.time, version: link.version, data: link.data.to_vec() };
    Ok((list, (link.is_visible == 1).then(|| (id2, shown()))))
}

fn entry((key, row): &Row) -> Result<Found> {
    let mut parts = KeyParts::of("linkbench_link_list", key);
    let (list, time, id2) = (parts.list()?, !parts.number()?, parts.number()?);
    parts.end()?;
    let listed = Listed::decode(row)?;
    Ok((list, Some((id2, Shown { time, version: listed.version, data: listed.data.to_vec() }))))
}

fn count((key, row): &Row) -> Result<(ListId, u64)> {
    let mut parts = KeyParts::of("linkbench_link_count", key);
    let list = parts.list()?;
    parts.end()?;
    Ok((list, Count::decode(row)?.count))
}
