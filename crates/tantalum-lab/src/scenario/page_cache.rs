//! The operating system's page cache over the log file of the original server.
//!
//! MySQL 5.0 writes its log to files, and always through the page cache: by `innodb_flush_method` it calls `fsync` after each write
//! or opens them with `O_SYNC`; `O_DIRECT` is for data files only (its manual, "InnoDB Startup Options"). The kernel writes
//! whole blocks of the file system, 4 KiB with ext3 on all but small disks (`mke2fs`): a log block of 512 bytes takes the seven
//! others of its file system's block with it.
//!
//! Not modelled is the file system's journal: such a write changes nothing but the file's time, which ext3 keeps in seconds and
//! so commits once a second at most.

use std::{ops::Range, sync::Arc};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, Result};
use tantalum_flash::Contents;
use tantalum_rt::Mutex;

/// A block of the file system.
const BLOCK_BYTES: u64 = 4096;

/// A file whose writes go through the page cache to the drive at once. Reads find nothing cached, as after a restart.
#[derive(Debug)]
pub(super) struct PageCache {
    drive: Arc<dyn Device>,
    pages: Mutex<Contents>,
}

impl PageCache {
    /// Over a drive on which nothing was written.
    pub fn over(drive: Arc<dyn Device>) -> Arc<Self> {
        let pages = Mutex::new(Contents::in_memory(drive.capacity_bytes()));
        Arc::new(Self { drive, pages })
    }

    /// Puts what is written into the cache, and returns the blocks that it touches, with where they begin.
    fn blocks(&self, offset: u64, buffers: &[&[u8]]) -> (u64, AlignedBuffer) {
        let mut pages = self.pages.lock();
        let mut end = offset;
        for buffer in buffers {
            pages.write(end, buffer);
            end += buffer.len() as u64;
        }
        let begin = offset - offset % BLOCK_BYTES;
        let end = end.next_multiple_of(BLOCK_BYTES).min(pages.len());
        let mut blocks = AlignedBuffer::zeroed((end - begin) as usize);
        pages.read(begin, &mut blocks);
        (begin, blocks)
    }
}

impl Device for PageCache {
    tantalum_device::forward!(drive: name, capacity_bytes, capabilities, hardware, read, flush, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.check_range(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum())?;
        let (begin, blocks) = self.blocks(offset, buffers);
        self.drive.write(begin, &[&blocks], durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.check_range(offset, range.len() as u64)?;
        let (begin, blocks) = self.blocks(offset, &[&buffer[range]]);
        let len = blocks.len();
        self.drive.submit(begin, Arc::new(blocks), 0..len, durability)
    }
}

#[cfg(test)]
mod tests {
    use tantalum_device::{MemoryDevice, MemoryProfile};

    use super::*;

    #[test]
    fn whole_blocks_are_written_with_what_was_there() {
        let sectors = MemoryProfile { logical_block: 512, ..MemoryProfile::default() };
        let drive = MemoryDevice::with_profile("drive", 64 << 10, sectors);
        let file = PageCache::over(Arc::clone(&drive) as Arc<dyn Device>);
        file.write(512, &[&[1; 512], &[2; 512]], Durability::Durable).unwrap();
        let (before, cached) = (drive.image(), file.capabilities().logical_block);
        assert_eq!((&before[512..1024], &before[1024..1536], cached), (&[1; 512][..], &[2; 512][..], 512));
        // The drive loses the block; the next write brings all of it back.
        drive.write(0, &[&[9; 8192]], Durability::Durable).unwrap();
        let mut buffer = AlignedBuffer::zeroed(1024);
        buffer.fill(3);
        let mut write = file.submit(4096 - 512, Arc::new(buffer), 0..1024, Durability::Durable).unwrap();
        write.wait(None).unwrap().unwrap();
        let after = drive.image();
        assert_eq!((&after[512..1536], &after[..512]), (&before[512..1536], &[0; 512][..]));
        assert_eq!((&after[3584..4608], after[4608]), (&[3; 1024][..], 0), "both blocks");
        let mut read = AlignedBuffer::zeroed(512);
        drive.write(0, &[&[7; 512]], Durability::Durable).unwrap();
        file.read(0, &mut read).unwrap();
        assert_eq!(read[0], 7, "reads are not cached");
        assert!(file.write(64 << 10, &[&[1; 512]], Durability::Durable).is_err());
    }
}
