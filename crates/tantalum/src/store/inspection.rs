//! What stands in an erase unit, for whoever wants to look.

use serde::Serialize;

/// An erase unit of a store that has them, from [`Db::inspect_unit`](crate::Db::inspect_unit).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tantalum::{Db, StoreKind};
///
/// let db = Db::builder().page_store(StoreKind::InPageLogging).log_bytes(8 << 20).open(dir.path().join("db"))?;
/// db.table("t")?;
/// let homes = (0..db.stats()?.store.in_page.map_or(0, |store| store.units as u32))
///     .filter_map(|unit| db.inspect_unit(unit + 2).ok())
///     .filter(|unit| unit.purpose == "home" && unit.is_present);
/// assert_eq!(homes.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
/// # fn longest(unit: &tantalum::UnitInspection) -> Option<&tantalum::SectorInspection> {
/// unit.sectors.iter().max_by_key(|sector| sector.records.len())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
/// # fn aborted(sector: &tantalum::SectorInspection) -> usize {
/// sector.records.iter().filter(|record| record.status == "aborted").count()
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
