//! What the page stores would write, written: batches of pages in place, segments, log sectors.

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite};
use tantalum_rt::Random;

use super::{
    budget::{Allowance, Phase},
    found::{PageCost, StoreTimes},
    prober::Prober,
};
use crate::{
    error::Result,
    micro::{Job, Pattern},
};

/// Pages of a batch: as many as the buffer pool writes at once.
const BATCH: u32 = 64;
const PAGES: [u32; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Bytes of a segment.
const SEGMENT: u64 = 1 << 20;
/// Bytes of a log sector of in-page logging.
const SECTOR: u32 = 512;

/// All is measured so often, in turns, and the median counts: a stall of the device or its host is charged to no store.
const ROUNDS: usize = 3;

/// What was measured of something, a number for each round.
type Times = Vec<f64>;

impl Prober<'_> {
    /// `None` if only reads may be made, or not everything could be measured.
    pub(super) fn stores(&mut self) -> Result<Option<StoreTimes>> {
        let budget = self.begin(Phase::Stores);
        if !self.plan.writes() {
            return Ok(None);
        }
        let block = self.device.capabilities().logical_block;
        let pages: Vec<u32> = PAGES.into_iter().filter(|&page| page >= block).collect();
        let segment_bytes = SEGMENT.min(self.plan.range_bytes() / 4);
        let sector_bytes = SECTOR.max(block);
        let mut left = ROUNDS * (3 * pages.len() + 2);
        let mut allowance = |prober: &Self| {
            left -= 1;
            prober.next(&budget, left + 1)
        };
        let (mut segments, mut sectors, mut costs) =
            (Times::new(), Times::new(), vec![[const { Times::new() }; 3]; pages.len()]);
        for _ in 0..ROUNDS {
            // The dear ones last: on a slow device they are what one round must be enough for.
            for (&bytes, [reads, _, appends]) in pages.iter().zip(&mut costs) {
                let job = Job { reads_percent: 100, pattern: Pattern::Random, ..self.job(bytes) };
                reads.extend(self.run(job, allowance(self))?.map(|measured| measured.summary().latency.mean_ns));
                appends.extend(self.repeat_appends(bytes, allowance(self))?);
            }
            segments.extend(self.repeat_segment_reads(segment_bytes, allowance(self))?);
            sectors.extend(self.repeat_batches(sector_bytes, allowance(self))?);
            for (&bytes, [_, writes, _]) in pages.iter().zip(&mut costs) {
                writes.extend(self.repeat_batches(bytes, allowance(self))?);
            }
        }
        let cost = |(&bytes, times): (&u32, &mut [Times; 3])| {
            let [reads, writes, appends] = times;
            let (read_ns, write_ns, append_ns) = (median(reads)?, median(writes)?, median(appends)?);
            // The copies are one write in order, and durable before the pages go to their places.
            Some(PageCost { bytes, read_ns, write_ns, append_ns, double_write_ns: write_ns + append_ns })
        };
        let pages: Vec<_> = pages.iter().zip(&mut costs).filter_map(cost).collect();
        let (Some(segment_read_ns), Some(sector_write_ns), false) =
            (median(&mut segments), median(&mut sectors), pages.is_empty())
        else {
            self.leave_out("what page stores would write: neither time nor bytes were left");
            return Ok(None);
        };
        Ok(Some(StoreTimes {
            batch_pages: BATCH,
            pages,
            segment_bytes,
            segment_read_ns,
            sector_bytes,
            sector_write_ns,
        }))
    }

    fn repeat_segment_reads(&self, segment_bytes: u64, allowance: Allowance) -> Result<Option<f64>> {
        let places = self.plan.range_bytes() / segment_bytes;
        let (mut random, mut read) = (Random::with_seed(self.plan.seed), AlignedBuffer::zeroed(segment_bytes as usize));
        self.repeat(0, allowance, |device| {
            device.read(self.plan.range.start + random.u64(..places) * segment_bytes, &mut read)
        })
    }

    /// What each page of a batch takes that is written behind the last one.
    fn repeat_appends(&self, bytes: u32, allowance: Allowance) -> Result<Option<f64>> {
        let batch_bytes = u64::from(BATCH * bytes);
        let (buffer, slots) = (self.buffer(batch_bytes), self.plan.range_bytes() / batch_bytes);
        let mut slot = 0;
        let time = self.repeat(batch_bytes, allowance, |device| {
            slot = (slot + 1) % slots.max(1);
            device.write(self.plan.range.start + slot * batch_bytes, &[&buffer], Durability::Cached)?;
            device.flush()
        })?;
        Ok(time.map(|time| time / f64::from(BATCH)))
    }

    /// What each page of a batch takes.
    fn repeat_batches(&self, bytes: u32, allowance: Allowance) -> Result<Option<f64>> {
        let batch_bytes = u64::from(BATCH * bytes);
        let buffer = self.buffer(batch_bytes);
        let slots = self.plan.range_bytes() / u64::from(bytes);
        let mut random = Random::with_seed(self.plan.seed);
        let time = self.repeat(batch_bytes, allowance, |device| {
            let place = |random: &mut Random| self.plan.range.start + random.u64(..slots) * u64::from(bytes);
            let mut places: Vec<u64> = (0..BATCH).map(|_| place(&mut random)).collect();
            places.sort_unstable();
            write_all(device, &buffer, &places, bytes as usize)?;
            device.flush()
        })?;
        Ok(time.map(|time| time / f64::from(BATCH)))
    }
}

/// All at once, as the in-place store does.
fn write_all(
    device: &dyn Device,
    buffer: &Arc<AlignedBuffer>,
    places: &[u64],
    bytes: usize,
) -> tantalum_device::Result<()> {
    let mut pending: Vec<Box<dyn PendingWrite>> = Vec::with_capacity(places.len());
    for (number, &place) in places.iter().enumerate() {
        let range = number * bytes..(number + 1) * bytes;
        pending.push(device.submit(place, Arc::clone(buffer), range, Durability::Cached)?);
    }
    pending.iter_mut().try_for_each(|write| write.wait(None).expect("without a time-out it waits for the end"))
}

/// The median, of an even number the higher one; `None` of nothing.
fn median(times: &mut Times) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_no_stall() {
        assert_eq!(median(&mut vec![1.0, 900.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut vec![3.0]), Some(3.0));
        assert_eq!(median(&mut Times::new()), None);
    }
}
