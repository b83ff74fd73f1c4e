//! What is said at the socket.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    changes::{ChangeSelection, FedChange, optional_position},
    rows::{RowSelection, Rows, bytes, row_list},
    write::TableWrite,
};
use crate::{
    FeedPosition,
    db::{CompactProgress, LogChangeProgress},
    restore::RestoreProgress,
};

/// The version of what is said here; a request names it.
pub const VERSION: u32 = 1;

/// Bytes of the longest request, which is one line of JSON; [`Client`](super::Client) refuses longer ones.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// What a database can be asked for while it is open.
///
/// ```
/// let command = tantalum::control::Command::RemoveDevice { device: "log-1".into() };
/// assert_eq!(serde_json::to_value(&command)?["command"], "remove-device");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Which process has the database open, and which of the log's devices were set aside.
    Status,
    /// Its [`Stats`](crate::Stats).
    Stats,
    /// As [`Db::tables`](crate::Db::tables).
    TableNames,
    /// As [`table_sizes`](super::table_sizes).
    Tables,
    /// Rows, for [`Client::rows`](super::Client::rows).
    Rows {
        /// Which.
        #[serde(flatten)]
        selection: RowSelection,
    },
    /// How many rows these are, over all tables.
    Count {
        /// Which.
        #[serde(flatten)]
        selection: RowSelection,
    },
    /// Writes rows, and deletes some: a [`Written`](super::Written).
    Write {
        /// Which.
        #[serde(flatten)]
        write: TableWrite,
    },
    /// Changes, for [`Client::changes`](super::Client::changes).
    Changes {
        /// Which.
        #[serde(flatten)]
        selection: ChangeSelection,
    },
    /// As [`Db::change_feeds`](crate::Db::change_feeds): a list of pairs, with each position as text.
    Feeds,
    /// As [`Db::start_change_feed`](crate::Db::start_change_feed); waits up to five seconds for a moment when no transaction uses the
    /// table. The answer is the position, as text.
    StartFeed {
        /// The table.
        table: String,
    },
    /// As [`Db::end_change_feed`](crate::Db::end_change_feed); waits likewise.
    EndFeed {
        /// The table.
        table: String,
    },
    /// Writes a row, in a table that is created if there is none. The value follows the request in pieces:
    /// [`Client::put`](super::Client::put) sends it.
    PutInPieces {
        /// The table.
        table: String,
        /// The row's key.
        #[serde(with = "bytes")]
        key: Vec<u8>,
    },
    /// As [`Db::check`](crate::Db::check).
    Check,
    /// As [`Db::backup`](crate::Db::backup).
    Backup {
        /// The copy's directory, which must not exist; a relative path starts at the database's directory.
        path: String,
    },
    /// As [`Db::checkpoint`](crate::Db::checkpoint).
    Checkpoint,
    /// As [`Db::compact`](crate::Db::compact).
    Compact,
    /// As [`Db::base_backup`](crate::Db::base_backup).
    BaseBackup {
        /// The backup's directory, which must not exist; a relative path starts at the database's directory.
        path: String,
    },
    /// As [`Db::add_log_device`](crate::Db::add_log_device).
    AddDevice {
        /// The new device's path; a relative one starts at the database's directory.
        path: String,
    },
    /// As [`Db::remove_log_device`](crate::Db::remove_log_device).
    RemoveDevice {
        /// The device's path or number.
        device: String,
    },
    /// As [`Db::replace_log_device`](crate::Db::replace_log_device).
    ReplaceDevice {
        /// The old device's path or number.
        device: String,
        /// The new device's path.
        path: String,
    },
}

#[derive(Serialize)]
struct Request<'a> {
    version: u32,
    #[serde(flatten)]
    command: &'a Command,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// How far a command is that takes long.
///
/// ```
/// use tantalum::{RestorePhase, RestoreProgress, control::Progress};
/// let progress = Progress::BaseBackup(RestoreProgress { phase: RestorePhase::Copy, done_bytes: 1, total_bytes: 2 });
/// assert_eq!(serde_json::to_value(progress)?["phase"], "copy");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Progress {
    /// Of a command that changes the log's devices.
    LogChange(LogChangeProgress),
    /// Of a base backup.
    BaseBackup(RestoreProgress),
    /// Of a compaction.
    Compact(CompactProgress),
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The command goes on.
    Progress(Progress),
    /// Rows of a table, one of several such lines.
    Rows {
        table: String,
        #[serde(with = "row_list")]
        rows: Rows,
    },
    /// A piece of a row's value, one of several such lines that follow each other.
    Piece {
        table: String,
        #[serde(with = "bytes")]
        key: Vec<u8>,
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
        is_last: bool,
    },
    /// Changes, one of several such lines.
    Changes {
        changes: Vec<FedChange>,
        #[serde(default, with = "optional_position")]
        position: Option<FeedPosition>,
    },
    /// It is done.
    Result(Value),
    /// It was not done, and why.
    Error(String),
}

impl Command {
    /// The line that asks for it.
    pub fn to_line(&self) -> io::Result<Vec<u8>> {
        line_of(&Request { version: VERSION, command: self })
    }

