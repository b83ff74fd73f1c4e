//! Which process this is, asked at each call of SQLite: a child that was forked has its parent's memory, but not the threads of the engine.
//! So as not to ask the system each time, the answer is kept in memory that the kernel fills with zeros in a child.

#![allow(unsafe_code)]

use std::{
    process, ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Room for an answer, of which the kernel maps a whole page.
const BYTES: usize = size_of::<AtomicU32>();

/// The number of this process.
pub(crate) fn current() -> u32 {
    static ANSWER: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(answer) = ANSWER.get_or_init(wiped_on_fork) else { return process::id() };
    match answer.load(Ordering::Relaxed) {
        0 => {
            let id = process::id();
            answer.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// Memory, for good, that is zero in each child. `None` where the kernel has none.
fn wiped_on_fork() -> Option<&'static AtomicU32> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), BYTES, access, flags) }.ok()?;
    // SAFETY: nothing refers to the mapping yet, so its content may change, and it may end.
    unsafe {
        if madvise(mapped, BYTES, Advice::LinuxWipeOnFork).is_err() {
            let _ = munmap(mapped, BYTES);
            return None;
        }
    }
    // SAFETY: the mapping begins with a page boundary, has zeros, which are an `AtomicU32`, and stays.
    Some(unsafe { &*mapped.cast::<AtomicU32>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_number_that_the_system_gives() {
        assert_eq!([current(), current()], [process::id(); 2]);
        assert!(wiped_on_fork().is_some(), "Linux has such memory since 4.14");
    }
}
