//! A device whose writes stay in memory.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_rt::Mutex;

use crate::device::{gather, total_len};
use crate::sparse::parts;
use crate::{AlignedBuffer, Capabilities, Device, Durability, EndedWrite, Error, ErrorKind, PendingWrite, Result};

/// A device over another that stays as it is: writes, discards, resets of zones and growth happen in memory, and are gone when it is
/// dropped. So a reader can recover what is on a device without changing it. Zones take writes in any order here.
/// It takes requests in blocks of 512 bytes, whatever the device below does: what was made on a device with such blocks can be read on
/// any.
///
/// Overlays can share a [`MemoryLimit`]; a write beyond it fails.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, Durability, MemoryDevice, MemoryLimit, Overlay};
/// let disk: Arc<dyn Device> = MemoryDevice::new("disk", 1 << 20);
/// let overlay = Overlay::new(disk.clone(), MemoryLimit::of(1 << 20, "raise the limit"));
/// overlay.write(4096, &[&[1; 4096]], Durability::Durable)?;
///
/// let mut block = [0; 4096];
/// overlay.read(4096, &mut block)?;
/// assert_eq!(block, [1; 4096]);
/// disk.read(4096, &mut block)?;
/// assert_eq!(block, [0; 4096]);
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Debug)]
pub struct Overlay {
    base: Arc<dyn Device>,
    name: Arc<str>,
    limit: Arc<MemoryLimit>,
    capacity_bytes: AtomicU64,
    written: Mutex<Written>,
}

/// What differs from the device below.
#[derive(Debug, Default)]
struct Written {
    /// The blocks that were written, by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// Where the zones begin that were reset.
    reset_zones: BTreeSet<u64>,
}

/// How many bytes overlays may keep in memory, all that share it together.
///
/// ```
/// let limit = tantalum_device::MemoryLimit::of(64 << 20, "raise the limit");
/// assert_eq!(limit.used_bytes(), 0);
/// ```
#[derive(Debug)]
pub struct MemoryLimit {
    max_bytes: u64,
    used_bytes: AtomicU64,
    remedy: &'static str,
}

impl MemoryLimit {
    /// A limit of so many bytes. Errors of writes that exceed it say what to do: the `remedy`.
    pub fn of(max_bytes: u64, remedy: &'static str) -> Arc<Self> {
        Arc::new(Self { max_bytes, used_bytes: AtomicU64::new(0), remedy })
    }

    /// The bytes kept now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn exceeded(&self, device: &str, offset: u64, len: usize) -> Error {
        let what = format!(
            "{device}: no memory for {len} bytes at byte {offset}: writes that stay in memory may take {} bytes; {}",
            self.max_bytes, self.remedy
        );
        Error::new(ErrorKind::NoSpace, what)
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Overlay {
    /// An overlay over `base`, which needs not be open for writing.
    pub fn new(base: Arc<dyn Device>, limit: Arc<MemoryLimit>) -> Self {
        let (name, capacity_bytes) = (base.name().into(), AtomicU64::new(base.capacity_bytes()));
        Self { base, name, limit, capacity_bytes, written: Mutex::default() }
    }

    fn block_bytes(&self) -> usize {
        self.capabilities().logical_block as usize
    }

    /// The bytes below; zeros where there are none.
    fn read_base(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let below = self.base.capacity_bytes().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (below, beyond) = buffer.split_at_mut(below);
        beyond.fill(0);
        if below.is_empty() {
            return Ok(());
        }
        let block = u64::from(self.base.capabilities().logical_block);
        let end = offset + below.len() as u64;
        if offset.is_multiple_of(block) && end.is_multiple_of(block) {
            return self.base.read(offset, below);
        }
        let first = offset - offset % block;
        let mut whole = AlignedBuffer::zeroed((end.next_multiple_of(block) - first) as usize);
        self.base.read(first, &mut whole)?;
        below.copy_from_slice(&whole[(offset - first) as usize..][..below.len()]);
        Ok(())
    }

    /// The zone that begins at a byte.
    fn zone_at(&self, offset: u64) -> Result<Range<u64>> {
        let Some(zones) = self.base.capabilities().zones else {
            return Err(Error::unsupported(&self.name, "reset or finish a zone: it has none"));
        };
        match zones.beginning_of(offset) {
            Some(beginning) if beginning == offset && offset < self.base.capacity_bytes() => {
                Ok(offset..offset + zones.bytes)
            }
            _ => Err(Error::no_zone(&self.name, offset, &zones)),
        }
    }

    /// Keeps `len` bytes, whole blocks, each filled by `fill` from its bytes counted from `offset` on.
    fn store(&self, offset: u64, len: usize, mut fill: impl FnMut(Range<usize>, &mut [u8])) -> Result<()> {
        let mut written = self.written.lock();
        for part in parts(offset, len, self.block_bytes()) {
            let block = match written.blocks.entry(part.unit) {
                Entry::Occupied(block) => block.into_mut(),
                Entry::Vacant(place) => {
                    if !self.limit.take(part.range.len() as u64) {
                        return Err(self.limit.exceeded(&self.name, offset, len));
                    }
                    place.insert(vec![0; part.range.len()].into())
                }
            };
            fill(part.range, block);
        }
        Ok(())
    }
}

impl Device for Overlay {
    crate::forward!(base: name, hardware);

