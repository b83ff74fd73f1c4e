//! Hand-made good and bad histories, and random serial ones.

use std::ops::Bound::{Excluded, Included, Unbounded};

use proptest::prelude::*;

use super::*;

const S: Level = Level::Serializable;

fn anomalies(recorder: &Recorder<&'static str>, level: Level) -> Vec<Anomaly<&'static str>> {
    recorder.history().check(level).anomalies
}

fn is_one_cycle(anomalies: &[Anomaly<&'static str>], length: usize) -> bool {
    matches!(anomalies, [Anomaly::Cycle(steps)] if steps.len() == length)
}

#[test]
fn a_serial_history_is_good() {
    let recorder = Recorder::new();
    let mut last = None;
    for version in 1..20 {
        let t = recorder.begin();
        t.read("x", last);
        t.write("x", version);
        t.read("x", Some(version));
        t.committed(Some(version));
        last = Some(version);
    }
    let report = recorder.history().check(Level::StrictSerializable);
    assert!(report.is_ok(), "{report}");
    assert_eq!((report.transactions, report.ambiguous_reads), (19, 0));
}

#[test]
fn lost_update() {
    for sequences in [[None, None], [Some(1), Some(2)]] {
        let recorder = Recorder::new();
        recorder.initial("x", 1);
        let (a, b) = (recorder.begin(), recorder.begin());
        a.read("x", Some(1));
        b.read("x", Some(1));
        a.write("x", 2);
        b.write("x", 3);
        a.committed(sequences[0]);
        b.committed(sequences[1]);
        assert!(is_one_cycle(&anomalies(&recorder, S), 2));
    }
}

#[test]
fn write_skew() {
    let recorder = Recorder::new();
    recorder.initial("x", 1);
    recorder.initial("y", 2);
    let (a, b) = (recorder.begin(), recorder.begin());
    for t in [&a, &b] {
        t.read("x", Some(1));
        t.read("y", Some(2));
    }
    a.write("x", 3);
    b.write("y", 4);
    a.committed(None);
    b.committed(None);
    let found = anomalies(&recorder, S);
    assert!(is_one_cycle(&found, 2));
    assert!(found[0].to_string().contains("read \"y\" as it was before"));
}

#[test]
fn dirty_and_intermediate_and_unwritten_reads() {
    let recorder = Recorder::new();
    let (a, b, reader) = (recorder.begin(), recorder.begin(), recorder.begin());
    a.write("x", 1);
    a.aborted();
    b.write("y", 2);
    b.write("y", 3);
    b.committed(None);
    reader.read("x", Some(1));
    reader.read("y", Some(2));
    reader.read("z", Some(9));
    reader.committed(None);
    let expected = [
        Anomaly::DirtyRead { reader: 2, writer: 0, key: "x" },
        Anomaly::IntermediateRead { reader: 2, writer: 1, key: "y" },
        Anomaly::UnwrittenRead { reader: 2, key: "z", version: 9 },
    ];
    assert_eq!(anomalies(&recorder, S), expected);
}

#[test]
fn own_writes_must_be_seen() {
    let recorder = Recorder::new();
    let a = recorder.begin();
    a.write("x", 1);
    a.read("x", None);
    a.delete("x");
    a.read_range(Unbounded, Unbounded, vec![("x", 1)]);
    a.committed(None);
    assert_eq!(anomalies(&recorder, S), vec![Anomaly::OwnWriteUnseen { reader: 0, key: "x" }; 2]);
}

#[test]
fn phantom_in_a_range() {
    let recorder = Recorder::new();
    let (a, b) = (recorder.begin(), recorder.begin());
    // Each counts the rows of the other's range as none, then puts one there.
    a.read_range(Included("m"), Excluded("n"), vec![]);
    b.read_range(Included("a"), Excluded("b"), vec![]);
    a.write("aa", 1);
    b.write("mm", 2);
    a.committed(None);
    b.committed(None);
    assert!(is_one_cycle(&anomalies(&recorder, S), 2));
}

#[test]
fn keys_outside_a_range_do_not_matter() {
    let recorder = Recorder::new();
    let (a, b) = (recorder.begin(), recorder.begin());
    a.read_range(Included("m"), Excluded("mm"), vec![]);
    b.read_range(Excluded("aa"), Included("b"), vec![]);
    b.read_range(Included("z"), Excluded("a"), vec![]);
    a.write("aa", 1);
    b.write("mm", 2);
    a.committed(None);
    b.committed(None);
    assert!(anomalies(&recorder, S).is_empty());
}

#[test]
fn an_unobserved_unknown_outcome_is_no_anomaly_and_an_observed_one_counts_whole() {
    let recorder = Recorder::new();
    let (a, reader) = (recorder.begin(), recorder.begin());
    a.write("x", 1);
    a.write("y", 2);
    a.committing();
    a.unknown();
    reader.read("x", None);
    reader.read("y", None);
    reader.committed(None);
    assert!(anomalies(&recorder, S).is_empty());
    let torn = recorder.begin();
    torn.read("x", Some(1));
    torn.read("y", None);
    torn.committed(None);
    assert!(is_one_cycle(&anomalies(&recorder, S), 2));
}

#[test]
fn a_transaction_cut_before_its_commit_counts_as_aborted() {
    let recorder = Recorder::new();
    let a = recorder.begin();
    a.write("x", 1);
    std::mem::forget(a);
    let reader = recorder.begin();
    reader.read("x", Some(1));
    reader.committed(None);
    assert_eq!(anomalies(&recorder, S), [Anomaly::DirtyRead { reader: 1, writer: 0, key: "x" }]);
}

#[test]
fn an_acknowledged_commit_that_vanished_breaks_only_the_strict_level() {
    let recorder = Recorder::new();
    let a = recorder.begin();
    a.write("x", 1);
    a.committed(Some(1));
    let reader = recorder.begin();
    reader.read("x", None);
    reader.committed(None);
    assert!(anomalies(&recorder, S).is_empty());
    let found = anomalies(&recorder, Level::StrictSerializable);
    assert!(is_one_cycle(&found, 2));
    assert!(found[0].to_string().contains("had ended when"));
}

#[test]
fn deletes_and_absence() {
    let recorder = Recorder::new();
    recorder.initial("x", 1);
    recorder.initial("y", 2);
    let a = recorder.begin();
    a.read("y", None);
    a.committed(None);
    assert_eq!(anomalies(&recorder, S), [Anomaly::ImpossibleAbsence { reader: 0, key: "y" }]);
    let recorder = Recorder::new();
    recorder.initial("x", 1);
    let (delete, insert, reader) = (recorder.begin(), recorder.begin(), recorder.begin());
    delete.delete("x");
    delete.write("z", 5);
    delete.committed(Some(1));
    insert.write("x", 2);
    insert.committed(Some(2));
    // Sees the delete of x, but not what the same transaction wrote to z.
    reader.read("x", None);
    reader.read("z", None);
    reader.committed(None);
    assert!(is_one_cycle(&anomalies(&recorder, S), 2));
}

#[test]
fn an_absence_of_several_origins_is_placed_between_the_first_and_the_last() {
    let recorder = Recorder::new();
    let (insert, delete, again, reader) = (recorder.begin(), recorder.begin(), recorder.begin(), recorder.begin());
    insert.write("x", 1);
    insert.committed(Some(1));
    delete.delete("x");
    delete.committed(Some(2));
    again.write("x", 2);
    again.write("y", 3);
    again.committed(Some(3));
    reader.read("x", None);
    reader.read("y", Some(3));
    reader.committed(None);
    let report = recorder.history().check(S);
    assert_eq!(report.ambiguous_reads, 1);
    assert!(is_one_cycle(&report.anomalies, 2));
}

#[test]
fn wrong_recordings_are_named() {
    let recorder = Recorder::new();
    let (a, b) = (recorder.begin(), recorder.begin());
    a.write("x", 1);
    a.committed(Some(7));
    b.write("y", 1);
    b.committed(Some(7));
    let expected =
        [Anomaly::DuplicateVersion { version: 1 }, Anomaly::DuplicateSequence { first: 0, second: 1, sequence: 7 }];
    assert_eq!(anomalies(&recorder, S), expected);
}

proptest! {
    /// Whatever a single client does, one transaction after the other, is strictly serializable; and pretending that
    /// the last read of a changed key saw the version before is found.
    #[test]
    fn serial_histories_are_good_and_a_stale_read_is_found(
        transactions in prop::collection::vec(prop::collection::vec((0u8..4, 0u8..5), 1..6), 1..20),
        with_sequences: bool,
    ) {
        let recorder = Recorder::new();
        let mut state: std::collections::BTreeMap<u8, Version> = Default::default();
        for (sequence, operations) in transactions.iter().enumerate() {
            let t = recorder.begin();
            for &(what, key) in operations {
                match what {
                    0 => t.read(key, state.get(&key).copied()),
                    1 => {
                        let rows = state.range(..key).map(|(key, version)| (*key, *version)).collect();
                        t.read_range(Unbounded, Excluded(key), rows);
                    }
                    2 => {
                        let version = recorder.next_version();
                        state.insert(key, version);
                        t.write(key, version);
                    }
                    _ => {
                        state.remove(&key);
                        t.delete(key);
                    }
                }
            }
            t.committed(with_sequences.then_some(sequence as u64));
        }
        let report = recorder.history().check(Level::StrictSerializable);
        prop_assert!(report.is_ok(), "{report}");
        let (a, b, stale) = (recorder.begin(), recorder.begin(), recorder.begin());
        a.write(0, 1000);
        a.write(1, 1001);
        a.committed(with_sequences.then_some(1000));
        b.read(0, Some(1000));
        b.write(0, 1002);
        b.write(1, 1003);
        b.committed(with_sequences.then_some(1001));
        stale.read(0, Some(1000));
        stale.read(1, Some(1003));
        stale.committed(None);
        prop_assert!(!recorder.history().check(S).is_ok());
    }
}
