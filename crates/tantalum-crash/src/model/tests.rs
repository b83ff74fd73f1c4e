//! Hand-made histories: right ones that must pass, and one for every way to be wrong.

use super::*;
use crate::history::{Event, History, Kind, Read};
use tantalum_rt::Random;

const A: Key = Key { table: 0, number: 1 };
const B: Key = Key { table: 0, number: 2 };

fn version(transaction: u32) -> Version {
    Version { transaction, operation: 0 }
}

/// A round told event by event. Transaction `n` writes version `n`.
struct Story {
    initial: Contents,
    history: History,
}

impl Story {
    /// `A` holds version 100, `B` version 101.
    fn new() -> Self {
        let initial = Contents::from([(A, version(100)), (B, version(101))]);
        Self { initial, history: History::default() }
    }

    fn begin(mut self, id: u32, kind: Kind) -> Self {
        self.history.add(Event::Begin { id, kind });
        self
    }

    fn commit(mut self, id: u32, reads: &[Read], puts: &[Key], deletes: &[Key]) -> Self {
        let writes = puts.iter().map(|&key| (key, Some(version(id)))).chain(deletes.iter().map(|&key| (key, None)));
        self.history.add(Event::Commit { id, reads: reads.to_vec(), writes: writes.collect() });
        self
    }

    fn placed(mut self, id: u32, position: u64) -> Self {
        self.history.add(Event::Placed { id, position });
        self
    }

    fn acknowledged(mut self, id: u32) -> Self {
        self.history.add(Event::Acknowledged { id, position: None });
        self
    }

    fn rolled_back(mut self, id: u32, reads: &[Read]) -> Self {
        self.history.add(Event::RolledBack { id, reads: reads.to_vec() });
        self
    }

    /// A serializable transaction that ran alone and was acknowledged.
    fn ran(self, id: u32, reads: &[Read], puts: &[Key], deletes: &[Key]) -> Self {
        self.begin(id, Kind::Serializable).commit(id, reads, puts, deletes).placed(id, u64::from(id)).acknowledged(id)
    }

    fn recovered(self, rows: &[(Key, u32)]) -> Result<Judgement, Violation> {
        self.recovered_up_to(u64::MAX, rows)
    }

    /// Recovered after all log devices were lost, from an archive that ends at `end`.
    fn recovered_up_to(self, end: u64, rows: &[(Key, u32)]) -> Result<Judgement, Violation> {
        let recovered = rows.iter().map(|&(key, id)| (key, version(id))).collect();
        let mut transactions = self.history.into_transactions();
        if end < u64::MAX {
            transactions.iter_mut().for_each(|transaction| transaction.lose_behind(end));
        }
        judge(&self.initial, &transactions, &recovered)
    }
}

fn is(key: Key, id: u32) -> Read {
    Read::Is(key, Some(version(id)))
}

fn rule(result: Result<Judgement, Violation>) -> Rule {
    result.expect_err("a violation").rule
}

const SERIALIZABLE: Kind = Kind::Serializable;

#[test]
fn acknowledged_commits_must_be_there() {
    assert!(Story::new().ran(1, &[], &[A], &[]).recovered(&[(A, 1), (B, 101)]).is_ok());
    assert_eq!(rule(Story::new().ran(1, &[], &[A], &[]).recovered(&[(A, 100), (B, 101)])), Rule::Durability);
    assert!(Story::new().ran(1, &[], &[], &[A]).recovered(&[(B, 101)]).is_ok());
    assert_eq!(rule(Story::new().ran(1, &[], &[], &[A]).recovered(&[(A, 100), (B, 101)])), Rule::Durability);
}

#[test]
fn an_unknown_commit_is_there_whole_or_not_at_all() {
    let story = || Story::new().begin(1, SERIALIZABLE).commit(1, &[], &[A, B], &[]);
    let survived = story().recovered(&[(A, 1), (B, 1)]);
    assert_eq!(survived, Ok(Judgement { survived: 1, lost: 0 }));
    assert_eq!(story().recovered(&[(A, 100), (B, 101)]), Ok(Judgement { survived: 0, lost: 1 }));
    assert_eq!(rule(story().recovered(&[(A, 1), (B, 101)])), Rule::Durability);
    assert_eq!(rule(story().placed(1, 1).recovered(&[(A, 1), (B, 101)])), Rule::Durability);
}

