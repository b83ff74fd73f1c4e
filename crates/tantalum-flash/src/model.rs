//! What every emulated device is: a state, and for each operation the time at which it finishes.

use std::fmt::Debug;
use std::ops::Add;

use tantalum_device::{WriteCache, Zones};
use tantalum_rt::Random;

/// Nanoseconds of device time: since the device was made.
pub type Nanos = u64;

/// A device as its firmware and mechanics behave: when does each operation finish, and what is on the medium if power
/// fails now?
///
/// Calls come with `now` never decreasing. An operation takes effect in the order of submission: a read gives the bytes
/// of the latest write submitted before it, whichever of the two the device serves first. The returned time is when
/// the host sees the operation complete, or, where the device chooses the order of what it has queued, the first time at
/// which it may have ([`Outcome::ticket`]). Everything that happens in the background (garbage collection, destaging) is
/// advanced lazily to `now` at each call. Ranges lie within the device and are whole logical blocks: the caller checks.
pub trait Model: Send + Debug {
    /// Size, blocks, and what the device says of itself. It does not change.
    fn describe(&self) -> Shape;

    /// Fills `buffer` from `offset`.
    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome;

    /// Writes `data` at `offset`. With `durable` it is on the medium at the returned time: forced unit access, or a
    /// write and a flush where there is no such thing.
    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome;

    /// As [`write`](Model::write), for one of the device's placement handles: what is written for one of them lies apart from what is
    /// for others.
    fn write_placed(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool, _handle: u32) -> Outcome {
        self.write(now, offset, data, durable)
    }

    /// Makes every write durable that completed before `now`.
    fn flush(&mut self, now: Nanos) -> Outcome;

    /// Tells that a range is no longer needed: it reads as zeros or as before.
    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome;

    /// Makes the zone that begins at `offset` empty. One under way when the power fails has happened, or has not.
    fn reset_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        Outcome::failed(now, MediaError::Unsupported { offset, reason: "the device has no zones" })
    }

    /// Makes the zone that begins at `offset` full. One under way when the power fails has happened, or has not.
    fn finish_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        Outcome::failed(now, MediaError::Unsupported { offset, reason: "the device has no zones" })
    }

    /// Where the zones begin that are partly written.
    fn active_zones(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Whether the operation with this ticket has ended by `now`: `None` if it has, at whatever time since it was asked
    /// about before; else a time after `now` at which to ask again. Asking at the times that the model names finds the
    /// end at its very time. A ticket that the model does not know has ended.
    fn ask_again(&mut self, _now: Nanos, _ticket: Ticket) -> Option<Nanos> {
        None
    }

    /// Fills `buffer` with what a read would give now, but takes no time and is not counted: for code that inspects
    /// the device from outside. What cannot be read is as it comes.
    fn peek(&self, offset: u64, buffer: &mut [u8]);

    /// Power fails at `now`: what was in volatile memory is lost in any subset that the model allows (chosen by
    /// `random`), what was being written to the medium is torn. Until [`Model::power_on`], nothing else is called.
    fn power_cut(&mut self, now: Nanos, random: &mut Random);

    /// Power returns; recovery of the firmware runs. Returns when the device answers again; no operation comes before.
    /// A cut may come before that time: recovery then starts over.
    fn power_on(&mut self, now: Nanos) -> Nanos;

    /// Brings the medium up to `now`: what has ended by then lies in the file behind the device, if there is one, and
    /// is found there should the program die. Called before the host learns that an operation has ended.
    fn catch_up(&mut self, _now: Nanos) {}

    /// A clean stop: writes its memory to the medium, as a drive does before it is switched off. Returns when that is
    /// done; nothing but [`Model::power_on`] is called afterwards.
    fn shut_down(&mut self, now: Nanos) -> Nanos {
        let done = self.flush(now).end(self);
        self.catch_up(done);
        done
    }

    /// What has happened since the device was made.
    fn counters(&self) -> Counters;
}

/// What a device says of itself. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes that the host can address.
    pub capacity_bytes: u64,
    /// Offsets and lengths are multiples of this.
    pub logical_block: u32,
    /// What the medium writes at once.
    pub physical_block: u32,
    /// Largest aligned write that a power cut leaves whole or absent; 0 if none is promised.
    pub atomic_write_bytes: u32,
    /// Bytes that a discard erases at once, before any of them is written again; 0 where bytes can be written over.
    pub erase_block_bytes: u32,
    /// Whether completed writes need a flush.
    pub write_cache: WriteCache,
    /// Whether one write can pass the cache by itself.
    pub fua: bool,
    /// Whether the medium is a spinning disk.
    pub rotational: bool,
    /// Handles by which the host keeps data apart; 1 where it has no say.
    pub placement_handles: u32,
    /// The zones, if the host must write in order.
    pub zones: Option<Zones>,
}

