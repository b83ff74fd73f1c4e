//! What a database in a directory is made with: every combination of stores, protections, and places of its devices.

use std::{fmt, time::Duration};

use tantalum::{Builder, LogLayout, StoreKind, TornPageProtection};
use tantalum_rt::Random;

use super::{ELSEWHERE, LOG, Machine, RECORD};
use crate::config::Protection;

const LOG_BYTES: u64 = 1 << 20;
/// To what a log grows that begins small, for each partition, and what it begins with.
const GROWN_BYTES: u64 = 2 << 20;
pub(super) const INITIAL_BYTES: u64 = 512 << 10;
/// Rows that fill such a log by half, and once more.
const ROWS_OF_GROWTH: u32 = 60;

/// What the database is made with.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub store: StoreKind,
    pub protection: Option<TornPageProtection>,
    /// `memory:` names a device, which the opener knows.
    pub data_device: Option<String>,
    /// None: the log lies in the directory.
    pub log_devices: Vec<String>,
    pub log_partitions: u32,
    pub log_copies: u8,
    pub log_layout: LogLayout,
    pub archive: Option<String>,
    /// The log's file begins small, and more rows are committed than it has room for.
    pub log_grows: bool,
    /// How long a client waits before it lets such a log shrink that has grown.
    pub shrinks_after: Option<Duration>,
    /// How long the disk has space, and how long it then has none.
    pub fills_disk: Option<[Duration; 2]>,
    /// Whether the directory is there before, with a file of settings.
    pub has_settings: bool,
}

impl Setup {
    pub fn new(random: &mut Random) -> Self {
        let store = StoreKind::ALL[random.usize(0..3)];
        let protections = [None, Some(TornPageProtection::DoubleWrite), Some(TornPageProtection::FullPageImages)];
        let place = |random: &mut Random, name: &str| match random.u8(0..3) {
            0 => name.to_owned(),
            1 => format!("{ELSEWHERE}/{name}"),
            _ => format!("memory:{name}"),
        };
        let count = random.usize(0..=3);
        let log_devices: Vec<_> = (0..count).map(|n| place(random, &format!("log-{}", ["x", "y", "z"][n]))).collect();
        let log_layout = match random.u8(0..8) {
            0 if count <= 1 => LogLayout::Single,
            1 => LogLayout::Striped { unit_bytes: 4096 },
            _ => LogLayout::FlashLogging,
        };
        let log_partitions = if log_layout == LogLayout::FlashLogging && random.bool() { 2 } else { 1 };
        let log_copies = if log_layout == LogLayout::FlashLogging && count > 1 && random.bool() { 2 } else { 1 };
        let archive = match random.u8(0..4) {
            _ if store == StoreKind::InPageLogging => None,
            0 => Some("archive".to_owned()),
            1 => Some(format!("{ELSEWHERE}/deep/archive")),
            2 => Some("memory:archive".to_owned()),
            _ => None,
        };
        let log_grows = log_devices.is_empty() && log_layout == LogLayout::FlashLogging && random.u8(0..4) > 0;
        Self {
            store,
            log_grows,
            shrinks_after: None,
            fills_disk: None,
            protection: protections[random.usize(0..3)].filter(|_| store == StoreKind::InPlace),
            data_device: (random.u8(0..3) == 0).then(|| "memory:data".to_owned()),
            log_devices,
            log_partitions,
            log_copies,
            log_layout,
            archive,
            has_settings: random.u8(0..4) == 0,
        }
    }

    pub fn log_bytes(&self) -> u64 {
        if self.log_grows { GROWN_BYTES * u64::from(self.log_partitions) } else { LOG_BYTES }
    }

    /// How many rows a start commits.
    pub fn rows(&self, rows: u32) -> u32 {
        if self.log_grows { rows * ROWS_OF_GROWTH } else { rows }
    }

    /// As the torn-page protections of the search count it.
    pub fn protection(&self) -> Protection {
        match (self.store, self.protection) {
            (StoreKind::InPageLogging, _) => Protection::InPageLogging,
            (StoreKind::LogStructured, _) => Protection::LogStructured,
            (StoreKind::InPlace, Some(TornPageProtection::FullPageImages)) => Protection::FullPageImages,
            (StoreKind::InPlace, _) => Protection::DoubleWrite,
        }
    }

    pub fn builder(&self, machine: &Machine) -> Builder {
        let mut builder = machine
            .builder()
            .page_store(self.store)
            .log_bytes(self.log_bytes())
            .expert(|expert| expert.log_layout(self.log_layout));
        builder = builder.log_partitions(self.log_partitions).log_copies(self.log_copies);
        if self.log_grows {
            let initial = INITIAL_BYTES * u64::from(self.log_partitions);
            builder = builder.expert(|expert| expert.log_initial_bytes(initial));
        }
        if self.store == StoreKind::LogStructured {
            builder = builder.expert(|expert| expert.segment_bytes(64 << 10));
        }
        if let Some(protection) = self.protection {
            builder = builder.expert(|expert| expert.torn_page_protection(protection));
        }
        if let Some(name) = &self.data_device {
            builder = builder.data_device(name);
        }
        if !self.log_devices.is_empty() {
            builder = builder.log_devices(&self.log_devices);
        }
        if let Some(name) = &self.archive {
            builder = builder.log_archive(name);
        }
        builder
    }

    /// The names of what is noted in each session, an old copy of which must be refused.
    pub fn stamped(&self) -> Vec<String> {
        let mut names = self.log_devices.clone();
        if names.is_empty() {
            names.push(LOG.to_owned());
        }
        names.push(self.data_device.clone().unwrap_or_else(|| "data".to_owned()));
        if self.protection() == Protection::DoubleWrite && self.data_device.is_none() {
            names.push("doublewrite".to_owned());
        }
        if !matches!(self.log_layout, LogLayout::Striped { .. }) {
            names.push(RECORD.to_owned());
        }
        names.extend(self.archive.clone());
        names
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a database in a directory: {self:?}")
    }
}
