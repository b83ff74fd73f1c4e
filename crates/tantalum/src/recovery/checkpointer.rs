//! The task that runs a checkpoint when the log asks for one, so that recovery stays short and the log has room. It also
//! tells the operator of devices that were set aside, for which the log asks as well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_log::LogStats;
use tantalum_rt::JoinHandle;

use super::watch::Watch;
use crate::buffer::BufferPool;

/// How long the task waits at a time.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it rests after a checkpoint: a log that asks for more of them at once cannot be satisfied.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// The running checkpoint task. Dropping it stops it, after the checkpoint that it is in.
#[derive(Debug)]
pub struct Checkpointer {
    pool: BufferPool,
    stop: Arc<AtomicBool>,
    task: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts it, with a checkpoint if one `is_due`: after a recovery, so that the next one has nothing to do for what this one did.
    /// `changed` hears when devices of the log are set aside, or no longer.
    pub fn start(pool: &BufferPool, mut is_due: bool, mut changed: impl FnMut(&LogStats) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tantalum_rt::spawn("tantalum-checkpointer", {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            move || {
                let mut watch = Watch::default();
                loop {
                    watch.look(pool.log(), &mut changed);
                    if is_due {
                        let pause = match pool.relieve_log() {
                            Ok(_) => PAUSE,
                            Err(error) => {
                                tantalum_rt::tracing::error!(%error, "a checkpoint failed; it will be tried again");
                                pool.log().report_failed_checkpoint(error);
                                PAUSE_AFTER_FAILURE
                            }
                        };
                        tantalum_rt::sleep(pause);
                    }
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    is_due = pool.log().wait_for_pressure(WAIT_TIMEOUT);
                }
            }
        });
        Self { pool: pool.clone(), stop, task: Some(task) }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.pool.log().end_pressure_waits();
        if self.task.take().is_some_and(|task| task.join().is_err()) {
            tantalum_rt::tracing::error!("the checkpoint task panicked");
        }
    }
}
