//! A file system below a database: the paper's databases lay in preallocated files, overwritten past the page cache.
//!
//! A flush is an `fsync`, and a durable write (`O_DSYNC`) a write and an `fsync`; what that does is [`Fsync`]'s. Without
//! barriers the calls stay and the drive is not told to flush, which is the drive's setting
//! ([`EmulatedDevice::without_barriers`](tantalum_flash::EmulatedDevice::without_barriers)).

use std::{ops::Range, sync::Arc, time::Duration};

use tantalum_device::{AlignedBuffer, Device, Durability, Error, PendingWrite, Result, SharedFlushes};
use tantalum_rt::{Condvar, Mutex};

use crate::micro::{Fsync, Journal};

/// A file that takes all of a drive but its end, where the journal lies.
#[derive(Debug, Clone)]
pub(super) struct File(Arc<Inner>);

/// What a commit of the file system's journal writes, as in Table 1 of DuraSSD.
const JOURNAL_WRITES: u32 = 1;

#[derive(Debug)]
struct Inner {
    drive: Arc<dyn Device>,
    file_bytes: u64,
    journal: Journal,
    /// Whether the file is longer at each flush than at the one before.
    grows: bool,
    /// What ext4 holds during a durable write, of each of the files that the pages lie in; none where that is not modelled.
    inodes: Box<[Mutex<()>]>,
    /// What each of those files has, but the last.
    inode_bytes: u64,
}

impl File {
    /// What the file system takes of a drive.
    pub const OVERHEAD_BYTES: u64 = Fsync::JOURNAL_BYTES;

    /// A file that is overwritten in place; or one that `grows`, so that each flush has its new size to commit.
    pub fn on(drive: Arc<dyn Device>, grows: bool) -> Self {
        let file_bytes = drive.capacity_bytes() - Self::OVERHEAD_BYTES;
        // The kernel's block layer lets callers that ask at the same time share a flush.
        let drive: Arc<dyn Device> = Arc::new(SharedFlushes::new(drive));
        let journal = Journal::at(file_bytes, Self::OVERHEAD_BYTES, JOURNAL_WRITES);
        Self(Arc::new(Inner { drive, file_bytes, journal, grows, inodes: Box::default(), inode_bytes: u64::MAX }))
    }

    /// Files of ext4 of so many bytes each, opened with `O_DSYNC` and written past the page cache: a write, and the flush that follows it, hold the inode
    /// (`i_mutex`, taken by `generic_file_aio_write` and by `ext4_sync_file` of Linux 3.6), so that the writers of one do not share a
    /// flush. Nothing is committed: the size stays, and `O_DSYNC` does not ask for times.
    pub fn with_inodes(drive: Arc<dyn Device>, inode_bytes: u64) -> Self {
        let inner = Arc::into_inner(Self::on(drive, false).0).expect("it is new");
        let inodes = (0..inner.file_bytes.div_ceil(inode_bytes)).map(|_| Mutex::default()).collect();
        Self(Arc::new(Inner { inodes, inode_bytes, ..inner }))
    }

    /// That of the file with this byte.
    fn inode(&self, offset: u64) -> Option<&Mutex<()>> {
        self.0.inodes.get((offset / self.0.inode_bytes) as usize)
    }

    fn fsync(&self) -> Result<()> {
        let Inner { drive, journal, grows, .. } = &*self.0;
        if *grows { journal.fsync_grown(&**drive) } else { journal.fsync(&**drive) }
    }
}

impl Device for File {
    fn name(&self) -> &str {
        self.0.drive.name()
    }

    fn capacity_bytes(&self) -> u64 {
        self.0.file_bytes
    }

    fn capabilities(&self) -> tantalum_device::Capabilities {
        self.0.drive.capabilities()
    }

    fn hardware(&self) -> tantalum_device::Hardware {
        self.0.drive.hardware()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        self.0.drive.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.check_range(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum())?;
        if let (Some(inode), Durability::Durable) = (self.inode(offset), durability) {
            {
                let _held = inode.lock();
                self.0.drive.write(offset, buffers, Durability::Cached)?;
            }
            let _held = inode.lock();
            return self.0.drive.flush();
        }
        self.0.drive.write(offset, buffers, Durability::Cached)?;
        if durability == Durability::Durable { self.fsync() } else { Ok(()) }
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.check_range(offset, range.len() as u64)?;
        if durability == Durability::Durable && !self.0.inodes.is_empty() {
            let file = self.clone();
            return Ok(Synchronized::after("write", move || file.write(offset, &[&buffer[range]], durability)));
        }
        let mut write = self.0.drive.submit(offset, buffer, range, Durability::Cached)?;
        if durability != Durability::Durable {
            return Ok(write);
        }
        // The kernel calls `fsync` from a thread of its own when an asynchronous write has ended.
        let file = self.clone();
        Ok(Synchronized::after("fsync", move || {
            write.wait(None).expect("without a time-out it waits for the end").and_then(|()| file.fsync())
        }))
    }

    fn flush(&self) -> Result<()> {
        self.fsync()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        self.0.drive.discard(offset, len)
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        match new_capacity_bytes <= self.0.file_bytes {
            true => Ok(()),
            false => Err(Error::unsupported(self.name(), "grow: its size is fixed")),
        }
    }
}

