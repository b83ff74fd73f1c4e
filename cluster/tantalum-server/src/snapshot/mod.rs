//! Snapshots of the store as files, and members that begin with one.
//!
//! A file has the rows of the store's tables as [`StateSnapshot`] writes them, zeros up to a multiple of 512 bytes, and the SHA-256 of
//! all that. etcd's snapshots end in the same way, and its clients look at the length. Those are taken too: they are files of
//! [bbolt](bolt), of which [`etcd`] makes rows.

mod bolt;
mod etcd;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::StoredMembership;
use openraft::storage::{RaftStateMachine, SnapshotMeta};
use sha2::{Digest, Sha256};
use tantalum_raft::StateSnapshot;
use tantalum_raft::openraft_storage::StateMachine;

use self::bolt::Bolt;
use crate::command::Config;
use crate::directory::{Identity, MemberFile, Storage, must_be_empty, remove, rename};
use crate::lease::Lessor;
use crate::mvcc::{Keyspace, PARTS, TABLES};
use crate::node::{GROUP, blocking};
use crate::options::NodeOptions;

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
enum Saved {
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
    if bytes % ALIGNMENT == CHECKSUM_BYTES {
        let mut rows = BufReader::new(&file).take(bytes - CHECKSUM_BYTES);
        let mut sum = Summed { out: io::sink(), sum: Sha256::new(), bytes: 0 };
        io::copy(&mut rows, &mut sum).map_err(|error| at("cannot read the snapshot", error))?;
        let mut expected = [0; CHECKSUM_BYTES as usize];
        rows.into_inner().read_exact(&mut expected).map_err(|error| at("cannot read the snapshot", error))?;
        if sum.sum.finalize()[..] != expected {
            return Err(damaged("is damaged: its checksum is another"));
        }
    } else if !is_etcds || bytes % ALIGNMENT != 0 {
        // The file that a member of etcd has, which was stopped, has no checksum.
        return Err(damaged("is not a snapshot, or was cut off"));
    }
    if is_etcds {
        return Ok(Saved::Etcds(file));
    }
    StateSnapshot::read_from(open()?).map(Saved::Ours).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => damaged("is not a snapshot of this server, or of another version of it"),
        _ => at("cannot read the snapshot", error),
    })
}

/// Makes the directory of the only member of a new cluster, with the store that a snapshot has: the same keys, revisions and history.
/// Leases have their whole time again. The snapshot may be etcd's, also the file `member/snap/db` of a member that was stopped; its users,
/// roles, members and alarms are left out. Returns the member's identity.
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
/// If the directory has something already, and if the file is not a whole snapshot; then nothing is made. Those of the devices.
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
        must_be_empty(&place)?;
        remove(&making)?;
        let storage = Storage::open(&making, &options, MemberFile::alone)?;
        Ok::<_, io::Error>((saved, storage))
    });
    let (saved, storage) = begun.await??;
    let Storage { member, log, db } = storage;
    let identity = Identity { member_id: member.member_id, cluster_id: member.cluster_id };
    let keyspace = Keyspace::new(Arc::new(Lessor::default()));
    let mut state: StateMachine<Config, Keyspace> =
        StateMachine::new(db.clone(), GROUP, &TABLES, keyspace).map_err(io::Error::other)?;
    // As if no entry had been applied yet: raft's log begins anew.
    let nothing = SnapshotMeta { last_log_id: None, last_membership: StoredMembership::default() };
    let mut etcds = None;
    match saved {
        Saved::Ours(snapshot) => state.install_snapshot(&nothing, snapshot).await?,
        Saved::Etcds(file) => etcds = Some(file),
    }
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
