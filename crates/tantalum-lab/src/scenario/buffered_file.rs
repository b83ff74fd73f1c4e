//! The file of a database that is read and written through the operating system's page cache, on one of the file systems of the NAS 2010 study.
//!
//! - *Reads*: a block that was read or written before is in the page cache and takes no time: the files were opened for synchronous but not
//!   for direct I/O (section IV-A), and "a large amount of the read requests are served by the cache" (section IV-G). The study's text does not say how
//!   much memory its machine had. The cache here has room for the whole file, and is empty at first.
//! - *Writes* go to the drive before the call returns, "because we use the synchronous IO" (section IV-G): with `O_SYNC` each of them, which Linux before 2.6.33
//!   took for `O_DSYNC`; otherwise all that were written since at an `fsync`, which is how InnoDB flushes its data files, with
//!   `innodb_flush_method = O_DSYNC` too (MySQL 5.1 reference manual). The file has its full size from the beginning, so that EXT2 has nothing to write beside data.
//! - *One writer*: a call follows the one before, as a server issues them that has one thread for writing pages: InnoDB of MySQL 5.0 and 5.1 has
//!   one write I/O thread and flushes one batch at a time. That the commercial server had one is assumed.
//! - *Requests* have up to 512 KiB (`max_sectors_kb` of the kernels of the time).
//!
//! It takes the time that the kernel waits for the drive, and keeps no bytes: it stands below [`Timed`](super::devices::Timed), which does.

use std::{collections::BTreeSet, ops::Range, sync::Arc, time::Duration};

use tantalum_device::{AlignedBuffer, Device, Durability, EndedWrite, Error, PendingWrite, Result};
use tantalum_rt::{Instant, Mutex, now};

use super::nilfs2::{BLOCK_BYTES, Log};

/// How a database's file lies on a drive, and how its server uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferedFile {
    pub file_system: FileSystem,
    pub bytes: u64,
    pub durable_by: DurableBy,
    /// Whether blocks in the page cache are read there; otherwise each read goes to the drive.
    pub has_page_cache: bool,
    /// Whether a write waits for the one before; otherwise as many are under way as the pool stores batches.
    pub has_one_writer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Blocks stay in their places.
    Ext2,
    /// Blocks are appended to a log ([`Log`]), with this granularity of a file's times.
    Nilfs2 { time_granularity: Duration },
}

/// What makes a durable write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurableBy {
    /// The file is opened with `O_SYNC`.
    Write,
    /// An `fsync` follows.
    Fsync,
}

/// Bytes of a request of the kernel.
const MAX_REQUEST_BYTES: usize = 512 << 10;

/// The file.
#[derive(Debug)]
pub(super) struct OpenFile {
    drive: Arc<dyn Device>,
    file: BufferedFile,
    zeros: Arc<AlignedBuffer>,
    opened: Instant,
    state: Mutex<State>,
    /// The server's page writer.
    writer: Mutex<()>,
    /// Held while a segment is constructed, and in `fsync`: the kernel does one at a time.
    syncing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// For each block of the file, whether it is in the page cache.
    is_cached: Vec<bool>,
    /// Blocks that were written and are not on the drive.
    dirty: BTreeSet<u64>,
    log: Option<Log>,
}

impl OpenFile {
    pub fn new(drive: Arc<dyn Device>, file: BufferedFile) -> Self {
        let log = match file.file_system {
            FileSystem::Ext2 => None,
            FileSystem::Nilfs2 { time_granularity } => {
                Some(Log::new(drive.capacity_bytes(), file.bytes, time_granularity))
            }
        };
        let is_cached = vec![false; file.bytes.div_ceil(BLOCK_BYTES) as usize];
        Self {
            drive,
            file,
            zeros: Arc::new(AlignedBuffer::zeroed(MAX_REQUEST_BYTES)),
            opened: now(),
            state: Mutex::new(State { is_cached, dirty: BTreeSet::new(), log }),
            writer: Mutex::new(()),
            syncing: Mutex::new(()),
        }
    }

    /// Puts what is written into the page cache, and on the drive if it is to be durable.
    fn write_range(&self, offset: u64, len: u64, durability: Durability) -> Result<()> {
        self.check_range(offset, len)?;
        let _turn = self.file.has_one_writer.then(|| self.writer.lock());
        let written = blocks(offset, len);
        {
            let mut state = self.state.lock();
            written.clone().for_each(|block| state.is_cached[block as usize] = true);
            state.dirty.extend(written.clone());
            if let Some(log) = &mut state.log {
                log.modify(self.opened.elapsed());
            }
        }
        match (durability, self.file.durable_by) {
            (Durability::Durable, DurableBy::Write) => {
                self.write_back(DurableBy::Write, |block| written.contains(&block))
            }
            (Durability::Durable, DurableBy::Fsync) => self.fsync(),
            _ => Ok(()),
        }
    }

