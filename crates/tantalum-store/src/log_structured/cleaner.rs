//! The cleaner: a task in the background that, by the permit of [`Maintenance`], moves what is live in a segment, so that the segment
//! can be written again, and checkpoints the map.
//!
//! Which segment is cleaned is decided by what waiting would save ("Efficiently Reclaiming Space in a Log Structured Store",
//! Lomet and Luo, ICDE 2021: minimum declining cost). Each unit won costs as much as `live / dead` moved ones; that falls the
//! sooner the more often the live pages change, which is the less likely the longer ago the youngest of them was stored. So the
//! segment is taken in which it falls least: with the largest `dead^2 * age / live`. What moves goes to a stream of its own, so that
//! what rarely changes gathers apart from what often does.
//!
//! Where pages are kept apart by [lifetime](super::lifetimes), `age` is how long ago the segment was begun.
//!
//! The task works the faster the less space is free: all the time when new pages have nearly none left, and at the low-water mark
//! half of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_log::Lsn;
use tantalum_rt::{JoinHandle, Parker, Unparker, now};

use super::{
    Shared,
    append::{Item, by_stream},
    compression,
    layout::{BLOCK_BYTES, BLOCK_UNITS, Extent, UNIT_BYTES},
    maintenance::Maintenance,
    segment_counters::Counters,
    segments::Segment,
    streams::PageStreams,
    summary::{ENTRIES_MAX, Stream},
    table::Table,
};
use crate::{PageId, Result, page::header};

/// How long the task rests after a failure, or when it can do nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// The running task. Dropping it stops it.
#[derive(Debug)]
pub struct CleanerTask {
    stop: Arc<AtomicBool>,
    unparker: Unparker,
    task: Option<JoinHandle<()>>,
}

/// What there is to do.
enum Work {
    Nothing,
    Clean,
    Checkpoint,
}

impl CleanerTask {
    /// Starts it, for a store that has none.
    pub fn start(shared: &Arc<Shared>) -> Self {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let stop = Arc::new(AtomicBool::new(false));
        assert!(shared.space.cleaner.set(unparker.clone()).is_ok(), "a store has one cleaner");
        let task = tantalum_rt::spawn("tantalum-segment-cleaner", {
            let (shared, stop) = (Arc::clone(shared), Arc::clone(&stop));
            move || {
                let mut cleaner = Cleaner { shared: &shared, is_cleaning: false, waiting: Waiting::default() };
                while !stop.load(Ordering::Acquire) {
                    match cleaner.work() {
                        Ok(None) => parker.park(),
                        Ok(Some(pause)) if pause.is_zero() => tantalum_rt::yield_now(),
                        Ok(Some(pause)) => _ = parker.park_timeout(pause),
                        Err(error) => {
                            tantalum_rt::tracing::error!(%error, "cleaning failed; it will be tried again");
                            // Tasks that wait for free space have to see the error.
                            shared.space.announce();
                            parker.park_timeout(PAUSE);
                        }
                    }
                }
            }
        });
        Self { stop, unparker, task: Some(task) }
    }
}

impl Drop for CleanerTask {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.unparker.unpark();
        if self.task.take().is_some_and(|task| task.join().is_err()) {
            tantalum_rt::tracing::error!("the segment cleaner panicked");
        }
    }
}

/// What the task knows from one piece of work to the next.
struct Cleaner<'s> {
    shared: &'s Shared,
    /// Between the low-water mark and the high-water mark, whether it came from below.
    is_cleaning: bool,
    waiting: Waiting,
}

/// How much was cleaned since pages were last stored. What moves needs summaries, and may leave a part of a segment unused, so that
/// segments with little that is dead yield nothing, however old they are.
#[derive(Debug, Default)]
struct Waiting {
    newest_append: u64,
    cleaned: u64,
}

impl Waiting {
    fn note(&mut self, newest_append: u64, cleaned: usize) {
        if self.newest_append != newest_append {
            *self = Self { newest_append, cleaned: 0 };
        }
        self.cleaned += cleaned as u64;
    }

