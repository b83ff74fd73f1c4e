//! What clients did to lists that only grow, and whether it could have happened one after the other: each operation at one moment
//! between its begin and its end.
//!
//! A list says of each operation how many appends came before it, so the check needs no search: all lists that were seen begin the last
//! one, and no operation saw less than one that had ended before it began.

use std::collections::BTreeMap;

/// An operation on one list. Moments are numbers that grow.
#[derive(Clone, Debug)]
pub struct Operation {
    pub list: String,
    pub begin: u64,
    pub outcome: Outcome,
    /// What it was to append.
    pub appends: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was done: the list after it.
    Done { end: u64, after: Vec<u64> },
    /// It was certainly not done.
    NotDone,
    /// It may be done, at any time after its begin.
    Unknown,
}

/// A text of numbers.
pub fn encode(list: &[u64]) -> String {
    list.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

pub fn decode(text: &[u8]) -> Vec<u64> {
    let text = std::str::from_utf8(text).expect("a list is text");
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().expect("a number")).collect()
}

/// Whether operations on several lists, which were in the end as `last` says, could have happened one after the other.
pub fn check(operations: &[Operation], last: &BTreeMap<String, Vec<u64>>) -> Result<(), String> {
    let mut of_list: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        of_list.entry(&operation.list).or_default().push(operation);
    }
    let nothing = Vec::new();
    for (list, operations) in of_list {
        check_list(&operations, last.get(list).unwrap_or(&nothing)).map_err(|what| format!("{list}: {what}"))?;
    }
    Ok(())
}

fn check_list(operations: &[&Operation], last: &[u64]) -> Result<(), String> {
    let mut begins: BTreeMap<u64, u64> = BTreeMap::new();
    for operation in operations {
        if let Some(value) = operation.appends {
            begins.insert(value, operation.begin);
            let place = last.iter().position(|appended| *appended == value);
            match (&operation.outcome, place) {
                (Outcome::NotDone, Some(_)) => return Err(format!("{value} was refused and is there")),
                (Outcome::Done { .. }, None) => return Err(format!("{value} was acknowledged and is lost")),
                _ => {}
            }
        }
    }
    // Before this moment, not all of the first so many were under way.
    let mut possible_from = vec![0];
    for (place, value) in last.iter().enumerate() {
        if last[..place].contains(value) {
            return Err(format!("{value} is there twice"));
        }
        let begin = begins.get(value).ok_or_else(|| format!("nothing appended {value}"))?;
        possible_from.push((*begin).max(possible_from[place]));
    }
    // Ends with what was seen by then.
    let mut seen: Vec<(u64, usize)> = Vec::new();
    for operation in operations {
        let Outcome::Done { end, after } = &operation.outcome else { continue };
        if !last.starts_with(after) {
            return Err(format!("{after:?} was seen, which does not begin {last:?}"));
        }
        if operation.appends.is_some() && operation.appends.as_ref() != after.last() {
            return Err(format!("{operation:?} is not what it saw"));
        }
        if possible_from[after.len()] > *end {
            return Err(format!("{operation:?} saw what had not begun"));
        }
        seen.push((*end, after.len()));
    }
    seen.sort_unstable();
    let mut most = 0;
    for (_, len) in &mut seen {
        most = most.max(*len);
        *len = most;
    }
    for operation in operations {
        let Outcome::Done { after, .. } = &operation.outcome else { continue };
        let ended = seen.partition_point(|(end, _)| *end < operation.begin);
        let before = ended.checked_sub(1).map_or(0, |at| seen[at].1);
        let had = after.len() - usize::from(operation.appends.is_some());
        if had < before {
            return Err(format!("{operation:?} is stale: {before} were there before it began"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(begin: u64, end: u64, appends: Option<u64>, after: &[u64]) -> Operation {
        let outcome = Outcome::Done { end, after: after.to_vec() };
        Operation { list: "l".to_owned(), begin, outcome, appends }
    }

    fn checked(operations: &[Operation], last: &[u64]) -> Result<(), String> {
        check(operations, &BTreeMap::from([("l".to_owned(), last.to_vec())]))
    }

    #[test]
    fn what_could_have_happened_is_taken_and_the_rest_refused() {
        let unknown = Operation { outcome: Outcome::Unknown, ..operation(3, 0, Some(2), &[]) };
        let history = vec![
            operation(1, 2, Some(1), &[1]),
            unknown.clone(),
            operation(4, 9, Some(3), &[1, 2, 3]),
            operation(5, 6, None, &[1]),
            operation(7, 8, None, &[1, 2]),
        ];
        assert_eq!(checked(&history, &[1, 2, 3]), Ok(()));
        assert_eq!(checked(std::slice::from_ref(&unknown), &[]), Ok(()));
        let refused = |more: Operation, last: &[u64]| {
            let history: Vec<_> = history.iter().cloned().chain([more]).collect();
            checked(&history, last).expect_err("it is refused")
        };
        assert!(refused(operation(10, 11, None, &[1, 2]), &[1, 2, 3]).contains("stale"));
        assert!(refused(operation(9, 11, None, &[1, 3]), &[1, 2, 3]).contains("does not begin"));
        assert!(refused(operation(10, 11, Some(4), &[1, 2, 3, 4]), &[1, 2, 3]).contains("lost"));
        assert!(refused(operation(1, 2, None, &[1, 2]), &[1, 2, 3]).contains("had not begun"));
        let twice = refused(operation(10, 11, None, &[]), &[1, 2, 3, 2]);
        assert!(twice.contains("twice"), "{twice}");
        assert!(refused(operation(10, 11, None, &[]), &[1, 2, 3, 9]).contains("nothing appended 9"));
        let not_done = Operation { outcome: Outcome::NotDone, ..operation(1, 0, Some(4), &[]) };
        assert!(refused(not_done, &[1, 2, 3, 4]).contains("refused and is there"));
    }

    #[test]
    fn lists_are_texts() {
        for list in [vec![], vec![7], vec![1, 22, 333]] {
            assert_eq!(decode(encode(&list).as_bytes()), list);
        }
    }
}
