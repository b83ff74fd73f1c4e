//! Commits of a [`Client`] that are not known to be durable: it waits for them, or is told by a call from a task of the database.

use std::sync::Arc;

use tantalum::{Error, Ticket};
use tantalum_rt::{Condvar, Mutex};

use super::Client;
use crate::{
    history::{Event, Recorder},
    stop::Stop,
};

/// A commit that is on its way.
pub(super) enum Awaited {
    /// The client waits for it.
    Ticket(u32, Ticket),
    /// A call tells when it is durable.
    Call(Arc<Told>),
}

/// What the call has told.
#[derive(Default)]
pub(super) struct Told {
    outcome: Mutex<Option<Result<(), Error>>>,
    known: Condvar,
}

impl Client {
    /// The commit of the transaction `id`, to be finished.
    pub(super) fn awaited(&mut self, id: u32, ticket: Ticket) -> Awaited {
        if !self.shared.load.awaits_calls || self.random.bool() {
            return Awaited::Ticket(id, ticket);
        }
        let told = Arc::new(Told::default());
        let (of_call, recorder) = (Arc::clone(&told), self.shared.recorder.clone());
        ticket.on_durable(move |outcome| {
            if outcome.is_ok() {
                recorder.record(Event::Acknowledged { id, position: None });
                recorder.count("commits that a call told of", 1);
            }
            let before = of_call.outcome.lock().replace(outcome.map(drop));
            if before.is_some() {
                recorder.record(Event::Violation(format!("a call told twice of the commit of T{id}")));
            }
            of_call.known.notify_all();
        });
        Awaited::Call(told)
    }
}

impl Awaited {
    /// Waits until the commit is durable.
    pub fn finish(self, recorder: &Recorder) -> Result<(), Stop> {
        match self {
            Self::Ticket(id, ticket) => {
                ticket.wait()?;
                recorder.record(Event::Acknowledged { id, position: None });
            }
            Self::Call(told) => {
                let mut outcome = told.outcome.lock();
                while outcome.is_none() {
                    told.known.wait(&mut outcome);
                }
                outcome.take().unwrap_or(Ok(()))?;
            }
        }
        Ok(())
    }
}
