//! How InnoDB writes pages and makes them durable: files that are flushed by one task at a time, and the double-write area.

use std::{collections::VecDeque, sync::Arc};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite};
use tantalum_rt::{Condvar, Mutex, Random};

use super::{Server, pages::FILES, xfs::Xfs};
use crate::error::{Error, Result};

/// Bytes of each of the two blocks of the double-write area: an extent (`TRX_SYS_DOUBLEWRITE_BLOCK_SIZE`).
const BLOCK_BYTES: u64 = 1 << 20;
/// Places of the area for batches (`innodb_doublewrite_batch_size`); the others are for pages that tasks write one at a time.
pub const BATCH_PLACES: u64 = 120;
/// Requests that Linux's block layer has for a drive at a time (`BLKDEV_MAX_RQ`).
const REQUESTS: usize = 128;
/// The file with the double-write area: the system tablespace.
const SYSTEM: usize = FILES;

/// Places of the double-write area for single pages: 8 of 16 KiB, 136 of 8 KiB, 392 of 4 KiB.
pub fn single_places(page_bytes: u64) -> u64 {
    2 * BLOCK_BYTES / page_bytes - BATCH_PLACES
}

/// The files of a database on one drive.
pub struct Files {
    file_system: Xfs,
    page_bytes: u64,
    /// Bytes for pages. Larger databases are folded into them: which place a write goes to matters little to a drive that maps pages.
    fold_bytes: u64,
    zeros: Arc<AlignedBuffer>,
    states: Mutex<Vec<FileState>>,
    flushed: Condvar,
    double_writes: bool,
    flushes_files_together: bool,
    places: Mutex<Places>,
    granted: Condvar,
    random: Mutex<Random>,
}

/// Whether all that a file was written is flushed, by counts of its writes.
#[derive(Clone, Debug, Default)]
struct FileState {
    written: u64,
    flushed: u64,
    /// Whether a task flushes it, or has been chosen to.
    is_flushing: bool,
    /// Tasks that wait, and what they want flushed.
    waiting: Vec<(u64, u64)>,
    tickets: u64,
}

/// Which of the places for single pages are free, and the tasks that wait for one. They are woken together, and any of them is first.
struct Places {
    free: Vec<usize>,
    waiting: Vec<u64>,
    granted: Vec<(u64, usize)>,
    tickets: u64,
}

impl Files {
    pub fn new(drive: Arc<dyn Device>, server: &Server) -> Self {
        let &Server { double_writes, single_places, flushes_files_together, seed, .. } = server;
        let page_bytes = u64::from(server.page_bytes);
        let file_system = Xfs::new(drive, FILES + 1);
        let fold_bytes = (file_system.file_bytes() - 2 * BLOCK_BYTES) / page_bytes * page_bytes;
        let free = (0..single_places).collect();
        let (waiting, granted) = (Vec::new(), Vec::new());
        Self {
            file_system,
            page_bytes,
            fold_bytes,
            zeros: Arc::new(AlignedBuffer::zeroed(BLOCK_BYTES as usize)),
            states: Mutex::new(vec![FileState::default(); FILES + 1]),
            flushed: Condvar::default(),
            double_writes,
            flushes_files_together,
            places: Mutex::new(Places { free, waiting, granted, tickets: 0 }),
            granted: Condvar::default(),
            random: Mutex::new(Random::with_seed(seed)),
        }
    }

    /// Whether pages are written twice.
    pub fn double_writes(&self) -> bool {
        self.double_writes
    }

    fn offset(&self, page: u32) -> u64 {
        2 * BLOCK_BYTES + u64::from(page) * self.page_bytes % self.fold_bytes
    }

    /// Reads a page.
    pub fn read(&self, page: u32) -> Result<()> {
        let mut buffer = AlignedBuffer::zeroed(self.page_bytes as usize);
        Ok(self.file_system.drive().read(self.offset(page), &mut buffer)?)
    }