#[test]
fn a_survivor_has_everything_below_it() {
    let story = || {
        let story = Story::new().begin(1, SERIALIZABLE).commit(1, &[], &[A], &[]).placed(1, 1);
        story.begin(2, SERIALIZABLE).commit(2, &[], &[B], &[]).placed(2, 2)
    };
    assert!(story().recovered(&[(A, 1), (B, 101)]).is_ok());
    assert!(story().recovered(&[(A, 1), (B, 2)]).is_ok());
    assert_eq!(rule(story().recovered(&[(A, 100), (B, 2)])), Rule::Durability);
}

#[test]
fn a_read_of_a_rolled_back_intermediate_or_invented_value_is_refused() {
    let rolled_back = || Story::new().begin(1, SERIALIZABLE).rolled_back(1, &[]);
    assert_eq!(rule(rolled_back().recovered(&[(A, 1), (B, 101)])), Rule::NoSuchVersion);
    assert_eq!(rule(rolled_back().ran(2, &[is(A, 1)], &[], &[]).recovered(&[(A, 100), (B, 101)])), Rule::NoSuchVersion);
    assert_eq!(rule(Story::new().recovered(&[(A, 77), (B, 101)])), Rule::NoSuchVersion);
    let intermediate = Read::Is(A, Some(Version { transaction: 1, operation: 9 }));
    let story = Story::new().ran(1, &[], &[A], &[]).ran(2, &[intermediate], &[], &[]);
    assert_eq!(rule(story.recovered(&[(A, 1), (B, 101)])), Rule::NoSuchVersion);
}

#[test]
fn an_unfinished_commit_stands_where_the_rest_says() {
    // T9 was cut off after its append, before it learnt its place; T2 had already overwritten part of it.
    let story = || Story::new().begin(9, SERIALIZABLE).commit(9, &[], &[A, B], &[]).ran(2, &[], &[A], &[]);
    assert_eq!(story().recovered(&[(A, 2), (B, 9)]), Ok(Judgement { survived: 1, lost: 0 }));
    assert!(story().recovered(&[(A, 2), (B, 101)]).is_ok());
    assert!(story().recovered(&[(A, 9), (B, 9)]).is_ok());
    // T2 read A before T9, so T9 comes after it and its A must be there.
    let after = || {
        let story = Story::new().begin(9, SERIALIZABLE).commit(9, &[], &[A, B], &[]);
        story.ran(2, &[is(A, 100)], &[A], &[])
    };
    assert!(after().recovered(&[(A, 9), (B, 9)]).is_ok());
    assert_eq!(rule(after().recovered(&[(A, 2), (B, 9)])), Rule::Durability);
}

#[test]
fn lost_updates_and_write_skew_are_found() {
    let both = |kind, reads: [&[Read]; 2], puts: [&[Key]; 2]| {
        let story = Story::new().begin(1, kind).begin(2, kind);
        let story = story.commit(1, reads[0], puts[0], &[]).placed(1, 1).acknowledged(1);
        story.commit(2, reads[1], puts[1], &[]).placed(2, 2).acknowledged(2)
    };
    let lost_update = |kind| both(kind, [&[is(A, 100)], &[is(A, 100)]], [&[A], &[A]]).recovered(&[(A, 2), (B, 101)]);
    assert_eq!(rule(lost_update(SERIALIZABLE)), Rule::Isolation);
    assert_eq!(rule(lost_update(Kind::SnapshotIsolation)), Rule::Isolation);
    let reads = [is(A, 100), is(B, 101)];
    let write_skew = |kind| both(kind, [&reads, &reads], [&[A], &[B]]).recovered(&[(A, 1), (B, 2)]);
    assert_eq!(rule(write_skew(SERIALIZABLE)), Rule::Isolation);
    assert!(write_skew(Kind::SnapshotIsolation).is_ok());
}

