//! The sizes of the durable writes that a log device gets: the log's flushes.

use std::{collections::BTreeMap, sync::Arc};

use tantalum_device::{Durability, Ending, Request, RequestKind, RequestObserver};
use tantalum_rt::Mutex;

use super::log_mutex::LogMutex;

/// How many writes there were of each size in bytes.
pub type Sizes = BTreeMap<u64, u64>;

/// Counts durable writes, and has them hold the original server's log mutex.
#[derive(Debug)]
pub(super) struct Tap {
    mutex: Option<Arc<LogMutex>>,
    sizes: Mutex<Sizes>,
}

/// Of requests during which the mutex is held, and of others.
const HOLDING: u64 = 1;
const FREE: u64 = 0;

impl Tap {
    pub(super) fn new(mutex: Option<Arc<LogMutex>>) -> Self {
        Self { mutex, sizes: Mutex::default() }
    }

    /// The writes since the last call.
    pub(super) fn take(&self) -> Sizes {
        std::mem::take(&mut *self.sizes.lock())
    }
}

impl RequestObserver for Tap {
    fn began(&self, request: Request) -> u64 {
        self.submitted(request);
        match &self.mutex {
            Some(mutex) if request.kind == RequestKind::Write(Durability::Durable) => {
                mutex.acquire();
                HOLDING
            }
            _ => FREE,
        }
    }

    /// The original server submits its checkpoints only, for which it does not hold the mutex: a log on one piece of hardware
    /// writes requests in the blocking call.
    fn submitted(&self, request: Request) -> u64 {
        if request.kind == RequestKind::Write(Durability::Durable) {
            *self.sizes.lock().entry(request.len).or_default() += 1;
        }
        FREE
    }

    fn ended(&self, number: u64, _ending: Ending) {
        if let (HOLDING, Some(mutex)) = (number, &self.mutex) {
            mutex.release();
        }
    }
}
