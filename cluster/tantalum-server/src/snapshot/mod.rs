//! Snapshots of the store as files, and members that begin with one.
//!
//! A file has the rows of the store's tables as [`StateSnapshot`] writes them, zeros up to a multiple of 512 bytes, and the SHA-256 of
//! all that. etcd's snapshots end in the same way, and its clients look at the length. Those are taken too: they are files of
//! [bbolt](bolt), of which [`etcd`] makes rows.

mod bolt;
mod etcd;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::alias::{LeaderIdOf, LogIdOf};
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine, SnapshotMeta};
use openraft::vote::RaftLeaderId;
use openraft::{Membership, StoredMembership};
use sha2::{Digest, Sha256};
use tantalum_raft::StateSnapshot;
use tantalum_raft::openraft_storage::StateMachine;

use self::bolt::Bolt;
use crate::command::Config;
use crate::directory::{Identity, MemberFile, Storage, must_be_empty, remove, rename};
use crate::lease::Lessor;
use crate::mvcc::{Keyspace, PARTS, TABLES};
use crate::node::{GROUP, blocking};
use crate::options::{Bootstrap, NodeOptions};

/// What lies before the checksum has a multiple of so many bytes.
const ALIGNMENT: u64 = 512;
const CHECKSUM_BYTES: u64 = 32;

/// Computes the checksum and the length of what passes.
struct Summed<W> {
    out: W,
    sum: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a snapshot's file.
pub(crate) fn write(snapshot: &StateSnapshot, out: impl Write) -> io::Result<()> {
    let mut out = Summed { out, sum: Sha256::new(), bytes: 0 };
    snapshot.write_to(&mut out)?;
    let rest = out.bytes.next_multiple_of(ALIGNMENT) - out.bytes;
    out.write_all(&[0; ALIGNMENT as usize][..rest as usize])?;
    out.out.write_all(&out.sum.finalize())?;
    out.out.flush()
}

/// What a file has, which was looked through to its end.
struct Saved {
    rows: SavedRows,
    checksum: [u8; CHECKSUM_BYTES as usize],
}

enum SavedRows {
    Ours(StateSnapshot),
    Etcds(File),
}

/// Reads a snapshot's file, which is only taken if it is whole.
fn read(path: &Path) -> io::Result<Saved> {
    let at =
        |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{}: {what}: {error}", path.display()));
    let damaged = |what: &str| {
        let what = format!("{}: {what}; take another snapshot", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let open = || File::open(path).map_err(|error| at("cannot open the snapshot", error));
    let file = open()?;
    let bytes = file.metadata().map_err(|error| at("cannot read the snapshot", error))?.len();
    let is_etcds = Bolt::is_one(&file);
    // The file that a member of etcd has, which was stopped, has no checksum.
    let has_checksum = match bytes % ALIGNMENT {
        CHECKSUM_BYTES => true,
        0 if is_etcds => false,
        _ => return Err(damaged("is not a snapshot, or was cut off")),
    };
    let mut rows = BufReader::new(&file).take(if has_checksum { bytes - CHECKSUM_BYTES } else { bytes });
    let mut sum = Summed { out: io::sink(), sum: Sha256::new(), bytes: 0 };
    io::copy(&mut rows, &mut sum).map_err(|error| at("cannot read the snapshot", error))?;
    let checksum = sum.sum.finalize().into();
    if has_checksum {
        let mut expected = [0; CHECKSUM_BYTES as usize];
        rows.into_inner().read_exact(&mut expected).map_err(|error| at("cannot read the snapshot", error))?;
        if checksum != expected {
            return Err(damaged("is damaged: its checksum is another"));
        }
    }
    if is_etcds {
        return Ok(Saved { rows: SavedRows::Etcds(file), checksum });
    }
    let rows = StateSnapshot::read_from(open()?).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => damaged("is not a snapshot of this server, or of another version of it"),
        _ => at("cannot read the snapshot", error),
    })?;
    Ok(Saved { rows: SavedRows::Ours(rows), checksum })
}

/// Makes the directory of a member of a new cluster, with the store that a snapshot has: the same keys, revisions and history.
/// Leases have their whole time again. The snapshot may be etcd's, also the file `member/snap/db` of a member that was stopped; its users,
/// roles, members and alarms are left out. Returns the member's identity.
///
/// It is the only member, or, with [`Bootstrap::New`], one of several, of which each is made so, from the same snapshot: the cluster's
/// number follows from it, so one that is made from another, or begins with nothing, is of another cluster. Members that are added
/// later get the store from those.
///
/// ```no_run
/// # async fn restore() -> std::io::Result<()> {
/// let options = tantalum_server::NodeOptions::default();
/// let identity = tantalum_server::restore("monday.snapshot", "member", &options).await?;
/// println!("member {:x}", identity.member_id);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the directory has something already, if the file is not a whole snapshot, and if the options have the member join a cluster; then
/// nothing is made. Those of the devices.
pub async fn restore(
    file: impl Into<PathBuf>,
    directory: impl Into<PathBuf>,
    options: &NodeOptions,
) -> io::Result<Identity> {
    let (file, directory, options) = (file.into(), directory.into(), options.clone());
    // It gets its name when it is complete.
    let mut unfinished = directory.clone().into_os_string();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let (making, place) = (unfinished.clone(), directory.clone());
    let begun = blocking(move || {
        let saved = read(&file)?;
        let new = match &options.bootstrap {
            Bootstrap::Alone => MemberFile::alone(),
            Bootstrap::New(config) => {
                MemberFile::of(config, &options.name, config.restored_cluster_id(&saved.checksum))?
            }
            Bootstrap::Join(_) => {
                let what =
                    "a member that joins a cluster gets the store from the others; restore the members of a new one";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        };
        must_be_empty(&place)?;
        remove(&making)?;
        let members = new.first_members(&options);
        Ok((saved.rows, members, Storage::open(&making, &options, || new)?))
    });
    let (saved, members, storage) = begun.await??;
    let Storage { member, log, db } = storage;
    let identity = Identity { member_id: member.member_id, cluster_id: member.cluster_id };
    let keyspace = Keyspace::new(Arc::new(Lessor::default()));
    let mut state: StateMachine<Config, Keyspace> =
        StateMachine::new(db.clone(), GROUP, &TABLES, keyspace).map_err(io::Error::other)?;
    // As if the first entry, which names the members, had been applied and purged: raft's log begins behind it, so members that are added
    // get the store, and not only the entries.
    let first = LogIdOf::<Config>::new(LeaderIdOf::<Config>::new(0, 0).to_committed(), 0);
    let voters = members.keys().copied().collect::<BTreeSet<_>>();
    let membership = Membership::new(vec![voters], members).map_err(io::Error::other)?;
    let begun =
        SnapshotMeta { last_log_id: Some(first), last_membership: StoredMembership::new(Some(first), membership) };
    let (rows, etcds) = match saved {
        SavedRows::Ours(rows) => (rows, None),
        SavedRows::Etcds(file) => (state.get_snapshot_builder().await.build_snapshot().await?.snapshot, Some(file)),
    };
    state.install_snapshot(&begun, rows).await?;
    blocking(move || {
        if let Some(file) = etcds {
            etcd::fill(file, &db, state.tables())?;
        }
        // Of commands that were on their way in.
        db.delete_range(&state.tables()[PARTS], ..).map_err(io::Error::other)?;
        log.close().map_err(io::Error::other)?;
        db.close().map_err(io::Error::other)?;
        rename(&unfinished, &directory)
    })
    .await??;
    Ok(identity)
}
