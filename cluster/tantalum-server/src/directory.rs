//! A member's directory: its identity, raft's log, and the store's database.
//!
//! | file | what it is |
//! |---|---|
//! | `member.toml` | the member's and the cluster's numbers; while `is_complete` is false, the rest is being made |
//! | `raft-log` | raft's log |
//! | `state` | the store's database |

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tantalum::Db;
use tantalum_device::{Access, Device, FileDevice};
use tantalum_raft::{RaftLog, RaftLogOptions};

use crate::options::NodeOptions;

/// Keys have an eighth of a page at most.
pub(crate) const PAGE_BYTES: u32 = 16 << 10;
const MIN_RAFT_LOG_BYTES: u64 = 4 << 20;

/// The numbers of a member. Drawn when its directory is made, and never changed.
///
/// ```
/// let identity = tantalum_server::Identity { member_id: 1, cluster_id: 2 };
/// assert_ne!(identity.member_id, identity.cluster_id);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The member's number, which raft knows it by.
    pub member_id: u64,
    /// The cluster's number.
    pub cluster_id: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberFile {
    is_complete: bool,
    member_id: u64,
    cluster_id: u64,
}

/// What an open directory has.
pub(crate) struct Storage {
    pub identity: Identity,
    pub log: RaftLog,
    pub db: Db,
}

impl Storage {
    /// Opens a member's directory, or makes one where there is nothing.
    pub fn open(path: &Path, options: &NodeOptions) -> io::Result<Storage> {
        if options.raft_log_bytes < MIN_RAFT_LOG_BYTES {
            let what = format!(
                "a raft log of {} bytes is too small; give it at least {MIN_RAFT_LOG_BYTES}",
                options.raft_log_bytes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        fs::create_dir_all(path).map_err(|error| at(path, "cannot make the directory", error))?;
        let member = match read_member(path)? {
            Some(member) => member,
            None => begin(path)?,
        };
        let (log_path, db_path) = (path.join("raft-log"), path.join("state"));
        if !member.is_complete {
            remove(&log_path)?;
            remove(&db_path)?;
        }
        // It also keeps other processes out.
        let db = Db::builder()
            .create_if_missing(!member.is_complete)
            .page_size(PAGE_BYTES)
            .log_bytes(options.state_log_bytes)
            .buffer_pool_bytes(options.buffer_pool_bytes)
            .open(&db_path)
            .map_err(io::Error::other)?;
        if !member.is_complete {
            let device: Arc<dyn Device> =
                Arc::new(FileDevice::create(&log_path, options.raft_log_bytes, None).map_err(io::Error::other)?);
            RaftLog::create(vec![device], &RaftLogOptions::default()).map_err(io::Error::other)?;
            write_member(path, &MemberFile { is_complete: true, ..member })?;
        }
        let device: Arc<dyn Device> =
            Arc::new(FileDevice::open(&log_path, Access::ReadWrite).map_err(io::Error::other)?);
        let log = RaftLog::open(vec![device], &RaftLogOptions::default()).map_err(io::Error::other)?;
        let identity = Identity { member_id: member.member_id, cluster_id: member.cluster_id };
        Ok(Storage { identity, log, db })
    }
}

fn member_path(path: &Path) -> PathBuf {
    path.join("member.toml")
}

fn read_member(path: &Path) -> io::Result<Option<MemberFile>> {
    let path = member_path(path);
    match fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| {
            let what = format!("{}: is not what a member has written: {error}; restore the file", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(&path, "cannot read", error)),
    }
}

/// Refuses a directory that has something.
pub(crate) fn must_be_empty(path: &Path) -> io::Result<()> {
    let found = match fs::read_dir(path) {
        Ok(mut entries) => entries.next(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(at(path, "cannot list", error)),
    };
    let Some(found) = found else { return Ok(()) };
    let found = found.map_err(|error| at(path, "cannot list", error))?.file_name();
    let what = match member_path(path).exists() {
        true => "has a member already".to_owned(),
        false => format!("is not a member's directory, it has {} and no member.toml", found.display()),
    };
    let what = format!("{}: {what}; name another directory, or an empty one", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Begins a new member, in a directory that must be empty.
fn begin(path: &Path) -> io::Result<MemberFile> {
    must_be_empty(path)?;
    // TOML has numbers up to 63 bits; etcd has no member 0.
    let draw = || fastrand::u64(1..=i64::MAX as u64);
    let member = MemberFile { is_complete: false, member_id: draw(), cluster_id: draw() };
    write_member(path, &member)?;
    Ok(member)
}

fn write_member(path: &Path, member: &MemberFile) -> io::Result<()> {
    let (new, place) = (path.join("member.toml.new"), member_path(path));
    let write = || -> io::Result<()> {
        let text = toml::to_string(member).map_err(io::Error::other)?;
        let mut file = fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &place)?;
        fs::File::open(path)?.sync_all()
    };
    write().map_err(|error| at(&place, "cannot write", error))
}

/// Removes what an earlier attempt left.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path, "cannot remove", error)),
        _ => Ok(()),
    }
}

/// Gives a directory that is complete its name, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::rename(from, to).and_then(|()| fs::File::open(parent)?.sync_all()).map_err(|error| at(to, "cannot make", error))
}

fn at(path: &Path, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {what}: {error}", path.display()))
}