    /// The command that a line asks for, or what is wrong with it.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        let Version { version } =
            serde_json::from_slice(line).map_err(|error| format!("this is no request with a version: {error}"))?;
        if version != VERSION {
            return Err(format!("version {version} is asked for, and this database speaks version {VERSION} only"));
        }
        serde_json::from_slice(line).map_err(|error| format!("this is no command: {error}"))
    }
}

impl Answer {
    pub fn to_line(&self) -> io::Result<Vec<u8>> {
        line_of(self)
    }

    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("the database's answer is not understood: {error}"))
    }
}

/// A line of JSON.
pub(super) fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{changes::ChangesFrom, write::KeyBounds},
        *,
    };
    use crate::{
        db::{CompactStep, LogChangePhase},
        restore::RestorePhase,
    };

    #[test]
    fn what_is_said_is_understood() {
        let (device, path) = ("log \"0\"".to_owned(), "/a\nb".to_owned());
        let position = a_position();
        let from = |from| ChangeSelection {
            from,
            limit: Some(1),
            follow: true,
            tables: vec!["t".into()],
            largest_value: Some(9),
        };
        for command in [
            Command::Status,
            Command::Stats,
            Command::TableNames,
            Command::Tables,
            Command::Rows { selection: RowSelection::default() },
            Command::Rows { selection: RowSelection::of_key("t\"", &[0, 10, 34, 127, 128, 255]) },
            Command::Count { selection: RowSelection { keys_only: true, ..RowSelection::default() } },
            Command::Write { write: TableWrite::default() },
            Command::Write {
                write: TableWrite {
                    table: "t".into(),
                    create: true,
                    puts: vec![((0..=255).collect(), vec![0])],
                    deletes: vec![Vec::new(), vec![128]],
                    delete_range: Some(KeyBounds { from: Some(vec![255]), to: None }),
                },
            },
            Command::Changes { selection: ChangeSelection::default() },
            Command::Changes { selection: from(ChangesFrom::Now) },
            Command::Changes { selection: from(ChangesFrom::Position(position)) },
            Command::Feeds,
            Command::StartFeed { table: "t".into() },
            Command::PutInPieces { table: "t".into(), key: vec![0, 10, 255] },
            Command::EndFeed { table: "t".into() },
            Command::Check,
            Command::Backup { path: path.clone() },
            Command::Checkpoint,
            Command::Compact,
            Command::BaseBackup { path: path.clone() },
            Command::AddDevice { path: path.clone() },
            Command::RemoveDevice { device: device.clone() },
            Command::ReplaceDevice { device, path },
        ] {
            let line = command.to_line().unwrap();
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1, "one line");
            assert_eq!(Command::of_line(&line), Ok(command));
        }
        let (done_bytes, total_bytes) = (1, 2);
        let change = LogChangeProgress { phase: LogChangePhase::Create, done_bytes, total_bytes };
        let copy = RestoreProgress { phase: RestorePhase::Copy, done_bytes, total_bytes };
        let moved = CompactProgress { step: CompactStep::MovePages, done: 1, total: 2 };
        let progress =
            [Progress::LogChange(change), Progress::BaseBackup(copy), Progress::Compact(moved)].map(Answer::Progress);
        let rows = vec![((0..=255).collect(), Vec::new())];
        let rows = [Answer::Rows { table: "t".into(), rows }];
        let (table, key) = ("t".to_owned(), (0..=255).collect::<Vec<u8>>());
        let changes = vec![
            FedChange::Put { table: table.clone(), key: key.clone(), value: Some(key.clone()), omitted_bytes: None },
            FedChange::Put { table: table.clone(), key: key.clone(), value: None, omitted_bytes: Some(1 << 20) },
            FedChange::Delete { table: table.clone(), key },
            FedChange::DropTable { table: table.clone() },
            FedChange::EndFeed { table },
        ];
        let piece = Answer::Piece { table: "t".into(), key: vec![10], bytes: vec![0, 255], is_last: true };
        let changes = [None, Some(position)].map(|position| Answer::Changes { changes: changes.clone(), position });
        for answer in progress
            .into_iter()
            .chain(rows)
            .chain(changes)
            .chain([piece])
            .chain([Answer::Result(Value::Null), Answer::Error("no".into())])
        {
            assert_eq!(Answer::of_line(&answer.to_line().unwrap()), Ok(answer));
        }
    }

    fn a_position() -> FeedPosition {
        let dir = tempfile::tempdir().unwrap();
        let db = crate::Db::builder().log_bytes(2 << 20).open(dir.path().join("db")).unwrap();
        db.feed_position().unwrap()
    }

    #[test]
    fn what_is_not_understood_is_answered() {
        let error = |line: &str| Command::of_line(line.as_bytes()).unwrap_err();
        assert!(error("{\"version\":2,\"command\":\"status\"}").contains("version 2"));
        assert!(error("{\"command\":\"status\"}").contains("version"));
        assert!(error("{\"version\":1,\"command\":\"drop-everything\"}").contains("drop-everything"));
        assert!(error("{\"version\":1,\"command\":\"add-device\"}").contains("path"));
        for line in ["", "x", "[]", "\u{0}", "{\"version\":-1}"] {
            error(line);
        }
    }
}