/// How a write with its `fsync` ended.
#[derive(Default)]
struct Completion {
    result: Mutex<Option<Result<()>>>,
    changed: Condvar,
}

/// A write that ends with its `fsync`.
struct Synchronized(Arc<Completion>);

impl Synchronized {
    /// One that ends with what a task of its own does.
    fn after(task: &str, act: impl FnOnce() -> Result<()> + Send + 'static) -> Box<dyn PendingWrite> {
        let completion = Arc::new(Completion::default());
        let ended = Arc::clone(&completion);
        tantalum_rt::spawn(task, move || {
            *ended.result.lock() = Some(act());
            ended.changed.notify_all();
        });
        Box::new(Self(completion))
    }
}

impl PendingWrite for Synchronized {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let until = timeout.map(|timeout| tantalum_rt::now() + timeout);
        let mut result = self.0.result.lock();
        loop {
            if let Some(result) = result.take() {
                return Some(result);
            }
            match until.map(|until| until.duration_since(tantalum_rt::now())) {
                Some(left) if left.is_zero() => return None,
                Some(left) => drop(self.0.changed.wait_for(&mut result, left)),
                None => self.0.changed.wait(&mut result),
            }
        }
    }

    fn is_done(&mut self) -> bool {
        self.0.result.lock().is_some()
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::{EmulatedDevice, Profile};
    use tantalum_rt::Simulation;

    use super::*;

    /// What a cached write, a durable one, one that is submitted, and a flush take, in microseconds; and the drive's flushes.
    fn times(has_barriers: bool, grows: bool) -> ([u128; 4], u64) {
        let run = move || {
            let model = Profile::named("durassd").unwrap().with_capacity(128 << 20).build().unwrap();
            let new = if has_barriers { EmulatedDevice::new } else { EmulatedDevice::without_barriers };
            let drive = new("drive".to_owned(), model);
            let file = File::on(Arc::clone(&drive) as Arc<dyn Device>, grows);
            let timed = |act: &dyn Fn() -> Result<()>| {
                let started = tantalum_rt::now();
                act().unwrap();
                started.elapsed().as_micros()
            };
            let buffer = Arc::new(AlignedBuffer::zeroed(4096));
            let times = [
                timed(&|| file.write(0, &[&buffer], Durability::Cached)),
                timed(&|| file.write(4096, &[&buffer], Durability::Durable)),
                timed(&|| {
                    let mut write = file.submit(8192, Arc::clone(&buffer), 0..4096, Durability::Durable)?;
                    assert!(!write.is_done() && write.wait(Some(Duration::from_micros(10))).is_none());
                    write.wait(None).expect("without a time-out it waits for the end")
                }),
                timed(&|| file.flush()),
            ];
            assert!(file.write(file.capacity_bytes(), &[&buffer], Durability::Cached).is_err(), "the journal's");
            (times, drive.counters().flushes)
        };
        Simulation::new(1).run(run).expect_finished()
    }

    #[test]
    fn what_is_durable_waits_for_the_drive_only_with_barriers() {
        let ([cached, durable, submitted, flush], flushes) = times(true, false);
        assert!(
            cached < 200 && durable > 2000 && submitted > 2000 && flush > 300,
            "{cached} {durable} {submitted} {flush}"
        );
        assert!((3..=6).contains(&flushes), "one each, and one for each tick's commit: {flushes}");
        let (times, flushes) = times(false, false);
        assert!(times.iter().all(|&us| us < 300) && flushes == 0, "{times:?}");
    }

    #[test]
    fn writers_of_a_file_share_flushes_unless_they_hold_its_inode() {
        let flushes = |new: fn(Arc<dyn Device>) -> File| {
            let run = move || {
                let model = Profile::named("durassd").unwrap().with_capacity(128 << 20).build().unwrap();
                let drive = EmulatedDevice::new("drive".to_owned(), model);
                let file = new(Arc::clone(&drive) as Arc<dyn Device>);
                let write = |place: u64| {
                    let file = file.clone();
                    let eighth = (file.capacity_bytes() / 8).next_multiple_of(4096);
                    tantalum_rt::spawn("writer", move || {
                        let buffer = AlignedBuffer::zeroed(4096);
                        (0..10).try_for_each(|_| file.write(place * eighth, &[&buffer], Durability::Durable))
                    })
                };
                (0..8).map(write).collect::<Vec<_>>().into_iter().for_each(|writer| writer.join_or_panic().unwrap());
                drive.counters().flushes
            };
            Simulation::new(1).run(run).expect_finished()
        };
        assert_eq!(flushes(|drive| File::with_inodes(drive, u64::MAX)), 80);
        let without_inodes: fn(Arc<dyn Device>) -> File = |drive| File::on(drive, false);
        for shared in [flushes(without_inodes), flushes(|drive| File::with_inodes(drive, 16 << 20))] {
            assert!(shared < 60, "{shared}");
        }
    }

    #[test]
    fn a_file_that_grows_commits_each_time() {
        let (times, flushes) = times(true, true);
        assert!(times[3] > 1000 && flushes == 6, "{times:?} {flushes}");
    }
}
