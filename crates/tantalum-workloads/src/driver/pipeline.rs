//! A client's commits: one at a time, or several under way.

use std::collections::VecDeque;

use tantalum::{Ticket, Transaction};
use tantalum_rt::{Instant, now};

use super::recorder::{Completed, Recorder};
use crate::error::{self, Result};

/// The commits that a client has under way, at most `depth - 1` between its steps. With a depth of 1 it waits for each.
///
/// ```
/// use tantalum_workloads::driver::Pipeline;
///
/// let pipeline = Pipeline::new(16)?;
/// assert_eq!(pipeline.depth(), 16);
/// assert!(Pipeline::new(0).is_err());
/// # Ok::<(), tantalum_workloads::Error>(())
/// ```
pub struct Pipeline {
    depth: usize,
    under_way: VecDeque<UnderWay>,
}

struct UnderWay {
    kind: usize,
    started: Instant,
    ticket: Ticket,
}

impl Pipeline {
    /// Without a commit under way.
    ///
    /// # Errors
    /// If `depth` is 0.
    pub fn new(depth: usize) -> Result<Self> {
        if depth == 0 {
            return Err(error::out_of_range("async depth", depth, "at least 1"));
        }
        Ok(Self { depth, under_way: VecDeque::new() })
    }

    /// How many commits it lets be under way at the same time.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Commits the transaction that `attempt` makes, again and again until the engine takes it, and counts it when it is
    /// durable: now, or when its turn has come.
    ///
    /// # Errors
    /// Of the attempt or the commit, if it is not one after which to try again.
    pub fn commit(
        &mut self,
        kind: usize,
        recorder: &mut Recorder,
        mut attempt: impl FnMut() -> Result<Transaction>,
    ) -> Result<()> {
        if self.depth == 1 {
            let commit = || {
                attempt()?.commit()?;
                Ok(Completed::Committed)
            };
            return recorder.run(kind, commit).map(drop);
        }
        let started = now();
        if let Some(ticket) = recorder.attempt(kind, || attempt()?.commit_async())? {
            self.under_way.push_back(UnderWay { kind, started, ticket });
        }
        while self.under_way.len() >= self.depth {
            self.wait_for_oldest(recorder)?;
        }
        Ok(())
    }

    /// Waits for all that is under way, and counts it.
    ///
    /// # Errors
    /// Of a commit that failed after the engine had taken it.
    pub fn finish(&mut self, recorder: &mut Recorder) -> Result<()> {
        while !self.under_way.is_empty() {
            self.wait_for_oldest(recorder)?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self, recorder: &mut Recorder) -> Result<()> {
        if let Some(UnderWay { kind, started, ticket }) = self.under_way.pop_front() {
            ticket.wait()?;
            recorder.completed(kind, started, Completed::Committed);
        }
        Ok(())
    }
}
