//! Conventional striping: one address space laid over several devices in units, round robin.
//!
//! Device `k` of `N` holds the units whose number is `k` modulo `N`, so an address tells its device ("FlashLogging",
//! section 3.3). A range that touches several devices is split, one piece for each, and all pieces are under way at
//! the same time; a piece goes to its device even if that one is busy and another is idle. Devices take their pieces
//! in the order in which they are submitted, as their own command queues have it.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::device::{check_range, gather, total_len};
use crate::{AlignedBuffer, Capabilities, Device, Durability, Error, Hardware, PendingWrite, Result, WriteCache};

/// Several devices as one, striped in units of a fixed size (RAID 0). If one fails, so does the whole.
///
/// The first `head_bytes` of each device are no part of the stripes: they are written to all devices alike and read
/// from the first, as labels are. Reads take one device after the other.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, Durability, MemoryDevice, Striped};
/// # fn main() -> tantalum_device::Result<()> {
/// let (a, b) = (MemoryDevice::new("a", 64 << 10), MemoryDevice::new("b", 64 << 10));
/// let striped = Striped::new(vec![a.clone() as Arc<dyn Device>, b.clone()], 4096, 0)?;
/// striped.write(8192, &[&[1; 4096], &[2; 4096]], Durability::Durable)?;
/// assert_eq!((a.image()[4096], b.image()[4096]), (1, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Striped {
    devices: Vec<Arc<dyn Device>>,
    name: Arc<str>,
    unit_bytes: u64,
    head_bytes: u64,
    capacity_bytes: u64,
    capabilities: Capabilities,
}

/// What one device has of a range.
struct Piece {
    device: usize,
    /// The device's offset; the parts follow one another there.
    offset: u64,
    /// Where its parts lie in the range, in ascending order.
    parts: Vec<Range<usize>>,
}

impl Striped {
    /// Stripes `devices` in units of `unit_bytes` behind their first `head_bytes`. Of larger devices a part stays
    /// unused.
    ///
    /// # Errors
    /// [`Error::Misaligned`] if the unit or the head is no multiple of every device's logical block or the unit is 0,
    /// [`Error::OutOfRange`] if a device has no room for head and unit.
    ///
    /// # Panics
    /// If there is no device.
    pub fn new(devices: Vec<Arc<dyn Device>>, unit_bytes: u32, head_bytes: u64) -> Result<Striped> {
        assert!(!devices.is_empty(), "at least one device is striped");
        let unit_bytes = u64::from(unit_bytes);
        let name: Arc<str> = names(&devices).into();
        let capabilities = combine(&devices);
        let block = capabilities.logical_block;
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(block.into()) || !head_bytes.is_multiple_of(block.into()) {
            return Err(Error::Misaligned { device: name, offset: head_bytes, len: unit_bytes, block });
        }
        let smallest = devices.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
        let units = smallest.saturating_sub(head_bytes) / unit_bytes;
        if units == 0 {
            return Err(Error::OutOfRange { device: name, offset: head_bytes, len: unit_bytes, capacity: smallest });
        }
        let capacity_bytes = head_bytes + units * unit_bytes * devices.len() as u64;
        Ok(Striped { devices, name, unit_bytes, head_bytes, capacity_bytes, capabilities })
    }

    /// The devices, in the order of their units.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The range's pieces, once it is found to lie within; those in the head on the first `heads` devices.
    fn pieces(&self, offset: u64, len: usize, heads: usize) -> Result<Vec<Piece>> {
        check_range(&self.name, self.capabilities.logical_block, self.capacity_bytes, offset, len as u64)?;
        let in_head = self.head_bytes.saturating_sub(offset).min(len as u64) as usize;
        let heads = if in_head > 0 { heads } else { 0 };
        let head = (0..heads).map(|device| Piece { device, offset, parts: iter::once(0..in_head).collect() });
        Ok(head.chain(self.striped_pieces(offset + in_head as u64, in_head..len)).collect())
    }

    /// The pieces of `range` of a buffer that starts at `offset`, behind the head.
    fn striped_pieces(&self, offset: u64, range: Range<usize>) -> impl Iterator<Item = Piece> {
        let mut pieces: BTreeMap<usize, Piece> = BTreeMap::new();
        let count = self.devices.len() as u64;
        let mut at = range.start;
        while at < range.end {
            let address = offset - self.head_bytes + (at - range.start) as u64;
            let (unit, within) = (address / self.unit_bytes, address % self.unit_bytes);
            let part = at..range.end.min(at + (self.unit_bytes - within) as usize);
            at = part.end;
            let device = (unit % count) as usize;
            let offset = self.head_bytes + unit / count * self.unit_bytes + within;
            // A device's next unit of the same range follows right behind.
            let piece = pieces.entry(device).or_insert_with(|| Piece { device, offset, parts: Vec::new() });
            piece.parts.push(part);
        }
        pieces.into_values()
    }

