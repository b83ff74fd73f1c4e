//! A log sector: changes of pages of one unit, each with the position of its change group.
//!
//! Head: CRC-32C of the rest, seeded with the store's number (4); magic (2); payload bytes (2); logical unit (4); sectors of
//! the version that its writer counted before it (2); 0 (2); sequence of the unit's version (8); base position (8).
//! Payload: pieces. A piece: page within the unit (1), the top bit set if it is not all of the change; position less the base;
//! bytes of the whole change; if it is a part, its offset in the change and its length; the bytes. Numbers are varints.
//!
//! A change that does not fit goes on in the next sector. Its offset tells a piece that was written twice, because the
//! first write failed and reached the medium all the same, from one that follows.

use tantalum_device::AlignedBuffer;
use tantalum_log::Lsn;

use crate::{PageChanges, page::varint};

/// What a sector has before its payload.
pub const HEAD_BYTES: usize = 32;
const MAGIC: [u8; 2] = *b"LS";
const IS_PART: u8 = 0x80;
/// A piece is not begun with less room than its head at most takes and a few bytes.
const MIN_PIECE_BYTES: usize = 32;

/// The changes that one change group makes to one page, encoded; or a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The page, counted within its unit.
    pub page: u8,
    /// The change group.
    pub position: Lsn,
    /// Bytes of all the group's changes to the page.
    pub total: usize,
    /// Where the piece stands in them.
    pub offset: usize,
    /// The piece.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// All that a group changes in a page.
    pub fn whole(page: usize, position: Lsn, bytes: &'a [u8]) -> Self {
        Self { page: page as u8, position, total: bytes.len(), offset: 0, bytes }
    }
}

/// What stands in the head of every sector that is written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorHead {
    /// The unit that the changes belong to.
    pub logical: u32,
    /// The version of the unit.
    pub sequence: u64,
    /// Sectors of this version that were written, for certain, before.
    pub counted: u16,
}

/// What a packed sector holds, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Pages that it has pieces of, a bit each.
    pub pages: u64,
    /// The lowest position.
    pub first: Lsn,
    /// The highest.
    pub last: Lsn,
    /// What its pieces count for when they are packed anew: as much as in the bytes that may be active.
    pub bytes: usize,
}

impl Summary {
    const EMPTY: Self = Self { pages: 0, first: Lsn::new(u64::MAX), last: Lsn::ZERO, bytes: 0 };

    fn add(&mut self, piece: &Piece<'_>, bytes: usize) {
        self.pages |= 1 << piece.page;
        self.first = self.first.min(piece.position);
        self.last = self.last.max(piece.position);
        // Packed anew, the parts of a change are one piece again.
        self.bytes += bytes + if piece.offset == 0 { PageChanges::OVERHEAD_BYTES } else { 0 };
    }
}

/// Sectors ready to be written, one behind the other.
#[derive(Debug)]
pub struct Packed {
    /// Their payloads, in memory that a device can write from. The heads are blank until [`seal`](Packed::seal).
    bytes: AlignedBuffer,
    /// What each holds.
    pub summaries: Vec<Summary>,
    sector_bytes: usize,
    base: Lsn,
    counted: u16,
}

/// Packs pieces, in their order, into as few sectors as they take.
pub fn pack<'a>(pieces: impl Iterator<Item = Piece<'a>> + Clone, sector_bytes: usize) -> Packed {
    let base = pieces.clone().map(|piece| piece.position).min().unwrap_or_default();
    let mut packer = Packer { payloads: Vec::new(), summaries: Vec::new(), room: 0, sector_bytes, base };
    pieces.for_each(|piece| packer.push(piece));
    let mut bytes = AlignedBuffer::zeroed(packer.payloads.len() * sector_bytes);
    for (sector, payload) in bytes.chunks_exact_mut(sector_bytes).zip(&packer.payloads) {
        sector[6..8].copy_from_slice(&(payload.len() as u16).to_le_bytes());
        sector[HEAD_BYTES..HEAD_BYTES + payload.len()].copy_from_slice(payload);
    }
    Packed { bytes, summaries: packer.summaries, sector_bytes, base, counted: 0 }
}

struct Packer {
    payloads: Vec<Vec<u8>>,
    summaries: Vec<Summary>,
    /// Left in the last payload.
    room: usize,
    sector_bytes: usize,
    base: Lsn,
}

