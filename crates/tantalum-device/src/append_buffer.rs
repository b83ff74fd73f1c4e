//! A buffer that many threads fill at once and one thread takes away.
//!
//! An append reserves its bytes with one atomic exchange, copies them outside any lock, and publishes them. Sealing
//! fixes the length; taking waits for the copies under way and hands out the memory.
//!
//! Invariant: reserved ranges are disjoint, lie behind the prefix and within the limit; none is handed out once the
//! buffer is sealed; and the memory is taken at most once, after every reserved byte was published.

#![allow(unsafe_code)] // Many threads write disjoint parts of one buffer, which no safe type allows without a copy.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tantalum_rt::{Mutex, Parker, Unparker};

use crate::AlignedBuffer;

const SEALED: usize = 1 << (usize::BITS - 1);
/// The taker waits for the copies under way to be complete.
const AWAITED: usize = 1 << (usize::BITS - 1);
/// A copy takes microseconds at most; after so many looks its thread has lost its core, and the taker gives up its own.
const LOOKS: usize = 64;

/// Why [`AppendBuffer::append`] did not take the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendRefused {
    /// They do not fit behind what is there.
    Full,
    /// The buffer takes nothing any more.
    Sealed,
}

/// An [`AlignedBuffer`] behind a shared reference, filled from the front by any number of threads.
///
/// ```
/// use tantalum_device::{AlignedBuffer, AppendBuffer, AppendRefused};
///
/// let buffer = AppendBuffer::new(AlignedBuffer::zeroed(4096), 16, 100);
/// assert_eq!(buffer.append(b"ab", &[b"c"]), Ok(0));
/// assert_eq!(buffer.append(b"d", &[]), Ok(3));
/// assert_eq!(buffer.append(&[0; 97], &[]), Err(AppendRefused::Full));
/// assert_eq!(buffer.seal(), Some(4));
/// assert_eq!(buffer.append(b"e", &[]), Err(AppendRefused::Sealed));
/// let memory = buffer.take();
/// assert_eq!(&memory[16..20], b"abcd");
/// ```
pub struct AppendBuffer {
    /// The memory, until it is taken.
    memory: UnsafeCell<Option<AlignedBuffer>>,
    /// The first byte behind the prefix.
    start: NonNull<u8>,
    limit: usize,
    /// Bytes reserved, and the sealed bit.
    reserved: AtomicUsize,
    /// Bytes whose copy is complete, and the awaited bit.
    published: AtomicUsize,
    taker: Mutex<Option<Unparker>>,
    taken: AtomicBool,
}

// SAFETY: `start` points into memory that the buffer owns (or has given away, after which it is not used).
unsafe impl Send for AppendBuffer {}
// SAFETY: threads write disjoint ranges through `start`, and `memory` is touched only by the one thread that wins
// `taken`, after all writes were published.
unsafe impl Sync for AppendBuffer {}

impl AppendBuffer {
    /// Makes `memory` fillable: `limit` bytes behind the first `prefix` bytes, which are left alone.
    ///
    /// # Panics
    /// If prefix and limit exceed the memory.
    pub fn new(mut memory: AlignedBuffer, prefix: usize, limit: usize) -> Self {
        let end = prefix.checked_add(limit).expect("prefix and limit are sizes of memory");
        assert!(end <= memory.len() && limit < SEALED, "an append buffer's prefix and limit must fit its memory");
        let start = NonNull::from(&mut memory[prefix..]).cast::<u8>();
        AppendBuffer {
            memory: UnsafeCell::new(Some(memory)),
            start,
            limit,
            reserved: AtomicUsize::new(0),
            published: AtomicUsize::new(0),
            taker: Mutex::new(None),
            taken: AtomicBool::new(false),
        }
    }

    /// Appends `head` and the concatenation of `parts`, and returns where, counted from the prefix's end. Never waits.
    pub fn append(&self, head: &[u8], parts: &[&[u8]]) -> Result<usize, AppendRefused> {
        let total = parts.iter().map(|part| part.len()).fold(head.len(), usize::saturating_add);
        let offset = self.reserve(total)?;
        let reserved = Reserved { buffer: self, range: offset..offset + total, head, parts };
        tantalum_rt::interleave();
        drop(reserved);
        Ok(offset)
    }

