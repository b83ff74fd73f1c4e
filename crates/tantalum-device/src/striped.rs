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

use crate::device::{gather, total_len};
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
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the unit or the head is no multiple of every device's
    /// logical block or the unit is 0, [`OutOfRange`](crate::ErrorKind::OutOfRange) if a device has no room for head and unit.
    ///
    /// # Panics
    /// If there is no device.
    pub fn new(devices: Vec<Arc<dyn Device>>, unit_bytes: u32, head_bytes: u64) -> Result<Striped> {
        assert!(!devices.is_empty(), "at least one device is striped");
        let unit_bytes = u64::from(unit_bytes);
        let name: Arc<str> = names(&devices).into();
        if let Some(zoned) = devices.iter().find(|device| device.capabilities().zones.is_some()) {
            return Err(Error::has_zones(zoned.name(), "stripe other devices"));
        }
        let capabilities = combine(&devices);
        let block = capabilities.logical_block;
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(block.into()) || !head_bytes.is_multiple_of(block.into()) {
            return Err(Error::misaligned(&name, head_bytes, unit_bytes, block));
        }
        let smallest = devices.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
        let units = smallest.saturating_sub(head_bytes) / unit_bytes;
        if units == 0 {
            return Err(Error::out_of_range(&name, head_bytes, unit_bytes, smallest));
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
        self.check_range(offset, len as u64)?;
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
        placement_handles: 1,
        zones: None,
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
        let bytes =
            usize::try_from(len).map_err(|_| Error::out_of_range(&self.name, offset, len, self.capacity_bytes))?;
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
        Err(Error::unsupported(&self.name, "grow: stripes have a fixed size"))
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

#[cfg(test)]
mod tests {
    use tantalum_rt::{Random, Simulation, now};

    use super::*;
    use crate::{ErrorKind, Fault, MemoryDevice, MemoryProfile};

    fn devices(count: usize, bytes: u64, profile: &MemoryProfile) -> Vec<Arc<MemoryDevice>> {
        (0..count).map(|n| MemoryDevice::with_profile(format!("d{n}"), bytes, profile.clone())).collect()
    }

    fn sectors() -> MemoryProfile {
        MemoryProfile { logical_block: 512, ..MemoryProfile::default() }
    }

    fn stripe(devices: &[Arc<MemoryDevice>], unit_bytes: u32, head_bytes: u64) -> Striped {
        let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
        Striped::new(devices, unit_bytes, head_bytes).unwrap()
    }

    #[test]
    fn every_byte_is_where_its_address_says() {
        for seed in 0..60 {
            let mut random = Random::with_seed(seed);
            let count = random.usize(1..=4);
            let (unit, head) = ([512, 1536, 4096][random.usize(0..3)], 512 * random.u64(0..5));
            let members = devices(count, 32 << 10, &sectors());
            let striped = stripe(&members, unit, head);
            let capacity = striped.capacity_bytes();
            let unit = u64::from(unit);
            assert_eq!(capacity, head + ((32 << 10) - head) / unit * unit * count as u64);
            let mut expected = vec![0; capacity as usize];
            for n in 1..40u8 {
                let offset = random.u64(0..capacity / 512) * 512;
                let len = 512 * random.u64(1..=(capacity - offset) / 512).min(24);
                let bytes: Vec<u8> = (0..len).map(|at| n ^ (at / 512) as u8).collect();
                match n % 3 {
                    0 => {
                        let (first, rest) = bytes.split_at(100);
                        striped.write(offset, &[first, rest], Durability::Cached).unwrap();
                    }
                    1 => {
                        let mut buffer = AlignedBuffer::zeroed(len as usize + 1024);
                        buffer[512..512 + len as usize].copy_from_slice(&bytes);
                        let range = 512..512 + len as usize;
                        let mut pending = striped.submit(offset, Arc::new(buffer), range, Durability::Durable).unwrap();
                        assert!(pending.wait(None).unwrap().is_ok());
                    }
                    _ => striped.discard(offset, len).unwrap(),
                }
                let bytes = if n % 3 == 2 { vec![0; len as usize] } else { bytes };
                expected[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
            }
            let from = random.u64(0..capacity / 512) * 512;
            let mut read = vec![0xee; (capacity - from) as usize];
            striped.read(from, &mut read).unwrap();
            assert!(read == expected[from as usize..]);

            let images: Vec<_> = members.iter().map(|member| member.image()).collect();
            for (address, &byte) in expected.iter().enumerate().skip(head as usize) {
                let address = address as u64 - head;
                let (number, within) = (address / unit, address % unit);
                let place = head + number / count as u64 * unit + within;
                assert_eq!(images[(number % count as u64) as usize][place as usize], byte);
            }
            assert!(images.iter().all(|image| image[..head as usize] == expected[..head as usize]), "heads are alike");
        }
    }

    #[test]
    fn pieces_are_under_way_together_and_each_device_gets_one() {
        Simulation::new(1)
            .run(|| {
                let ms = Duration::from_millis;
                let members = devices(2, 64 << 10, &MemoryProfile { write_latency: ms(1)..ms(1), ..sectors() });
                let striped = stripe(&members, 512, 0);
                let start = now();
                let buffer = Arc::new(AlignedBuffer::copy_from(&[7; 4096]));
                let mut split = striped.submit(512, buffer.clone(), 0..4096, Durability::Durable).unwrap();
                assert_eq!(members.iter().map(|member| member.in_flight()).collect::<Vec<_>>(), [1, 1]);
                assert!(split.wait(Some(ms(1) / 2)).is_none() && !split.is_done());
                assert!(split.wait(None).unwrap().is_ok());
                assert_eq!(now() - start, ms(1), "not one after the other");

                let mut whole = striped.submit(0, buffer, 0..512, Durability::Durable).unwrap();
                assert_eq!(members.iter().map(|member| member.in_flight()).collect::<Vec<_>>(), [1, 0]);
                assert!(whole.wait(None).unwrap().is_ok());
            })
            .expect_finished();
    }

    #[test]
    fn it_is_done_when_all_pieces_are() {
        let members = devices(3, 64 << 10, &sectors());
        let striped = stripe(&members, 512, 0);
        for victim in &members {
            victim.inject(Fault::HangWrites);
            let buffer = Arc::new(AlignedBuffer::copy_from(&[9; 1536]));
            let mut pending = striped.submit(0, buffer, 0..1536, Durability::Durable).unwrap();
            assert!(pending.wait(Some(Duration::from_millis(1))).is_none());
            victim.clear_faults();
            assert!(pending.wait(None).unwrap().is_ok());
        }
    }

    #[test]
    fn the_failure_of_one_is_that_of_all() {
        for victim in 0..2 {
            let members = devices(2, 64 << 10, &sectors());
            let striped = stripe(&members, 512, 512);
            members[victim].inject(Fault::FailWrites { after: 0 });
            let error = striped.write(512, &[&[1; 1024]], Durability::Durable).unwrap_err();
            assert!(error.to_string().contains(&format!("d{victim}")), "{error}");
            assert!(striped.write(0, &[&[1; 512]], Durability::Durable).is_err(), "heads are written to all");
            members[victim].clear_faults();
            members[victim].inject(Fault::FailFlushes { after: 0 });
            assert!(striped.flush().is_err());
        }
    }

    #[test]
    fn what_cannot_be_striped_is_refused() {
        let members = || devices(2, 64 << 10, &sectors()).into_iter().map(|device| device as Arc<dyn Device>).collect();
        assert!(matches!(Striped::new(members(), 700, 0), Err(error) if error.kind() == ErrorKind::InvalidInput));
        assert!(matches!(Striped::new(members(), 0, 0), Err(error) if error.kind() == ErrorKind::InvalidInput));
        assert!(matches!(Striped::new(members(), 512, 100), Err(error) if error.kind() == ErrorKind::InvalidInput));
        assert!(matches!(Striped::new(members(), 64 << 10, 512), Err(error) if error.kind() == ErrorKind::OutOfRange));

        let striped = Striped::new(members(), 512, 512).unwrap();
        let capacity = striped.capacity_bytes();
        let mut bytes = [0; 1024];
        assert!(
            matches!(striped.read(capacity - 512, &mut bytes), Err(error) if error.kind() == ErrorKind::OutOfRange)
        );
        assert!(
            matches!(striped.write(1, &[&bytes], Durability::Cached), Err(error) if error.kind() == ErrorKind::InvalidInput)
        );
        assert!(matches!(striped.discard(512, u64::MAX - 511), Err(error) if error.kind() == ErrorKind::OutOfRange));
        assert!(matches!(striped.grow(capacity + 512), Err(error) if error.kind() == ErrorKind::Unsupported));
        striped.grow(capacity).unwrap();
    }

    #[test]
    fn it_promises_what_all_of_its_devices_do() {
        let plain = MemoryDevice::with_profile("a", 64 << 10, sectors());
        let safe = MemoryProfile { volatile_cache: false, ..MemoryProfile::default() };
        let large = MemoryDevice::with_profile("b", 128 << 10, safe);
        let striped = Striped::new(vec![plain.clone(), large.clone()], 4096, 0).unwrap();
        let expected = Capabilities { write_cache: WriteCache::Volatile, ..large.capabilities() };
        assert_eq!(striped.capabilities(), Capabilities { atomic_write_bytes: 0, ..expected });
        assert_eq!((striped.name(), striped.capacity_bytes()), ("striped(a, b)", 128 << 10));
        assert_eq!(striped.hardware(), plain.hardware());
    }
}
