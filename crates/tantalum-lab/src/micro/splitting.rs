//! Requests of many to several devices, kept whole or split over all of them (FlashLogging, section 3.3, Figure 5).

use std::{collections::VecDeque, sync::Arc};

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::{Condvar, Mutex, now, spawn};

use crate::error::Result;

/// What is asked of [`run_together`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Together {
    /// Bytes of a request. Each device's part, where it is split, is a multiple of the device's block.
    pub request_bytes: u32,
    /// Requests in all.
    pub operations: u64,
    /// Tasks with one request under way each.
    pub requesters: u32,
    /// Whether every request is cut into equal parts, one for each device; else a free device takes all of it.
    pub is_split: bool,
}

/// Parts that wait to be written. A request has one or as many as there are devices.
struct Queues {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// One for each device where requests are split; else one for all.
    waiting: Vec<VecDeque<u32>>,
    /// Of each requester: parts of its request that are not yet written.
    unwritten: Vec<u32>,
    left: u64,
    result: Result<()>,
}

/// Writes durably and sequentially to all `devices`, from their begin, and says how many bytes a second that made in all.
/// Each device serves one request at a time.
///
/// # Errors
/// The first error of a device.
pub fn run_together(devices: &[Arc<dyn Device>], load: Together) -> Result<f64> {
    let (queues, parts) = if load.is_split { (devices.len(), devices.len() as u32) } else { (1, 1) };
    let state = State {
        waiting: vec![VecDeque::new(); queues],
        unwritten: vec![0; load.requesters as usize],
        left: load.operations,
        result: Ok(()),
    };
    let shared = Arc::new(Queues { state: Mutex::new(state), changed: Condvar::new() });
    let started = now();
    for requester in 0..load.requesters {
        shared.state.lock().ask(requester);
    }
    let workers: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(number, device)| {
            let (shared, device) = (Arc::clone(&shared), Arc::clone(device));
            let queue = number.min(queues - 1);
            spawn(format!("device-{number}"), move || shared.serve(&*device, queue, load.request_bytes / parts))
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("a device's worker does not panic"));
    let seconds = (now() - started).as_secs_f64();
    let mut state = shared.state.lock();
    std::mem::replace(&mut state.result, Ok(()))?;
    Ok(load.operations as f64 * f64::from(load.request_bytes) / seconds)
}

impl State {
    /// The requester's next request, if there is one left.
    fn ask(&mut self, requester: u32) {
        if self.left > 0 && self.result.is_ok() {
            self.left -= 1;
            self.unwritten[requester as usize] = self.waiting.len() as u32;
            self.waiting.iter_mut().for_each(|queue| queue.push_back(requester));
        }
    }

    fn is_over(&self) -> bool {
        self.result.is_err() || (self.left == 0 && self.unwritten.iter().all(|&parts| parts == 0))
    }
}

impl Queues {
    fn serve(&self, device: &dyn Device, queue: usize, part_bytes: u32) {
        let part = AlignedBuffer::zeroed(part_bytes as usize);
        let parts = device.capacity_bytes() / u64::from(part_bytes);
        for number in 0.. {
            let mut state = self.state.lock();
            let requester = loop {
                if let Some(requester) = state.waiting[queue].pop_front() {
                    break requester;
                }
                if state.is_over() {
                    return;
                }
                self.changed.wait(&mut state);
            };
            drop(state);
            let written = device.write(number % parts * u64::from(part_bytes), &[&part], Durability::Durable);
            let mut state = self.state.lock();
            match written {
                Err(error) => state.result = Err(error.into()),
                Ok(()) => {
                    state.unwritten[requester as usize] -= 1;
                    if state.unwritten[requester as usize] == 0 {
                        state.ask(requester);
                    }
                }
            }
            let is_failed = state.result.is_err();
            drop(state);
            self.changed.notify_all();
            if is_failed {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_device::{Fault, MemoryDevice, MemoryProfile};
    use tantalum_rt::Simulation;

    use super::*;

    fn devices() -> Vec<Arc<MemoryDevice>> {
        let latency = Duration::from_millis(1)..Duration::from_millis(1);
        let profile = MemoryProfile { logical_block: 512, write_latency: latency, ..MemoryProfile::default() };
        (0..2).map(|_| MemoryDevice::with_profile("drive", 1 << 20, profile.clone())).collect()
    }

    #[test]
    fn where_every_write_takes_as_long_splitting_halves_the_bandwidth() {
        for requesters in [2, 5, 32] {
            let bandwidth = |is_split| {
                let load = Together { request_bytes: 4096, operations: 200, requesters, is_split };
                let run = move || {
                    let devices: Vec<Arc<dyn Device>> = devices().into_iter().map(|device| device as _).collect();
                    run_together(&devices, load).unwrap()
                };
                Simulation::new(1).run(run).expect_finished()
            };
            assert_eq!((bandwidth(false), bandwidth(true)), (8_192_000.0, 4_096_000.0));
        }
    }

    #[test]
    fn a_device_that_fails_ends_it() {
        let run = || {
            let devices = devices();
            devices[1].inject(Fault::FailWrites { after: 3 });
            let devices: Vec<Arc<dyn Device>> = devices.into_iter().map(|device| device as _).collect();
            let load = Together { request_bytes: 4096, operations: 200, requesters: 4, is_split: true };
            run_together(&devices, load).is_err()
        };
        assert!(Simulation::new(1).run(run).expect_finished());
    }
}
