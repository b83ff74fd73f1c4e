//! Room in the pool: free frames, those who wait for one, and the batches of dirty pages whose storing frees some.
//!
//! So many batches are under way at most; whoever stores one holds a [`Turn`]. Who finds no free frame takes a turn, and if there
//! is none, waits in a line: for a frame of a batch that ends, or for the turn of one that ended and left too few. So those
//! who wait share what is under way instead of storing a batch each, and are served in the order in which they came.
//!
//! A lock order that keeps turns coming back: who holds a turn waits for no latch and for no frame. And who waits for a frame or a
//! turn holds no latch, or all who want that page would wait for a device.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use tantalum_rt::{Held, Mutex, Parker, Unparker, hold, may_wait};

use super::{latches::TURN, reserve::Reserve};

/// The free frames of a pool and the batches under way.
#[derive(Debug)]
pub(super) struct Room {
    /// How many free frames the cleaner keeps.
    pub reserve: Reserve,
    most_batches: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Frames without a page. None are there while anybody waits for one.
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
    Turn,
}

/// What somebody got who needs a frame.
#[derive(Debug)]
pub(super) enum FrameOrTurn<'a> {
    /// The frame.
    Frame(usize),
    /// The right to store pages, to make room.
    Turn(Turn<'a>),
    /// Neither: no batch is under way, and nobody else can make room.
    Nothing,
}

/// The right to store a batch. Dropping it gives it to the next who waits.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    room: &'a Room,
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

impl Room {
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

    /// Frames that hold no page any more: for those who wait, in their order, and for whoever comes.
    pub fn give(&self, frames: impl IntoIterator<Item = usize>) {
        let mut frames = frames.into_iter().peekable();
        if frames.peek().is_some() {
            let mut state = self.state.lock();
            frames.for_each(|frame| state.give(frame));
        }
    }

    /// A frame, or the right to make room, which who cannot use it does not want. Waits while others may make room.
    pub fn frame_or_turn(&self, wants_turn: bool) -> FrameOrTurn<'_> {
        let mut state = self.state.lock();
        if let Some(frame) = state.free.pop() {
            return FrameOrTurn::Frame(frame);
        }
        if wants_turn && state.batches < self.most_batches {
            return FrameOrTurn::Turn(self.begin(&mut state));
        }
        if state.batches == 0 {
            return FrameOrTurn::Nothing;
        }
        let (parker, waiting) = Waiting::new(true);
        state.waiting.push_back(Arc::clone(&waiting));
        state.wake(&self.reserve);
        drop(state);
        match self.wait(&parker, &waiting) {
            Got::Frame(frame) => FrameOrTurn::Frame(frame),
            Got::Turn => FrameOrTurn::Turn(Turn::of(self)),
        }
    }

    /// The right to store a batch, in turn with those who need frames.
    pub fn turn(&self) -> Turn<'_> {
        may_wait("a turn to store pages");
        let mut state = self.state.lock();
        if state.batches < self.most_batches {
            return self.begin(&mut state);
        }
        let (parker, waiting) = Waiting::new(false);
        state.waiting.push_back(Arc::clone(&waiting));
        drop(state);
        match self.wait(&parker, &waiting) {
            Got::Turn => Turn::of(self),
            Got::Frame(_) => unreachable!("frames go to those who want one"),
        }
    }

    /// The right to store a batch, if there is one at once.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
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

    fn begin(&self, state: &mut State) -> Turn<'_> {
        state.batches += 1;
        state.batches_peak = state.batches_peak.max(state.batches);
        Turn::of(self)
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

impl<'a> Turn<'a> {
    fn of(room: &'a Room) -> Self {
        Turn { room, expected: 0, _held: hold(TURN) }
    }

    /// So many pages are being stored to free their frames.
    pub fn expect(&mut self, pages: usize) {
        let mut state = self.room.state.lock();
        state.expected = state.expected + pages - self.expected;
        self.expected = pages;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.expected -= self.expected;
        match state.waiting.pop_front() {
            Some(waiting) => waiting.take(Got::Turn),
            None => {
                state.batches -= 1;
                state.wake(&self.room.reserve);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_rt::{JoinHandle, Simulation, sleep, spawn};

    use super::*;

    fn full(frames: usize, most_batches: usize) -> Arc<Room> {
        let room = Room::new(frames, most_batches);
        while room.take().is_some() {}
        Arc::new(room)
    }

    fn needs_frame(room: &Arc<Room>) -> JoinHandle<Option<usize>> {
        let room = Arc::clone(room);
        let task = spawn("needs a frame", move || match room.frame_or_turn(true) {
            FrameOrTurn::Frame(frame) => Some(frame),
            FrameOrTurn::Turn(_) => None,
            FrameOrTurn::Nothing => panic!("a batch is under way"),
        });
        sleep(Duration::from_millis(1));
        task
    }

    #[test]
    fn those_who_wait_get_frames_in_their_order_and_the_turn_of_a_batch_that_ended() {
        Simulation::new(1)
            .run(|| {
                let room = full(16, 2);
                let (first, second) = (room.turn(), room.turn());
                assert!(room.try_turn().is_none());
                let [a, b, c, d] = [(); 4].map(|()| needs_frame(&room));
                room.give([7, 8]);
                assert_eq!((a.join().unwrap(), b.join().unwrap()), (Some(7), Some(8)));
                drop(first);
                assert_eq!(c.join().unwrap(), None, "it has the turn, and gives it to the next");
                assert_eq!(d.join().unwrap(), None);
                assert!(room.try_turn().is_some());
                drop(second);
                room.give([9]);
                assert_eq!((room.free(), room.take(), room.batches_peak()), (1, Some(9), 2));
            })
            .expect_finished();
    }

    #[test]
    fn who_wants_only_a_turn_gets_no_frame() {
        Simulation::new(1)
            .run(|| {
                let room = full(16, 1);
                let turn = room.turn();
                let checkpoint = spawn("checkpoint", {
                    let room = Arc::clone(&room);
                    move || drop(room.turn())
                });
                sleep(Duration::from_millis(1));
                let client = needs_frame(&room);
                room.give([3]);
                assert_eq!(client.join().unwrap(), Some(3));
                assert!(!checkpoint.is_finished());
                drop(turn);
                checkpoint.join().unwrap();
            })
            .expect_finished();
    }

    #[test]
    fn who_cannot_use_a_turn_waits_only_while_others_make_room() {
        let room = full(16, 1);
        assert!(matches!(room.frame_or_turn(false), FrameOrTurn::Nothing));
        assert!(matches!(room.frame_or_turn(true), FrameOrTurn::Turn(_)));
    }

    #[test]
    fn what_is_under_way_counts_for_the_reserve() {
        let room = full(1600, 4);
        assert_eq!(room.missing(), 100);
        let mut turn = room.turn();
        turn.expect(64);
        assert_eq!(room.missing(), 36);
        room.give(0..10);
        turn.expect(54);
        assert_eq!(room.missing(), 36);
        drop(turn);
        assert_eq!(room.missing(), 90);
        let parker = Parker::new();
        assert!(!room.rest(0, true, &parker.unparker()), "there is something to do");
        assert!(room.rest(0, false, &parker.unparker()));
        room.take();
        parker.park();
    }
}
