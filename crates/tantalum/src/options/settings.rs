//! [`Settings`] as `tantalum.toml` has them: reading and writing the file, what is wrong with them, and the defaults.

use std::{path::Path, time::Duration};

use tantalum_device::{Zones, toml::Table};
use tantalum_log::{ArchiveOptions, ArchiveTarget, LogLayout};
use tantalum_store::{PageCompression, PageStreams, Protection, SegmentSizes, StoreKind, StoreOptions, UnitSizes};

use super::{Barriers, Isolation, LogHiding, Settings, TornPageProtection};
use crate::{
    buffer::{PageCleaning, PoolOptions},
    error::{self, Result},
    limits,
};

const DEFAULT_TRANSACTION_MEMORY_BYTES: u64 = 64 << 20;
const DEFAULT_POOL_BYTES: u64 = 64 << 20;
/// Old versions of rows have the memory of this part of the pool.
const VERSION_PART: u64 = 4;
const MIN_VERSION_BYTES: u64 = 16 << 10;
const DEFAULT_LOCK_TIMEOUT_MS: u64 = 10_000;
/// Smallest log partition: four sections of 64 KiB and the blocks before them.
const MIN_PARTITION_BYTES: u64 = 512 << 10;
const MAX_LOG_DEVICES: u32 = 64;
/// A log that grows begins so small, each partition of it.
const INITIAL_PARTITION_BYTES: u64 = 1 << 20;
/// The sections of a partition that begins small: as few as it can have, so that records can be large.
const INITIAL_SECTIONS: u64 = 4;
/// What a device of the log has before its sections.
const LOG_HEAD_BYTES: u64 = 16 << 10;
/// In-page logging, section 3.2: a unit of large-block flash, of which 16 sectors are for the log.
const DEFAULT_UNIT_BYTES: u32 = 128 << 10;
const DEFAULT_REGION_SECTORS: u32 = 16;
const DEFAULT_CARRY_OVER_PERCENT: u32 = 50;
/// A segment so long that the time to get to it hardly counts, on all but disks (Rosenblum and Ousterhout, section 3.2).
const DEFAULT_SEGMENT_BYTES: u32 = 1 << 20;
const DEFAULT_FILL_PERCENT: u32 = 80;