    fn write(&self, file: usize, offset: u64, bytes: u64) -> Result<()> {
        self.file_system.drive().write(offset, &[&self.zeros[..bytes as usize]], Durability::Cached)?;
        self.states.lock()[file].written += 1;
        Ok(())
    }

    /// Flushes a file, unless what it was written so far is; while another task is flushing it, it waits (`fil_flush`). A flush counts
    /// for what was written when its task first asked. Tasks that wait are woken together, and any of them is next.
    fn flush(&self, file: usize) -> Result<()> {
        let mut states = self.states.lock();
        let written = states[file].written;
        if states[file].flushed >= written {
            return Ok(());
        }
        if states[file].is_flushing {
            let ticket = states[file].tickets;
            states[file].tickets += 1;
            states[file].waiting.push((ticket, written));
            while states[file].waiting.iter().any(|(waiting, _)| *waiting == ticket) {
                self.flushed.wait(&mut states);
            }
            if states[file].flushed >= written {
                // Meanwhile, with all files of a batch.
                self.choose_flusher(&mut states[file]);
                return Ok(());
            }
        }
        states[file].is_flushing = true;
        drop(states);
        let result = self.file_system.fsync(file);
        let mut states = self.states.lock();
        let state = &mut states[file];
        state.flushed = state.flushed.max(written);
        self.choose_flusher(state);
        Ok(result?)
    }

    /// Ends the wait of those whose writes are flushed, and of one that is to flush next.
    fn choose_flusher(&self, state: &mut FileState) {
        let flushed = state.flushed;
        state.waiting.retain(|(_, written)| *written > flushed);
        state.is_flushing = !state.waiting.is_empty();
        if state.is_flushing {
            let next = self.random.lock().usize(0..state.waiting.len());
            state.waiting.swap_remove(next);
        }
        self.flushed.notify_all();
    }

    /// Flushes all files, one after the other (`fil_flush_file_spaces`); or, to see what that costs, as if they were one.
    fn flush_all(&self) -> Result<()> {
        let unflushed: Vec<usize> = {
            let states = self.states.lock();
            (0..FILES).filter(|&file| states[file].flushed < states[file].written).collect()
        };
        let count = if self.flushes_files_together { unflushed.len().min(1) } else { unflushed.len() };
        unflushed[..count].iter().try_for_each(|&file| self.flush(file))?;
        let mut states = self.states.lock();
        for &file in &unflushed[count..] {
            states[file].flushed = states[file].written;
        }
        Ok(())
    }

    /// Writes a page for the task that needs its frame (`buf_flush_single_page_from_LRU`): to a place of the double-write area, which
    /// is flushed, and to where it belongs, whose file is flushed.
    pub fn write_single(&self, page: u32, file: usize) -> Result<()> {
        let place = self.double_writes.then(|| self.take_place());
        let write = || {
            if let Some(place) = place {
                let at = (BATCH_PLACES + place as u64 % single_places(self.page_bytes)) * self.page_bytes;
                self.write(SYSTEM, at, self.page_bytes)?;
                self.flush(SYSTEM)?;
            }
            self.write(file, self.offset(page), self.page_bytes)?;
            self.flush(file)
        };
        let result = write();
        if let Some(place) = place {
            self.return_place(place);
        }
        result
    }

    fn take_place(&self) -> usize {
        let mut places = self.places.lock();
        if let Some(place) = places.free.pop() {
            return place;
        }
        let ticket = places.tickets;
        places.tickets += 1;
        places.waiting.push(ticket);
        loop {
            self.granted.wait(&mut places);
            if let Some(at) = places.granted.iter().position(|(to, _)| *to == ticket) {
                return places.granted.swap_remove(at).1;
            }
        }
    }

    fn return_place(&self, place: usize) {
        let mut places = self.places.lock();
        if places.waiting.is_empty() {
            places.free.push(place);
            return;
        }
        let count = places.waiting.len();
        let at = self.random.lock().usize(0..count);
        let ticket = places.waiting.swap_remove(at);
        places.granted.push((ticket, place));
        self.granted.notify_all();
    }