#[test]
fn phantoms_are_found() {
    let range = |rows: &[(u32, u32)]| Read::Range {
        table: 0,
        low: 0,
        high: 9,
        rows: rows.iter().map(|&(number, id)| (number, version(id))).collect(),
        hidden: Vec::new(),
    };
    let new = Key { table: 0, number: 5 };
    let story = |rows: &[(u32, u32)]| Story::new().ran(1, &[], &[new], &[]).ran(2, &[range(rows)], &[A], &[]);
    let recovered = [(A, 2), (B, 101), (new, 1)];
    assert!(story(&[(1, 100), (2, 101), (5, 1)]).recovered(&recovered).is_ok());
    assert_eq!(rule(story(&[(1, 100), (2, 101)]).recovered(&recovered)), Rule::Isolation);
}

#[test]
fn snapshots_see_one_moment_and_only_what_lasts() {
    let with = |reads: &[Read]| {
        let story = Story::new().begin(7, Kind::Snapshot).ran(1, &[], &[A], &[]).ran(2, &[], &[B], &[]);
        story.commit(7, reads, &[], &[]).acknowledged(7).recovered(&[(A, 1), (B, 2)])
    };
    assert!(with(&[is(A, 100), is(B, 101)]).is_ok());
    assert!(with(&[is(A, 1), is(B, 101)]).is_ok());
    assert_eq!(rule(with(&[is(A, 100), is(B, 2)])), Rule::Isolation);
    // A reader acknowledged with what a power cut then took away.
    let story = Story::new().begin(1, SERIALIZABLE).commit(1, &[], &[A], &[]).placed(1, 1);
    let story = story.begin(7, Kind::Snapshot).commit(7, &[is(A, 1)], &[], &[]).acknowledged(7);
    assert_eq!(rule(story.recovered(&[(A, 100), (B, 101)])), Rule::Isolation);
}

#[test]
fn real_time_is_respected() {
    let story = Story::new().ran(2, &[], &[A], &[]).ran(1, &[], &[B], &[]);
    assert_eq!(rule(story.recovered(&[(A, 2), (B, 1)])), Rule::Isolation);
    // A stale snapshot.
    let story = Story::new().ran(1, &[], &[A], &[]).begin(7, Kind::Snapshot);
    let story = story.commit(7, &[is(A, 100)], &[], &[]).acknowledged(7);
    assert_eq!(rule(story.recovered(&[(A, 1), (B, 101)])), Rule::Isolation);
}

#[test]
fn what_the_archive_lacked_may_be_lost_with_all_log_devices_and_nothing_else() {
    let story = || {
        let seen = [Read::Is(A, Some(version(2)))];
        Story::new().ran(1, &[], &[B], &[]).ran(2, &[], &[A], &[]).begin(3, Kind::Snapshot).commit(3, &seen, &[], &[])
    };
    let told = || story().acknowledged(3);
    assert!(told().recovered(&[(A, 2), (B, 1)]).is_ok());
    assert_eq!(told().recovered(&[(A, 100), (B, 1)]).unwrap_err().rule, Rule::Durability);
    // The second was acknowledged, and another was told what it wrote.
    assert!(told().recovered_up_to(1, &[(A, 100), (B, 1)]).is_ok());
    assert!(told().recovered_up_to(1, &[(A, 2), (B, 1)]).is_ok(), "it may be there all the same");
    assert_eq!(told().recovered_up_to(1, &[(A, 2), (B, 101)]).unwrap_err().rule, Rule::Durability);
    assert_eq!(told().recovered_up_to(1, &[(A, 100), (B, 101)]).unwrap_err().rule, Rule::Durability);
    assert_eq!(told().recovered_up_to(2, &[(A, 100), (B, 1)]).unwrap_err().rule, Rule::Durability);
}

#[test]
fn a_lost_commit_without_a_place_was_there_until_the_power_went() {
    // T2 begins when T1 is acknowledged.
    let judged = |reads: &[Read]| {
        let story = Story::new().begin(1, SERIALIZABLE).commit(1, &[], &[A], &[]).acknowledged(1);
        let story = story.begin(2, SERIALIZABLE).commit(2, reads, &[B], &[]).placed(2, 2);
        story.recovered_up_to(1, &[(A, 100), (B, 101)])
    };
    assert!(judged(&[]).is_ok(), "it makes no difference to T2");
    assert!(judged(&[is(A, 1)]).is_ok());
    assert_eq!(rule(judged(&[is(A, 100)])), Rule::Isolation);
}

