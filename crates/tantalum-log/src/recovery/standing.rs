//! What given devices are to a log, without opening it.

use std::sync::Arc;

use tantalum_device::Device;

use super::members::{Member, read_member, slots};
use crate::Error;
use crate::format::slot::Slot;

/// What a device is to a log, from [`standings`].
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions, Standing, standings};
/// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 1 << 20), MemoryDevice::new("new", 1 << 20)];
/// Log::create(7, devices[..1].to_vec(), LogOptions::default())?;
/// let standings = standings(7, &devices);
/// assert!(matches!(standings[0], Standing::Member { ordinal: 0, .. }));
/// assert!(matches!(standings[1], Standing::NoLog));
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Standing {
    /// The log has it.
    Member {
        /// Its place in the log.
        ordinal: u32,
        /// Its identity.
        device_id: u64,
    },
    /// It was formatted for the log, which does not list it: it was removed, or never joined.
    NotListed,
    /// It belongs to another log.
    Foreign {
        /// That log.
        log_id: u128,
    },
    /// No log was ever on it.
    NoLog,
    /// It cannot be read, or not understood.
    Unknown {
        /// Why.
        error: Error,
    },
}

/// What each of `devices` is to the log `log_id`, by the newest slot that is on any of them. Reads only.
///
/// With too few of the log's devices this may be an old state of affairs; [`Log::open`](crate::Log::open) tells.
pub fn standings(log_id: u128, devices: &[Arc<dyn Device>]) -> Vec<Standing> {
    let found: Vec<_> = devices.iter().map(read_member).collect();
    let own = |member: &&Member| member.superblock.log_id == log_id;
    let members: Vec<Member> = found.iter().flatten().filter(own).cloned().collect();
    let listed = Slot::newest_of(slots(&members)).map_or(&[][..], |slot| &slot.members);
    let standing = |found| match found {
        Ok(Member { superblock, .. }) if superblock.log_id != log_id => Standing::Foreign { log_id: superblock.log_id },
        Ok(Member { superblock, .. }) => match listed.iter().find(|listed| listed.device_id == superblock.device_id) {
            Some(listed) => Standing::Member { ordinal: listed.ordinal, device_id: listed.device_id },
            None => Standing::NotListed,
        },
        Err(Error::NotALog { .. }) => Standing::NoLog,
        Err(error) => Standing::Unknown { error },
    };
    found.into_iter().map(standing).collect()
}