    /// Writes a batch of pages with their files: all to the double-write area, which is flushed, then each to where it belongs, and
    /// then all files are flushed (`buf_dblwr_flush_buffered_writes`). `written` is called for each page.
    pub fn write_batch(&self, pages: &[(u32, usize)], mut written: impl FnMut(u32)) -> Result<()> {
        if self.double_writes {
            for (block, part) in (0..).zip(pages.chunks((BLOCK_BYTES / self.page_bytes) as usize)) {
                self.write(SYSTEM, block * BLOCK_BYTES, part.len() as u64 * self.page_bytes)?;
            }
            self.flush(SYSTEM)?;
        }
        let mut pending: VecDeque<(u32, usize, Box<dyn PendingWrite>)> = VecDeque::new();
        let mut wait_for_first = |pending: &mut VecDeque<(u32, usize, Box<dyn PendingWrite>)>| {
            let Some((page, file, mut write)) = pending.pop_front() else { return Ok(()) };
            write.wait(None).expect("without a time-out it waits for the end")?;
            self.states.lock()[file].written += 1;
            written(page);
            Ok::<_, Error>(())
        };
        for &(page, file) in pages {
            if pending.len() == REQUESTS {
                wait_for_first(&mut pending)?;
            }
            let (zeros, range) = (Arc::clone(&self.zeros), 0..self.page_bytes as usize);
            let write = self.file_system.drive().submit(self.offset(page), zeros, range, Durability::Cached)?;
            pending.push_back((page, file, write));
        }
        while !pending.is_empty() {
            wait_for_first(&mut pending)?;
        }
        self.flush_all()
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::{EmulatedDevice, Profile};
    use tantalum_rt::{Simulation, spawn};

    use super::*;
    use crate::{experiments::Settings, scenario::innodb::tests::server};

    /// What tasks that write a page each, at once, do to the drive: its writes and flushes.
    fn written(double_writes: bool, single_places: usize) -> (u64, u64) {
        let run = move || {
            let drive = EmulatedDevice::new("drive".to_owned(), Profile::named("durassd").unwrap().build().unwrap());
            let server = Server { double_writes, single_places, ..server(Settings::default().seed) };
            let files = Arc::new(Files::new(Arc::clone(&drive) as _, &server));
            let write = |page: u32| {
                let files = Arc::clone(&files);
                spawn("writer", move || files.write_single(page, page as usize % FILES))
            };
            (0..40).map(write).collect::<Vec<_>>().into_iter().for_each(|writer| writer.join_or_panic().unwrap());
            (drive.counters().host_writes, drive.counters().flushes)
        };
        Simulation::new(1).run(run).expect_finished()
    }

    #[test]
    fn pages_are_written_twice_and_places_limit_how_many_share_a_flush() {
        let ((once, flushes), (twice, few), (_, many)) = (written(false, 8), written(true, 8), written(true, 64));
        assert!(once >= 40 && twice >= once + 40, "{once} {twice}");
        assert!(flushes < few && many < few, "{flushes} {few} {many}");
    }

    #[test]
    fn a_batch_is_written_twice_and_its_files_are_flushed() {
        let run = || {
            let drive = EmulatedDevice::new("drive".to_owned(), Profile::named("durassd").unwrap().build().unwrap());
            let files = Files::new(Arc::clone(&drive) as _, &server(Settings::default().seed));
            let (pages, mut written) = ((0..100).map(|page| (page, page as usize % 3)).collect::<Vec<_>>(), Vec::new());
            files.write_batch(&pages, |page| written.push(page)).unwrap();
            let states = files.states.lock();
            assert!(states.iter().all(|state| state.flushed == state.written && state.waiting.is_empty()));
            assert_eq!(written.len(), 100);
            // Two blocks of the double-write area, the pages, and the file system's log.
            assert!(drive.counters().host_writes >= 102);
        };
        Simulation::new(1).run(run).expect_finished();
    }
}
