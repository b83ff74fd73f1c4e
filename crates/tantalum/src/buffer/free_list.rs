//! The free list of the pool: frames without a page, the tasks that wait for one, and permits to write batches of dirty pages, which
//! frees some.
//!
//! The number of [`WritePermit`]s bounds the batches under way. A task that finds no free frame takes a permit. If there is none, the
//! task waits in a line: for a frame of a batch that ends, or for the permit of one that ended and left too few. So the waiting
//! tasks share the batches under way instead of writing one each, and are served in the order in which they came.
//!
//! A lock order that keeps permits coming back: a task with a permit waits for no latch and for no frame. And a task that waits for a
//! frame or a permit holds no latch, or all tasks that want that page would wait for a device.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tantalum_rt::{Held, Mutex, Parker, Unparker, hold, may_wait};

use super::latches::WRITE_PERMIT;

/// The cleaner is woken when half of the reserve is left; that half lasts for so many writes like the worst one of late.
const WRITES_COVERED: usize = 2;
/// With each write the reserve shrinks by one in so many, unless the write shows that it is needed.
const SHRINKS_BY: usize = 16;

/// The free frames of a pool and the batches under way.
#[derive(Debug)]
pub(super) struct FreeList {
    /// How many free frames the cleaner keeps.
    pub reserve: Reserve,
    most_batches: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Frames without a page. None are there while a task waits for one.
    free: Vec<usize>,
    waiting: VecDeque<Arc<Waiting>>,
    batches: usize,
    batches_peak: usize,
    /// Pages of those batches whose frames will be free.
    expected: usize,
    /// Cleaners that rest, by their numbers.
    resting: BTreeMap<usize, Unparker>,
    has_cleaners: bool,
}

#[derive(Debug)]
struct Waiting {
    wants_frame: bool,
    got: Mutex<Option<Got>>,
    unparker: Unparker,
}

#[derive(Debug)]
enum Got {
    Frame(usize),
    Permit,
}

/// What a task gets that needs a frame.
#[derive(Debug)]
pub(super) enum FrameOrPermit<'a> {
    /// The frame.
    Frame(usize),
    /// The right to store pages, to make room.
    Permit(WritePermit<'a>),
    /// Neither: no batch is under way, and no other task can free one.
    Nothing,
}

/// The right to store a batch. Dropping it gives it to the next waiting task.
#[derive(Debug)]
pub(super) struct WritePermit<'a> {
    list: &'a FreeList,
    expected: usize,
    _held: Held,
}

impl State {
    fn give(&mut self, frame: usize) {
        match self.waiting.iter().position(|waiting| waiting.wants_frame) {
            Some(at) => {
                let waiting = self.waiting.remove(at).expect("it was just found");
                waiting.take(Got::Frame(frame));
            }
            None => self.free.push(frame),
        }
    }

    /// Free frames that are missing, beside those that batches under way will free, if so many are wanted.
    fn missing(&self, wanted: usize) -> usize {
        let waiting = self.waiting.iter().filter(|waiting| waiting.wants_frame).count();
        (wanted + waiting).saturating_sub(self.free.len() + self.expected)
    }

    /// A cleaner to wake, if less than half of the reserve is there or coming.
    fn wake(&mut self, reserve: &Reserve) {
        if self.missing(reserve.frames() / 2) > 0
            && let Some((_, cleaner)) = self.resting.pop_first()
        {
            cleaner.unpark();
        }
    }
}

impl Waiting {
    fn take(&self, got: Got) {
        *self.got.lock() = Some(got);
        self.unparker.unpark();
    }
}

impl FreeList {
    /// Of a pool of so many frames, all free, with at most so many batches under way.
    pub fn new(frames: usize, most_batches: usize) -> Self {
        let state = State { free: (0..frames).rev().collect(), ..State::default() };
        Self { reserve: Reserve::new(frames), most_batches, state: Mutex::new(state) }
    }

    /// The most batches under way at a time.
    pub fn most_batches(&self) -> usize {
        self.most_batches
    }

    /// The most batches that were under way at a time.
    pub fn batches_peak(&self) -> usize {
        self.state.lock().batches_peak
    }

    /// How many frames are free.
    pub fn free(&self) -> usize {
        self.state.lock().free.len()
    }

    /// A free frame, if there is one.
    pub fn take(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let frame = state.free.pop();
        state.wake(&self.reserve);
        frame
    }

    /// Frames that hold no page any more: for waiting tasks, in their order, and for later ones.
    pub fn give(&self, frames: impl IntoIterator<Item = usize>) {
        let mut frames = frames.into_iter().peekable();
        if frames.peek().is_some() {
            let mut state = self.state.lock();
            frames.for_each(|frame| state.give(frame));
        }
    }

