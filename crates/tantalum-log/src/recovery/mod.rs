//! Recovery: identify the devices, locate the checkpoint, scan in parallel, merge up to the first gap, and start the
//! next epoch. A device's hiding area is scanned as if it were a device.

mod archived;
pub(crate) mod chunks;
mod copies;
pub(crate) mod locate;
mod lost;
pub(crate) mod members;
pub(crate) mod merge;
mod missing;
mod progress;
mod read;
mod rebuild;
pub(crate) mod scan;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tantalum_device::{AlignedBuffer, Device};

use archived::{FoundArchive, OpenArchive};
use locate::Sections;
pub use lost::LostDevice;
pub(crate) use lost::give_up;
use members::{Member, Members, identify};
pub use members::{Standing, standings};
use merge::{Merged, merge};
pub use missing::{MissingDevice, MissingRecords};
pub(crate) use progress::Progress;
use progress::in_parallel;
pub use progress::{RecoveryPhase, RecoveryProgress};
pub(crate) use read::Reader;
pub use read::{RecordPlace, Records};
pub use rebuild::Rebuild;
pub(crate) use rebuild::rebuild;
use scan::{Scan, Scope, scan};

use crate::archive::{Archive, Scanned};
use crate::area::{Resume, UsedSection};
use crate::format::slot::Slot;
use crate::layout::slot_offset;
use crate::log_device::LogDevice;
use crate::scheduler::{SlotWriter, Start, StartArchive, write_slots};
use crate::{Damage, Error, Log, LogLayout, LogOptions, Lsn, Result, error};

/// One record as it was appended.
///
/// ```
/// # use tantalum_log::{Lsn, Record};
/// let record = Record { start: Lsn::new(0), end: Lsn::new(7), bytes: b"abc".to_vec() };
/// assert_eq!(record.end.bytes_since(record.start), 3 + 4); // with its framing
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the record starts.
    pub start: Lsn,
    /// Where the next record starts.
    pub end: Lsn,
    /// The bytes given to [`Log::append`], concatenated.
    pub bytes: Vec<u8>,
}

/// A log that was read and not yet started. From [`Log::open`].
///
/// Read the records, then [`finish`](Recovery::finish). Dropping it instead changes nothing on the devices.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions};
/// # let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
/// # Log::create(7, vec![device.clone()], LogOptions::default())?;
/// let mut recovery = Log::open(vec![device], LogOptions::default(), &mut |_| {})?;
/// while let Some(record) = recovery.next_record()? {
///     println!("{} bytes at {}", record.bytes.len(), record.start);
/// }
/// let log = recovery.finish()?;
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[derive(Debug)]
pub struct Recovery {
    members: Members,
    /// Devices whose flush failed: they are read, and hold nothing for the log from then on.
    unflushed: Vec<(u32, Error)>,
    areas: Vec<Member>,
    /// One for each area.
    scans: Vec<Scan>,
    end: Lsn,
    /// What ends at or below it need not be on the devices.
    from: Lsn,
    reader: Reader,
    locate_reads: u64,
    archive: Option<FoundArchive>,
    /// The requests by LSN as the devices alone hold them; `None` if that is not known, or not everything.
    order: Option<Vec<(usize, usize)>>,
    begun: Option<Begun>,
    options: LogOptions,
}

/// What all devices hold, before anything is decided about damage.
pub(crate) struct Survey {
    pub(crate) members: Members,
    /// What was scanned of the devices.
    pub(crate) areas: Vec<Member>,
    /// One for each area, and behind them the archive's.
    pub(crate) scans: Vec<Scan>,
    pub(crate) merged: Merged,
    pub(crate) locate_reads: u64,
    /// What the archive holds, without its scan.
    pub(crate) scanned: Option<Scanned>,
    /// Where the scans of the members began.
    pub(crate) from: Lsn,
}