    fn fsync(&self) -> Result<()> {
        self.write_back(DurableBy::Fsync, |_| true)
    }

    /// Writes those of the dirty blocks to the drive that are to be written; none if another call has done so meanwhile.
    fn write_back(&self, by: DurableBy, is_wanted: impl Fn(u64) -> bool) -> Result<()> {
        let constructs_segments = matches!(self.file.file_system, FileSystem::Nilfs2 { .. });
        let _turn = (constructs_segments || by == DurableBy::Fsync).then(|| self.syncing.lock());
        let on_drive = {
            let State { dirty, log, .. } = &mut *self.state.lock();
            let data: BTreeSet<u64> = dirty.extract_if(.., |block| is_wanted(*block)).collect();
            match log {
                _ if data.is_empty() => return Ok(()),
                Some(log) => log.construct(&data, by),
                None => runs(&data),
            }
        };
        self.write_blocks(&on_drive)
    }

    /// Writes blocks of the drive, all at the same time, as the kernel does for one call.
    fn write_blocks(&self, ranges: &[Range<u64>]) -> Result<()> {
        let mut under_way = Vec::new();
        for range in ranges {
            let end = range.end * BLOCK_BYTES;
            for offset in (range.start * BLOCK_BYTES..end).step_by(MAX_REQUEST_BYTES) {
                let len = (end - offset).min(MAX_REQUEST_BYTES as u64) as usize;
                under_way.push(self.drive.submit(offset, Arc::clone(&self.zeros), 0..len, Durability::Cached)?);
            }
        }
        under_way.iter_mut().try_for_each(|write| write.wait(None).expect("without a time-out it waits for the end"))
    }

    /// The blocks of the drive that a read of blocks of the file needs, which are in the page cache afterwards.
    fn misses(&self, read: Range<u64>) -> Vec<Range<u64>> {
        let State { is_cached, log, .. } = &mut *self.state.lock();
        let address = |block| log.as_ref().map_or(block, |log| log.address(block));
        let mut misses: Vec<Range<u64>> = Vec::new();
        for block in read {
            let was_cached = std::mem::replace(&mut is_cached[block as usize], true);
            if was_cached && self.file.has_page_cache {
                continue;
            }
            match misses.last_mut() {
                Some(miss) if miss.end == address(block) => miss.end += 1,
                _ => misses.push(address(block)..address(block) + 1),
            }
        }
        misses
    }
}

/// The blocks that a range of bytes touches.
fn blocks(offset: u64, len: u64) -> Range<u64> {
    offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES)
}

/// Blocks, neighbours together.
fn runs(blocks: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let blocks: Vec<u64> = blocks.iter().copied().collect();
    blocks.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len() as u64).collect()
}

impl Device for OpenFile {
    tantalum_device::forward!(drive: name, capabilities, hardware);

