//! How the log-structured store is told to cut the data device: into few and small segments, so that they are cleaned and the
//! map is checkpointed all the time.

use std::fmt;

use tantalum::{Builder, MetadataWrites, PageCompression, PageStreams, StoreKind};
use tantalum_flash::{Kind, Profile, ssd::Zoning};
use tantalum_rt::Random;

/// What the log-structured store is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    page_bytes: u32,
    /// Bytes of a segment.
    bytes: u32,
    fill_percent: u32,
    discards: bool,
    metadata_writes: MetadataWrites,
    compression: PageCompression,
    page_streams: PageStreams,
    /// Zones that may be partly written at a time, if the device has zones.
    active_zones: Option<u32>,
}

/// Segments that a device has that may grow.
const FIRST_SEGMENTS: u64 = 34;
/// Segments that are never filled with pages, on devices as small as these.
const RESERVED_SEGMENTS: u64 = 24;
/// What other stores are given so that they are never full, whatever the load.
const SPARE_BYTES: u64 = 3 << 20;
/// What stands before the first segment, at most.
const HEAD_BYTES: u64 = 128 << 10;
/// One in so many databases lies on a drive with zones.
const ZONED_ONE_IN: u8 = 3;

impl Segments {
    pub fn new(random: &mut Random, page_bytes: u32) -> Self {
        // What the search chose before there was this choice stays as it was.
        let mut fork = random.clone().fork();
        Self {
            page_bytes,
            bytes: page_bytes * [9, 9, 17, 33][random.usize(0..4)],
            fill_percent: [60, 80, 90, 95][random.usize(0..4)],
            discards: random.bool(),
            // Fillers use segments up, so that a few stores are enough to have some cleaned.
            metadata_writes: MetadataWrites::ALL[usize::from(random.bool())],
            compression: PageCompression::ALL[usize::from(random.bool())],
            page_streams: match (fork.bool(), fork.bool()) {
                (true, _) => PageStreams::ByLifetime,
                (false, true) => PageStreams::One,
                (false, false) => PageStreams::Two,
            },
            // By the same generator: what it chose before there was this choice stays as it was.
            active_zones: (fork.u8(0..ZONED_ONE_IN) == 0).then(|| [3, 4, 7, 14][fork.usize(0..4)]),
        }
    }

    /// The same on a device that can be written in any order.
    pub fn without_zones(self) -> Self {
        Self { active_zones: None, ..self }
    }

    /// Whether the device has zones.
    pub fn has_zones(self) -> bool {
        self.active_zones.is_some()
    }

    /// A drive with zones, each of which is a segment.
    pub fn zoned(self, mut profile: Profile) -> Profile {
        if let (Kind::SolidState(drive), Some(max_active)) = (&mut profile.device, self.active_zones) {
            let sectors = self.bytes / 4096;
            let page_sectors = if sectors.is_multiple_of(2) { 2 } else { 1 };
            let pages = sectors / page_sectors;
            // At least eight pages to a block.
            let blocks = if pages.is_multiple_of(3) && pages >= 24 { 3 } else { 1 };
            (drive.geometry.page_bytes, drive.geometry.pages_per_block) = (page_sectors * 4096, pages / blocks);
            drive.zones = Some(Zoning { conventional_bytes: HEAD_BYTES, blocks, max_active });
        }
        profile
    }

    /// Bytes of a device that can grow, at first.
    pub fn first_bytes(self) -> u64 {
        (HEAD_BYTES + FIRST_SEGMENTS * u64::from(self.bytes)).next_multiple_of(4096)
    }

    /// Bytes of a device with room for what takes so many bytes elsewhere, where there is room for several times as much as
    /// there ever is.
    pub fn device_bytes(self, elsewhere: u64) -> u64 {
        // A summary before one page is as long as the smallest page.
        let pages = u64::from(self.bytes / self.page_bytes) - 2;
        let live = (elsewhere.saturating_sub(SPARE_BYTES) / 2).div_ceil(u64::from(self.page_bytes) * pages);
        let segments = RESERVED_SEGMENTS + live * 100 / u64::from(self.fill_percent) + live / 16;
        if self.has_zones() {
            return HEAD_BYTES + segments.max(FIRST_SEGMENTS) * u64::from(self.bytes);
        }
        (HEAD_BYTES + segments * u64::from(self.bytes)).next_multiple_of(1 << 16).max(self.first_bytes())
    }

    /// Sets the options of the engine.
    pub fn configure(self, builder: Builder) -> Builder {
        builder.page_store(StoreKind::LogStructured).expert(|expert| {
            expert
                .segment_bytes(self.bytes)
                .segment_fill_percent(self.fill_percent)
                .discard_segments(self.discards)
                .metadata_writes(self.metadata_writes)
                .page_compression(self.compression)
                .page_streams(self.page_streams)
        })
    }
}

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let discarded = match self.active_zones {
            Some(most) => format!(", zones of which {most} are active"),
            None if self.discards => ", discarded when free".into(),
            None => String::new(),
        };
        write!(
            f,
            " in segments of {} KiB filled to {} %{discarded}, metadata written as {}, compression {}, page streams {}",
            self.bytes >> 10,
            self.fill_percent,
            self.metadata_writes,
            self.compression,
            self.page_streams
        )
    }
}
