//! Pragmas that the VFS answers, or has to know of.

/// What the VFS does about a pragma.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It answers, and SQLite does nothing.
    Text(&'static str),
    /// SQLite changes the locking mode.
    Exclusive(bool),
    /// The VFS has nothing to do with it.
    OfSqlite,
}

/// The journal mode that was asked for last.
pub(crate) struct JournalModes {
    last: &'static str,
}

impl Default for JournalModes {
    fn default() -> Self {
        Self { last: "delete" }
    }
}

/// What the VFS does about the pragma `name=value`.
pub(crate) fn answer(modes: &mut JournalModes, name: &str, value: Option<&str>) -> Answer {
    let Some(value) = value else { return Answer::OfSqlite };
    let is = |text: &str, other: &str| text.eq_ignore_ascii_case(other);
    if is(name, "locking_mode") {
        return match value {
            _ if is(value, "exclusive") => Answer::Exclusive(true),
            _ if is(value, "normal") => Answer::Exclusive(false),
            _ => Answer::OfSqlite,
        };
    }
    if !is(name, "journal_mode") {
        return Answer::OfSqlite;
    }
    // Without shared memory, SQLite itself refuses WAL, but not under locking_mode=EXCLUSIVE. Refused, the pragma returns the mode as it is.
    if is(value, "wal") {
        return Answer::Text(modes.last);
    }
    let known = ["delete", "truncate", "persist", "memory", "off"].into_iter().find(|mode| is(value, mode));
    modes.last = known.unwrap_or(modes.last);
    Answer::OfSqlite
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wal_is_answered_with_the_mode_as_it_is() {
        let modes = &mut JournalModes::default();
        assert_eq!(answer(modes, "Journal_Mode", Some("WAL")), Answer::Text("delete"));
        assert_eq!(answer(modes, "journal_mode", Some("Persist")), Answer::OfSqlite);
        assert_eq!(answer(modes, "journal_mode", None), Answer::OfSqlite);
        assert_eq!(answer(modes, "journal_mode", Some("wal")), Answer::Text("persist"));
        assert_eq!(answer(modes, "locking_mode", Some("EXCLUSIVE")), Answer::Exclusive(true));
        assert_eq!(answer(modes, "locking_mode", Some("normal")), Answer::Exclusive(false));
        assert_eq!(answer(modes, "user_version", Some("wal")), Answer::OfSqlite);
    }
}
