//! Errors of the log: what failed, where, and the remedy.

use std::sync::Arc;
use std::time::Duration;

use crate::format::{DecodeError, VERSION};
use crate::{LogLayout, Lsn, MissingRecords};

/// The result of a log operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the log. Each message names the device and offset, what was expected, and the remedy.
///
/// Errors can be cloned, because a poisoned log repeats its first cause to every later caller.
///
/// ```
/// let error = tantalum_log::Error::Full { needed: 4096 };
/// assert!(error.is_full());
/// assert!(error.to_string().contains("4096"));
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no room for the record until the owner moves the checkpoint.
    #[error(
        "the log has no room for {needed} more bytes; release what a checkpoint needs, wait for space, and append again"
    )]
    Full {
        /// The bytes of log space that the append asked for.
        needed: u64,
    },
    /// The record can never fit in one request.
    #[error(
        "a record of {bytes} bytes exceeds the log's limit of {limit} bytes; split it, or create the log with larger sections and buffers"
    )]
    RecordTooLarge {
        /// The size of the record.
        bytes: u64,
        /// The largest record that the log takes.
        limit: u64,
    },
    /// No device is left to write to, or an earlier failure made the log unsafe to continue.
    #[error("the log stopped accepting work after a failure and must be reopened; the first cause was: {cause}")]
    Poisoned {
        /// The first failure.
        #[source]
        cause: Arc<Error>,
    },
    /// A panic, or the log's owner, interrupted a change of the state in memory.
    #[error("{what}; the state in memory cannot be trusted any more")]
    Interrupted {
        /// What was interrupted, by what.
        what: String,
    },
    /// The log was closed.
    #[error("the log is closed; open it again to use it")]
    Closed,
    /// A flush or ticket asked for bytes that were never appended.
    #[error("LSN {lsn} lies beyond the end of the log at {end}; wait only for LSNs that an append returned")]
    BeyondEnd {
        /// The position asked for.
        lsn: Lsn,
        /// The append position.
        end: Lsn,
    },
    /// A checkpoint may only cover durable records.
    #[error("checkpoint {lsn} lies beyond the durable end of the log at {durable}; flush the log up to it first")]
    CheckpointNotDurable {
        /// The checkpoint asked for.
        lsn: Lsn,
        /// The durable end of the log.
        durable: Lsn,
    },
    /// A device reported an error.
    #[error("log device: {0}")]
    Device(#[from] tantalum_device::Error),
    /// A write did not complete in time.
    #[error(
        "{device}: a write of {bytes} bytes at offset {offset} did not complete within {timeout:?}; the device was set aside, check it"
    )]
    DeviceHung {
        /// The device's name.
        device: String,
        /// Where the write goes, in bytes.
        offset: u64,
        /// The size of the write.
        bytes: u64,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// No devices were given.
    #[error("a log needs at least one device; pass the devices that it was created on")]
    NoDevices,
    /// More devices than a checkpoint slot can describe.
    #[error("{count} devices are too many, a log takes at most {limit}; use fewer")]
    TooManyDevices {
        /// How many were given.
        count: usize,
        /// The most that a log takes.
        limit: usize,
    },
    /// An option has an impossible value.
    #[error("log option {option} is {value}, but {expected}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it should be.
        expected: &'static str,
    },
    /// A device is too small to be a log device.
    #[error(
        "{device}: {bytes} bytes are too few for a log device, at least {needed} are needed with these sections; enlarge it or choose smaller sections"
    )]
    AreaTooSmall {
        /// The device's name.
        device: String,
        /// Its capacity.
        bytes: u64,
        /// What is needed.
        needed: u64,
    },
    /// The device's logical block does not divide the log's block.
    #[error(
        "{device}: logical blocks of {found} bytes do not divide the log's blocks of {expected} bytes; use another device"
    )]
    UnsupportedBlock {
        /// The device's name.
        device: String,
        /// Its logical block size.
        found: u32,
        /// The log's block size.
        expected: u32,
    },
    /// The device carries no log.
    #[error(
        "{device}: no log superblock at offset 0, the device was never formatted as a log device; check the path, or create the log"
    )]
    NotALog {
        /// The device's name.
        device: String,
    },
    /// The log was written by a newer version.
    #[error(
        "{device}: the log at offset {offset} has format version {found}, this program reads up to {supported}; use a newer version"
    )]
    NewerVersion {
        /// The device's name.
        device: String,
        /// Where the superblock lies.
        offset: u64,
        /// The version found.
        found: u16,
        /// The newest version understood.
        supported: u16,
    },
    /// The log was written before its format was settled.
    #[error(
        "{device}: the log at offset {offset} has format version {found}, this program reads version {supported} only; read it with the program that wrote it, and create it anew"
    )]
    OlderVersion {
        /// The device's name.
        device: String,
        /// Where the superblock lies.
        offset: u64,
        /// The version found.
        found: u16,
        /// The version understood.
        supported: u16,
    },
    /// Both copies of a superblock are damaged.
    #[error(
        "{device}: both superblocks (offsets 0 and {offset}) are damaged: {what}; restore the device from a backup"
    )]
    DamagedSuperblock {
        /// The device's name.
        device: String,
        /// Where the second copy lies.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The device belongs to another log.
    #[error(
        "{device}: belongs to log {found:032x}, but the other devices to log {expected:032x} (superblock at offset 0); pass the devices of one log"
    )]
    ForeignDevice {
        /// The device's name.
        device: String,
        /// The log that it belongs to.
        found: u128,
        /// The log that the other devices belong to.
        expected: u128,
    },
    /// The device was removed from the log, or was formatted for it and never became part of it.
    #[error(
        "{device}: is no device of log {log_id:032x} (any more): the log does not list device identity {device_id:016x} (superblock at offset 0); leave the device out, or add it to the running log, which formats it"
    )]
    NotAMember {
        /// The device's name.
        device: String,
        /// Its identity.
        device_id: u64,
        /// The log that it was formatted for.
        log_id: u128,
    },
    /// The device, or the archive, is a copy from an earlier session of the log.
    #[error(
        "{device}: is a copy from session {found} of the log, which had reached session {expected} everywhere; put the present one in its place, or restore a backup"
    )]
    Stale {
        /// The device's or archive's name.
        device: String,
        /// The last session that it bears.
        found: u64,
        /// The session that it bears at least if it is the present one.
        expected: u64,
    },
    /// The device is to be added, and the log has it already.
    #[error(
        "{device}: is device {ordinal} of this log already; add another one, or replace it by itself to format it anew"
    )]
    AlreadyMember {
        /// The device's name.
        device: String,
        /// The device's place in the log.
        ordinal: u32,
    },
    /// The log has no device of that number.
    #[error("the log has no device {ordinal}; its statistics list the devices")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: u32,
    },
    /// The device is in the log's list, and not there.
    #[error(
        "log device {ordinal} is not there: it was not usable when the log was opened, or has left the log; open the log with it, or replace it"
    )]
    Absent {
        /// The device's place in the log.
        ordinal: u32,
    },
    /// The device is said to be lost, and is there.
    #[error("{device}: device {ordinal} of the log is there; open the log with it, and take it out of the running log")]
    NotLost {
        /// The device's name.
        device: String,
        /// The device's place in the log.
        ordinal: u32,
    },
    /// Without the device, nothing would take the log's requests.
    #[error(
        "{device}: cannot be removed, no other device of the log is healthy; add one first, or replace this one by another"
    )]
    LastDevice {
        /// The device's name.
        device: String,
    },
    /// Without the device, only one piece of hardware would have the log's requests, of which two copies are asked for.
    #[error(
        "{device}: cannot be removed, the log keeps two copies and no two other pieces of hardware are healthy; add a device first, or replace this one by another"
    )]
    LastCopy {
        /// The device's name.
        device: String,
    },
    /// A write that was given up is still under way on the device; it could overwrite what is written there later.
    #[error(
        "{device}: cannot be used again yet, a write that was given up after the hang time-out is still under way on it; reset or replace the device, or try again later"
    )]
    StillWriting {
        /// The device's name.
        device: String,
    },
    /// The log's layout does not let its devices come and go.
    #[error(
        "the devices of a log in the {layout} layout are fixed when it is created; only flash-logging lets them come and go"
    )]
    FixedDevices {
        /// The log's layout.
        layout: LogLayout,
    },
    /// Another change of the log's devices is under way.
    #[error("another change of the log's devices is under way; wait for its end and try again")]
    ChangeUnderWay,
    /// Devices cannot leave, because the log's owner cannot checkpoint, and without a checkpoint what they hold is needed.
    #[error(
        "the devices stay in the log: what they hold is needed until a checkpoint, and that failed: {cause}; put that right, then try again"
    )]
    CheckpointFailed {
        /// What the owner said.
        #[source]
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The device is shorter than when it was formatted.
    #[error(
        "{device}: holds {bytes} bytes, but was formatted with {expected} (superblock at offset 0); open the log with as \
         many partitions as it was created with; if they are, the file was truncated: restore it"
    )]
    Truncated {
        /// The device's name.
        device: String,
        /// The present capacity.
        bytes: u64,
        /// The capacity when it was formatted.
        expected: u64,
    },
    /// Two devices claim the same place in the log.
    #[error(
        "{second}: claims to be log device {ordinal} (superblock at offset 0), as {first} does; pass each device once and no copies"
    )]
    DuplicateDevice {
        /// The device's place in the log.
        ordinal: u32,
        /// The first device's name.
        first: String,
        /// The second device's name.
        second: String,
    },
    /// A device is missing that holds records which are needed.
    #[error(
        "log device {ordinal} of {count} is missing{}, and with it {missing}; pass all devices of the log, or {}",
        because(reason.as_deref()),
        if missing.is_nothing() { "give up those that are lost" } else { "restore a backup" }
    )]
    MissingDevice {
        /// The device's place in the log, from 0; of several that are missing, the first.
        ordinal: u32,
        /// How many devices the log has.
        count: u32,
        /// What no other device has.
        missing: MissingRecords,
        /// Why a device that was given is not taken for it.
        #[source]
        reason: Option<Arc<Error>>,
    },
    /// The log's archive is not there, and holds records that are nowhere else.
    #[error(
        "the log cannot be opened without its archive, which may alone hold records from LSN {from} on; name the archive, or restore a backup"
    )]
    MissingArchive {
        /// Where the records end that the devices hold.
        from: Lsn,
    },
    /// The archive ends too early.
    #[error(
        "{archive}: the archive ends at LSN {end}, but LSN {needed} and what follows was archived; it is damaged, or an old copy: put the right one in its place"
    )]
    ArchiveTooShort {
        /// The archive's name.
        archive: String,
        /// Where it ends.
        end: Lsn,
        /// Up to where it must reach at least.
        needed: Lsn,
    },
    /// The archive lacks records that are asked for.
    #[error(
        "{archive}: the archive lacks the records from LSN {from} up to LSN {to}; ask for what it has, or begin with a later backup"
    )]
    NotArchived {
        /// The archive's name.
        archive: String,
        /// Where the missing records start.
        from: Lsn,
        /// Where the archive goes on, or where its end was expected.
        to: Lsn,
    },
    /// What was named as an archive is none.
    #[error("{archive}: not an archive of a log: {what}; name another place, or empty this one")]
    NotAnArchive {
        /// The archive's name.
        archive: String,
        /// What was found.
        what: String,
    },
    /// The archive belongs to another log.
    #[error(
        "{archive}: is the archive of log {found:032x}, not of log {expected:032x}; give each log an archive of its own"
    )]
    ForeignArchive {
        /// The archive's name.
        archive: String,
        /// The log that it belongs to.
        found: u128,
        /// The log that is opened.
        expected: u128,
    },
    /// The archive on a device holds nothing that could be overwritten: it was set aside before, and lacks more than it has room
    /// for.
    #[error(
        "{archive}: every segment of the archive holds what opening the log needs; make checkpoints, and use a larger device"
    )]
    ArchiveFull {
        /// The archive's name.
        archive: String,
    },
    /// The segments of an archive on a device are not removed.
    #[error(
        "{archive}: an archive on a device is a circle whose newest segment overwrites the oldest that no checkpoint needs; there is nothing to remove"
    )]
    ArchiveOnDevice {
        /// The archive's name.
        archive: String,
    },
    /// The log has an archive already.
    #[error("the log is archived in {archive} already; a log has one archive at a time")]
    ArchiveInUse {
        /// The archive's name.
        archive: String,
    },
    /// An archive that was set aside cannot be given up yet.
    #[error(
        "{archive}: the archive was set aside and holds records up to LSN {until} that are nowhere else; make a checkpoint first"
    )]
    ArchiveNeeded {
        /// The archive's name.
        archive: String,
        /// Where those records end.
        until: Lsn,
    },
    /// A file operation on an archive's directory failed.
    #[error("{path}: cannot {doing} it: {source}; check the archive's directory and its file system")]
    ArchiveDirectory {
        /// The file or directory.
        path: String,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// Something that was durable is damaged or gone.
    #[error(
        "{device}: the log is damaged at offset {offset} (near LSN {lsn}): {what}; nothing was changed, restore the device or its log from a backup"
    )]
    Corrupt {
        /// The device's name.
        device: String,
        /// The byte offset on the device.
        offset: u64,
        /// The log position at or before which the damage lies.
        lsn: Lsn,
        /// What was expected and what was found.
        what: String,
    },
}

fn because(reason: Option<&Error>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

impl Error {
    /// The error for a structure of another version of the format, if that is what is wrong.
    pub(crate) fn of_version(error: DecodeError, device: String, offset: u64) -> Option<Error> {
        let supported = VERSION;
        match error {
            DecodeError::NewerVersion { found } => Some(Error::NewerVersion { device, offset, found, supported }),
            DecodeError::OlderVersion { found } => Some(Error::OlderVersion { device, offset, found, supported }),
            _ => None,
        }
    }

    /// Whether the error is [`Error::Full`]: the same append can succeed after [`Log::wait_for_space`](crate::Log::wait_for_space).
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. })
    }
}
