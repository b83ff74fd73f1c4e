//! Finding an archive and reading it: from a position to its end, which a power cut may have torn.

use std::sync::Arc;

use tantalum_device::{Access, Device, Durability};

use super::circle::Circle;
use super::directory::{Directory, Found as FoundDirectory};
use super::store::{Segment, Store};
use super::walk::Walk;
use super::{ArchiveOptions, ArchiveTarget};
use crate::format::archive::{ArchiveSuperblock, CONTROL_BYTES};
use crate::format::slot::{EpochStart, Slot};
use crate::format::{BLOCK, DecodeError, NUMBER_LIMIT};
use crate::layout::{SUPERBLOCKS, slot_offset};
use crate::recovery::merge::is_void;
use crate::recovery::scan::{Scan, Scope};
use crate::{Damage, Error, Lsn, Result, error};

/// Segments of a directory have this size unless the options ask for another.
const DEFAULT_FILE_BYTES: u32 = 16 << 20;

/// An archive that was found.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub(crate) store: Arc<dyn Store>,
    /// What its two slots hold, if valid.
    pub(crate) slots: [Option<Slot>; 2],
    access: Access,
}

/// What an archive holds from a position on.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) scan: Scan,
    /// Where the newest run starts.
    pub(crate) run_start: Lsn,
    /// Where the newest run ends.
    pub(crate) end: Lsn,
    /// The segments that were read: number and end.
    pub(crate) segments: Vec<(u64, Lsn)>,
    pub(crate) next_number: u64,
    pub(crate) next_sequence: u64,
}

impl Scanned {
    /// Nothing, of what starts at `start`.
    pub(super) fn from(start: Lsn) -> Scanned {
        Scanned { run_start: start, end: start, ..Scanned::default() }
    }

    /// What was read does not count: the run is empty and starts at `run_start`.
    pub(crate) fn forget(&mut self, run_start: Lsn) {
        self.scan = Scan::default();
        self.segments.clear();
        (self.run_start, self.end) = (run_start, run_start);
    }
}

impl Archive {
    /// The archive at `target`, for reading.
    pub(super) fn open(target: &ArchiveTarget) -> Result<Archive> {
        let found = Archive::find(&ArchiveOptions::at(target.clone()), Access::ReadOnly)?;
        found.ok_or_else(|| error::not_an_archive(target.name(), "there is nothing"))
    }

    /// Looks for an archive. `None` where there is nothing at all.
    pub(crate) fn find(options: &ArchiveOptions, access: Access) -> Result<Option<Archive>> {
        options.check()?;
        let control = match &options.target {
            ArchiveTarget::Device(device) => Arc::clone(device),
            ArchiveTarget::Directory(path) => match Directory::find(path, access)? {
                FoundDirectory::Blank => return Ok(None),
                FoundDirectory::Control(control) => control,
            },
        };
        let Some(superblock) = read_superblock(&*control)? else { return Ok(None) };
        let mut block = vec![0; BLOCK];
        let mut slots = [None, None];
        for (parity, slot) in slots.iter_mut().enumerate() {
            control.read(slot_offset(parity as u64), &mut block)?;
            *slot = Slot::decode(&block).ok().filter(|slot| slot.log_id == superblock.log_id);
        }
        Ok(Some(Archive { store: store(options, control, superblock)?, slots, access }))
    }

    /// Makes an empty archive for the log `log_id`; what is there is lost. It becomes one when all else is done, and has
    /// no slot yet.
    pub(crate) fn create(options: &ArchiveOptions, log_id: u128) -> Result<Archive> {
        options.check()?;
        let (control, superblock) = match &options.target {
            ArchiveTarget::Device(device) => {
                let superblock = Circle::divide(&**device, log_id, options.segment_bytes)?;
                (Arc::clone(device), superblock)
            }
            ArchiveTarget::Directory(path) => {
                let control = match Directory::find(path, Access::ReadWrite)? {
                    FoundDirectory::Blank => Directory::create(path)?,
                    FoundDirectory::Control(control) => control,
                };
                let segment_bytes = options.segment_bytes.unwrap_or(DEFAULT_FILE_BYTES);
                (control, ArchiveSuperblock { log_id, segment_bytes, segment_count: 0 })
            }
        };
        // Nothing is written that is there, so that a creation that is cut off touches one block alone of a blank device:
        // that of the superblock's copy, which `read_superblock` then sees through. An archive stays one throughout.
        for parity in 0..2 {
            blank(&*control, slot_offset(parity), Durability::Durable)?;
        }
        match &options.target {
            ArchiveTarget::Device(_) => Circle::new(Arc::clone(&control), superblock)?.blank()?,
            ArchiveTarget::Directory(path) => Directory::new(path, Arc::clone(&control), superblock).blank()?,
        }
        for offset in SUPERBLOCKS.into_iter().rev() {
            control.write(offset, &[&superblock.encode()], Durability::Durable)?;
        }
        Ok(Archive { store: store(options, control, superblock)?, slots: [None, None], access: Access::ReadWrite })
    }

