//! The raw device, below every engine: what a commit or a read could cost at the least.
//!
//! - Writing: each client overwrites blocks of 4 KiB, one behind the other, in a file of its own that has been written before, with
//!   `O_DIRECT | O_DSYNC`. Each write is durable when it returns, and needs no metadata. At one client this is the device at queue
//!   depth 1; as `raw-log-depth` there is one client for each partition of Tantalum's log.
//! - Reading: blocks of 4 KiB anywhere in a file four times as large as the cache, with `O_DIRECT`.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::fs::OFlags;
use tantalum_device::AlignedBuffer;

use crate::{
    data::number_of,
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "raw";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str =
    "overwrites of 4 KiB with O_DIRECT|O_DSYNC in a written file for each client; reads of 4 KiB with O_DIRECT";

/// Of each write and read.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Of each client's file.
const FILE_BYTES: u64 = 8 << 20;

/// How much larger than the cache the file is that is read.
const CACHES: u64 = 4;

/// The files.
pub struct Raw {
    /// One for each session that writes.
    written: Vec<(File, PathBuf)>,
    taken: AtomicUsize,
    read: Option<(File, PathBuf)>,
    /// Of the file that is read.
    blocks: u64,
}

impl Raw {
    /// Makes the files, as far as they are not there.
    ///
    /// # Errors
    /// Of the system.
    pub fn open(setup: &Setup) -> Result<Self> {
        let file = |name: String, bytes: u64| {
            let path = setup.directory.join(name);
            Ok::<_, Error>((written_file(&path, bytes)?, path))
        };
        let blocks = (CACHES * setup.cache_bytes).div_ceil(BLOCK_BYTES as u64);
        let read = setup.is_cold.then(|| file("read".to_owned(), blocks * BLOCK_BYTES as u64)).transpose()?;
        let writers = if setup.is_cold { 0 } else { setup.sessions };
        let written = (0..writers).map(|number| file(format!("written-{number}"), FILE_BYTES));
        Ok(Self { written: written.collect::<Result<_>>()?, taken: AtomicUsize::new(0), read, blocks })
    }
}

/// A file of so many bytes, all of them written, opened for durable direct I/O.
pub(super) fn written_file(path: &Path, bytes: u64) -> Result<File> {
    const STEP: u64 = 1 << 20;
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags.bits().cast_signed());
        options.open(path).map_err(Error::file("open for direct I/O", path))
    };
    let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if length != bytes {
        let file = open(OFlags::empty())?;
        let (write, mut random) = (Error::file("write", path), fastrand::Rng::with_seed(bytes));
        let mut part = vec![0; STEP as usize];
        for offset in (0..bytes).step_by(STEP as usize) {
            random.fill(&mut part);
            file.write_all_at(&part[..STEP.min(bytes - offset) as usize], offset).map_err(&write)?;
        }
        file.set_len(bytes).map_err(&write)?;
        file.sync_all().map_err(&write)?;
    }
    open(OFlags::DIRECT | OFlags::DSYNC)
}

impl Engine for Raw {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let (written, block) = (self.written.get(number), AlignedBuffer::zeroed(BLOCK_BYTES));
        Ok(Box::new(Client { raw: self, written, next: 0, block }))
    }

    fn load(&self, _rows: Rows<'_>) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Client<'a> {
    raw: &'a Raw,
    written: Option<&'a (File, PathBuf)>,
    /// The next block to write.
    next: u64,
    block: AlignedBuffer,
}

fn has_no_rows<T>() -> Result<T> {
    Err(Error::Other("the raw device has no rows: it only compares single writes and reads".to_owned()))
}

impl Session for Client<'_> {
    /// One block, whatever fits into it.
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let Some((file, path)) = self.written else { return has_no_rows() };
        let mut free = &mut self.block[..];
        for (_, value) in rows {
            let length = value.len().min(free.len());
            let (part, rest) = free.split_at_mut(length);
            part.copy_from_slice(&value[..length]);
            free = rest;
        }
        let offset = self.next * BLOCK_BYTES as u64 % FILE_BYTES;
        self.next += 1;
        file.write_all_at(&self.block, offset).map_err(Error::file("write", path))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let Some((file, path)) = &self.raw.read else { return has_no_rows() };
        let block = number_of(key) % self.raw.blocks;
        file.read_exact_at(&mut self.block, block * BLOCK_BYTES as u64).map_err(Error::file("read", path))?;
        value.clear();
        value.extend_from_slice(&self.block);
        Ok(true)
    }

    fn scan(&mut self, _from: &[u8], _rows: usize, _visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        has_no_rows()
    }

    fn modify(&mut self, _keys: &[&[u8]], _change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        has_no_rows()
    }
}