impl Shape {
    /// A device without a cache that promises nothing beyond its blocks.
    pub(crate) fn plain(capacity_bytes: u64, logical_block: u32, physical_block: u32) -> Self {
        Self {
            capacity_bytes,
            logical_block,
            physical_block,
            atomic_write_bytes: 0,
            erase_block_bytes: 0,
            write_cache: WriteCache::None,
            fua: false,
            rotational: false,
            placement_handles: 1,
            zones: None,
        }
    }
}

/// An operation that a device has queued and not served yet. A model gives no ticket twice, not even after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// When the host sees an operation end, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an operation may have failed"]
pub struct Outcome {
    /// The time of completion; not before the call's `now`. [`Nanos::MAX`] is never: the device hangs. With a ticket it
    /// is the earliest time of completion, at which to ask.
    pub done: Nanos,
    /// Whether the device reports success, once the operation has ended.
    pub result: Result<(), MediaError>,
    /// What to ask [`Model::ask_again`] with. Without one, `done` is certain.
    pub ticket: Option<Ticket>,
}

impl Outcome {
    /// Success at `done`.
    pub fn ok(done: Nanos) -> Self {
        Self { done, result: Ok(()), ticket: None }
    }

    /// Success, at `earliest` or later: the device has queued the operation.
    pub fn queued(earliest: Nanos, ticket: Ticket) -> Self {
        Self { done: earliest, result: Ok(()), ticket: Some(ticket) }
    }

    /// Failure, reported at `done`.
    pub fn failed(done: Nanos, error: MediaError) -> Self {
        Self { done, result: Err(error), ticket: None }
    }

    /// The end at `done`, with the failure of the medium if there is one.
    pub(crate) fn at(done: Nanos, failure: Option<MediaError>) -> Self {
        Self { done, result: failure.map_or(Ok(()), Err), ticket: None }
    }

    /// When the operation ends if nothing more is asked of the device until then.
    pub fn end(&self, model: &mut (impl Model + ?Sized)) -> Nanos {
        let mut done = self.done;
        while let Some(ticket) = self.ticket
            && done != Nanos::MAX
            && let Some(later) = model.ask_again(done, ticket)
        {
            debug_assert!(later > done, "a model names a later time");
            done = later;
        }
        done
    }
}

/// What a device reports to its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The medium gives no correct bytes back.
    #[error("byte {offset} is unreadable: the medium's error correction failed; restore it from another copy")]
    Unreadable {
        /// First byte of what cannot be read.
        offset: u64,
    },
    /// Raw flash was programmed where it is not erased, out of order, or more often than its pages allow.
    #[error("byte {offset} cannot be programmed: {rule}; erase its block first")]
    Rule {
        /// First byte concerned.
        offset: u64,
        /// The rule of the flash that the write breaks.
        rule: &'static str,
    },
    /// The device does not support the operation in this form.
    #[error("the operation at byte {offset} is not supported: {reason}")]
    Unsupported {
        /// First byte concerned.
        offset: u64,
        /// What is expected instead.
        reason: &'static str,
    },
    /// A write is not where its zone goes on.
    #[error("byte {offset} is not where its zone goes on, which is byte {pointer}; write there, or reset the zone")]
    WritePointer {
        /// First byte of the write.
        offset: u64,
        /// Where the zone is written next.
        pointer: u64,
    },
    /// A write reaches beyond its zone.
    #[error(
        "the write at byte {offset} reaches beyond byte {end}, where its zone ends; write less, and the rest to another zone"
    )]
    ZoneEnd {
        /// First byte of the write.
        offset: u64,
        /// Where the zone ends, or the part before the first zone.
        end: u64,
    },
    /// A write goes to a zone that is full.
    #[error("the zone of byte {offset} is full; reset it before it is written again")]
    ZoneFull {
        /// First byte of the write.
        offset: u64,
    },
    /// A write would make one zone too many partly written.
    #[error(
        "the zone of byte {offset} cannot be begun: {most} zones are partly written, which is the most; finish or reset one"
    )]
    ActiveZones {
        /// First byte of the write.
        offset: u64,
        /// Zones that may be partly written at a time.
        most: u32,
    },
    /// No zone begins there.
    #[error("no zone begins at byte {offset}; they begin at byte {start} and every {bytes} bytes from there on")]
    NoZone {
        /// The byte that was named.
        offset: u64,
        /// Where the first zone begins.
        start: u64,
        /// Bytes of a zone.
        bytes: u64,
    },
    /// The file behind the emulated device failed.
    #[error("the file behind the emulated device failed: {message}; check its file system")]
    File {
        /// What the operating system said.
        message: String,
    },
    /// Raw flash: the block's last erase failed, or it came so from the factory.
    #[error("the block of byte {offset} is worn out; use another one")]
    WornBlock {
        /// First byte concerned.
        offset: u64,
    },
    /// So many blocks of the flash are worn out that none is left to take the place of another.
    #[error(
        "the flash is worn out and has no spare blocks left: the device can only be read; copy its data and replace it"
    )]
    WornOut,
    /// The device is out of space, though the range lies within it: it is provisioned thinly.
    #[error("no space is left for byte {offset}; free some, or give the device more")]
    NoSpace {
        /// First byte concerned.
        offset: u64,
    },
    /// A read ended early.
    #[error("the read at byte {offset} ended after {found} bytes; read again")]
    Short {
        /// First byte asked for.
        offset: u64,
        /// Bytes that came.
        found: u64,
    },
    /// What was to be flushed may be lost.
    #[error("the flush failed, so that writes before it may be lost; write them again, or recover from a copy")]
    FlushFailed,
    /// The device no longer works.
    #[error("the device is dead; replace it")]
    Dead,
}

