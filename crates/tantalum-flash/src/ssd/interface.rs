//! The drive's side of the interface: a command queue, the link, and the processors of the firmware.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;

use crate::{Nanos, nand::Line};

/// Parameters of the interface, as a profile gives them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Bytes that offsets and lengths are multiples of: 512 or 4096.
    pub logical_block: u32,
    /// Commands that the drive takes at the same time; 32 with SATA's native command queuing.
    pub queue_depth: usize,
    /// What the link carries, in millions of bytes a second.
    pub link_mb_per_s: u64,
    /// Processors that serve commands, each one command at a time.
    pub processors: usize,
    /// Time of a command in which no processor is busy with it.
    pub command_ns: Nanos,
    /// Processor time of a write for each 4 KiB.
    pub write_sector_ns: Nanos,
    /// Processor time of a read command.
    pub read_command_ns: Nanos,
    /// Whether write commands complete in the order of their arrival.
    pub ordered: bool,
    /// Whether a flush is one command in the queue, as with NVMe. SATA's is none of the commands that can be queued: it begins
    /// when the queue is empty, and nothing runs beside it.
    #[serde(default)]
    pub flush_is_queued: bool,
    /// Whether the link and the channels of the flash serve what is ready while a read waits for flash that is being programmed.
    /// Drives do; without it they wait with that read, as the profiles were fitted that do not say.
    #[serde(default)]
    pub reads_pass: bool,
    /// The largest command; the host splits what is larger.
    pub max_command_bytes: u32,
}

/// Until when the processors, the link and the command queue are busy.
#[derive(Debug)]
pub(super) struct Host {
    interface: Interface,
    processors: Vec<Nanos>,
    link: Line,
    /// When the commands in the queue complete.
    queue: BinaryHeap<Reverse<Nanos>>,
    last_write: Nanos,
    /// Until when a flush has the drive for itself.
    flushing_until: Nanos,
}

impl Host {
    pub(super) fn new(interface: Interface) -> Self {
        Self {
            processors: vec![0; interface.processors],
            link: Line::new(interface.reads_pass),
            queue: BinaryHeap::new(),
            last_write: 0,
            flushing_until: 0,
            interface,
        }
    }

    /// When a command that arrives now leaves the host's queue for the drive's.
    pub(super) fn admit(&mut self, now: Nanos) -> Nanos {
        while self.queue.peek().is_some_and(|&Reverse(done)| done <= now) {
            self.queue.pop();
        }
        let mut start = now.max(self.flushing_until);
        while self.queue.len() >= self.interface.queue_depth {
            if let Some(Reverse(done)) = self.queue.pop() {
                start = start.max(done);
            }
        }
        start
    }

    /// A write's work and data. `room` is when the drive's memory has room for it. Returns when it completes.
    pub(super) fn write(&mut self, start: Nanos, sectors: u64, bytes: u64, room: Nanos) -> Nanos {
        let start = start.max(room);
        let worked = self.work(start, sectors * self.interface.write_sector_ns);
        let mut done = worked.max(self.transfer(start, bytes)) + self.interface.command_ns;
        if self.interface.ordered {
            done = done.max(self.last_write);
            self.last_write = done;
        }
        done
    }

    /// A read's work before its data is looked for. Returns when that can begin.
    pub(super) fn read(&mut self, start: Nanos) -> Nanos {
        self.work(start, self.interface.read_command_ns)
    }

    /// Sends a read's data, which is there at `ready`. Returns when the read completes.
    pub(super) fn send(&mut self, ready: Nanos, bytes: u64) -> Nanos {
        self.transfer(ready, bytes) + self.interface.command_ns
    }

    /// When a flush that arrives now begins.
    pub(super) fn begin_flush(&self, now: Nanos) -> Nanos {
        if self.interface.flush_is_queued {
            return now;
        }
        let queued = self.queue.iter().map(|&Reverse(done)| done).max();
        now.max(self.flushing_until).max(queued.unwrap_or(now))
    }

    /// A flush that began ends at `done`; what arrives until then waits for it.
    pub(super) fn end_flush(&mut self, done: Nanos) {
        if !self.interface.flush_is_queued {
            self.flushing_until = self.flushing_until.max(done);
        }
    }

    /// The command occupies the queue until `done`.
    pub(super) fn enqueue(&mut self, done: Nanos) {
        self.queue.push(Reverse(done));
    }

    /// Forgets all commands: the power was cut.
    pub(super) fn reset(&mut self, now: Nanos) {
        self.queue.clear();
        self.processors.fill(now);
        self.link.stop(now);
        self.last_write = now;
        self.flushing_until = now;
    }

    fn work(&mut self, start: Nanos, nanos: Nanos) -> Nanos {
        let processor = self.processors.iter_mut().min().expect("a drive has a processor");
        *processor = start.max(*processor) + nanos;
        *processor
    }

    /// The link carries one command's data after the other's; while it waits for one, others pass, if the profile says so.
    fn transfer(&mut self, ready: Nanos, bytes: u64) -> Nanos {
        let nanos = bytes * 1000 / self.interface.link_mb_per_s;
        let begin = self.link.take(ready.saturating_sub(nanos), nanos);
        (begin + nanos).max(ready + nanos)
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Random;

    use crate::Profile;

    /// SATA's flush is none of the commands that can be queued.
    #[test]
    fn a_flush_waits_for_what_is_queued_and_holds_up_what_comes_unless_it_is_queued_itself() {
        let ends = |is_queued: bool| {
            let text = Profile::text("durassd").unwrap();
            let text = text.replace("ordered = true", &format!("ordered = true\nflush_is_queued = {is_queued}"));
            let mut drive = Profile::parse("durassd", &text).unwrap().with_capacity(64 << 20).build().unwrap();
            let write = drive.write(0, 0, &[1; 256 << 10], false).done;
            let flush = drive.flush(0).done;
            let read = drive.read(0, 32 << 20, &mut [0; 4096]).done;
            (write, flush, read)
        };
        let (write, flush, read) = ends(false);
        assert!(flush > write + 400_000, "the write ended at {write}, the flush at {flush}");
        assert!(read > flush, "a read that came with the flush is served after it: {read}, {flush}");
        let (_, flush, read) = ends(true);
        assert!(read < flush, "a read passes a flush that is queued: {read}, {flush}");
    }

    /// A read of flash that is being programmed does not keep the channel, or the link, from others until it is served.
    #[test]
    fn reads_pass_those_that_wait_for_flash_if_the_profile_says_so() {
        let mean_ns = |pass: bool| {
            let text = Profile::text("durassd").unwrap();
            let text = text.replace("reads_pass = true", &format!("reads_pass = {pass}"));
            let mut drive = Profile::parse("durassd", &text).unwrap().with_capacity(64 << 20).build().unwrap();
            let (mut random, mut now, mut reads_ns) = (Random::with_seed(1), 0, 0);
            for offset in (0..32 << 20).step_by(512 << 10) {
                now = drive.write(now, offset, &[1; 512 << 10], false).done;
            }
            now += 1_000_000_000;
            for _ in 0..4000 {
                now += 50_000;
                _ = drive.write(now, random.u64(0..8192) * 4096, &[2; 4096], false);
                reads_ns += drive.read(now, random.u64(0..8192) * 4096, &mut [0; 4096]).done - now;
            }
            reads_ns / 4000
        };
        let (waiting, passing) = (mean_ns(false), mean_ns(true));
        assert!(2 * passing < waiting, "{passing} and {waiting} ns");
    }
}
