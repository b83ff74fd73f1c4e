//! Looks at what stands on a database's devices, and decoders for fuzzers: for the program, tests and fuzz targets of this workspace. Not
//! part of the API.

pub use tantalum_store::{
    AppendInspection, EntryInspection, RecordInspection, SectorInspection, SegmentInspection, UnitInspection,
};

use crate::{
    db::Db,
    error::{self, Result},
    tree::decode_node,
};

/// Shows an erase unit of the data device, with its log sectors and what stands in them, in a database whose
/// [page store](crate::Builder::page_store) has erase units.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tantalum::{Db, StoreKind, internals::inspect_unit};
///
/// let db = Db::builder().page_store(StoreKind::InPageLogging).log_bytes(8 << 20).open(dir.path().join("db"))?;
/// db.table("t")?;
/// let homes = (0..db.stats()?.store.in_page.map_or(0, |store| store.units as u32))
///     .filter_map(|unit| inspect_unit(&db, unit + 2).ok())
///     .filter(|unit| unit.purpose == "home" && unit.is_present);
/// assert_eq!(homes.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such unit; when the device cannot read.
pub fn inspect_unit(db: &Db, unit: u32) -> Result<UnitInspection> {
    let core = db.core();
    core.check_open()?;
    let store = core.superblock.store_kind;
    let none = || {
        error::option(format!(
            "unit {unit}: only the page store in-page-logging has erase units, and this database is {store}"
        ))
    };
    core.if_open(core.pool.store().inspect_unit(unit))?.ok_or_else(none)
}

/// Shows a segment of the data device, with what was appended to it, in a database whose
/// [page store](crate::Builder::page_store) has segments.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tantalum::{Db, StoreKind, internals::inspect_segment};
///
/// let db = Db::builder().page_store(StoreKind::LogStructured).log_bytes(8 << 20).open(dir.path().join("db"))?;
/// db.table("t")?;
/// db.checkpoint()?;
/// let segments = db.stats()?.store.log_structured.map_or(0, |store| store.segments as u32);
/// let open = (0..segments).filter_map(|number| inspect_segment(&db, number).ok()).filter(|found| found.state == "open");
/// assert!(open.flat_map(|segment| segment.appends).any(|append| append.stream == "hot"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such segment; when the device cannot read.
pub fn inspect_segment(db: &Db, segment: u32) -> Result<SegmentInspection> {
    let core = db.core();
    core.check_open()?;
    let store = core.superblock.store_kind;
    let none = || {
        error::option(format!(
            "segment {segment}: only the page store log-structured has segments, and this database is {store}"
        ))
    };
    core.if_open(core.pool.store().inspect_segment(segment))?.ok_or_else(none)
}

/// Verifies a page as after a read, then reads all that a tree reads of it. `bytes` has the length of a page.
///
/// # Panics
/// When a page that verifies is not as its header says.
pub fn decode_page(bytes: &mut [u8], id: u64) {
    tantalum_store::fuzzing::page(bytes, id, decode_node);
}