    fn submit_piece(
        &self,
        piece: &Piece,
        buffer: &Arc<AlignedBuffer>,
        start: usize,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let parts: Vec<_> = piece.parts.iter().map(|part| start + part.start..start + part.end).collect();
        let device = &self.devices[piece.device];
        if let [part] = &parts[..] {
            return device.submit(piece.offset, Arc::clone(buffer), part.clone(), durability);
        }
        let parts: Vec<&[u8]> = parts.iter().map(|part| &buffer[part.clone()]).collect();
        let gathered = gather(&parts);
        let len = gathered.len();
        device.submit(piece.offset, Arc::new(gathered), 0..len, durability)
    }
}

fn names(devices: &[Arc<dyn Device>]) -> String {
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    format!("striped({})", names.join(", "))
}

/// What can be relied on of all of them. A write that is split is not atomic, whatever each device promises.
fn combine(devices: &[Arc<dyn Device>]) -> Capabilities {
    let all: Vec<_> = devices.iter().map(|device| device.capabilities()).collect();
    let is_any = |cache| all.iter().any(|one| one.write_cache == cache);
    let largest = |size: fn(&Capabilities) -> u32| all.iter().map(size).max().unwrap_or(0);
    let first = all[0];
    Capabilities {
        logical_block: largest(|one| one.logical_block),
        physical_block: largest(|one| one.physical_block),
        atomic_write_bytes: 0,
        erase_block_bytes: largest(|one| one.erase_block_bytes),
        write_cache: match () {
            () if is_any(WriteCache::Volatile) => WriteCache::Volatile,
            () if is_any(WriteCache::Unknown) => WriteCache::Unknown,
            () => WriteCache::None,
        },
        fua: first.fua.filter(|fua| all.iter().all(|one| one.fua == Some(*fua))),
        rotational: first.rotational.filter(|rotational| all.iter().all(|one| one.rotational == Some(*rotational))),
        direct: all.iter().all(|one| one.direct),
    }
}

impl Device for Striped {
    fn name(&self) -> &str {
        &self.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The first device's: where one of them hangs or fails, the whole does.
    fn hardware(&self) -> Hardware {
        self.devices[0].hardware()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        for piece in self.pieces(offset, buffer.len(), 1)? {
            let device = &self.devices[piece.device];
            if let [part] = &piece.parts[..] {
                device.read(piece.offset, &mut buffer[part.clone()])?;
                continue;
            }
            let len = piece.parts.iter().map(Range::len).sum();
            let mut gathered = AlignedBuffer::zeroed(len);
            device.read(piece.offset, &mut gathered)?;
            let mut at = 0;
            for part in piece.parts {
                let len = part.len();
                buffer[part].copy_from_slice(&gathered[at..at + len]);
                at += len;
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        let len = total_len(buffers);
        if let [Piece { device, offset, .. }] = self.pieces(offset, len, self.devices.len())?[..] {
            return self.devices[device].write(offset, buffers, durability);
        }
        let mut pending = self.submit(offset, Arc::new(gather(buffers)), 0..len, durability)?;
        pending.wait(None).expect("without a time-out it waits for the end")
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let pieces = self.pieces(offset, range.len(), self.devices.len())?;
        let submit = |piece: &Piece| self.submit_piece(piece, &buffer, range.start, durability);
        if let [piece] = &pieces[..] {
            return submit(piece);
        }
        let pending = pieces.iter().map(|piece| submit(piece).map(Some)).collect::<Result<_>>()?;
        Ok(Box::new(StripedWrite { pending, result: Ok(()) }))
    }

    fn flush(&self) -> Result<()> {
        // All of them, whatever becomes of the first: a failed flush is final, and must be so on every device.
        self.devices.iter().map(|device| device.flush()).fold(Ok(()), Result::and)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let bytes = usize::try_from(len).map_err(|_| Error::OutOfRange {
            device: Arc::clone(&self.name),
            offset,
            len,
            capacity: self.capacity_bytes,
        })?;
        for piece in self.pieces(offset, bytes, self.devices.len())? {
            let len: usize = piece.parts.iter().map(Range::len).sum();
            self.devices[piece.device].discard(piece.offset, len as u64)?;
        }
        Ok(())
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        if new_capacity_bytes <= self.capacity_bytes {
            return Ok(());
        }
        Err(Error::Unsupported { device: Arc::clone(&self.name), operation: "grow: stripes have a fixed size" })
    }
}

/// Done when all its pieces are.
struct StripedWrite {
    /// `None` where a piece has completed.
    pending: Vec<Option<Box<dyn PendingWrite>>>,
    /// The first piece's failure.
    result: Result<()>,
}

impl PendingWrite for StripedWrite {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let deadline = timeout.map(|timeout| tantalum_rt::now() + timeout);
        for slot in &mut self.pending {
            let Some(piece) = slot else { continue };
            let left = deadline.map(|deadline| deadline.duration_since(tantalum_rt::now()));
            let result = piece.wait(left)?;
            *slot = None;
            if self.result.is_ok() {
                self.result = result;
            }
        }
        Some(self.result.clone())
    }

    fn is_done(&mut self) -> bool {
        self.pending.iter_mut().flatten().all(|piece| piece.is_done())
    }
}