    fn capabilities(&self) -> Capabilities {
        let below = self.base.capabilities();
        Capabilities { logical_block: below.logical_block.min(BLOCK_BYTES), ..below }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        // What is overwritten may not even be readable below.
        let mut gaps: Vec<Range<usize>> = Vec::new();
        let zones = self.base.capabilities().zones;
        {
            let Written { blocks, reset_zones } = &*self.written.lock();
            let was_reset = |at: usize| {
                let zone = zones.and_then(|zones| zones.beginning_of(offset + at as u64));
                zone.is_some_and(|zone| reset_zones.contains(&zone))
            };
            for part in parts(offset, buffer.len(), self.block_bytes()) {
                match blocks.get(&part.unit) {
                    Some(block) => buffer[part.range].copy_from_slice(block),
                    None if was_reset(part.range.start) => buffer[part.range].fill(0),
                    None => match gaps.last_mut().filter(|gap| gap.end == part.range.start) {
                        Some(gap) => gap.end = part.range.end,
                        None => gaps.push(part.range),
                    },
                }
            }
        }
        gaps.into_iter().try_for_each(|gap| self.read_base(offset + gap.start as u64, &mut buffer[gap]))
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], _: Durability) -> Result<()> {
        self.check_range(offset, total_len(buffers) as u64)?;
        let gathered;
        let bytes = match buffers {
            [one] => one,
            several => {
                gathered = gather(several);
                &gathered[..]
            }
        };
        self.store(offset, bytes.len(), |range, block| block.copy_from_slice(&bytes[range]))
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.write(offset, &[&buffer[range]], durability)?;
        Ok(Box::new(EndedWrite))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        match self.capabilities().erase_block_bytes {
            // A hint.
            0 => Ok(()),
            _ => self.store(offset, len as usize, |_, block| block.fill(ERASED)),
        }
    }

    fn reset_zone(&self, offset: u64) -> Result<()> {
        let zone = self.zone_at(offset)?;
        let block = u64::from(self.capabilities().logical_block);
        let Written { blocks, reset_zones } = &mut *self.written.lock();
        let mut gone = blocks.split_off(&(zone.start / block));
        let mut behind = gone.split_off(&(zone.end / block));
        self.limit.give_back(gone.values().map(|block| block.len() as u64).sum());
        blocks.append(&mut behind);
        reset_zones.insert(offset);
        Ok(())
    }

    fn finish_zone(&self, offset: u64) -> Result<()> {
        self.zone_at(offset).map(|_| ())
    }

    fn active_zones(&self) -> Result<Vec<u64>> {
        // None of those below limits what is written here.
        Ok(Vec::new())
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.capacity_bytes.fetch_max(new_capacity_bytes, Ordering::AcqRel);
        Ok(())
    }
}

/// The largest blocks in which requests are taken: the smallest that devices have.
const BLOCK_BYTES: u32 = 512;

/// What erased flash reads as.
const ERASED: u8 = 0xff;

