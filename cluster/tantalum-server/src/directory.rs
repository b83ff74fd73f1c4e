//! A member's directory: its identity, raft's log, and the store's database.
//!
//! | file | what it is |
//! |---|---|
//! | `member.toml` | what the member was made as: numbers, name, the cluster's first members; while `is_complete` is false, the rest is being made |
//! | `raft-log` | raft's log, unless it lies on devices of its own |
//! | `state` | the store's database |

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tantalum::Db;
use tantalum_device::{Access, Device, FileDevice};
use tantalum_raft::{RaftLog, RaftLogOptions};

use crate::cluster_config::ClusterConfig;
use crate::member::Member;
use crate::options::{Bootstrap, NodeOptions};

/// Keys have an eighth of a page at most.
pub(crate) const PAGE_BYTES: u32 = 16 << 10;
const MIN_RAFT_LOG_BYTES: u64 = 4 << 20;

/// The numbers of a member. Fixed when its directory is made, and never changed.
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

/// One of the members that a cluster begins with.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstMember {
    pub id: u64,
    pub name: String,
    pub peer_urls: Vec<String>,
}

/// What a member is made as.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberFile {
    pub is_complete: bool,
    pub member_id: u64,
    pub cluster_id: u64,
    /// Of a member of a cluster that was configured as such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// It was added to a cluster that was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_joined: bool,
    /// It is no member any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raft_log_devices: Vec<PathBuf>,
    /// The cluster's first members; none if there was only this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_members: Vec<FirstMember>,
}

impl MemberFile {
    /// The only member of a new cluster.
    pub fn alone() -> MemberFile {
        // TOML has numbers up to 63 bits; etcd has no member 0.
        let draw = || fastrand::u64(1..=i64::MAX as u64);
        MemberFile::new(Identity { member_id: draw(), cluster_id: draw() }, None)
    }

    pub fn new(identity: Identity, name: Option<String>) -> MemberFile {
        let Identity { member_id, cluster_id } = identity;
        MemberFile {
            is_complete: false,
            member_id,
            cluster_id,
            name,
            is_joined: false,
            is_removed: false,
            raft_log_devices: Vec::new(),
            first_members: Vec::new(),
        }
    }

    /// One of the members that a cluster begins with.
    pub fn of(config: &ClusterConfig, name: &str, cluster_id: u64) -> io::Result<MemberFile> {
        let identity = Identity { member_id: config.member_id(config.peer_urls(name)?), cluster_id };
        let first_member = |(name, peer_urls): (&String, &Vec<String>)| FirstMember {
            id: config.member_id(peer_urls),
            name: name.clone(),
            peer_urls: peer_urls.clone(),
        };
        let first_members = config.members.iter().map(first_member).collect();
        Ok(MemberFile { first_members, ..MemberFile::new(identity, Some(name.to_owned())) })
    }

    /// The members that the cluster began with. All of them know the same ones.
    pub fn first_members(&self, options: &NodeOptions) -> BTreeMap<u64, Member> {
        if self.first_members.is_empty() {
            let (name, peer_urls) = (options.name.clone(), options.peer_urls.clone());
            return BTreeMap::from([(self.member_id, Member { name, peer_urls, ..Member::default() })]);
        }
        let first = self.first_members.iter().map(|first| {
            let (name, peer_urls) = (first.name.clone(), first.peer_urls.clone());
            (first.id, Member { name, peer_urls, ..Member::default() })
        });
        first.collect()
    }
}

/// What an open directory has.
pub(crate) struct Storage {
    pub member: MemberFile,
    pub log: RaftLog,
    pub db: Db,
}