/// Twelve commits that were cut off after transaction 1 had called commit, and all delete `B`: too many orders to try each.
fn many_unfinished(story: Story) -> Story {
    (10..22).fold(story, |story, id| story.begin(id, Kind::Serializable).commit(id, &[], &[], &[B]))
}

#[test]
fn what_was_seen_before_a_commit_began_comes_before_it() {
    let story = Story::new().begin(1, Kind::Serializable).commit(1, &[], &[A], &[]);
    let story = story.begin(2, Kind::Serializable).rolled_back(2, &[is(A, 1)]);
    let story = many_unfinished(story).placed(1, 1).acknowledged(1);
    story.recovered(&[(A, 1)]).unwrap();
}

#[test]
fn a_reader_that_no_order_explains_is_found_without_trying_each() {
    let story = Story::new().begin(1, Kind::Serializable).commit(1, &[], &[A], &[]).placed(1, 1).acknowledged(1);
    let story = many_unfinished(story.begin(2, Kind::Serializable)).rolled_back(2, &[is(A, 100)]);
    assert_eq!(story.recovered(&[(A, 1)]).unwrap_err().rule, Rule::Isolation);
}

#[test]
fn the_reader_that_decides_is_followed_among_many_that_do_not() {
    // T9 is tried before T500 first. Only T400 tells that it comes later.
    let story = Story::new().begin(9, SERIALIZABLE).commit(9, &[], &[B], &[]).ran(500, &[], &[A], &[]);
    let others = |story: Story, id| story.begin(id, SERIALIZABLE).rolled_back(id, &[is(A, 500)]);
    let story = (200..400).fold(story, others).begin(400, SERIALIZABLE).rolled_back(400, &[is(B, 101)]);
    let story = story.begin(401, SERIALIZABLE).rolled_back(401, &[Read::IsPresent(B)]);
    many_unfinished(story).recovered(&[(A, 500)]).unwrap();
}

/// Each of three hundred readers sees whether T9 was there; the search has fewer bits than that to follow them.
#[test]
fn a_reader_long_after_the_first_places_an_unfinished_commit() {
    let mut story = Story::new().begin(9, SERIALIZABLE).commit(9, &[], &[B], &[]);
    for n in 0..300 {
        let seen = is(B, if n < 200 { 101 } else { 9 });
        story = story.ran(500 + n, &[], &[A], &[]).begin(1000 + n, Kind::Snapshot);
        story = story.commit(1000 + n, &[seen], &[], &[]).acknowledged(1000 + n);
    }
    let c = Key { table: 1, number: 1 };
    for id in 2000..2012 {
        story = story.begin(id, Kind::SnapshotIsolation).commit(id, &[], &[], &[c]);
    }
    assert_eq!(story.recovered(&[(A, 799), (B, 9)]).map(|judgement| judgement.survived > 0), Ok(true));
}

/// Eight commits that were cut off, of which others may have seen each, beside thirty that were acknowledged: `key(n)` was there
/// before and is written by the `n`th of the first, `A` by all others.
fn many_unfinished_beside_many_others() -> (Story, Vec<(Key, u32)>) {
    const UNFINISHED: u32 = 8;
    let key = |n| Key { table: 1, number: n };
    let mut story = Story::new();
    story.initial.extend((0..UNFINISHED).map(|n| (key(n), version(200 + n))));
    let present: Vec<_> = (0..UNFINISHED).map(|n| Read::IsPresent(key(n))).collect();
    for n in 0..UNFINISHED {
        story = story.begin(500 + n, Kind::SnapshotIsolation).commit(500 + n, &[], &[key(n)], &[]);
    }
    for id in 600..630 {
        story = story.begin(id, Kind::SnapshotIsolation).commit(id, &[], &[A], &[]);
        story = story.placed(id, u64::from(id)).acknowledged(id);
    }
    let story = story.begin(900, Kind::SnapshotIsolation).rolled_back(900, &present);
    let rows = (0..UNFINISHED).map(|n| (key(n), 200 + n)).chain([(A, 629), (B, 101)]);
    (story, rows.collect())
}