    fn publish(&self, bytes: usize) {
        // Release: the thread that takes the memory must see the bytes.
        if self.published.fetch_add(bytes, Ordering::AcqRel) & AWAITED != 0 {
            self.taker.lock().iter().for_each(Unparker::unpark);
        }
    }

    fn reserve(&self, bytes: usize) -> Result<usize, AppendRefused> {
        let mut reserved = self.reserved.load(Ordering::Relaxed);
        loop {
            if reserved & SEALED != 0 {
                return Err(AppendRefused::Sealed);
            }
            if bytes > self.limit - reserved {
                return Err(AppendRefused::Full);
            }
            match self.reserved.compare_exchange_weak(reserved, reserved + bytes, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(offset) => return Ok(offset),
                Err(now) => reserved = now,
            }
        }
    }

    /// Bytes appended so far, those whose copy is under way included.
    pub fn len(&self) -> usize {
        self.reserved.load(Ordering::Acquire) & !SEALED
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses all further appends and returns the final length; `None` if the buffer was sealed before. Never waits.
    pub fn seal(&self) -> Option<usize> {
        let before = self.reserved.fetch_or(SEALED, Ordering::AcqRel);
        (before & SEALED == 0).then_some(before)
    }

    /// Takes the memory of a sealed buffer, once the copies under way are complete.
    ///
    /// # Panics
    /// If the buffer was not sealed, or its memory was taken before.
    pub fn take(&self) -> AlignedBuffer {
        let reserved = self.reserved.load(Ordering::Acquire);
        assert!(reserved & SEALED != 0, "an append buffer must be sealed before it is taken");
        assert!(!self.taken.swap(true, Ordering::AcqRel), "an append buffer is taken once");
        self.await_copies(reserved & !SEALED);
        // SAFETY: `taken` admits one thread, ever. No other thread writes through `start` any more: every reservation
        // was published (seen with Acquire), and a sealed buffer grants no new one.
        let memory = unsafe { (*self.memory.get()).take() };
        memory.expect("the memory is there until it is taken")
    }

    /// Waits until so many bytes are published, all that ever will be. A thread that copies waits for nothing before it is done.
    fn await_copies(&self, reserved: usize) {
        let is_complete = |published: usize| published & !AWAITED == reserved;
        for _ in 0..LOOKS {
            if is_complete(self.published.load(Ordering::Acquire)) {
                return;
            }
            tantalum_rt::yield_now();
        }
        let parker = Parker::new();
        *self.taker.lock() = Some(parker.unparker());
        let mut published = self.published.fetch_or(AWAITED, Ordering::AcqRel);
        while !is_complete(published) {
            parker.park();
            published = self.published.load(Ordering::Acquire);
        }
    }
}

/// A range that is reserved. Dropping it copies the bytes, so that a panic leaves none without: taking would wait for them
/// for ever.
struct Reserved<'a> {
    buffer: &'a AppendBuffer,
    range: Range<usize>,
    head: &'a [u8],
    parts: &'a [&'a [u8]],
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut at = self.range.start;
        for part in [&self.head].into_iter().chain(self.parts) {
            debug_assert!(at + part.len() <= self.range.end);
            // SAFETY: the range was reserved for this call alone and lies within `limit`, hence within the memory, which
            // cannot have been taken: taking waits until all that was reserved is published, which happens below. The
            // source is a live slice that cannot overlap memory to which only this buffer can refer.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), self.buffer.start.as_ptr().add(at), part.len()) };
            at += part.len();
        }
        self.buffer.publish(self.range.len());
    }
}