impl Storage {
    /// Opens a member's directory, or makes that of `new` where there is nothing.
    pub fn open(path: &Path, options: &NodeOptions, new: impl FnOnce() -> MemberFile) -> io::Result<Storage> {
        if options.raft_log_bytes < MIN_RAFT_LOG_BYTES {
            let what = format!(
                "a raft log of {} bytes is too small; give it at least {MIN_RAFT_LOG_BYTES}",
                options.raft_log_bytes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        fs::create_dir_all(path).map_err(|error| at(path, "cannot make the directory", error))?;
        let devices: Vec<_> = options.raft_log_devices.iter().map(std::path::absolute).collect::<io::Result<_>>()?;
        let member = match read_member(path)? {
            Some(member) => member,
            None => begin(path, MemberFile { raft_log_devices: devices.clone(), ..new() })?,
        };
        check(path, &member, options, &devices)?;
        let db_path = path.join("state");
        let log_paths = match &member.raft_log_devices[..] {
            [] => vec![path.join("raft-log")],
            devices => devices.to_vec(),
        };
        if !member.is_complete {
            log_paths.iter().try_for_each(|path| remove(path))?;
            remove(&db_path)?;
        }
        // It also keeps other processes out.
        let db = Db::builder()
            .page_size(PAGE_BYTES)
            .log_bytes(options.state_log_bytes)
            .buffer_pool_bytes(options.buffer_pool_bytes)
            .open(&db_path)
            .map_err(io::Error::other)?;
        let device = |device: FileDevice| Arc::new(device) as Arc<dyn Device>;
        let mut member = member;
        if !member.is_complete {
            let made = log_paths.iter().map(|path| FileDevice::create(path, options.raft_log_bytes, None).map(device));
            let made = made.collect::<Result<_, _>>().map_err(io::Error::other)?;
            RaftLog::create(made, &RaftLogOptions::default()).map_err(io::Error::other)?;
            member.is_complete = true;
            write_member(path, &member)?;
        }
        let opened = log_paths.iter().map(|path| FileDevice::open(path, Access::ReadWrite).map(device));
        let opened = opened.collect::<Result<_, _>>().map_err(io::Error::other)?;
        let log = RaftLog::open(opened, &RaftLogOptions::default()).map_err(io::Error::other)?;
        Ok(Storage { member, log, db })
    }
}

/// Refuses options that contradict what a directory has.
fn check(path: &Path, member: &MemberFile, options: &NodeOptions, devices: &[PathBuf]) -> io::Result<()> {
    let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", path.display())));
    let id = member.member_id;
    if member.is_removed {
        return refuse(format!(
            "member {id:x} was removed from its cluster; to have it back, add it anew (member add) and name an empty directory"
        ));
    }
    if let Some(name) = member.name.as_ref().filter(|name| **name != options.name) {
        return refuse(format!(
            "is the directory of member {name}, and this one is to be {}; name that one's directory, or --name {name}",
            options.name
        ));
    }
    if let Bootstrap::New(config) = &options.bootstrap {
        let wanted = config.member_id(config.peer_urls(&options.name)?);
        if wanted != id && member.is_joined {
            return refuse(format!(
                "has member {id:x}, which joined cluster {:x}; leave --initial-cluster or --cluster out, or say \
                 --initial-cluster-state existing",
                member.cluster_id
            ));
        }
        if wanted != id {
            return refuse(format!(
                "has member {id:x} of cluster {:x}, and {} of the cluster that is named is member {wanted:x}, by its URLs and the \
                 token; name that one's directory, or leave --initial-cluster or --cluster out to serve the one that is here",
                member.cluster_id, options.name
            ));
        }
    }
    if !devices.is_empty() && devices != member.raft_log_devices {
        let has: Vec<_> = member.raft_log_devices.iter().map(|path| path.display().to_string()).collect();
        let has = if has.is_empty() { "in its file raft-log".to_owned() } else { format!("on {}", has.join(", ")) };
        return refuse(format!(
            "raft's log of this member lies {has}, and --raft-log-device names others; leave it out, it counts when a directory is made"
        ));
    }
    Ok(())
}

/// Notes that a directory's member is none any more.
pub(crate) fn mark_removed(path: &Path) -> io::Result<()> {
    match read_member(path)? {
        Some(member) => write_member(path, &MemberFile { is_removed: true, ..member }),
        None => Ok(()),
    }
}

fn member_path(path: &Path) -> PathBuf {
    path.join("member.toml")
}

pub(crate) fn read_member(path: &Path) -> io::Result<Option<MemberFile>> {
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
fn begin(path: &Path, member: MemberFile) -> io::Result<MemberFile> {
    must_be_empty(path)?;
    if let Some(device) = member.raft_log_devices.iter().find(|device| device.exists()) {
        let what =
            format!("{}: is there already; name a file that is not, or remove it, for raft's log", device.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
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
