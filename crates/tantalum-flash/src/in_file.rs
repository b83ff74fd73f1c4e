//! A model whose medium lies in a file: it is shut down in good order when it is dropped, and its time begins when it is
//! ready.

use tantalum_rt::Random;

use crate::{Counters, Model, Nanos, Outcome, Shape, Ticket};

/// A model over the file behind it.
#[derive(Debug)]
pub(crate) struct InFile {
    model: Box<dyn Model>,
    /// When the device was ready after it was powered on, in the model's time: the beginning of the host's.
    origin: Nanos,
    /// The latest time that the model was told.
    now: Nanos,
    has_power: bool,
}

impl InFile {
    /// `origin` is when the model is ready.
    pub fn new(model: Box<dyn Model>, origin: Nanos) -> Self {
        Self { model, origin, now: origin, has_power: true }
    }

    /// The model's time. Times near the end of all time stand for it.
    fn enter(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now.saturating_add(self.origin));
        now.saturating_add(self.origin)
    }

    fn leave(&self, done: Nanos) -> Nanos {
        if done == Nanos::MAX { done } else { done - self.origin }
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        Outcome { done: self.leave(outcome.done), ..outcome }
    }
}

impl Model for InFile {
    fn describe(&self) -> Shape {
        self.model.describe()
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        let now = self.enter(now);
        let outcome = self.model.read(now, offset, buffer);
        self.outcome(outcome)
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        let now = self.enter(now);
        let outcome = self.model.write(now, offset, data, durable);
        self.outcome(outcome)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        let now = self.enter(now);
        let outcome = self.model.flush(now);
        self.outcome(outcome)
    }

    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome {
        let now = self.enter(now);
        let outcome = self.model.discard(now, offset, len);
        self.outcome(outcome)
    }

    fn ask_again(&mut self, now: Nanos, ticket: Ticket) -> Option<Nanos> {
        let now = self.enter(now);
        let later = self.model.ask_again(now, ticket)?;
        Some(self.leave(later))
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.model.peek(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        let now = self.enter(now);
        self.model.power_cut(now, random);
        self.has_power = false;
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        let now = self.enter(now);
        let ready = self.model.power_on(now);
        self.has_power = true;
        self.now = self.now.max(ready);
        self.leave(ready)
    }

    fn catch_up(&mut self, now: Nanos) {
        let now = self.enter(now);
        self.model.catch_up(now);
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        let now = self.enter(now);
        let done = self.model.shut_down(now);
        self.has_power = false;
        self.leave(done)
    }

    fn counters(&self) -> Counters {
        self.model.counters()
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        if self.has_power {
            self.model.shut_down(self.now);
        }
    }
}