impl Packer {
    fn push(&mut self, mut piece: Piece<'_>) {
        assert!(piece.page < IS_PART, "a unit has few pages");
        loop {
            let head = self.head(&piece, piece.bytes.len());
            if head.len() + piece.bytes.len() <= self.room {
                self.put(&piece, &head, piece.bytes);
                return;
            }
            // Small pieces are not torn apart: their heads would take more than the room that is lost.
            if self.room < MIN_PIECE_BYTES || piece.bytes.len() < MIN_PIECE_BYTES {
                self.payloads.push(Vec::new());
                self.summaries.push(Summary::EMPTY);
                self.room = self.sector_bytes - HEAD_BYTES;
                continue;
            }
            // A shorter part has no longer head.
            let part_bytes = self.room - self.head(&piece, piece.bytes.len() - 1).len();
            let (part, rest) = piece.bytes.split_at(part_bytes.min(piece.bytes.len() - 1));
            let head = self.head(&piece, part.len());
            self.put(&piece, &head, part);
            self.room = 0;
            piece = Piece { offset: piece.offset + part.len(), bytes: rest, ..piece };
        }
    }

    fn head(&self, piece: &Piece<'_>, len: usize) -> Vec<u8> {
        let is_part = len != piece.total;
        let mut head = vec![piece.page | if is_part { IS_PART } else { 0 }];
        varint::put(&mut head, piece.position.get() - self.base.get());
        varint::put(&mut head, piece.total as u64);
        if is_part {
            varint::put(&mut head, piece.offset as u64);
            varint::put(&mut head, len as u64);
        }
        head
    }

    fn put(&mut self, piece: &Piece<'_>, head: &[u8], bytes: &[u8]) {
        let (payload, summary) = match (self.payloads.last_mut(), self.summaries.last_mut()) {
            (Some(payload), Some(summary)) => (payload, summary),
            _ => unreachable!("there is room only in a sector"),
        };
        payload.extend_from_slice(head);
        payload.extend_from_slice(bytes);
        self.room -= head.len() + bytes.len();
        summary.add(piece, bytes.len());
    }
}

impl Packed {
    /// How many sectors there are.
    pub fn len(&self) -> usize {
        self.summaries.len()
    }

    /// Writes the heads: the last step before the sectors are written.
    pub fn seal(&mut self, head: SectorHead, store: u64) {
        self.counted = head.counted;
        for sector in self.bytes.chunks_exact_mut(self.sector_bytes) {
            sector[8..12].copy_from_slice(&head.logical.to_le_bytes());
            sector[12..14].copy_from_slice(&head.counted.to_le_bytes());
            sector[16..24].copy_from_slice(&head.sequence.to_le_bytes());
            sector[24..32].copy_from_slice(&self.base.get().to_le_bytes());
            Sector::repair_checksum(sector, store);
        }
    }

    /// What their heads say was written before.
    pub fn counted(&self) -> u16 {
        self.counted
    }

    /// The bytes of some of the sectors.
    pub fn bytes(&self, sectors: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[sectors.start * self.sector_bytes..sectors.end * self.sector_bytes]
    }
}

fn checksum(sector: &[u8], store: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.to_le_bytes()), &sector[4..])
}

/// A sector that is whole.
#[derive(Clone, Copy, Debug)]
pub struct Sector<'a> {
    /// What its writer said.
    pub head: SectorHead,
    base: Lsn,
    payload: &'a [u8],
}

impl<'a> Sector<'a> {
    /// Stores the checksum of a sector that is long enough, and the magic number with it.
    pub(crate) fn repair_checksum(sector: &mut [u8], store: u64) {
        if sector.len() >= HEAD_BYTES {
            sector[4..6].copy_from_slice(&MAGIC);
            let crc = checksum(sector, store);
            sector[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Reads a sector of the store with that number; `None` if it is something else, or damaged.
    pub fn decode(sector: &'a [u8], store: u64) -> Option<Self> {
        let field = |range| sector.get(range);
        let u64_at = |at: usize| Some(u64::from_le_bytes(field(at..at + 8)?.try_into().ok()?));
        let crc = u32::from_le_bytes(field(0..4)?.try_into().ok()?);
        if sector.len() < HEAD_BYTES || field(4..6)? != MAGIC || crc != checksum(sector, store) {
            return None;
        }
        let len = u16::from_le_bytes([sector[6], sector[7]]);
        let found = Self {
            head: SectorHead {
                logical: u32::from_le_bytes(field(8..12)?.try_into().ok()?),
                sequence: u64_at(16)?,
                counted: u16::from_le_bytes([sector[12], sector[13]]),
            },
            base: Lsn::new(u64_at(24)?),
            payload: field(HEAD_BYTES..HEAD_BYTES + usize::from(len))?,
        };
        let mut rest = found.payload;
        while !rest.is_empty() {
            decode_piece(&mut rest, found.base)?;
        }
        Some(found)
    }

    /// Its pieces, in the order in which they were packed.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let (mut rest, base) = (self.payload, self.base);
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| decode_piece(&mut rest, base).expect("decode() has checked the sector"))
        })
    }

    /// What it holds.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::EMPTY;
        self.pieces().for_each(|piece| summary.add(&piece, piece.bytes.len()));
        summary
    }
}