    /// Whether so much has not helped that those segments are to be cleaned which yield most now.
    fn is_long(&self, segments: u32) -> bool {
        self.cleaned >= u64::from(segments) / 2
    }

    /// Whether nothing helps.
    fn is_in_vain(&self, segments: u32) -> bool {
        self.cleaned >= 3 * u64::from(segments)
    }
}

impl Cleaner<'_> {
    /// Does a piece of work. Returns how long to rest; `None` until there is something to do.
    fn work(&mut self) -> Result<Option<Duration>> {
        let shared = self.shared;
        let mut maintenance = Maintenance::begin(shared);
        if shared.must_begin() {
            // The next batch begins the streams; nothing can be moved before.
            return Ok(Some(PAUSE));
        }
        let started = now();
        maintenance.free_segments();
        match self.next_work() {
            Work::Nothing => return Ok(None),
            Work::Checkpoint => maintenance.checkpoint()?,
            Work::Clean if self.clean_some(&maintenance)? => {}
            // Nothing more can be emptied before more is settled.
            Work::Clean => {
                let (stored_before, freed_before) = shared.table.read().progress();
                maintenance.checkpoint()?;
                let has_cleaned = self.clean_some(&maintenance)?;
                let mut table = shared.table.write();
                let (stored, freed) = table.progress();
                let is_in_vain = self.waiting.is_in_vain(table.segments.count());
                let is_stuck = !has_cleaned && (freed == freed_before || is_in_vain);
                let is_urgent = table.free_space().is_urgent();
                // What was stored meanwhile may be worth a checkpoint of its own.
                if is_stuck && is_urgent && stored == stored_before {
                    table.note_exhausted();
                    drop(table);
                    shared.space.announce();
                    return Ok(Some(PAUSE));
                }
                if is_stuck && !is_urgent {
                    return Ok(Some(PAUSE));
                }
            }
        }
        drop(maintenance);
        let worked = started.elapsed();
        Ok(Some(worked.mul_f64(shared.table.read().free_space().rest_share())))
    }

    /// Empties some segments. False if there are none that it would help to empty.
    fn clean_some(&mut self, maintenance: &Maintenance<'_>) -> Result<bool> {
        let (segments, newest_append, is_urgent) = {
            let table = self.shared.table.read();
            (table.segments.count(), table.progress().0, table.free_space().is_urgent())
        };
        self.waiting.note(newest_append, 0);
        if is_urgent && self.waiting.is_in_vain(segments) {
            return Ok(false);
        }
        let cleaned = maintenance.clean_some(is_urgent && self.waiting.is_long(segments))?;
        self.waiting.note(newest_append, cleaned);
        Ok(cleaned > 0)
    }

    fn next_work(&mut self) -> Work {
        let table = self.shared.table.read();
        let (space, empty) = (table.free_space(), table.segments.empty());
        self.is_cleaning = space.is_low() || (self.is_cleaning && !space.is_plenty_with(0));
        match self.is_cleaning {
            true if space.is_plenty_with(empty) || (space.is_urgent() && empty > 1) => Work::Checkpoint,
            true => Work::Clean,
            false if table.is_checkpoint_due() => Work::Checkpoint,
            false => Work::Nothing,
        }
    }
}

/// Segments that are cleaned at once, if they have little that is live.
const VICTIMS_MAX: usize = 16;
/// Dead bytes between live pages that are rather read than skipped.
const GAP_BYTES: u64 = 4 * BLOCK_BYTES as u64;

/// A page that cleaning has read.
struct Survivor {
    id: PageId,
    lsn: Lsn,
    crc: u32,
    from: Extent,
    stamp: u64,
    /// That of the segment from which it was read, if it is known.
    stream: Option<Stream>,
    image: Vec<u8>,
}

impl Survivor {
    fn item(&self) -> Item<'_> {
        let Self { id, lsn, crc, from, stamp, ref image, .. } = *self;
        Item { id, lsn, crc, image, from: Some(from), stamp }
    }
}