    pub(crate) fn log_id(&self) -> u128 {
        self.store.superblock().log_id
    }

    /// The number of the next segment.
    pub(crate) fn next_number(&self) -> Result<u64> {
        let segments = self.store.segments(Some(Lsn::new(NUMBER_LIMIT)), false)?;
        let numbers = segments.iter().filter_map(|segment| segment.header.ok()).map(|header| header.number);
        Ok(numbers.max().map_or(0, |newest| newest + 1))
    }

    /// What to say if the archive is not that of the log `expected`.
    pub(crate) fn foreign(&self, expected: u128) -> Error {
        error::foreign_archive(self.store.name(), self.log_id(), expected)
    }

    /// The newest slot.
    pub(crate) fn slot(&self) -> Result<&Slot> {
        Slot::newest_of(self.slots.iter().flatten()).ok_or_else(|| {
            Error::from(Damage {
                device: self.store.control().name().into(),
                offset: slot_offset(0),
                lsn: Some(Lsn::ZERO),
                what: "the archive has no valid checkpoint slot".into(),
            })
        })
    }

    /// The segments that hold what lies behind `from`; made durable, so that what is read of them stays, unless the archive is
    /// only read.
    pub(crate) fn segments(&self, from: Lsn) -> Result<Vec<Segment>> {
        let is_writable = self.access == Access::ReadWrite;
        let (segments, _) = without_void(self.store.segments(Some(from), is_writable)?);
        if is_writable {
            segments.iter().try_for_each(|segment| segment.place.device.flush())?;
        }
        Ok(segments)
    }

    /// Makes its slots durable, unless the archive is only read.
    pub(crate) fn flush_control(&self) -> Result<()> {
        match self.access {
            Access::ReadWrite => self.store.control().flush(),
            Access::ReadOnly => Ok(()),
        }
    }

    /// Reads what lies behind `scope.checkpoint` in these segments. `None` if nothing was ever archived.
    pub(crate) fn scan(&self, segments: &[Segment], epochs: &[EpochStart], scope: &Scope) -> Result<Option<Scanned>> {
        let Some(first) = segments.first() else { return Ok(None) };
        let mut walk = Walk::new(self, scope, Scanned::from(first.start));
        walk.scanned.scan.damage.extend(self.missing_before(first, scope.checkpoint));
        for (at, segment) in segments.iter().enumerate() {
            walk.segment(segment, segments.get(at + 1))?;
        }
        let mut scanned = walk.scanned;
        // What a crash left behind, and the log went on without.
        while let Some(last) = scanned.scan.found.pop() {
            if !is_void(&last.request.header, epochs) {
                scanned.scan.found.push(last);
                break;
            }
            scanned.end = last.request.header.start;
        }
        Ok(Some(scanned))
    }

    /// What is wrong if `first` is the first segment that holds anything at or past `needed`, which the archive's run
    /// reached when retention was last at work: it never removes what a checkpoint needs.
    pub(super) fn missing_before(&self, first: &Segment, needed: Lsn) -> Option<Damage> {
        let header = first.header.ok().filter(|header| header.start > needed && header.run_start <= needed)?;
        let (device, offset) = self.store.place_before(&header);
        let start = header.start;
        let what = format!("the segment before LSN {start} is missing, or its header is damaged");
        Some(Damage { device, offset, lsn: Some(needed), what })
    }
}

