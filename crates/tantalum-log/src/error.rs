//! Errors of the log that are made in more than one place, and those that its owner reports too.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::format::{DecodeError, VERSION};
use crate::{Damage, Error, ErrorKind, LogLayout, Lsn};

/// The log stopped because of `cause`, which every later caller gets.
pub fn poisoned(cause: Error) -> Error {
    let what =
        format!("the log stopped accepting work after a failure and must be reopened; the first cause was: {cause}");
    Error::new(ErrorKind::Poisoned, what).with_source(cause)
}

/// A panic, or the log's owner, interrupted a change of the state in memory.
pub fn interrupted(what: impl Display) -> Error {
    Error::new(ErrorKind::Poisoned, format!("{what}; the state in memory cannot be trusted any more"))
}

/// The device carries no log.
pub fn not_a_log(device: &str) -> Error {
    let what = format!(
        "{device}: no log superblock at offset 0, the device was never formatted as a log device; check the path, or create the log"
    );
    Error::new(ErrorKind::NotAMember, what).with_subject(device)
}

/// The device belongs to another log.
pub fn foreign_device(device: impl Display, found: u128, expected: u128) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "{device}: belongs to log {found:032x}, but the other devices to log {expected:032x} (superblock at offset 0); pass the devices of one log"
        ),
    )
}

/// The archive belongs to another log.
pub fn foreign_archive(archive: impl Display, found: u128, expected: u128) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "{archive}: is the archive of log {found:032x}, not of log {expected:032x}; give each log an archive of its own"
        ),
    )
}

/// The archive lacks records that are asked for, between two LSNs.
pub fn not_archived(archive: impl Display, from: Lsn, to: Lsn) -> Error {
    Error::new(
        ErrorKind::NotArchived,
        format!(
            "{archive}: the archive lacks the records from LSN {from} up to LSN {to}; ask for what it has, or begin with a later backup"
        ),
    )
}

/// The log's layout does not let its devices come and go.
pub fn fixed_devices(layout: LogLayout) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the devices of a log in the {layout} layout are fixed when it is created; only flash-logging lets them come and go"
        ),
    )
}

/// Another change of the log's devices is under way.
pub fn change_under_way() -> Error {
    Error::new(ErrorKind::Busy, "another change of the log's devices is under way; wait for its end and try again")
}

/// A log cannot shrink onto the devices that it has.
pub(crate) fn change_in_place() -> Error {
    Error::new(ErrorKind::InvalidInput, "the log cannot shrink onto devices that it has; give others")
}

/// A change of the devices waited for a checkpoint, and that failed; `what` says what stays as it is.
pub(crate) fn checkpoint_failed(what: &str, cause: Arc<dyn std::error::Error + Send + Sync>) -> Error {
    let kind = cause.downcast_ref::<Error>().map_or(ErrorKind::Io, Error::kind);
    let what = format!("{what} is needed until a checkpoint, and that failed: {cause}; put that right, then try again");
    Error::new(kind, what).with_boxed_source(cause)
}

/// A write that was given up is still under way on the device; it could overwrite what is written there later.
pub fn still_writing(device: &str) -> Error {
    let what = format!(
        "{device}: cannot be used again yet, a write that was given up after the hang time-out is still under way on it; reset or replace the device, or try again later"
    );
    Error::new(ErrorKind::Busy, what).with_subject(device)
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the log is closed; open it again to use it").with_subject("log")
}

/// A write did not complete in time.
pub(crate) fn device_hung(device: impl Display, offset: u64, bytes: u64, timeout: Duration) -> Error {
    Error::new(
        ErrorKind::TimedOut,
        format!(
            "{device}: a write of {bytes} bytes at offset {offset} did not complete within {timeout:?}; the device was set aside, check it"
        ),
    )
}

pub(crate) fn no_devices() -> Error {
    Error::new(ErrorKind::Missing, "a log needs at least one device; pass the devices that it was created on")
}

pub(crate) fn too_many_devices(count: usize, limit: usize) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{count} devices are too many, a log takes at most {limit}; use fewer"))
}

pub(crate) fn invalid_option(option: &str, value: u64, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("log option {option} is {value}, but {expected}"))
}

pub(crate) fn area_too_small(device: &str, bytes: u64, needed: u64) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "{device}: {bytes} bytes are too few for a log device, at least {needed} are needed with these sections; enlarge it or choose smaller sections"
        ),
    )
}

/// The device is shorter than when it was formatted.
pub(crate) fn too_short(device: &str, bytes: u64, expected: u64) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "{device}: holds {bytes} bytes, but was formatted with {expected} (superblock at offset 0); open the log with as many partitions as it was created with; if they are, the file was truncated: restore it"
        ),
    )
}

/// The device's logical block does not divide the log's block.
pub(crate) fn unsupported_block(device: &str, found: u32, expected: u32) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{device}: logical blocks of {found} bytes do not divide the log's blocks of {expected} bytes; use another device, or \
             copy the database to a new one with `tantalum db backup`, which can read it here"
        ),
    )
}

/// Both copies of a superblock are damaged; the second one lies at `offset`.
pub(crate) fn damaged_superblock(device: impl Display, offset: u64, what: impl Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{device}: both superblocks (offsets 0 and {offset}) are damaged: {what}; restore the device from a backup"
        ),
    )
}

pub(crate) fn no_such_device(ordinal: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("the log has no device {ordinal}; its statistics list the devices"))
}

/// The device is in the log's list, and not there.
pub(crate) fn absent(ordinal: u32) -> Error {
    Error::new(
        ErrorKind::Missing,
        format!(
            "log device {ordinal} is not there: it was not usable when the log was opened, or has left the log; open the log with it, or replace it"
        ),
    )
}

/// Two devices claim the same place in the log.
pub(crate) fn duplicate_device(ordinal: u32, first: impl Display, second: impl Display) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "{second}: claims to be log device {ordinal} (superblock at offset 0), as {first} does; pass each device once and no copies"
        ),
    )
}

/// The log's archive is not there, and holds records from an LSN on that are nowhere else.
pub(crate) fn missing_archive(from: Lsn) -> Error {
    Error::new(
        ErrorKind::NotArchived,
        format!(
            "the log cannot be opened without its archive, which may alone hold records from LSN {from} on; name the archive, or restore a backup"
        ),
    )
}

pub(crate) fn not_an_archive(archive: impl Display, what: impl Display) -> Error {
    Error::new(
        ErrorKind::NotArchived,
        format!("{archive}: not an archive of a log: {what}; name another place, or empty this one"),
    )
}

/// The error for a structure of another version of the format, if that is what is wrong.
pub(crate) fn of_version(error: DecodeError, device: impl Display, offset: u64) -> Option<Error> {
    let (found, remedy) = match error {
        DecodeError::NewerVersion { found } => (found, format!("up to {VERSION}; use a newer version")),
        DecodeError::OlderVersion { found } => {
            let remedy = "read it with the program that wrote it, and create it anew";
            (found, format!("version {VERSION} only; {remedy}"))
        }
        _ => return None,
    };
    let what = format!("{device}: the log at offset {offset} has format version {found}, this program reads {remedy}");
    Some(Error::new(ErrorKind::Unsupported, what))
}

/// Something that was durable is damaged or gone.
impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        let Damage { device, offset, lsn, what } = &damage;
        let lsn = lsn.unwrap_or_default();
        let message = format!(
            "{device}: the log is damaged at offset {offset} (near LSN {lsn}): {what}; nothing was changed, restore the device or its log from a backup"
        );
        Error::new(ErrorKind::Corrupt, message).with_source(damage)
    }
}