pub(crate) fn open(
    devices: Vec<Arc<dyn Device>>,
    options: LogOptions,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Recovery> {
    options.check()?;
    let archive = match &options.archive {
        Some(archive) => Archive::find(archive, archive.access())?,
        None => None,
    };
    let mut members = identify(&devices, archive.as_ref())?;
    // What is read must not be lost in a power cut that follows: the owner acts on it, and a new epoch starts at its
    // end. A device that still has it in its cache makes it durable now.
    let (mut unflushed, mut lost) = (Vec::new(), members.missing_bits());
    for member in members.members.clone() {
        let Err(error) = member.device.flush() else { continue };
        let ordinal = member.superblock.ordinal;
        if members.is_superfluous(ordinal) {
            members.exclude(ordinal, error)?;
            continue;
        }
        // It is read all the same: another may have been set aside before it, and lack what was committed since.
        lost |= member.covers;
        if !members.tolerates(lost) {
            return Err(error);
        }
        unflushed.push((ordinal, error));
    }
    if let Some(archive) = &archive {
        archive.flush_control()?;
    }
    let survey = survey(members, archive.as_ref(), options.recovery_memory_bytes, progress)?;
    let damage = survey.scans.iter().flat_map(|scan| &scan.damage).chain(&survey.merged.damage).next();
    if let Some(damage) = damage.cloned() {
        return Err(damage.into());
    }
    let Survey { members, areas, scans, merged, locate_reads, scanned, from } = survey;
    let end = merged.end;
    if members.slot.needs_archive && archive.is_none() {
        return Err(error::missing_archive(end));
    }
    let on_devices = (from == members.slot.checkpoint).then(|| merge(&members.slot, &areas, &scans[..areas.len()]));
    let order = on_devices.filter(|on_devices| on_devices.end == end).map(|on_devices| on_devices.order);
    // What no device has, or was not looked for on one, is in the archive only.
    let only_there = if order.is_some() || from > members.slot.checkpoint { from } else { end };
    let is_archived = options.archive.as_ref().is_some_and(|archive| !archive.read_only);
    let archive = is_archived.then(|| FoundArchive::new(archive, scanned, &scans, &merged, only_there));
    let reader = Reader::new(merged.order, members.slot.checkpoint);
    Ok(Recovery {
        members,
        unflushed,
        areas,
        scans,
        end,
        from,
        reader,
        locate_reads,
        archive,
        order,
        begun: None,
        options,
    })
}

/// Reads everything that recovery needs. Errors are those of needed devices; damage is left in the result, but a
/// device that is not needed is left out if it fails or is damaged.
pub(crate) fn survey(
    mut members: Members,
    archive: Option<&Archive>,
    memory_bytes: usize,
    report: &mut dyn FnMut(RecoveryProgress),
) -> Result<Survey> {
    let memory = Arc::new(AtomicI64::new(memory_bytes as i64));
    let mut scanned = match archive {
        Some(archive) => archived::scan(archive, &members.slot, &memory, report)?,
        None => None,
    };
    let checkpoint = members.slot.checkpoint;
    // What the archive has need not be read from the devices, unless it is to be seen that two of them have it.
    let from = match &scanned {
        Some(scanned) if !members.is_mirrored() && scanned.run_start <= checkpoint => scanned.end.max(checkpoint),
        _ => checkpoint,
    };
    let areas = members.areas();
    let headers = areas.iter().map(|area| area.layout.section_count * 8192).sum();
    let located = in_parallel(&areas, RecoveryPhase::Locate, headers, report, |area, progress| {
        area.read_sections(|bytes| progress.add(bytes))
    });
    let located = keep(&mut members, areas, located, |_| None)?;
    let locate_reads = located.iter().map(|(_, sections)| sections.reads).sum();

    let epoch = members.slot.newest().epoch;
    let total = located.iter().map(|(area, sections)| scan_bytes(area, sections, from)).sum();
    let scans = in_parallel(&located, RecoveryPhase::Scan, total, report, move |(area, sections), progress| {
        let (memory, progress) = (Arc::clone(&memory), Arc::clone(progress));
        scan(area, sections, &Scope { checkpoint: from, epoch, memory, progress })
    });
    let damage = |scan: &Scan| scan.damage.first().cloned();
    let areas = located.into_iter().map(|(area, _)| area).collect();
    let (areas, mut scans): (Vec<_>, Vec<_>) = keep(&mut members, areas, scans, damage)?.into_iter().unzip();
    scans.extend(scanned.as_mut().map(|scanned| std::mem::take(&mut scanned.scan)));
    let merged = merge(&members.slot, &areas, &scans);
    Ok(Survey { members, areas, scans, merged, locate_reads, scanned, from })
}

/// The results of the devices in use, by area. Those that are not needed are excluded, with both their areas, if they
/// failed or are damaged.
fn keep<T>(
    members: &mut Members,
    areas: Vec<Member>,
    results: Vec<Result<T>>,
    damage: impl Fn(&T) -> Option<Damage>,
) -> Result<Vec<(Member, T)>> {
    let mut kept = Vec::new();
    for (area, result) in areas.into_iter().zip(results) {
        let ordinal = area.superblock.ordinal;
        match result {
            Ok(result) if !members.may_lack(ordinal) || damage(&result).is_none() => kept.push((area, result)),
            Ok(_) => members.members.retain(|member| member.superblock.ordinal != ordinal),
            Err(error) => members.exclude(ordinal, error)?,
        }
    }
    let is_member = |ordinal| members.members.iter().any(|member| member.superblock.ordinal == ordinal);
    kept.retain(|(area, _)| is_member(area.superblock.ordinal));
    Ok(kept)
}

/// The most that a scan reads.
fn scan_bytes(area: &Member, sections: &Sections, checkpoint: Lsn) -> u64 {
    let start = sections.locate(area, checkpoint).ok().flatten().map_or(0, |start| start.index);
    (sections.sections.len() - start + 1) as u64 * area.layout.section_bytes
}

impl Recovery {
    /// The log's identity.
    pub fn log_id(&self) -> u128 {
        self.members.log_id
    }

    /// How the log lies on its devices.
    pub fn layout(&self) -> LogLayout {
        self.members.layout()
    }

    /// The identities of the log's devices, and whether each is used: not those that are absent, or could not be read. An
    /// owner that knows which devices an earlier session went on without must not go on with those alone.
    pub fn devices(&self) -> Vec<(u64, bool)> {
        let is_used = |id| self.areas.iter().any(|area| area.superblock.device_id == id);
        self.members.slot.members.iter().map(|member| (member.device_id, is_used(member.device_id))).collect()
    }

    /// The checkpoint: the first record delivered starts at or after it.
    pub fn checkpoint_lsn(&self) -> Lsn {
        self.members.slot.checkpoint
    }

    /// Where the recovered log ends and the next record will start.
    pub fn end_lsn(&self) -> Lsn {
        self.end
    }

    /// Whether the log was closed, or is new, so that nothing was cut off.
    pub fn was_clean(&self) -> bool {
        self.members.slot.clean_end == Some(self.end)
    }

    /// Device reads that it took to find the checkpoint, all devices together ("FlashLogging", section 3.6).
    pub fn locate_reads(&self) -> u64 {
        self.locate_reads
    }

    /// The next record in LSN order, from the checkpoint on; `None` behind the last.
    ///
    /// # Errors
    /// The device's, or [`Corrupt`](crate::ErrorKind::Corrupt), if a request that was too large to keep cannot be read a
    /// second time.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        self.reader.next(&mut self.scans)
    }

    /// As [`next_record`](Self::next_record), but many records at a time, in memory that the caller may keep; `None` behind the last.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub fn next_records(&mut self) -> Result<Option<Records>> {
        self.reader.next_records(&mut self.scans)
    }

    /// The newest epoch that any device bears: the last session that began.
    pub fn epoch(&self) -> u64 {
        self.members.slot.newest().epoch
    }

    /// The epoch that everything bears which [`begin_epoch`](Self::begin_epoch) has stamped, or a newer one; `None` if none was.
    pub fn stamped_epoch(&self) -> Option<u64> {
        self.members.slot.stamped
    }

    /// Makes the missing copies of a mirrored log, writes the new epoch to every device and the archive, and archives the records
    /// that the archive lacks. From then on nothing that was recovered can be lost: an owner that stores the records it reads
    /// before it calls [`finish`](Self::finish) calls this first.
    ///
    /// `stamp` is given the epoch when all devices bear it, and writes it, durably, to the owner's files beside the log. Then the
    /// log records that it did: at a later open, a file with an older epoch than [`stamped_epoch`](Self::stamped_epoch) or a newer
    /// one than [`epoch`](Self::epoch) does not belong to the present log. The log checks its own devices and archive itself.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{Error, Log, LogOptions};
    /// # let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
    /// # Log::create(7, vec![device.clone()], LogOptions::default())?;
    /// let mut noted = None;
    /// let mut recovery = Log::open(vec![device.clone()], LogOptions::default(), &mut |_| {})?;
    /// recovery.begin_epoch(|epoch| {
    ///     noted = Some(epoch);
    ///     Ok::<(), Error>(())
    /// })?;
    /// recovery.finish()?.close()?;
    /// let recovery = Log::open(vec![device], LogOptions::default(), &mut |_| {})?;
    /// assert_eq!(recovery.stamped_epoch(), noted);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a device, of the archive, or of `stamp`; the log is as it was, and can be opened again. A mirrored log goes on
    /// without one device.
    pub fn begin_epoch<E: From<Error>>(&mut self, stamp: impl FnOnce(u64) -> Result<(), E>) -> Result<(), E> {
        if self.begun.is_some() {
            return Ok(());
        }
        let mut slots = SlotWriter::new(self.members.slot.clone());
        let lagging = self.members.lagging_bits();
        // What could not be flushed is copied, so that nothing on those devices is needed.
        let missing = self.unflushed.iter().fold(self.members.missing_bits(), |bits, (ordinal, _)| bits | 1 << ordinal);
        let mut devices = self.log_devices();
        self.complete_newest_slot(&mut devices, lagging, &slots)?;
        // The first slot says of archive and devices what the one before did: those that the log went on without may not get it.
        let epoch = slots.begin_epoch(self.end, missing | lagging);
        let archive = self.archive.take().map(|archive| archive.open(self, epoch)).transpose()?;
        let control = archive.as_ref().map(|archive| archive.control());
        let is_mirrored = self.options.copies > 1;
        let restores = is_mirrored || !self.unflushed.is_empty();
        let whole_from = if restores { copies::restore(self, &mut devices)? } else { None };
        let mirrored_from = whole_from.filter(|_| is_mirrored);
        slots.set_mirrored(mirrored_from, |member| {
            let device = devices.iter().find(|device| device.device_id == member.device_id);
            device.map(|device| device.hardware)
        });
        self.write_slots(&mut devices, |_| true, control, slots.advance())?;
        stamp(epoch)?;
        // One that follows two copies is needed only for what no device has.
        let is_needed = |archive: &OpenArchive| self.options.copies == 1 || archive.only_here() > slots.checkpoint();
        let is_needed = archive.as_ref().is_some_and(is_needed);
        slots.set_archive(archive.as_ref().map(OpenArchive::run_start), is_needed);
        let failed = devices.iter().filter(|device| !device.is_healthy());
        let failed = failed.fold(0, |bits, device| bits | 1 << device.ordinal);
        slots.set_not_needed(missing | lagging & failed);
        if failed & !missing == 0 {
            slots.set_stamped();
        }
        // Both slots know the epoch now: one that is damaged later cannot hide it.
        self.write_slots(&mut devices, |_| true, control, slots.advance())?;
        let archive = archive
            .map(|archive| archive.catch_up(&self.scans, self.members.slot.checkpoint, self.options.hang_timeout))
            .transpose()?;
        self.begun = Some(Begun { slots, epoch, archive, devices });
        Ok(())
    }

    /// Has all devices and the archive have the newest slot, in its place. A power cut may have kept some from getting it; then what stands
    /// in the place of the next one may be the newest that they have.
    fn complete_newest_slot(&self, devices: &mut [LogDevice], lagging: u64, newest: &SlotWriter) -> Result<()> {
        let ((offset, block), slot) = (newest.current(), &self.members.slot);
        let place = usize::from(offset != slot_offset(0));
        let lacks = |slots: &[Option<Slot>; 2]| slots[place].as_ref() != Some(slot);
        // There a power cut would leave but an older one, so the other place gets it first.
        let has_newest_there = |slots: &[Option<Slot>; 2]| {
            slots[place].is_some() && Slot::newest_of(slots.iter().flatten()) == slots[place].as_ref()
        };
        let slots_of = |device: &LogDevice| {
            let member = self.members.members.iter().find(|member| member.superblock.ordinal == device.ordinal);
            member.filter(|_| lagging & 1 << device.ordinal == 0).map(|member| &member.slots)
        };
        let archive = self.archive.as_ref().and_then(FoundArchive::archive).filter(|_| slot.archive_run.is_some());
        let control = |wants: &dyn Fn(&[Option<Slot>; 2]) -> bool| {
            archive.filter(|archive| wants(&archive.slots)).map(|archive| archive.store.control())
        };
        let is_in_the_way = |slots: &[Option<Slot>; 2]| lacks(slots) && has_newest_there(slots);
        let other = slot_offset(1 - place as u64);
        let gets_other = |device: &LogDevice| slots_of(device).is_some_and(is_in_the_way);
        self.write_slots(devices, gets_other, control(&is_in_the_way), (other, Arc::clone(&block)))?;
        self.write_slots(devices, |device| slots_of(device).is_some_and(lacks), control(&lacks), (offset, block))
    }

    /// Writes a slot to the devices that get it. One that fails is set aside if the log tolerates it.
    fn write_slots(
        &self,
        devices: &mut [LogDevice],
        gets_it: impl Fn(&LogDevice) -> bool,
        archive: Option<&Arc<dyn Device>>,
        slot: (u64, Arc<AlignedBuffer>),
    ) -> Result<()> {
        let gets_it = |device: &LogDevice| device.is_healthy() && gets_it(device);
        let healthy: Vec<usize> = (0..devices.len()).filter(|&at| gets_it(&devices[at])).collect();
        let targets = healthy.iter().map(|&at| devices[at].device()).chain(archive).cloned().collect::<Vec<_>>();
        for (at, outcome) in write_slots(&targets, slot, self.options.hang_timeout).into_iter().enumerate() {
            let Err(error) = outcome.result else { continue };
            let Some(device) = healthy.get(at).map(|&at| &mut devices[at]) else { return Err(error) };
            device.set_aside = Some(error.clone());
            outcome.given_up.into_iter().for_each(|write| device.give_up(write));
            let lost = devices.iter().filter(|device| !device.is_healthy());
            let lost = lost.fold(self.members.missing_bits(), |bits, device| bits | 1 << device.ordinal);
            if !self.members.tolerates(lost) || devices.iter().all(|device| !device.is_healthy()) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Where each device goes on.
    fn log_devices(&self) -> Vec<LogDevice> {
        let (from, end) = (self.from, self.end);
        let scanned = || self.areas.iter().zip(&self.scans);
        let hiding_of = |ordinal| scanned().find(|(area, _)| area.is_hiding && area.superblock.ordinal == ordinal);
        let device = |(area, scan): (&Member, &Scan)| {
            let (member, resumed) = (area.listed(), resume(scan, from, end));
            let mut device = LogDevice::new(Arc::clone(&area.device), member, area.layout, resumed);
            device.expect_latencies(&self.options);
            match hiding_of(member.ordinal) {
                Some((area, scan)) => device.with_hiding(area.layout, resume(scan, from, end)),
                None => device,
            }
        };
        let mut devices: Vec<_> = scanned().filter(|(area, _)| !area.is_hiding).map(device).collect();
        for device in &mut devices {
            device.set_aside = self.unflushed(device.ordinal).cloned();
        }
        devices
    }

    /// Why what a device has does not count as durable, if it does not.
    fn unflushed(&self, ordinal: u32) -> Option<&Error> {
        self.unflushed.iter().find(|(of, _)| *of == ordinal).map(|(_, error)| error)
    }

    /// Starts the log, after [`begin_epoch`](Self::begin_epoch): appends are allowed from now on.
    ///
    /// # Errors
    /// As [`begin_epoch`](Self::begin_epoch).
    pub fn finish(mut self) -> Result<Log> {
        self.begin_epoch(|_| Ok::<(), Error>(()))?;
        let Begun { slots, epoch, archive, devices } = self.begun.take().expect("the epoch has begun");
        let layout = self.members.layout();
        let start =
            Start { log_id: self.members.log_id, layout, epoch, end: self.end, devices, slots, options: self.options };
        Ok(Log::start(start, archive))
    }
}

/// What is ready once the epoch is durable.
struct Begun {
    slots: SlotWriter,
    epoch: u64,
    archive: Option<StartArchive>,
    devices: Vec<LogDevice>,
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// Where a device goes on. It starts a new section, since what follows the last request may be torn bytes.
///
/// What is void does not count: it would keep sections in use until the log grows past it, and an index that counts it
/// would only be coarser. So what begins behind the log's end is left out, and the largest ends are cut there. Of what ends
/// before the checkpoint, only that it does is known.
fn resume(scan: &Scan, checkpoint: Lsn, end: Lsn) -> Resume {
    let mut kept = BTreeMap::<u64, Lsn>::new();
    for header in scan.found.iter().map(|found| &found.request.header).filter(|header| header.start < end) {
        let max_end = kept.entry(header.section).or_default();
        *max_end = header.end().min(end).max(*max_end);
    }
    let mut stream_lsn = Lsn::ZERO;
    let sections = scan.sections.iter().map(|&(number, max_end)| {
        let kept = kept.get(&number).copied().unwrap_or_default();
        stream_lsn = stream_lsn.max(max_end.min(checkpoint)).max(kept);
        UsedSection { number, max_end: stream_lsn }
    });
    let used: VecDeque<_> = sections.skip_while(|section| section.max_end <= checkpoint).collect();
    Resume { next_number: scan.next_number, next_sequence: scan.next_sequence, stream_lsn, used }
}