impl fmt::Debug for AppendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sealed = self.reserved.load(Ordering::Relaxed) & SEALED != 0;
        f.debug_struct("AppendBuffer")
            .field("len", &self.len())
            .field("limit", &self.limit)
            .field("sealed", &sealed)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tantalum_rt::{Simulation, simulation, spawn};

    #[test]
    fn an_empty_buffer_can_be_taken() {
        let buffer = AppendBuffer::new(AlignedBuffer::zeroed(8), 8, 0);
        assert_eq!(buffer.append(b"x", &[]), Err(AppendRefused::Full));
        assert_eq!(buffer.seal(), Some(0));
        assert_eq!(buffer.seal(), None);
        assert_eq!(buffer.take().len(), 8);
    }

    #[test]
    #[should_panic(expected = "sealed before")]
    fn an_open_buffer_cannot_be_taken() {
        AppendBuffer::new(AlignedBuffer::zeroed(8), 0, 8).take();
    }

    #[test]
    #[should_panic(expected = "taken once")]
    fn memory_is_taken_once() {
        let buffer = AppendBuffer::new(AlignedBuffer::zeroed(8), 0, 8);
        buffer.seal();
        let _first = buffer.take();
        let _second = buffer.take();
    }

    /// Several writers fill the buffer while one seals it at some instant; what was accepted, and only that, is there.
    fn fill_and_seal() {
        const PREFIX: usize = 7;
        let buffer = Arc::new(AppendBuffer::new(AlignedBuffer::zeroed(4096), PREFIX, 600));
        let writers: Vec<_> = (1..=3u8)
            .map(|writer| {
                let buffer = Arc::clone(&buffer);
                spawn(format!("writer-{writer}"), move || {
                    let mut accepted = Vec::new();
                    for n in 0..20 {
                        let bytes = [writer * 40 + n; 13];
                        match buffer.append(&bytes[..5], &[&bytes[5..9], &bytes[9..]]) {
                            Ok(offset) => accepted.push((offset, bytes)),
                            Err(_) => break,
                        }
                        tantalum_rt::interleave();
                    }
                    accepted
                })
            })
            .collect();
        for _ in 0..4 {
            tantalum_rt::yield_now();
        }
        let len = buffer.seal().expect("sealed once");
        let memory = buffer.take();
        let mut accepted: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect();
        accepted.sort_unstable();
        let mut at = 0;
        for (offset, bytes) in accepted {
            assert_eq!(offset, at);
            assert_eq!(&memory[PREFIX + at..PREFIX + at + 13], &bytes[..]);
            at += 13;
        }
        assert_eq!(at, len);
        assert!(memory[..PREFIX].iter().chain(&memory[PREFIX + len..]).all(|&byte| byte == 0));
    }

    #[test]
    fn a_panic_within_an_append_leaves_no_range_without_its_bytes() {
        Simulation::new(1)
            .run(|| {
                let buffer = AppendBuffer::new(AlignedBuffer::zeroed(4096), 0, 100);
                assert_eq!(simulation::panic_at(&mut 1, || buffer.append(b"a", &[b"b"])), None);
                assert_eq!(buffer.append(b"c", &[]), Ok(2));
                buffer.seal();
                assert_eq!(&buffer.take()[..3], b"abc");
            })
            .expect_finished();
    }

    #[test]
    fn who_takes_the_memory_sleeps_while_a_copy_takes_long() {
        Simulation::new(1)
            .run(|| {
                let buffer = Arc::new(AppendBuffer::new(AlignedBuffer::zeroed(4096), 0, 600));
                buffer.append(b"done", &[]).expect("there is room");
                // As an append whose thread has lost its core.
                let halves = [buffer.reserve(5).expect("there is room"), buffer.reserve(7).expect("there is room")];
                assert_eq!((halves, buffer.seal()), ([4, 9], Some(16)));
                let taker = spawn("taker", {
                    let buffer = Arc::clone(&buffer);
                    move || buffer.take().len()
                });
                for bytes in [5, 7] {
                    tantalum_rt::sleep(std::time::Duration::from_millis(1));
                    let tasks = tantalum_rt::list_tasks();
                    let taker = tasks.lines().find(|task| task.contains("taker")).expect("it waits");
                    assert!(taker.contains("parked"), "{taker}");
                    buffer.publish(bytes);
                }
                assert_eq!(taker.join().expect("no panic"), 4096);
            })
            .expect_finished();
    }

    #[test]
    fn sealing_waits_for_copies_in_simulation() {
        for seed in 0..200 {
            Simulation::new(seed).run(fill_and_seal).expect_finished();
        }
    }

    #[test]
    fn sealing_waits_for_copies_on_threads() {
        for _ in 0..20 {
            fill_and_seal();
        }
    }
}