/// With snapshot isolation no two ways lead to one situation, so trying all orders of lost commits before what was acknowledged would
/// have no end. What they overwrite there was recovered, which rules that out.
#[test]
fn commits_that_were_lost_are_not_tried_before_what_was_acknowledged() {
    let (story, rows) = many_unfinished_beside_many_others();
    assert_eq!(story.recovered(&rows), Ok(Judgement { survived: 0, lost: 8 }));
}

#[test]
fn what_no_order_brings_back_is_found_without_trying_each() {
    let (story, mut rows) = many_unfinished_beside_many_others();
    let last = rows.iter_mut().find(|(key, _)| *key == A).expect("it is there");
    last.1 = 628;
    assert_eq!(rule(story.recovered(&rows)), Rule::Durability);
}

/// Whether an order of these commits, of which the first are in their places, leaves what was recovered.
fn is_explained(
    contents: &Contents,
    chain: &[&Transaction],
    unfinished: &[&Transaction],
    recovered: &Contents,
) -> bool {
    if contents == recovered && chain.iter().all(|transaction| transaction.fate != Fate::Acknowledged) {
        return true;
    }
    let after = |transaction: &Transaction| {
        let mut contents = contents.clone();
        for (&key, &version) in &transaction.writes {
            match version {
                Some(version) => contents.insert(key, version),
                None => contents.remove(&key),
            };
        }
        contents
    };
    let follows =
        chain.split_first().is_some_and(|(first, rest)| is_explained(&after(first), rest, unfinished, recovered));
    follows
        || (0..unfinished.len()).any(|n| {
            let mut others = unfinished.to_vec();
            is_explained(&after(others.remove(n)), chain, &others, recovered)
        })
}

#[test]
fn commits_without_reads_are_judged_as_if_every_order_were_tried() {
    let keys = [A, B, Key { table: 1, number: 1 }];
    let mut explained = 0;
    for seed in 0..3000 {
        let mut random = Random::with_seed(seed);
        let kind = if random.bool() { Kind::Serializable } else { Kind::SnapshotIsolation };
        let (unfinished, placed) = (random.u32(0..4), random.u32(1..4));
        let acknowledged = random.u32(0..=placed);
        let mut story = Story::new();
        let mut versions = vec![vec![None, Some(100)], vec![None, Some(101)], vec![None]];
        for id in (1..=unfinished).chain(11..11 + placed) {
            let (mut puts, mut deletes) = (Vec::new(), Vec::new());
            for (key, versions) in keys.iter().zip(&mut versions) {
                match random.u8(0..6) {
                    0 => deletes.push(*key),
                    1 | 2 => {
                        puts.push(*key);
                        versions.push(Some(id));
                    }
                    _ => {}
                }
            }
            story = story.begin(id, kind).commit(id, &[], &puts, &deletes);
            if id > 10 {
                story = story.placed(id, u64::from(id));
            }
            if (11..11 + acknowledged).contains(&id) {
                story = story.acknowledged(id);
            }
        }
        let rows = keys.iter().zip(&versions).filter_map(|(key, versions)| {
            let found = versions[random.usize(0..versions.len())];
            found.map(|id| (*key, id))
        });
        let rows: Vec<_> = rows.collect();
        let recovered: Contents = rows.iter().map(|&(key, id)| (key, version(id))).collect();
        let (initial, transactions) = (story.initial.clone(), story.history.into_transactions());
        let (chain, floating): (Vec<_>, Vec<_>) = transactions.iter().partition(|t| t.position.is_some());
        let expected = is_explained(&initial, &chain, &floating, &recovered);
        let judged = judge(&initial, &transactions, &recovered);
        assert_eq!(judged.is_ok(), expected, "seed {seed}: {judged:?}");
        assert!(judged.is_ok() || judged.is_err_and(|violation| violation.rule == Rule::Durability), "seed {seed}");
        explained += u32::from(expected);
    }
    assert!((300..2700).contains(&explained), "both are tried often: {explained} are explained");
}