    /// A frame, or a permit to write pages so that one becomes free, unless the task has none to write. Waits while other tasks may
    /// free one.
    pub fn frame_or_permit(&self, wants_permit: bool) -> FrameOrPermit<'_> {
        let mut state = self.state.lock();
        if let Some(frame) = state.free.pop() {
            return FrameOrPermit::Frame(frame);
        }
        if wants_permit && state.batches < self.most_batches {
            return FrameOrPermit::Permit(self.begin(&mut state));
        }
        if state.batches == 0 {
            return FrameOrPermit::Nothing;
        }
        let (parker, waiting) = Waiting::new(true);
        state.waiting.push_back(Arc::clone(&waiting));
        state.wake(&self.reserve);
        drop(state);
        match self.wait(&parker, &waiting) {
            Got::Frame(frame) => FrameOrPermit::Frame(frame),
            Got::Permit => FrameOrPermit::Permit(WritePermit::of(self)),
        }
    }

    /// The right to store a batch; waits in the line of the tasks that need frames.
    pub fn write_permit(&self) -> WritePermit<'_> {
        may_wait("a permit to write pages");
        let mut state = self.state.lock();
        if state.batches < self.most_batches {
            return self.begin(&mut state);
        }
        let (parker, waiting) = Waiting::new(false);
        state.waiting.push_back(Arc::clone(&waiting));
        drop(state);
        match self.wait(&parker, &waiting) {
            Got::Permit => WritePermit::of(self),
            Got::Frame(_) => unreachable!("only a task that waits for a frame gets one"),
        }
    }

    /// The right to store a batch, if there is one at once.
    pub fn try_write_permit(&self) -> Option<WritePermit<'_>> {
        let mut state = self.state.lock();
        (state.batches < self.most_batches).then(|| self.begin(&mut state))
    }

    /// The free frames that the reserve lacks, beside those that batches under way will free.
    pub fn missing(&self) -> usize {
        self.state.lock().missing(self.reserve.frames())
    }

    /// From now on there are cleaners.
    ///
    /// # Panics
    /// When there are some already.
    pub fn expect_cleaners(&self) {
        let had = std::mem::replace(&mut self.state.lock().has_cleaners, true);
        assert!(!had, "a pool's cleaners are started once");
    }

    /// Whether there are or were cleaners.
    pub fn has_cleaners(&self) -> bool {
        self.state.lock().has_cleaners
    }

    /// A cleaner that found nothing more to do goes to rest, to be woken when the reserve is half used; false if it is not as it
    /// was when the cleaner looked, unless there is nothing that it `can` do.
    pub fn rest(&self, number: usize, can: bool, unparker: &Unparker) -> bool {
        let mut state = self.state.lock();
        let rests = !can || state.missing(self.reserve.frames()) == 0;
        if rests {
            state.resting.insert(number, unparker.clone());
        }
        rests
    }

    fn begin(&self, state: &mut State) -> WritePermit<'_> {
        state.batches += 1;
        state.batches_peak = state.batches_peak.max(state.batches);
        WritePermit::of(self)
    }

    fn wait(&self, parker: &Parker, waiting: &Waiting) -> Got {
        loop {
            parker.park();
            if let Some(got) = waiting.got.lock().take() {
                return got;
            }
        }
    }
}

impl Waiting {
    fn new(wants_frame: bool) -> (Parker, Arc<Self>) {
        let parker = Parker::new();
        let unparker = parker.unparker();
        (parker, Arc::new(Self { wants_frame, got: Mutex::new(None), unparker }))
    }
}

impl<'a> WritePermit<'a> {
    fn of(list: &'a FreeList) -> Self {
        WritePermit { list, expected: 0, _held: hold(WRITE_PERMIT) }
    }

    /// So many pages are being stored to free their frames.
    pub fn expect(&mut self, pages: usize) {
        let mut state = self.list.state.lock();
        state.expected = state.expected + pages - self.expected;
        self.expected = pages;
    }
}

impl Drop for WritePermit<'_> {
    fn drop(&mut self) {
        let mut state = self.list.state.lock();
        state.expected -= self.expected;
        match state.waiting.pop_front() {
            Some(waiting) => waiting.take(Got::Permit),
            None => {
                state.batches -= 1;
                state.wake(&self.list.reserve);
            }
        }
    }
}

/// How many free frames the cleaner keeps: as many as the load takes while a batch of pages is written, and some more. So it follows
/// the device and the load without a clock: on a slow device more frames are taken during a write than on a fast one. What is free
/// caches nothing, so the reserve shrinks again when writes take less.
#[derive(Debug)]
pub(super) struct Reserve {
    frames: AtomicUsize,
    least: usize,
    most: usize,
    /// Frames that were asked for.
    demand: AtomicU64,
}

impl Reserve {
    /// The reserve of a pool of so many frames, of which at most a quarter are kept free.
    pub fn new(pool_frames: usize) -> Self {
        let least = (pool_frames / 16).clamp(4, 256);
        Self { frames: AtomicUsize::new(least), least, most: least.max(pool_frames / 4), demand: AtomicU64::new(0) }
    }

