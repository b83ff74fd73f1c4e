//! What the system says of a file's device: `statx` for the file, `/sys/dev/block` for the disk below it.
//!
//! Everything is optional. What the kernel does not report stays unknown, and then the careful value is taken.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{AtFlags, StatxFlags, major, minor, statx};

use super::raw::Limits;
use crate::{ALIGNMENT, Capabilities, Error, Result, WriteCache};

/// Not yet named by `rustix`; the fields that it fills are.
const STATX_WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);

/// Capabilities of the open file, and what its direct I/O demands.
pub(super) fn inspect(file: &File, metadata: &Metadata, direct: bool) -> (Capabilities, Limits) {
    let queue = Queue::of(metadata);
    let default_block = queue.size("logical_block_size").unwrap_or(ALIGNMENT as u32);
    let reported = direct_limits(file);
    let logical_block = reported.offset_align.filter(|_| direct).unwrap_or(default_block);
    let write_cache = match queue.read("write_cache").as_deref() {
        Some("write back") => WriteCache::Volatile,
        Some("write through") => WriteCache::None,
        _ => WriteCache::Unknown,
    };
    let limits = Limits {
        direct,
        memory_align: reported.memory_align.unwrap_or(logical_block) as usize,
        atomic_min: reported.atomic_min as usize,
        atomic_max: if direct { reported.atomic_max as usize } else { 0 },
        // Where the kernel sends no flushes anyway, there is nothing to save by not asking.
        delivers_plainly: write_cache != WriteCache::None && direct && stays_in_place(file, metadata),
    };
    let capabilities = Capabilities {
        logical_block,
        physical_block: queue.size("physical_block_size").unwrap_or(logical_block).max(logical_block),
        atomic_write_bytes: limits.atomic_max as u32,
        erase_block_bytes: 0,
        write_cache,
        fua: queue.flag("fua"),
        rotational: queue.flag("rotational"),
        // A file system names none for what is written to its files, and only io_uring names one of a device.
        placement_handles: if cfg!(feature = "io-uring") && metadata.file_type().is_block_device() {
            placement_handles(queue.read("max_write_streams").as_deref())
        } else {
            1
        },
        zones: None,
        direct,
    };
    (capabilities, limits)
}

/// The placement handles of a block device, from what the system tells of its write streams. A request names one by eight bits, of
/// which 0 is none.
fn placement_handles(max_write_streams: Option<&str>) -> u32 {
    max_write_streams.and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, u8::MAX.into())
}

/// Whether a write to a range that was written before goes where that is: then no record of the file system's changes with it.
/// Others write elsewhere, and forget the write unless they are asked to record that.
fn stays_in_place(file: &File, metadata: &Metadata) -> bool {
    // ext2 to ext4, and XFS.
    let is_known = || rustix::fs::fstatfs(file).is_ok_and(|system| matches!(system.f_type, 0xef53 | 0x5846_5342));
    metadata.file_type().is_block_device() || is_known()
}

/// The number of the block device that the file is or lies on.
pub(super) fn disk(metadata: &Metadata) -> u64 {
    if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() }
}

/// Whether the system reports the block device as read-only.
pub(super) fn is_write_protected(metadata: &Metadata) -> bool {
    fs::read_to_string(directory_of(disk(metadata)).join("ro")).is_ok_and(|text| text.trim() == "1")
}

/// Refuses a block device that must be written in order. Files of a file system that does so itself can be used.
pub(super) fn refuse_zones(name: &str, metadata: &Metadata) -> Result<()> {
    match metadata.file_type().is_block_device() {
        true => refuse_zoned(name, Queue::of(metadata).read("zoned").as_deref()),
        false => Ok(()),
    }
}

/// Refuses what the system says is zoned so. A host-aware device takes writes in any order.
fn refuse_zoned(name: &str, zoned: Option<&str>) -> Result<()> {
    match zoned {
        Some("host-managed") => Err(Error::has_zones(
            name,
            "zones are known of emulated devices only: use a file on a file system that supports them (f2fs, btrfs), a \
             device-mapper target that hides them (dm-zoned), or another drive",
        )),
        _ => Ok(()),
    }
}