impl MediaError {
    /// Whether the host broke a rule of zones, and nothing was done.
    pub(crate) fn is_about_zones(&self) -> bool {
        use MediaError::{ActiveZones, NoZone, WritePointer, ZoneEnd, ZoneFull};
        matches!(self, WritePointer { .. } | ZoneEnd { .. } | ZoneFull { .. } | ActiveZones { .. } | NoZone { .. })
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+ now { $($(#[$now_doc:meta])+ $now:ident,)+ }) => {
        tantalum_rt::statistics! {
            /// What a device has done since it was made. A model counts what applies to it.
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
            #[non_exhaustive]
            pub struct Counters {
                total {
                    $($(#[$doc])+ $name: u64,)+
                }
                now {
                    $($(#[$now_doc])+ $now: u64,)+
                }
            }
        }

        /// What two layers of a device have done, each of which counts other things.
        impl Add for Counters {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ $($now: self.$now + other.$now,)+ }
            }
        }
    };
}

counters! {
    /// Read commands of the host.
    host_reads,
    /// Write commands of the host.
    host_writes,
    /// Bytes that the host read.
    host_read_bytes,
    /// Bytes that the host wrote.
    host_written_bytes,
    /// Flush commands.
    flushes,
    /// Discard commands.
    discards,
    /// Zones that the host reset.
    zone_resets,
    /// Zones that the host finished before they were full.
    zone_finishes,
    /// Reads and hits served by the device's memory.
    cache_hits,
    /// Writes to a place that memory held already, so that the older copy never reached the medium.
    coalesced,
    /// Pages read from flash, or reads of a disk's platters.
    media_reads,
    /// Bytes written to the medium, whatever for.
    media_written_bytes,
    /// Flash pages programmed, whatever for.
    programs,
    /// Flash blocks erased.
    erases,
    /// Sectors that garbage collection moved.
    gc_copies,
    /// Blocks that garbage collection freed.
    gc_blocks,
    /// Blocks moved to even out wear.
    wear_moves,
    /// Pages written to keep the map.
    map_programs,
    /// Merges in which a full log block took the place of its data block.
    switch_merges,
    /// Merges in which a log block was filled up from its data block and took its place.
    partial_merges,
    /// Merges that copied the newest pages of data and log blocks into a new block.
    full_merges,
    /// Movements of a disk's arm to another track.
    seeks,
    /// Power cuts.
    power_cuts,
    /// Pages found torn, or blocks half erased, when power returned.
    torn_found,
    /// Pages that protected memory dumped at power cuts.
    dumped_pages,
    /// Power cuts at which the capacitors were empty before everything was dumped: a defect of the profile.
    dump_overruns,
    /// Acknowledged sectors that such a cut may have lost.
    dump_lost_sectors,
    now {
        /// Flash blocks that are not used any more, or never were: an erase failed, or they came so from the factory.
        bad_blocks,
    }
}

impl Counters {
    /// A read command of the host.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.host_reads += 1;
        self.host_read_bytes += bytes as u64;
    }

    /// A write command of the host.
    pub(crate) fn write(&mut self, bytes: usize) {
        self.host_writes += 1;
        self.host_written_bytes += bytes as u64;
    }
}