    /// The free frames to aim at.
    pub fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// A frame is asked for.
    pub fn count_demand(&self) {
        self.demand.fetch_add(1, Ordering::Relaxed);
    }

    /// Does `write`, and learns from what was asked for meanwhile.
    pub fn learn<T>(&self, write: impl FnOnce() -> T) -> T {
        let before = self.demand.load(Ordering::Relaxed);
        let written = write();
        let taken = self.demand.load(Ordering::Relaxed).wrapping_sub(before);
        self.follow(usize::try_from(taken).unwrap_or(usize::MAX));
        written
    }

    fn follow(&self, taken: usize) {
        let now = self.frames();
        let needed = taken.saturating_mul(2 * WRITES_COVERED);
        let shrunk = now - now.div_ceil(SHRINKS_BY);
        self.frames.store(needed.max(shrunk).clamp(self.least, self.most), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_rt::{JoinHandle, Simulation, sleep, spawn};

    use super::*;

    fn full(frames: usize, most_batches: usize) -> Arc<FreeList> {
        let list = FreeList::new(frames, most_batches);
        while list.take().is_some() {}
        Arc::new(list)
    }

    fn needs_frame(list: &Arc<FreeList>) -> JoinHandle<Option<usize>> {
        let list = Arc::clone(list);
        let task = spawn("needs a frame", move || match list.frame_or_permit(true) {
            FrameOrPermit::Frame(frame) => Some(frame),
            FrameOrPermit::Permit(_) => None,
            FrameOrPermit::Nothing => panic!("a batch is under way"),
        });
        sleep(Duration::from_millis(1));
        task
    }

    #[test]
    fn waiting_tasks_get_frames_in_their_order_and_the_permit_of_a_batch_that_ended() {
        Simulation::new(1)
            .run(|| {
                let list = full(16, 2);
                let (first, second) = (list.write_permit(), list.write_permit());
                assert!(list.try_write_permit().is_none());
                let [a, b, c, d] = [(); 4].map(|()| needs_frame(&list));
                list.give([7, 8]);
                assert_eq!((a.join().unwrap(), b.join().unwrap()), (Some(7), Some(8)));
                drop(first);
                assert_eq!(c.join().unwrap(), None, "it has the permit, and gives it to the next");
                assert_eq!(d.join().unwrap(), None);
                assert!(list.try_write_permit().is_some());
                drop(second);
                list.give([9]);
                assert_eq!((list.free(), list.take(), list.batches_peak()), (1, Some(9), 2));
            })
            .expect_finished();
    }

    #[test]
    fn a_task_that_wants_only_a_permit_gets_no_frame() {
        Simulation::new(1)
            .run(|| {
                let list = full(16, 1);
                let permit = list.write_permit();
                let checkpoint = spawn("checkpoint", {
                    let list = Arc::clone(&list);
                    move || drop(list.write_permit())
                });
                sleep(Duration::from_millis(1));
                let client = needs_frame(&list);
                list.give([3]);
                assert_eq!(client.join().unwrap(), Some(3));
                assert!(!checkpoint.is_finished());
                drop(permit);
                checkpoint.join().unwrap();
            })
            .expect_finished();
    }

    #[test]
    fn a_task_without_use_for_a_permit_waits_only_while_others_write() {
        let list = full(16, 1);
        assert!(matches!(list.frame_or_permit(false), FrameOrPermit::Nothing));
        assert!(matches!(list.frame_or_permit(true), FrameOrPermit::Permit(_)));
    }

    #[test]
    fn what_is_under_way_counts_for_the_reserve() {
        let list = full(1600, 4);
        assert_eq!(list.missing(), 100);
        let mut permit = list.write_permit();
        permit.expect(64);
        assert_eq!(list.missing(), 36);
        list.give(0..10);
        permit.expect(54);
        assert_eq!(list.missing(), 36);
        drop(permit);
        assert_eq!(list.missing(), 90);
        let parker = Parker::new();
        assert!(!list.rest(0, true, &parker.unparker()), "there is something to do");
        assert!(list.rest(0, false, &parker.unparker()));
        list.take();
        parker.park();
    }

    #[test]
    fn the_reserve_grows_at_once_and_shrinks_slowly_within_its_bounds() {
        let reserve = Reserve::new(1600);
        let during = |taken: usize| {
            reserve.learn(|| (0..taken).for_each(|_| reserve.count_demand()));
            reserve.frames()
        };
        assert_eq!(reserve.frames(), 100);
        assert_eq!(during(50), 200);
        assert_eq!(during(0), 187);
        assert_eq!(during(1000), 400);
        (0..100).for_each(|_| _ = during(0));
        assert_eq!(reserve.frames(), 100);
        assert_eq!(Reserve::new(16).frames(), 4);
    }
}
