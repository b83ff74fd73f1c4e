//! What stands in an erase unit or a segment, to be shown.

/// An erase unit of a store that has them, as `db inspect --unit` shows it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct UnitInspection {
    /// Its number on the device.
    pub unit: u32,
    /// Where it starts on the device, in bytes.
    pub offset_bytes: u64,
    /// `superblock`, `home`, `overflow`, `tally` for one that is free and says how many log sectors there were when the database
    /// was closed, or `none` if there is no header of this store.
    pub purpose: String,
    /// Whether it is used: holds the newest version of a home unit, or sectors that are needed.
    pub is_present: bool,
    /// How often it was erased, or written anew, as its header says.
    pub erase_count: u32,
    /// The logical unit of a home unit.
    pub logical: Option<u32>,
    /// The version, as the header says.
    pub sequence: Option<u64>,
    /// The pages that a home unit holds, by number.
    pub pages: Vec<u64>,
    /// The places for log sectors.
    pub sectors: Vec<SectorInspection>,
}

/// A place for a log sector in a [`UnitInspection`].
///
/// ```
/// # fn longest(unit: &tantalum_store::UnitInspection) -> Option<&tantalum_store::SectorInspection> {
/// unit.sectors.iter().max_by_key(|sector| sector.records.len())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SectorInspection {
    /// Its number in the unit, counted from the header.
    pub number: usize,
    /// `blank`, `unreadable`, `other` for bytes that are no sector of this store, `log`, or `dead` for a log sector of a
    /// version that is no longer there.
    pub state: String,
    /// The logical unit whose pages are changed.
    pub logical: Option<u32>,
    /// The version of it that the sector belongs to.
    pub sequence: Option<u64>,
    /// Sectors of that version that were written before.
    pub counted: Option<u16>,
    /// What stands in it.
    pub records: Vec<RecordInspection>,
}

/// What a change group changed in a page, or a part of it, in a [`SectorInspection`].
///
/// ```
/// # fn aborted(sector: &tantalum_store::SectorInspection) -> usize {
/// sector.records.iter().filter(|record| record.status == "aborted").count()
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RecordInspection {
    /// The page.
    pub page: u64,
    /// The session in which the change group was published: the log's epoch.
    pub session: u64,
    /// Which of the session's groups it is.
    pub group: u64,
    /// `committed`, `active`, `aborted`, or why that is not known.
    pub status: String,
    /// Bytes of all that the group changes in the page.
    pub total_bytes: usize,
    /// Where this part of them begins.
    pub part_offset: usize,
    /// How long it is.
    pub part_bytes: usize,
}

/// A segment of the log-structured store, as `db inspect --segment` shows it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SegmentInspection {
    /// Its number.
    pub segment: u32,
    /// Where it starts on the device, in bytes.
    pub offset_bytes: u64,
    /// `free`; `open` for one that is being written, or will be next; `closed`; `empty` for one that the next checkpoint of the map
    /// frees; or `stuck` for one with pages that cannot be read.
    pub state: String,
    /// Its blocks of 4 KiB.
    pub blocks: u32,
    /// Of them, how many its live pages and blocks of the map fill, rounded up.
    pub live_blocks: u32,
    /// What was appended to it, as far as that shows: of a segment that is free, what it was used for last.
    pub appends: Vec<AppendInspection>,
}

/// An append in a [`SegmentInspection`]: a summary, and what it speaks of.
///
/// ```
/// # fn live(append: &tantalum_store::AppendInspection) -> usize {
/// append.entries.iter().filter(|entry| entry.is_live).count()
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AppendInspection {
    /// The block in the segment in which the summary is.
    pub block: u32,
    /// Its number among all appends.
    pub sequence: u64,
    /// `hot` for pages as they were stored, `cold` for pages that cleaning moved, `map` for parts of the map.
    pub stream: String,
    /// Whether the streams have not begun anew since.
    pub is_of_this_session: bool,
    /// Blocks at its end that mean nothing.
    pub filler_blocks: u32,
    /// What stands in it.
    pub entries: Vec<EntryInspection>,
}

/// A page, or a block of the map, in an [`AppendInspection`].
///
/// ```
/// # fn pages(append: &tantalum_store::AppendInspection) -> Vec<u64> {
/// append.entries.iter().filter(|entry| entry.kind == "page").map(|entry| entry.number).collect()
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EntryInspection {
    /// The block in the segment in which it begins.
    pub block: u32,
    /// How long it is as it is stored, in bytes: a page that is compressed is shorter than another.
    pub bytes: usize,
    /// `page`; or of the map `map` for places of pages, `directory` for places of such blocks.
    pub kind: String,
    /// The page's number, or the block's among those of its kind.
    pub number: u64,
    /// Up to where the page has what the log says, as the summary has it.
    pub lsn: Option<u64>,
    /// Whether it is still what the map says.
    pub is_live: bool,
}
