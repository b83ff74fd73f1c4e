//! Finding an LSN on a device: section headers, then the stride array that the next section's header holds
//! ("FlashLogging", section 3.6).

use crate::format::request::{DecodedRequest, RequestHeader};
use crate::format::section::SectionHeader;
use crate::format::{BLOCK, DecodeError};
use crate::layout::device_tag;
use crate::recovery::members::Member;
use crate::{Damage, Lsn, Result};

/// A section that a device holds, as its header or, if that is damaged, its first request tells.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) number: u64,
    /// The sequence number of its first request.
    pub(crate) first_sequence: u64,
    /// The largest end LSN on the device before it. Only what is not void counts.
    pub(crate) stream_lsn: Lsn,
    pub(crate) header: Option<SectionHeader>,
}

/// A device's sections in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sections {
    pub(crate) sections: Vec<Section>,
    /// Device reads that it took.
    pub(crate) reads: u64,
}

/// Where to start reading for an LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Index into the sections.
    pub(crate) index: usize,
    /// A byte of the section at which a request starts.
    pub(crate) at: u64,
    /// The largest end LSN on the device before it.
    pub(crate) stream_lsn: Lsn,
}

impl Member {
    /// Reads each section's first two blocks: its header, and its first request's.
    pub(crate) fn read_sections(&self, mut progress: impl FnMut(u64)) -> Result<Sections> {
        let mut found = Sections::default();
        let mut blocks = vec![0; 2 * BLOCK];
        for position in 0..self.layout.section_count {
            self.device.read(self.layout.section(position).start, &mut blocks)?;
            found.reads += 1;
            found.sections.extend(self.section_at(position, &blocks));
            progress(blocks.len() as u64);
        }
        found.sections.sort_by_key(|section| section.number);
        Ok(found)
    }

    /// Whether the section of this number was begun, and not overwritten since.
    pub(crate) fn holds_section(&self, number: u64) -> Result<bool> {
        let mut blocks = vec![0; 2 * BLOCK];
        self.device.read(self.layout.section(number).start, &mut blocks)?;
        let found = self.section_at(self.layout.position(number), &blocks);
        Ok(found.is_some_and(|found| found.number == number))
    }

    fn section_at(&self, position: u64, blocks: &[u8]) -> Option<Section> {
        let at = |number: u64| self.layout.position(number) == position;
        let header = SectionHeader::decode(&blocks[..BLOCK]).ok().filter(|header| {
            let own = header.log_id == self.superblock.log_id && header.device_id == self.superblock.device_id;
            own && header.is_hiding == self.is_hiding && at(header.number)
        });
        let offset = self.layout.section(position).start + BLOCK as u64;
        let first = self.decode_request(&blocks[BLOCK..], offset).ok().map(|first| first.header);
        let first = first.filter(|first| at(first.section));
        match (header, first) {
            // The header is damaged, or torn so that an older one survived: the request stands for it.
            (header, Some(first)) if header.as_ref().is_none_or(|header| header.number < first.section) => {
                Some(Section {
                    number: first.section,
                    first_sequence: first.sequence,
                    stream_lsn: first.stream_lsn,
                    header: None,
                })
            }
            (Some(header), _) => Some(Section {
                number: header.number,
                first_sequence: header.first_sequence,
                stream_lsn: header.stream_lsn,
                header: Some(header),
            }),
            (None, _) => None,
        }
    }

    /// The request header at `offset` of the device, if `bytes` holds one that was written there.
    pub(crate) fn decode_request(&self, bytes: &[u8], offset: u64) -> Result<DecodedRequest, DecodeError> {
        let request = RequestHeader::decode(bytes)?;
        let own_tag = device_tag(self.superblock.log_id, self.superblock.device_id);
        match request.header {
            header if header.device_tag != own_tag => {
                Err(DecodeError::Field { field: "identity", value: header.device_tag })
            }
            header if header.offset != offset => Err(DecodeError::Field { field: "offset", value: header.offset }),
            _ => Ok(request),
        }
    }

    pub(crate) fn damage(&self, offset: u64, lsn: Lsn, what: impl Into<String>) -> Damage {
        Damage { device: self.device.name().into(), offset, lsn: Some(lsn), what: what.into() }
    }
}

impl Sections {
    /// The last place before which every request that is not void ends at or below `lsn`. `None` if there is no
    /// section; damage if the section that holds the place is gone.
    pub(crate) fn locate(&self, member: &Member, lsn: Lsn) -> std::result::Result<Option<Start>, Damage> {
        let Some(oldest) = self.sections.first() else { return Ok(None) };
        let Some(index) = self.sections.iter().rposition(|section| section.stream_lsn <= lsn) else {
            let what = format!(
                "the section with LSN {lsn} is missing, the oldest intact one (number {}) starts behind LSN {}",
                oldest.number, oldest.stream_lsn
            );
            return Err(member.damage(member.layout.section(oldest.number).start, lsn, what));
        };
        let section = &self.sections[index];
        let next = self.sections.get(index + 1).filter(|next| next.number == section.number + 1);
        let entries = next.and_then(|next| next.header.as_ref()).map_or(&[][..], |header| &header.previous);
        let entry = entries.partition_point(|entry| entry.stream_lsn <= lsn).checked_sub(1).map(|at| entries[at]);
        let first = BLOCK as u64;
        let in_section = |at: u64| (first..member.layout.section_bytes).contains(&at);
        let is_start = |at: u64| in_section(at) && at.is_multiple_of(member.layout.alignment);
        Ok(Some(match entry {
            Some(entry) if is_start(entry.at.into()) => {
                Start { index, at: entry.at.into(), stream_lsn: entry.stream_lsn }
            }
            _ => Start { index, at: first, stream_lsn: section.stream_lsn },
        }))
    }
}
