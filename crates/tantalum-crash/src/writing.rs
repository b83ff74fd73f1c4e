//! How the engine is configured to write: barriers, torn-page protection, page cleaning. It must not matter.

use std::fmt;

use tantalum::{Barriers, Builder, PageCleaning, TornPageProtection};
use tantalum_rt::Random;

use crate::config::Protection;

/// What the engine is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    barriers: Barriers,
    torn_pages: TornPageProtection,
    durable_page_writes: bool,
    page_cleaning: PageCleaning,
    /// The most batches of pages on their way at a time.
    batches: u32,
}

impl Writing {
    /// What `seed` decides, for a database that is to have this protection on a data device that writes pages atomically or
    /// not. If the engine trusts devices, they are never flushed and no page is written twice, whatever they say.
    pub fn new(seed: u64, protection: Protection, is_atomic: bool, trusts_devices: bool) -> Self {
        // By a generator of its own: what a seed decided before there was this is as it was.
        let mut random = Random::with_seed(seed ^ 0xba22_1e25);
        let barriers = [Barriers::Auto, Barriers::Auto, Barriers::Auto, Barriers::On][random.usize(0..4)];
        let is_left_to_engine = random.u8(0..4) > 0;
        let torn_pages = match protection {
            Protection::InPageLogging | Protection::LogStructured => TornPageProtection::Auto,
            Protection::FullPageImages => TornPageProtection::FullPageImages,
            Protection::Device if trusts_devices => TornPageProtection::TrustDevice,
            Protection::Device if is_left_to_engine && is_atomic => TornPageProtection::Auto,
            Protection::Device => TornPageProtection::Device,
            Protection::DoubleWrite if is_left_to_engine && !is_atomic => TornPageProtection::Auto,
            Protection::DoubleWrite => TornPageProtection::DoubleWrite,
        };
        Self {
            barriers: if trusts_devices { Barriers::TrustDevice } else { barriers },
            torn_pages,
            durable_page_writes: random.u8(0..8) == 0
                && !matches!(protection, Protection::InPageLogging | Protection::LogStructured),
            page_cleaning: if random.u8(0..4) == 0 { PageCleaning::OnDemand } else { PageCleaning::Ahead },
            batches: [1, 2, 4, 8][random.usize(0..4)],
        }
    }

    /// Sets the options of the engine.
    pub fn configure(self, builder: Builder) -> Builder {
        builder.expert(|expert| {
            expert
                .barriers(self.barriers)
                .torn_page_protection(self.torn_pages)
                .durable_page_writes(self.durable_page_writes)
                .page_cleaning(self.page_cleaning)
                .write_back_batches(self.batches)
        })
    }
}

impl fmt::Display for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let durable = if self.durable_page_writes { ", each page written durably" } else { "" };
        write!(
            f,
            "barriers {}, torn pages {:?}{durable}, pages cleaned {} in {} batches at a time",
            self.barriers, self.torn_pages, self.page_cleaning, self.batches
        )
    }
}