impl Settings {
    /// Reads `tantalum.toml`. `None` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match tantalum_device::files::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error::io(path, "read", error)),
        };
        let settings = Self::parse(&text).and_then(|settings: Self| match settings.problem() {
            Some((key, what)) => Err((line_of(&text, key), format!("{key}: {what}"))),
            None => Ok(settings),
        });
        settings.map(Some).map_err(|(line, what)| error::config(path.display(), line, what))
    }

    /// On failure, the line (from 1) and what is wrong there.
    fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let settings = Table::parse(text).and_then(Self::of_table);
        settings.map_err(|problem| (problem.line, problem.what))
    }

    /// The file's text: the given keys, one a line.
    pub fn to_toml(&self) -> Result<String> {
        let keys = self.to_table().map_err(error::option)?;
        Ok(format!("# Tantalum's settings; every key is explained at tantalum::Builder.\n{keys}"))
    }

    /// These settings with a value for each that must not differ at a later open.
    pub fn with_format_spelt_out(&self) -> Self {
        let (page_size, log_partitions) = (Some(self.page_size()), Some(self.log_partitions()));
        Self { page_size, log_partitions, log_bytes: Some(self.log_bytes()), ..self.clone() }
    }

    /// What another database can have too: nothing that says where this one's files are, or how they lie there.
    pub fn without_places(&self) -> Self {
        let &Self {
            buffer_pool_bytes,
            transaction_memory_bytes,
            version_bytes,
            change_buffer_bytes,
            log_bytes,
            lock_timeout_ms,
            early_lock_release,
            isolation,
            ..
        } = self;
        Self {
            buffer_pool_bytes,
            transaction_memory_bytes,
            version_bytes,
            change_buffer_bytes,
            log_bytes,
            lock_timeout_ms,
            early_lock_release,
            isolation,
            ..Self::default()
        }
    }

    /// The first key with a value that cannot be, and why.
    fn problem(&self) -> Option<(&'static str, String)> {
        if let Some(size) = self.page_size
            && !limits::PAGE_SIZES.contains(&size)
        {
            return Some(("page_size", format!("{size} is not 4096, 8192 or 16384")));
        }
        if let Some(problem) = self.pool_problem(self.page_size()) {
            return Some(problem);
        }
        if usize::try_from(self.buffer_pool_bytes()).is_err() {
            return Some(("buffer_pool_bytes", "it is more than this machine can address".into()));
        }
        if self.version_bytes() < MIN_VERSION_BYTES {
            return Some(("version_bytes", format!("it must be at least {MIN_VERSION_BYTES}")));
        }
        if self.log_devices.as_ref().is_some_and(Vec::is_empty) {
            return Some(("log_devices", "a log needs at least one device".into()));
        }
        let partitions = u64::from(self.log_partitions());
        let devices = self.log_devices.as_ref().map_or(1, Vec::len) as u64;
        if partitions == 0 || partitions.saturating_mul(devices) > u64::from(MAX_LOG_DEVICES) {
            return Some(("log_partitions", format!("there must be 1 to {MAX_LOG_DEVICES} partitions in all")));
        }
        if let (Some(files), Some(devices)) = (&self.log_characteristics, &self.log_devices)
            && files.len() != devices.len()
        {
            return Some(("log_characteristics", wrong_number_of_files(files.len(), devices.len())));
        }
        if self.log_layout() == LogLayout::Single && partitions.saturating_mul(devices) != 1 {
            return Some(("log_layout", "the single layout has one log device and one partition".into()));
        }
        if !(1..=2).contains(&self.log_copies()) {
            return Some(("log_copies", format!("{} was asked for; it must be 1 or 2", self.log_copies())));
        }
        if self.log_copies() > 1 && self.log_layout() != LogLayout::FlashLogging {
            return Some(("log_copies", "only the layout flash-logging keeps more than one copy".into()));
        }
        if !(1..=PageCleaning::MOST_BATCHES).contains(&self.write_back_batches()) {
            let what =
                format!("{} was asked for; 1 to {} can be", self.write_back_batches(), PageCleaning::MOST_BATCHES);
            return Some(("write_back_batches", what));
        }
        if self.log_bytes() / partitions < MIN_PARTITION_BYTES {
            return Some(("log_bytes", format!("each partition needs at least {MIN_PARTITION_BYTES} bytes")));
        }
        if self.log_initial_bytes.is_some_and(|bytes| bytes / partitions < MIN_PARTITION_BYTES) {
            return Some(("log_initial_bytes", format!("each partition needs at least {MIN_PARTITION_BYTES} bytes")));
        }
        if cfg!(not(feature = "control")) && self.control_socket() {
            let what = "this program was built without it: build it with the feature `control` of the crate tantalum, or \
                        leave it out";
            return Some(("control_socket", what.into()));
        }
        self.problem_of_store()
    }

    fn problem_of_store(&self) -> Option<(&'static str, String)> {
        let keys = [
            ("erase_unit_bytes", self.erase_unit_bytes.is_some(), StoreKind::InPageLogging),
            ("log_region_bytes", self.log_region_bytes.is_some(), StoreKind::InPageLogging),
            ("carry_over_percent", self.carry_over_percent.is_some(), StoreKind::InPageLogging),
            ("segment_bytes", self.segment_bytes.is_some(), StoreKind::LogStructured),
            ("segment_fill_percent", self.segment_fill_percent.is_some(), StoreKind::LogStructured),
            ("discard_segments", self.discard_segments.is_some(), StoreKind::LogStructured),
            ("page_streams", self.page_streams.is_some(), StoreKind::LogStructured),
            ("page_compression", self.page_compression.is_some(), StoreKind::LogStructured),
            ("metadata_writes", self.metadata_writes.is_some(), StoreKind::LogStructured),
        ];
        let store = self.page_store?;
        let is_anothers = |(_, is_set, of): &(_, bool, StoreKind)| *is_set && *of != store;
        if let Some((key, _, of)) = keys.into_iter().find(is_anothers) {
            return Some((key, format!("it is a setting of the page store {of}")));
        }
        if store == StoreKind::InPlace {
            return None;
        }
        if self.carry_over_percent.is_some_and(|percent| percent > 100) {
            return Some(("carry_over_percent", "it is a part of a unit's log sectors, 100 at most".into()));
        }
        if self.durable_page_writes() {
            let what = format!("the page store {store} writes no page by itself; leave it out");
            return Some(("durable_page_writes", what));
        }
        if self.torn_page_protection() != TornPageProtection::Auto {
            return Some(("torn_page_protection", format!("the page store {store} needs none; leave it out")));
        }
        None
    }

    fn pool_problem(&self, page_size: u32) -> Option<(&'static str, String)> {
        let (pages, page_size) = (limits::MIN_POOL_PAGES, u64::from(page_size));
        let least = pages as u64 * page_size;
        let what = format!("it must be at least {least}, room for {pages} pages of {page_size} bytes");
        (self.buffer_pool_bytes() < least).then_some(("buffer_pool_bytes", what))
    }

    /// Refuses values that cannot be.
    pub fn check(&self) -> Result<()> {
        refuse(self.problem())
    }

    /// Refuses a buffer pool that is too small for the pages of the database that is opened.
    pub fn check_pool(&self, page_size: u32) -> Result<()> {
        refuse(self.pool_problem(page_size))
    }

    pub fn page_size(&self) -> u32 {
        self.page_size.unwrap_or(limits::PAGE_SIZES[0])
    }

    pub fn buffer_pool_bytes(&self) -> u64 {
        self.buffer_pool_bytes.unwrap_or(DEFAULT_POOL_BYTES)
    }

    /// Memory for the writes of one transaction.
    pub fn transaction_memory_bytes(&self) -> u64 {
        self.transaction_memory_bytes.unwrap_or(DEFAULT_TRANSACTION_MEMORY_BYTES)
    }

    /// Memory for old versions of rows.
    pub fn version_bytes(&self) -> u64 {
        self.version_bytes.unwrap_or(self.buffer_pool_bytes() / VERSION_PART)
    }

    /// Bytes of rows in change buffers, at most.
    pub fn change_buffer_bytes(&self) -> u64 {
        self.change_buffer_bytes.unwrap_or(self.buffer_pool_bytes().saturating_mul(2))
    }

    /// Partitions that each log device is cut into.
    pub fn log_partitions(&self) -> u32 {
        self.log_partitions.unwrap_or(1)
    }

    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.unwrap_or(limits::DEFAULT_LOG_BYTES)
    }

    /// Whether larger files take the place of the log's file in the directory, ahead of need.
    pub fn log_can_grow(&self) -> bool {
        // Both are there at the same time.
        let is_room_for_two = 2 * self.log_partitions() <= MAX_LOG_DEVICES;
        self.log_devices.is_none() && self.log_layout() == LogLayout::FlashLogging && is_room_for_two
    }

    /// The size of a new log's file, if it is to grow later.
    pub fn initial_log_bytes(&self) -> Option<u64> {
        let partitions = u64::from(self.log_partitions());
        let initial = self.log_initial_bytes.unwrap_or(partitions * INITIAL_PARTITION_BYTES);
        let is_small = initial.saturating_mul(2) <= self.log_bytes();
        (self.log_can_grow() && is_small).then(|| initial.next_multiple_of(4096))
    }

    /// The sections of that file.
    pub fn initial_section_bytes(&self) -> Option<u32> {
        let partition = self.initial_log_bytes()? / u64::from(self.log_partitions()) / 4096 * 4096;
        u32::try_from((partition - LOG_HEAD_BYTES) / INITIAL_SECTIONS / 4096 * 4096).ok()
    }

    pub fn log_hiding(&self) -> LogHiding {
        self.log_hiding.unwrap_or_default()
    }

    pub fn log_copies(&self) -> u8 {
        self.log_copies.unwrap_or(1)
    }

    pub fn log_layout(&self) -> LogLayout {
        self.log_layout.unwrap_or_default()
    }

    /// The options of an archive at `target`.
    pub fn archive(&self, target: ArchiveTarget) -> ArchiveOptions {
        let keep_time = self.log_archive_keep_hours.map(|hours| Duration::from_secs(hours.saturating_mul(3600)));
        ArchiveOptions { keep_bytes: self.log_archive_keep_bytes, keep_time, ..ArchiveOptions::at(target) }
    }

    pub fn read_only_memory_bytes(&self) -> u64 {
        self.read_only_memory_bytes.unwrap_or(1 << 30)
    }

    pub fn lock_timeout(&self) -> Duration {
        Duration::from_millis(self.lock_timeout_ms.unwrap_or(DEFAULT_LOCK_TIMEOUT_MS))
    }

    pub fn early_lock_release(&self) -> bool {
        self.early_lock_release.unwrap_or(true)
    }

    pub fn control_socket(&self) -> bool {
        self.control_socket.unwrap_or(false)
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation.unwrap_or_default()
    }

    pub fn page_store(&self) -> StoreKind {
        self.page_store.unwrap_or_default()
    }

    /// The sizes of in-page logging on a device with such blocks.
    pub fn unit_sizes(&self, logical_block: u32) -> UnitSizes {
        let sector = logical_block.max(512);
        let unit = self.erase_unit_bytes.unwrap_or(DEFAULT_UNIT_BYTES);
        UnitSizes {
            unit,
            // What is left of the unit must be whole pages.
            region: self
                .log_region_bytes
                .unwrap_or((DEFAULT_REGION_SECTORS * sector).min(unit / 2).next_multiple_of(self.page_size())),
            sector,
        }
    }

    /// How the log-structured store cuts a device, which may have zones.
    pub fn segment_sizes(&self, zones: Option<Zones>) -> SegmentSizes {
        // One that is too large is refused as the segment that it would be.
        let zone_bytes = zones.map(|zones| u32::try_from(zones.bytes).unwrap_or(u32::MAX));
        SegmentSizes {
            segment: self.segment_bytes.or(zone_bytes).unwrap_or(DEFAULT_SEGMENT_BYTES),
            fill_percent: self.segment_fill_percent.unwrap_or(DEFAULT_FILL_PERCENT),
        }
    }

    /// Whether pages are stored compressed, of which older programs know nothing.
    pub fn compresses_pages_in(&self, store: StoreKind) -> bool {
        store == StoreKind::LogStructured && self.page_compression.unwrap_or_default() != PageCompression::None
    }

    /// Whether there may be more than two streams of pages, of which older programs know nothing.
    pub fn has_lifetime_streams_in(&self, store: StoreKind) -> bool {
        store == StoreKind::LogStructured && self.page_streams == Some(PageStreams::ByLifetime)
    }

    /// What the page store does from this open on.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            trusts_device: self.torn_page_protection() == TornPageProtection::TrustDevice,
            durable_page_writes: self.durable_page_writes(),
            carry_over_percent: self.carry_over_percent.unwrap_or(DEFAULT_CARRY_OVER_PERCENT),
            compression: self.page_compression.unwrap_or_default(),
            page_streams: self.page_streams.unwrap_or_default(),
            metadata_writes: self.metadata_writes.unwrap_or_default(),
            discards: self.discard_segments.unwrap_or_default(),
        }
    }

    pub fn barriers(&self) -> Barriers {
        self.barriers.unwrap_or_default()
    }

    pub fn durable_page_writes(&self) -> bool {
        self.durable_page_writes.unwrap_or_default()
    }

    pub fn page_cleaning(&self) -> PageCleaning {
        self.page_cleaning.unwrap_or_default()
    }

    pub fn write_back_batches(&self) -> usize {
        self.write_back_batches.map_or_else(|| self.page_cleaning().default_batches(), |batches| batches as usize)
    }

    /// Of a pool for pages of this size.
    pub fn pool_options(&self, page_size: u32, protection: Protection) -> PoolOptions {
        PoolOptions {
            frames: (self.buffer_pool_bytes() / u64::from(page_size)) as usize,
            protection,
            cleaning: self.page_cleaning(),
            batches: self.write_back_batches(),
        }
    }

    pub fn torn_page_protection(&self) -> TornPageProtection {
        self.torn_page_protection.unwrap_or_default()
    }
}