fn decode_piece<'a>(rest: &mut &'a [u8], base: Lsn) -> Option<Piece<'a>> {
    let (&page, tail) = rest.split_first()?;
    *rest = tail;
    let position = Lsn::new(base.get().checked_add(varint::take(rest)?)?);
    let total = usize::try_from(varint::take(rest)?).ok()?;
    let (offset, len) = match page & IS_PART {
        0 => (0, total),
        _ => (usize::try_from(varint::take(rest)?).ok()?, usize::try_from(varint::take(rest)?).ok()?),
    };
    let page = page & !IS_PART;
    let (bytes, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    (page < 64 && offset.checked_add(len)? <= total).then_some(Piece { page, position, total, offset, bytes })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const HEAD: SectorHead = SectorHead { logical: 4, sequence: 1 << 40, counted: 3 };

    /// The whole changes that packed sectors hold.
    fn unpack(packed: &Packed) -> Vec<(u8, u64, Vec<u8>)> {
        let mut found: Vec<(u8, u64, Vec<u8>)> = Vec::new();
        for index in 0..packed.len() {
            let sector = Sector::decode(packed.bytes(index..index + 1), 5).expect("it was sealed");
            assert_eq!((sector.head, sector.summary()), (HEAD, packed.summaries[index]));
            for piece in sector.pieces() {
                match found.last_mut().filter(|(page, position, _)| {
                    (*page, *position) == (piece.page, piece.position.get()) && piece.offset > 0
                }) {
                    Some((_, _, bytes)) => {
                        assert_eq!(bytes.len(), piece.offset);
                        bytes.extend_from_slice(piece.bytes);
                    }
                    None => found.push((piece.page, piece.position.get(), piece.bytes.to_vec())),
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn what_was_packed_is_found(
            changes in vec((0u8..64, 1u64 << 40..(1 << 40) + 100_000, vec(any::<u8>(), 1..3000)), 0..12),
            sector_bytes in prop::sample::select(vec![512usize, 4096]),
        ) {
            let pieces = changes.iter().map(|(page, position, bytes)| {
                Piece::whole((*page).into(), Lsn::new(*position), bytes)
            });
            let mut packed = pack(pieces, sector_bytes);
            packed.seal(HEAD, 5);
            let counted: usize = changes.iter().map(|(_, _, bytes)| bytes.len() + PageChanges::OVERHEAD_BYTES).sum();
            prop_assert!(packed.len() <= counted.div_ceil(sector_bytes - 64), "{} sectors", packed.len());
            prop_assert_eq!(unpack(&packed), changes);
        }

        #[test]
        fn hostile_bytes_are_no_sector(bytes in vec(any::<u8>(), 0..600)) {
            prop_assert!(Sector::decode(&bytes, 5).is_none());
        }

        #[test]
        fn hostile_payloads_are_no_sector_or_bounded(payload in vec(any::<u8>(), 1..480)) {
            let mut packed = pack([Piece::whole(0, Lsn::new(1), &payload)].into_iter(), 512);
            packed.bytes[6..8].copy_from_slice(&(payload.len() as u16).to_le_bytes());
            packed.bytes[HEAD_BYTES..HEAD_BYTES + payload.len().min(480)].copy_from_slice(&payload);
            packed.seal(HEAD, 5);
            if let Some(sector) = Sector::decode(packed.bytes(0..1), 5) {
                for piece in sector.pieces() {
                    prop_assert!(piece.bytes.len() <= payload.len() && piece.page < 64);
                }
            }
        }
    }

    #[test]
    fn a_sector_is_full_before_the_next_is_begun() {
        // Some ten records a sector, as the paper expects (section 4.2.2, Table 4).
        let change = [7; 44];
        let pieces = (0..100).map(|n| Piece::whole(3, Lsn::new((1 << 40) + n), &change));
        assert_eq!(pack(pieces, 512).len(), 10);
        assert_eq!(pack(std::iter::empty(), 512).len(), 0);
    }
}