/// Removes the archive at `target` if it belongs to one of the logs `of`, which no longer exist. It can be repeated if it is
/// interrupted.
///
/// # Errors
/// When the target cannot be read or written, or holds something that is no archive.
pub fn remove_archive(target: &ArchiveTarget, of: &[u128]) -> Result<()> {
    let options = ArchiveOptions::at(target.clone());
    let Some(archive) = Archive::find(&options, Access::ReadWrite)?.filter(|archive| of.contains(&archive.log_id()))
    else {
        return Ok(());
    };
    let (control, superblock) = (Arc::clone(archive.store.control()), *archive.store.superblock());
    match target {
        ArchiveTarget::Directory(path) => Directory::new(path, control, superblock).remove(),
        ArchiveTarget::Device(_) => {
            Circle::new(Arc::clone(&control), superblock)?.blank()?;
            let slots = [0, 1].map(slot_offset);
            // The copy last: until it is gone, it names the log of the archive.
            slots.into_iter().chain(SUPERBLOCKS).try_for_each(|offset| blank(&*control, offset, Durability::Durable))
        }
    }
}

/// Separates the segments that start at or behind the start of a later one: the log was cut before they began.
pub(super) fn without_void(mut segments: Vec<Segment>) -> (Vec<Segment>, Vec<Segment>) {
    let number = |segment: &Segment| segment.header.map(|header| header.number).ok();
    // Damaged ones stay where their names put them.
    if segments.iter().all(|segment| segment.header.is_ok()) {
        segments.sort_by_key(number);
    }
    let mut cut = None;
    let (mut kept, mut void) = (Vec::new(), Vec::new());
    for segment in segments.into_iter().rev() {
        if cut.is_none_or(|cut| segment.start < cut) {
            cut = Some(segment.start);
            kept.push(segment);
        } else {
            void.push(segment);
        }
    }
    kept.reverse();
    (kept, void)
}

fn store(options: &ArchiveOptions, control: Arc<dyn Device>, superblock: ArchiveSuperblock) -> Result<Arc<dyn Store>> {
    let wrong = |what: &str| error::not_an_archive(control.name(), what);
    match (&options.target, superblock.segment_count) {
        (ArchiveTarget::Device(_), 0) => Err(wrong("it is the control file of an archive in a directory")),
        (ArchiveTarget::Device(_), _) => Ok(Arc::new(Circle::new(control, superblock)?)),
        (ArchiveTarget::Directory(path), 0) => Ok(Arc::new(Directory::new(path, control, superblock))),
        (ArchiveTarget::Directory(_), _) => Err(wrong("its superblock is that of an archive on a device")),
    }
}

/// Writes zeros to a block that has others.
pub(super) fn blank(device: &dyn Device, offset: u64, durability: Durability) -> Result<()> {
    let mut block = vec![0; BLOCK];
    device.read(offset, &mut block)?;
    if block.iter().any(|byte| *byte != 0) {
        block.fill(0);
        device.write(offset, &[&block], durability)?;
    }
    Ok(())
}

/// So much of a device must be blank before an archive is made there: what file systems and partition tables are known by
/// lies there.
const BLANK_BYTES: u64 = 128 << 10;

/// Whether all is zeros but for the block of the superblock's copy, which a creation that was cut off may have left behind.
fn is_blank(control: &dyn Device) -> Result<bool> {
    let mut bytes = vec![0; BLANK_BYTES.min(control.capacity_bytes()) as usize / BLOCK * BLOCK];
    control.read(0, &mut bytes)?;
    let [_, copy] = SUPERBLOCKS;
    bytes[copy as usize..][..BLOCK].fill(0);
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// Reads the superblock, or its copy. `None` where an archive may be made.
fn read_superblock(control: &dyn Device) -> Result<Option<ArchiveSuperblock>> {
    let not_an_archive = |what: String| Err(error::not_an_archive(control.name(), what));
    if control.capacity_bytes() < CONTROL_BYTES {
        return not_an_archive(format!("{} bytes are too few", control.capacity_bytes()));
    }
    let mut blocks = vec![0; CONTROL_BYTES as usize];
    control.read(0, &mut blocks)?;
    let mut failures = Vec::new();
    for offset in SUPERBLOCKS {
        match ArchiveSuperblock::decode(&blocks[offset as usize..][..BLOCK]) {
            Ok(superblock) => return Ok(Some(superblock)),
            Err(error) => match error::of_version(error, control.name(), offset) {
                Some(error) => return Err(error),
                None => failures.push(error),
            },
        }
    }
    if is_blank(control)? {
        return Ok(None);
    }
    match failures.iter().find(|error| **error != DecodeError::Magic) {
        Some(error) => not_an_archive(format!("both superblocks are damaged: {error}")),
        None => not_an_archive("its first blocks hold something else".into()),
    }
}