    fn capacity_bytes(&self) -> u64 {
        self.file.bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        for miss in self.misses(blocks(offset, buffer.len() as u64)) {
            let mut bytes = AlignedBuffer::zeroed(((miss.end - miss.start) * BLOCK_BYTES) as usize);
            self.drive.read(miss.start * BLOCK_BYTES, &mut bytes)?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.write_range(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum(), durability)
    }

    /// Synchronous I/O: the call returns when the write has ended.
    fn submit(
        &self,
        offset: u64,
        _buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.write_range(offset, range.len() as u64, durability)?;
        Ok(Box::new(EndedWrite))
    }

    fn flush(&self) -> Result<()> {
        self.fsync()
    }

    /// Neither file system told a drive of what it did not need.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        match new_capacity_bytes <= self.file.bytes {
            true => Ok(()),
            false => Err(Error::unsupported(self.name(), "grow: its size is fixed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::{Counters, EmulatedDevice, Profile};
    use tantalum_rt::{Simulation, spawn};

    use super::*;

    const EXT2: BufferedFile = BufferedFile {
        file_system: FileSystem::Ext2,
        bytes: 16 << 20,
        durable_by: DurableBy::Write,
        has_page_cache: true,
        has_one_writer: true,
    };
    const NILFS2: FileSystem = FileSystem::Nilfs2 { time_granularity: Duration::from_secs(1) };

    /// What the drive did while `act` used a file on it, and the microseconds that this took.
    fn done(file: BufferedFile, act: impl FnOnce(Arc<OpenFile>) + Send + 'static) -> (Counters, u128) {
        let run = move || {
            let model = Profile::named("intel-x25e").unwrap().with_capacity(64 << 20).build().unwrap();
            let drive = EmulatedDevice::without_barriers("drive".to_owned(), model);
            let file = Arc::new(OpenFile::new(Arc::clone(&drive) as Arc<dyn Device>, file));
            let started = now();
            act(file);
            (drive.counters(), started.elapsed().as_micros())
        };
        Simulation::new(1).run(run).expect_finished()
    }

    fn write(file: &OpenFile, page: u64, durability: Durability) {
        file.write(page * 16384, &[&[0; 16384]], durability).unwrap();
    }

    fn read(file: &OpenFile, page: u64) {
        file.read(page * 16384, &mut [0; 16384]).unwrap();
    }

    #[test]
    fn what_was_read_or_written_before_is_read_in_no_time() {
        let reads = |file: &OpenFile| {
            write(file, 1, Durability::Durable);
            [1, 2, 2].into_iter().for_each(|page| read(file, page));
        };
        let (cached, _) = done(EXT2, move |file| reads(&file));
        assert_eq!((cached.host_reads, cached.host_read_bytes, cached.host_writes), (1, 16384, 1));
        let (uncached, _) = done(BufferedFile { has_page_cache: false, ..EXT2 }, move |file| reads(&file));
        assert_eq!((uncached.host_reads, uncached.host_writes), (3, 1));
        let (elsewhere, _) = done(BufferedFile { file_system: NILFS2, has_page_cache: false, ..EXT2 }, |file| {
            write(&file, 1, Durability::Durable);
            file.read(12288, &mut [0; 8192]).unwrap();
        });
        assert_eq!((elsewhere.host_reads, elsewhere.host_read_bytes), (2, 8192), "its second block is in the log");
    }

    #[test]
    fn a_write_is_on_the_drive_when_it_returns_or_at_the_next_fsync() {
        let pages = |file: &OpenFile| {
            [5, 3, 4].into_iter().for_each(|page| write(file, page, Durability::Durable));
            [9, 8, 1].into_iter().for_each(|page| write(file, page, Durability::Cached));
            file.flush().unwrap();
            file.flush().unwrap();
        };
        let (by_write, _) = done(EXT2, move |file| pages(&file));
        assert_eq!((by_write.host_writes, by_write.host_written_bytes), (3 + 2, 6 * 16384));
        let by_fsync = BufferedFile { durable_by: DurableBy::Fsync, ..EXT2 };
        let (by_fsync, _) = done(by_fsync, |file| {
            write(&file, 5, Durability::Cached);
            write(&file, 4, Durability::Durable);
            file.flush().unwrap();
        });
        assert_eq!((by_fsync.host_writes, by_fsync.host_written_bytes), (1, 2 * 16384));
    }

    #[test]
    fn nilfs2_writes_data_alone_with_a_write_and_metadata_with_an_fsync() {
        let written = |durable_by| {
            let (counters, _) = done(BufferedFile { file_system: NILFS2, durable_by, ..EXT2 }, |file| {
                (0..4).for_each(|page| write(&file, 9 * page, Durability::Durable));
            });
            assert_eq!(counters.host_writes, 4, "a request for each segment");
            counters.host_written_bytes / BLOCK_BYTES
        };
        let (by_write, by_fsync) = (written(DurableBy::Write), written(DurableBy::Fsync));
        assert!(by_write > 4 * 5 && by_write < 4 * 5 + 20, "a checkpoint with the first: {by_write}");
        assert!(by_fsync > 4 * (5 + 10), "with each: {by_fsync}");
    }

    #[test]
    fn one_writer_issues_a_write_after_the_other() {
        let by_two = |has_one_writer| {
            let (_, us) = done(BufferedFile { has_one_writer, ..EXT2 }, |file| {
                let writers = [0, 1].map(|writer| {
                    let file = Arc::clone(&file);
                    spawn("writer", move || {
                        (0..200).for_each(|page| write(&file, 2 * page + writer, Durability::Durable))
                    })
                });
                writers.into_iter().for_each(|writer| writer.join().unwrap());
            });
            us
        };
        let (one, two) = (by_two(true), by_two(false));
        assert!(two * 10 < one * 9, "two writers keep more of the drive busy: {two} and {one} us");
    }
}