impl Drop for Overlay {
    fn drop(&mut self) {
        let bytes: usize = self.written.lock().blocks.values().map(|block| block.len()).sum();
        self.limit.give_back(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Fault, FileDevice, MemoryDevice, MemoryProfile};

    #[test]
    fn blocks_of_512_bytes_are_read_and_written_over_larger_ones() {
        let base = MemoryDevice::new("disk", 2 * 4096);
        assert_eq!(base.capabilities().logical_block, 4096);
        let bytes: Vec<u8> = (0..2 * 4096_u32).map(|at| (at / 512) as u8).collect();
        base.write(0, &[&bytes], Durability::Durable).unwrap();
        let overlay = Overlay::new(base, MemoryLimit::of(1 << 20, ""));
        overlay.write(1024, &[&[77; 512]], Durability::Durable).unwrap();
        let mut read = vec![0; 4096];
        overlay.read(512, &mut read).unwrap();
        let expected: Vec<u8> = [1, 77, 3, 4, 5, 6, 7, 8].into_iter().flat_map(|byte| [byte; 512]).collect();
        assert!(read == expected);
    }

    #[test]
    fn what_is_below_shows_through_and_stays() {
        let profile = MemoryProfile { logical_block: 512, ..MemoryProfile::default() };
        let base = MemoryDevice::with_profile("disk", 3 * 4096, profile);
        base.write(0, &[&[7; 3 * 4096]], Durability::Durable).unwrap();
        let before = base.image();
        let overlay = Overlay::new(base.clone(), MemoryLimit::of(1 << 20, ""));
        // Blocks of 512 bytes: the ends of two of 4096.
        overlay.write(3584, &[&[1; 512], &[2; 512]], Durability::Cached).unwrap();
        let buffer = Arc::new(AlignedBuffer::copy_from(&[3; 1024]));
        let mut pending = overlay.submit(8192, buffer, 512..1024, Durability::Durable).unwrap();
        assert!(pending.is_done() && pending.wait(None).unwrap().is_ok());
        overlay.flush().unwrap();
        overlay.grow(4 * 4096).unwrap();

        let mut read = vec![9; 4 * 4096];
        overlay.read(0, &mut read).unwrap();
        let mut expected = [vec![7; 3 * 4096], vec![0; 4096]].concat();
        expected[3584..4096].fill(1);
        expected[4096..4608].fill(2);
        expected[8192..8704].fill(3);
        assert!(read == expected);
        assert_eq!((base.image(), base.capacity_bytes()), (before, 3 * 4096));
        assert!(overlay.read(1, &mut read[..512]).unwrap_err().kind() == ErrorKind::InvalidInput);
        assert!(overlay.write(4 * 4096, &[&[0; 512]], Durability::Cached).unwrap_err().kind() == ErrorKind::OutOfRange);
    }

    #[test]
    fn a_file_that_is_open_for_reading_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        FileDevice::create(&path, 8192, None).unwrap();
        let file: Arc<dyn Device> = Arc::new(FileDevice::open(&path, Access::ReadOnly).unwrap());
        let overlay = Overlay::new(file, MemoryLimit::of(1 << 20, ""));
        overlay.write(4096, &[&[5; 4096]], Durability::Durable).unwrap();
        overlay.flush().unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_was_written_is_read_where_the_device_below_cannot() {
        let base = MemoryDevice::new("disk", 4 * 4096);
        let overlay = Overlay::new(base.clone(), MemoryLimit::of(1 << 20, ""));
        base.inject(Fault::FailReads { after: 1 });
        overlay.write(4096, &[&[1; 4096], &[2; 4096]], Durability::Cached).unwrap();
        let mut read = [0; 8192];
        overlay.read(4096, &mut read).unwrap();
        assert_eq!((read[0], read[4096]), (1, 2));
        // The gap before them is one read, the gap behind another.
        let mut all = [0; 4 * 4096];
        assert_eq!(overlay.read(0, &mut all).unwrap_err().kind(), ErrorKind::Unreadable);
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let limit = MemoryLimit::of(2 * 4096, "allow more");
        let [a, b] = ["a", "b"].map(|name| Overlay::new(MemoryDevice::new(name, 1 << 20), limit.clone()));
        a.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
        a.write(0, &[&[2; 4096]], Durability::Cached).unwrap();
        b.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
        let error = b.write(4096, &[&[1; 4096]], Durability::Cached).unwrap_err();
        assert!(error.kind() == ErrorKind::NoSpace && error.to_string().contains("allow more"), "{error}");
        drop(a);
        assert_eq!(limit.used_bytes(), 4096);
        b.write(4096, &[&[1; 4096]], Durability::Cached).unwrap();
    }
}