impl Maintenance<'_> {
    /// Empties some segments, and frees them: with `most_dead`, those that yield most now. Returns how many; none if there are none
    /// that it would help to empty, or there is no room for what is live in them before a checkpoint.
    ///
    /// # Errors
    /// When the device cannot read or write.
    fn clean_some(&self, most_dead: bool) -> Result<usize> {
        let victims = choose_victims(&self.shared.table.read(), most_dead);
        self.clean(&victims)
    }

    /// Empties settled segments, and frees them. Returns how many; none if there is no room for what is live in them before a
    /// checkpoint.
    ///
    /// # Errors
    /// When the device cannot read or write.
    pub(super) fn clean(&self, victims: &[u32]) -> Result<usize> {
        let Shared { io, table, .. } = self.shared;
        if victims.is_empty() {
            return Ok(0);
        }
        let live_units: u64 = {
            let table = table.read();
            victims.iter().map(|victim| u64::from(table.segments.get(*victim).live_units())).sum()
        };
        let mut survivors = Vec::new();
        for &victim in victims {
            self.touch_map_blocks(victim);
            self.read_survivors(victim, &mut survivors);
        }
        let mut items: Vec<(Stream, Item<'_>)> = {
            let table = table.read();
            let stream = |survivor: &Survivor| match self.shared.page_streams {
                PageStreams::One => Stream::Hot,
                PageStreams::Two | PageStreams::ByLifetime => {
                    table.stream_of_moved_page(survivor.stream, survivor.stamp)
                }
            };
            survivors.iter().map(|survivor| (stream(survivor), survivor.item())).collect()
        };
        for (stream, items) in by_stream(&mut items, io.layout.page_bytes()) {
            let mut rest = &items[..];
            while !rest.is_empty() {
                let turn = self.shared.turn_to_append();
                if turn.is_some() && self.shared.must_begin() {
                    // What was appended last may be damaged: nothing goes behind it.
                    return Ok(0);
                }
                let Some(slot) = table.write().slot_for_moved_pages(stream) else { return Ok(0) };
                let appended = self.shared.append(slot, rest)?;
                rest = &rest[appended..];
            }
        }
        let cleaned = victims.len() as u64;
        Counters::add(&io.counters.segments_cleaned, cleaned);
        Counters::add(&io.counters.bytes_cleaned, cleaned * io.layout.segment_bytes());
        Counters::add(&io.counters.live_bytes_cleaned, live_units * UNIT_BYTES as u64);
        self.free_segments();
        Ok(victims.len())
    }

    /// Lets the next checkpoint write the map's blocks that are in a segment elsewhere.
    fn touch_map_blocks(&self, segment: u32) {
        let Shared { io, table, .. } = self.shared;
        let mut table = table.write();
        if table.segments.get(segment).map_blocks == 0 {
            return;
        }
        let is_here = |offset| io.layout.segment_at(offset).is_some_and(|(found, _)| found == segment);
        let blocks = table.map.blocks().filter(|(_, place)| is_here(place.offset()));
        let here: Vec<_> = blocks.map(|(number, _)| number).collect();
        here.into_iter().for_each(|number| table.map.touch(number));
        table.segments.get_mut(segment).is_map_leaving = true;
    }

    /// Reads the pages of a segment that are live. What cannot be read stays, and the segment with it.
    fn read_survivors(&self, segment: u32, survivors: &mut Vec<Survivor>) {
        let Shared { io, table, .. } = self.shared;
        let (live, stamp, stream) = {
            let table = table.read();
            let found = table.segments.get(segment);
            let here = |id: &PageId| {
                let extent = table.map.get(*id)?;
                (io.layout.segment_of(extent) == Some(segment)).then_some((extent, *id))
            };
            let mut live: Vec<(Extent, PageId)> = found.pages.iter().filter_map(here).collect();
            live.sort_unstable();
            live.dedup();
            (live, found.stamp, found.began.map(|(stream, _)| stream))
        };
        let mut page = vec![0; io.layout.page_bytes()];
        let is_near = |a: &(Extent, PageId), b: &(Extent, PageId)| b.0.offset() <= a.0.end() + GAP_BYTES;
        for run in live.chunk_by(is_near) {
            let images = match io.read_images(run[0].0.offset()..run[run.len() - 1].0.end()) {
                Ok(images) => images,
                Err(error) => {
                    self.note_stuck(segment, &error);
                    continue;
                }
            };
            Counters::add(&io.counters.bytes_read_to_clean, images.bytes.len() as u64);
            for &(from, id) in run {
                let image = images.of(from);
                match compression::page_of(image, &mut page).and_then(|()| header::verify(&page, id)) {
                    Ok(()) => {
                        let (lsn, crc) = (header::lsn(&page), header::checksum(&page));
                        survivors.push(Survivor { id, lsn, crc, from, stamp, stream, image: image.to_vec() });
                    }
                    Err(what) => self.note_stuck(segment, &format!("page {id}: {what}")),
                }
            }
        }
    }

    fn note_stuck(&self, segment: u32, what: &dyn std::fmt::Display) {
        tantalum_rt::tracing::warn!(segment, device = self.shared.io.device.name(), %what, "a segment has a page that cannot be read, and is not cleaned any more");
        self.shared.table.write().segments.get_mut(segment).is_stuck = true;
    }
}

