//! Opens a device that a command will overwrite, unless it appears to hold data that its owner may need.
//!
//! A device that is mounted cannot be opened for writing at all. One that holds a file system which is not mounted just now, or the
//! partition table of a disk, could be, and a slip in a device's name would cost all of it; so that has to be removed by hand.

use std::path::Path;

use tantalum_device::{Access, AlignedBuffer, Device, FileDevice};

use crate::error::{Error, Result};

/// What stands where, and of what it is the sign.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (0, b"hsqs", "a SquashFS file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT1", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (512, b"LABELONE", "a physical volume of LVM"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
];

/// What devices of our own begin with (docs/format.md).
const OURS: &[(&[u8], &str)] = &[
    (b"TANTALUM", "pages of a Tantalum database"),
    (b"TNTLDBLW", "pages of a Tantalum database that are being stored"),
    (b"TNTLMLOG", "the log of a Tantalum database"),
    (b"TNTLARCH", "the archive of a Tantalum database"),
];

/// Up to the end of the last of them.
const LOOKED_AT_BYTES: usize = 128 << 10;

/// Opens a file or block device, all that it holds is to be lost.
///
/// # Errors
/// If it is in use, cannot be written to, or holds data that only an operator with knowledge of it should remove.
pub fn open(path: &Path) -> Result<FileDevice> {
    let device = FileDevice::open(path, Access::ReadWrite)?;
    let mut bytes = AlignedBuffer::zeroed(LOOKED_AT_BYTES.min(device.capacity_bytes() as usize));
    device.read(0, &mut bytes)?;
    match sign_of(&bytes) {
        None => Ok(device),
        Some((what, remedy)) => {
            let path = path.display();
            Err(Error::Other(format!(
                "{path} holds {what}; name another, or, if that is no longer needed, remove it first: {remedy}{path}"
            )))
        }
    }
}

/// What these first bytes are a sign of, and the command that removes it, up to the path.
fn sign_of(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some((_, what)) = OURS.iter().find(|(sign, _)| bytes.starts_with(sign)) {
        return Some((what, "dd if=/dev/zero bs=1M count=1 conv=notrunc of="));
    }
    let stands = |&&(at, sign, _): &&(usize, &[u8], &str)| bytes.get(at..at + sign.len()) == Some(sign);
    let found = SIGNATURES.iter().find(stands).map(|(_, _, what)| *what);
    let what = found.or_else(|| has_partitions(bytes).then_some("a partition table (MBR)"))?;
    Some((what, "wipefs --all "))
}

/// Whether these begin with a master boot record: its signature alone stands before boot programs of all kinds too, so at least one
/// of the four entries must be of a partition, and none nonsense.
fn has_partitions(bytes: &[u8]) -> bool {
    let Some(record) = bytes.get(..512).filter(|record| record.ends_with(&[0x55, 0xaa])) else { return false };
    let entries = record[446..510].chunks_exact(16);
    let is_partition = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    entries.clone().all(|entry| entry[0] & 0x7f == 0) && entries.clone().any(is_partition)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_device_with_known_contents_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let open_with = |at: usize, sign: &[u8]| {
            let mut bytes = vec![0; 1 << 20];
            bytes[at..at + sign.len()].copy_from_slice(sign);
            std::fs::write(&path, bytes).unwrap();
            open(&path).map(|device| device.capacity_bytes())
        };
        for (at, sign, what) in SIGNATURES {
            let refused = open_with(*at, sign).unwrap_err().to_string();
            assert!(refused.contains(what) && refused.ends_with(&path.display().to_string()), "{refused}");
            assert_eq!(open_with(at + 1, sign).unwrap(), 1 << 20, "{what} stands elsewhere");
        }
        let mut record = [0; 512];
        record[510..].copy_from_slice(&[0x55, 0xaa]);
        assert!(open_with(0, &record).is_ok(), "no partitions");
        (record[446], record[446 + 4], record[446 + 12]) = (0x80, 0x83, 9);
        assert!(open_with(0, &record).unwrap_err().to_string().contains("wipefs --all"));
        record[462] = 3;
        assert!(open_with(0, &record).is_ok(), "nonsense");
    }

    #[test]
    fn no_device_of_a_database_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (database, archive) = (directory.path().join("db"), directory.path().join("archive"));
        let device = Arc::new(FileDevice::create(&archive, 16 << 20, None).unwrap());
        let db = tantalum::Db::builder()
            .log_bytes(8 << 20)
            .expert(|expert| expert.log_archive_on(device))
            .open(&database)
            .unwrap();
        db.close().unwrap();
        let files = ["data", "doublewrite", "log-0"].map(|name| database.join(name));
        for (path, part) in files.into_iter().chain([archive]).zip(["pages", "pages", "log", "archive"]) {
            let refused = open(&path).unwrap_err().to_string();
            assert!(refused.contains(part) && refused.contains("Tantalum database"), "{refused}");
        }
    }

    #[test]
    fn what_is_shorter_than_a_signature_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        for bytes in [0, 4096] {
            let path = directory.path().join(bytes.to_string());
            std::fs::write(&path, vec![0; bytes]).unwrap();
            assert_eq!(open(&path).unwrap().capacity_bytes(), bytes as u64);
        }
    }
}
