//! Keeps the operating system's cache of an engine's files small, where a database is to be larger than memory.
//!
//! Engines that read through the operating system's cache would have the whole machine's memory for it, however small their own.
//! While this lives, the cached pages of all files in a directory are thrown out each time the process has fetched so many bytes from
//! the device; pages of maps first, since mapped pages stay in it. Pages that were changed stay until they are written.

use std::{
    ffi::c_void,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    fs::{Advice, fadvise},
    mm,
};

use crate::{
    error::{Error, Result},
    meter::{files, process_read_bytes},
};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(5);

/// The thread that throws pages out, until this is dropped.
#[derive(Debug)]
pub struct Limit {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Limit {
    /// At most about so many bytes of the files in a directory stay cached.
    ///
    /// # Errors
    /// If no thread can be started, or files cannot be opened.
    pub fn new(directory: &Path, bytes: u64) -> Result<Self> {
        let directory = fs::canonicalize(directory).map_err(Error::file("find", directory))?;
        throw_out(&directory)?;
        let (stop, stopped) = channel();
        let watch = move || watch(&directory, bytes, &stopped);
        let thread = thread::Builder::new().name("page-cache".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| Error::Other(format!("cannot start a thread: {error}")))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has told of a panic itself.
            let _ = thread.join();
        }
    }
}

fn watch(directory: &Path, bytes: u64, stopped: &Receiver<()>) {
    let mut thrown_out_at = 0;
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let fetched = process_read_bytes().unwrap_or_default();
        if fetched - thrown_out_at >= bytes {
            // A file that went meanwhile has nothing cached either.
            let _ = throw_out(directory);
            thrown_out_at = fetched;
        }
    }
}

/// Throws the cached pages of all files in the directory out, those that were changed after they are written.
///
/// # Errors
/// If files cannot be opened or written back.
pub fn empty(directory: &Path) -> Result<()> {
    let directory = fs::canonicalize(directory).map_err(Error::file("find", directory))?;
    for path in files(&directory)? {
        let file = File::open(&path).map_err(Error::file("open", &path))?;
        file.sync_all().map_err(Error::file("write back", &path))?;
    }
    throw_out(&directory)
}

/// Throws the cached pages of all files in the directory out.
fn throw_out(directory: &Path) -> Result<()> {
    page_out_maps(directory)?;
    for path in files(directory)? {
        let file = File::open(&path).map_err(Error::file("open", &path))?;
        fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|error| Error::file("throw out pages of", &path)(error.into()))?;
    }
    Ok(())
}

/// Takes the pages of the directory's files out of the maps of this process, and out of memory.
fn page_out_maps(directory: &Path) -> Result<()> {
    let maps = PathBuf::from("/proc/self/maps");
    let text = fs::read_to_string(&maps).map_err(Error::file("read", &maps))?;
    for (start, length) in text.lines().filter_map(|line| shared_map(line, directory)) {
        page_out(start, length);
    }
    Ok(())
}

/// Start and length of the map that a line tells of, if it is a shared one of a file below the directory.
fn shared_map(line: &str, directory: &Path) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    let path = line.find('/').map(|place| Path::new(&line[place..]))?;
    if !access.ends_with('s') || !path.starts_with(directory) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |hex| usize::from_str_radix(hex, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    Some((start, end.checked_sub(start)?))
}

#[allow(unsafe_code)] // The pages belong to others.
fn page_out(start: usize, length: usize) {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: this advice changes what is in memory, never what a program reads there: whatever lies in the range now, should the
    // map have gone meanwhile.
    // It fails for a map that has gone, which holds no pages.
    let _ = unsafe { mm::madvise(start, length, mm::Advice::LinuxPageOut) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_maps_of_the_directory_are_found() {
        let directory = Path::new("/data/lmdb");
        let found = |line| shared_map(line, directory);
        assert_eq!(found("1000-3000 r--s 00000000 fe:00 42   /data/lmdb/data.mdb"), Some((0x1000, 0x2000)));
        assert_eq!(found("1000-3000 r--p 00000000 fe:00 42   /data/lmdb/data.mdb"), None);
        assert_eq!(found("1000-3000 r--s 00000000 fe:00 42   /data/other"), None);
        assert_eq!(found("1000-3000 rw-p 00000000 00:00 0"), None);
    }
}