/// What the system says of a block device.
fn directory_of(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

#[derive(Default)]
struct Reported {
    offset_align: Option<u32>,
    memory_align: Option<u32>,
    atomic_min: u32,
    atomic_max: u32,
}

fn direct_limits(file: &File) -> Reported {
    let wanted = StatxFlags::DIOALIGN | STATX_WRITE_ATOMIC;
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, wanted) else { return Reported::default() };
    let filled = StatxFlags::from_bits_retain(stat.stx_mask);
    let mut reported = Reported::default();
    if filled.contains(StatxFlags::DIOALIGN) {
        reported.offset_align = block_size(stat.stx_dio_offset_align);
        reported.memory_align = Some(stat.stx_dio_mem_align).filter(|align| align.is_power_of_two() && *align <= 4096);
    }
    if filled.contains(STATX_WRITE_ATOMIC) {
        let units = [
            stat.stx_atomic_write_unit_min,
            stat.stx_atomic_write_unit_max,
            stat.stx_atomic_write_unit_max_opt,
            stat.stx_atomic_write_segments_max,
        ];
        (reported.atomic_min, reported.atomic_max) = atomic_units(units);
    }
    reported
}

/// The least and the most that one write is atomic of, from what `statx` tells: least, most, most without the help of the file
/// system (0: the same), pieces of memory. Both 0 where that is nothing to build on.
fn atomic_units([min, max, max_of_device, pieces]: [u32; 4]) -> (u32, u32) {
    // The file system's help is to write elsewhere, which it has to record.
    let max = if max_of_device == 0 { max } else { max.min(max_of_device) };
    // Smaller writes are made too, and a capability has no least size.
    let is_useful =
        min.is_power_of_two() && max.is_power_of_two() && min <= max && min <= ALIGNMENT as u32 && pieces > 0;
    if is_useful { (min, max) } else { (0, 0) }
}

/// A size that can be a block's.
fn block_size(bytes: u32) -> Option<u32> {
    (bytes.is_power_of_two() && (512..=65536).contains(&bytes)).then_some(bytes)
}

/// The directory of a disk's properties, if there is one.
struct Queue(Option<PathBuf>);

impl Queue {
    fn of(metadata: &Metadata) -> Self {
        let disk = directory_of(disk(metadata));
        // A disk's partition has no queue of its own; the link leads into the disk's directory.
        Self(["queue", "../queue"].iter().map(|below| disk.join(below)).find(|path| path.is_dir()))
    }

    fn read(&self, property: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.as_ref()?.join(property)).ok()?;
        Some(text.trim().to_owned())
    }

    fn size(&self, property: &str) -> Option<u32> {
        block_size(self.read(property)?.parse().ok()?)
    }

    fn flag(&self, property: &str) -> Option<bool> {
        Some(self.read(property)? != "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_managed_zoned_device_is_refused_by_name() {
        let error = refuse_zoned("/dev/nvme0n2", Some("host-managed")).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
        for word in ["/dev/nvme0n2", "zones", "f2fs", "dm-zoned"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        for other in [None, Some("none"), Some("host-aware")] {
            refuse_zoned("/dev/sda", other).unwrap();
        }
    }

    #[test]
    fn as_many_placement_handles_as_a_request_can_name() {
        let cases =
            [(None, 1), (Some("0"), 1), (Some("8"), 8), (Some("65535"), 255), (Some("none"), 1), (Some("-1"), 1)];
        for (reported, handles) in cases {
            assert_eq!(placement_handles(reported), handles, "{reported:?}");
        }
    }

    #[test]
    fn what_statx_tells_of_atomic_writes_is_taken_with_care() {
        assert_eq!(atomic_units([512, 65536, 0, 1]), (512, 65536));
        assert_eq!(atomic_units([4096, 1 << 20, 16384, 1]), (4096, 16384));
        for useless in [[0; 4], [4096, 0, 0, 1], [16384, 65536, 0, 1], [4096, 5000, 0, 1], [4096, 65536, 0, 0]] {
            assert_eq!(atomic_units(useless), (0, 0));
        }
    }
}
