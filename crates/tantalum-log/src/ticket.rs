//! Waiting for durability later.

use std::fmt;
use std::sync::Arc;

use crate::scheduler::Scheduler;
use crate::{Lsn, Result};

/// Tells when a position of the log is durable. From [`Log::ticket`](crate::Log::ticket).
///
/// Workers write the records whether or not a task waits for the ticket. A ticket of a log whose last handle is
/// dropped can still be waited for; the waiting task then does the writing.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions};
/// # let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
/// # Log::create(7, vec![device.clone()], LogOptions::default())?;
/// # let log = Log::open(vec![device], LogOptions::default(), &mut |_| {})?.finish()?;
/// let tickets: Vec<_> = (0..3u8)
///     .map(|n| log.append(&[&[n]]).and_then(|record| log.ticket(record.end)))
///     .collect::<Result<_, _>>()?;
/// for ticket in tickets {
///     ticket.wait()?;
/// }
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[derive(Clone)]
pub struct Ticket {
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) lsn: Lsn,
}

impl Ticket {
    /// The position that the ticket waits for.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The outcome, if it is known: `Ok` when everything up to the ticket's LSN is durable. Never blocks on a device.
    pub fn is_done(&self) -> Option<Result<()>> {
        self.scheduler.outcome(self.lsn)
    }

    /// Blocks until the outcome is known.
    ///
    /// # Errors
    /// [`Poisoned`](crate::ErrorKind::Poisoned) if the log failed before the records were durable; whether they
    /// will be found after reopening is then unknown.
    pub fn wait(self) -> Result<()> {
        self.scheduler.flush(self.lsn)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("lsn", &self.lsn).finish_non_exhaustive()
    }
}