/// The best segments to clean now: one, or several of which one append takes all that is live. Among those that are free
/// then; none if a checkpoint is worth its price, after which better ones are.
fn choose_victims(table: &Table, most_dead: bool) -> Vec<u32> {
    let layout = table.layout;
    // When cleaning itself may get short of room, what yields most of it.
    let most_dead = most_dead || table.free_space().is_short();
    let by_lifetime = table.has_lifetime_streams();
    let score = |segment: &Segment| {
        let live = segment.live_units();
        let (live, dead) = (f64::from(live), f64::from(layout.segment_units() - live));
        // The pages of a lifetime stream are about as old, which says how long they are expected to live, but not which of the stream's
        // segments has lost most of what it will lose.
        let since = if by_lifetime { segment.began.map_or(0, |(_, began)| began) } else { segment.stamp };
        if most_dead { dead } else { dead * dead * ((table.clock - since) as f64 + 1.0) / live }
    };
    let candidates = table.segments.iter().filter(|(number, _)| table.is_cleanable(*number));
    let (mut settled, others): (Vec<_>, Vec<_>) = candidates
        .map(|(number, segment)| (score(segment), number, segment.live_units()))
        .partition(|(_, number, _)| table.segments.is_settled(*number));
    let better_first = |a: &(f64, u32, u32), b: &(f64, u32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    // Of many segments, only those are put in order that can be cleaned now.
    if settled.len() > VICTIMS_MAX {
        settled.select_nth_unstable_by(VICTIMS_MAX, better_first);
        settled.truncate(VICTIMS_MAX);
    }
    settled.sort_unstable_by(better_first);
    let Some(&(best, _, live)) = settled.first() else { return Vec::new() };
    let better = others.iter().filter(|(score, ..)| *score > best);
    let saved: u32 = better.map(|(.., other)| live.saturating_sub(*other)).sum();
    if u64::from(saved) > table.map.block_count() * u64::from(BLOCK_UNITS) {
        return Vec::new();
    }
    of_one_append(table, settled.into_iter().map(|(_, number, _)| number))
}

/// The first of these segments, at least one, of which one append takes all that is live: a segment takes it, so that little is left
/// half moved when there is none for more.
pub(super) fn of_one_append(table: &Table, segments: impl Iterator<Item = u32>) -> Vec<u32> {
    let units_max = table.layout.pages_per_segment().min(ENTRIES_MAX as u32) * table.layout.page_units();
    let (mut victims, mut units) = (Vec::new(), 0);
    for number in segments.take(VICTIMS_MAX) {
        units += table.segments.get(number).page_units;
        if !victims.is_empty() && units > units_max {
            break;
        }
        victims.push(number);
    }
    victims
}