/// What is wrong if each log device does not have its file.
pub(crate) fn wrong_number_of_files(files: usize, devices: usize) -> String {
    format!("{files} files are given for {devices} log devices; give one for each, in their order")
}

/// The line of the file that sets `key`.
fn line_of(text: &[u8], key: &str) -> usize {
    let sets_key = |line: &[u8]| line.trim_ascii_start().starts_with(key.as_bytes());
    text.split(|&byte| byte == b'\n').position(sets_key).map_or(1, |index| index + 1)
}

fn refuse(problem: Option<(&str, String)>) -> Result<()> {
    match problem {
        Some((key, what)) => Err(error::option(format!("{key}: {what}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tantalum_store::{MetadataWrites, PageCompression, PageStreams};

    use super::*;
    use crate::ErrorKind;

    fn error_of(text: &str) -> (usize, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        match Settings::read(file.path()) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let message = error.to_string();
                let (line, what) = message.split_once(", line ").and_then(|(_, rest)| rest.split_once(": ")).unwrap();
                (line.parse().unwrap(), what.to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let settings = Settings {
            page_size: Some(8192),
            data_device: Some("/dev/c".into()),
            log_devices: Some(vec!["a".into(), "/dev/b".into()]),
            torn_page_protection: Some(TornPageProtection::FullPageImages),
            barriers: Some(Barriers::TrustDevice),
            durable_page_writes: Some(true),
            page_cleaning: Some(PageCleaning::OnDemand),
            write_back_batches: Some(2),
            isolation: Some(Isolation::SnapshotIsolation),
            log_hiding: Some(LogHiding::Off),
            log_request_per_flush: Some(true),
            log_gather: Some(false),
            log_copies: Some(2),
            log_characteristics: Some(vec!["a.toml".into(), "/etc/b.toml".into()]),
            log_archive: Some("/archive".into()),
            log_archive_keep_hours: Some(48),
            lock_timeout_ms: Some(5),
            log_layout: Some(LogLayout::Striped { unit_bytes: 512 }),
            log_block_bytes: Some(512),
            page_store: Some(StoreKind::LogStructured),
            segment_bytes: Some(1 << 16),
            segment_fill_percent: Some(70),
            discard_segments: Some(true),
            page_streams: Some(PageStreams::ByLifetime),
            page_compression: Some(PageCompression::Lz4),
            metadata_writes: Some(MetadataWrites::Nilfs2),
            ..Settings::default()
        };
        assert_eq!(Settings::parse(settings.to_toml().unwrap().as_bytes()), Ok(settings));
    }

    #[test]
    fn errors_name_the_line_and_the_key() {
        let (line, what) = error_of("page_size = 4096\n\nbufer_pool_bytes = 1\n");
        assert_eq!(line, 3);
        assert!(what.contains("bufer_pool_bytes"), "{what}");
        let (line, what) = error_of("# comment\npage_size = 5000\n");
        assert_eq!(line, 2);
        assert!(what.contains("page_size") && what.contains("5000"), "{what}");
        let (line, what) = error_of("page_size = 4096\nearly_lock_release = 3\n");
        assert_eq!(line, 2);
        assert!(what.contains("true or false"), "{what}");
        assert_eq!(error_of("page_size = 4096\nlog_devices = []\n").0, 2);
        let (line, what) = error_of("page_size = 4096\nlog_layout = \"double\"\n");
        assert!(line == 2 && what.contains("flash-logging"), "{what}");
        assert_eq!(error_of("log_partitions = 2\nlog_layout = \"single\"\n").0, 2);
        assert_eq!(error_of("log_bytes = 99\n").0, 1);
        assert_eq!(error_of("log_partitions = 65\n").0, 1);
        assert_eq!(error_of("buffer_pool_bytes = 9\n").0, 1);
        assert_eq!(error_of("isolation = \"none\"\n").0, 1);
        assert_eq!(error_of("log_hiding = \"maybe\"\n").0, 1);
        assert_eq!(error_of("log_copies = 3\n").0, 1);
        let (line, what) = error_of("page_store = \"in-page-logging\"\nsegment_bytes = 65536\n");
        assert!(line == 2 && what.contains("of the page store log-structured"), "{what}");
        let (line, what) = error_of("page_store = \"log-structured\"\ntorn_page_protection = \"device\"\n");
        assert!(line == 2 && what.contains("log-structured needs none"), "{what}");
        assert_eq!(error_of("page_store = \"log-structured\"\nmetadata_writes = \"ext2\"\n").0, 2);
        let (line, what) = error_of("page_store = \"log-structured\"\npage_compression = \"gzip\"\n");
        assert!(line == 2 && what.contains("none, lz4"), "{what}");
        assert_eq!(error_of("barriers = \"never\"\n").0, 1);
        let (line, what) = error_of("\nwrite_back_batches = 0\n");
        assert!(line == 2 && what.contains("1 to 128"), "{what}");
        let (line, what) = error_of("log_devices = [\"a\", \"b\"]\nlog_characteristics = [\"a.toml\"]\n");
        assert!(line == 2 && what.contains("1 files are given for 2 log devices"), "{what}");
    }

    #[test]
    fn text_that_is_not_utf8_is_an_error() {
        assert_eq!(Settings::parse(b"page_size = 4096\n\xff"), Err((2, "this is not UTF-8".into())));
    }

    #[test]
    fn the_builder_wins() {
        let builder = Settings { page_size: Some(8192), ..Settings::default() };
        let file = Settings { page_size: Some(4096), log_bytes: Some(1 << 20), ..Settings::default() };
        let both = builder.over(file);
        assert_eq!((both.page_size(), both.log_bytes()), (8192, 1 << 20));
    }
}
