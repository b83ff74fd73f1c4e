//! What in-page logging would have made of a trace's pages: the simulator of "In-Page Logging" (section 4.2.3, Algorithm 2).

use std::{collections::HashMap, io::Read, time::Duration};

use serde::Serialize;
use tantalum::PageOperation;

use super::{Damage, Database, Event, Reader, locality::Counting};
use crate::error::Result;

pub use super::{
    locality::{Locality, Shares, WINDOW},
    plots::of_pages as plots,
};

/// Bytes of an erase unit, as in the paper.
pub const ERASE_UNIT_BYTES: u32 = 128 << 10;
/// Bytes of a log sector, as in the paper.
pub const SECTOR_BYTES: u32 = 512;
/// What a sector takes to write: the paper's formula.
pub const SECTOR_WRITE: Duration = Duration::from_micros(200);
/// What a merge takes, or an erase unit that is copied and erased for one page: the paper's formula.
pub const MERGE: Duration = Duration::from_millis(20);
/// Bytes of the log region of an erase unit: those of the paper's Figure 5.
pub const REGION_BYTES: [u32; 8] = [8 << 10, 16 << 10, 24 << 10, 32 << 10, 40 << 10, 48 << 10, 56 << 10, 64 << 10];

/// Changes of one kind.
///
/// ```
/// let updates = tantalum_lab::trace::pages::Operations { count: 2, bytes: 99 };
/// assert_eq!(updates.average_bytes(), 49.5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// How many.
    pub count: u64,
    /// Bytes of all in the log.
    pub bytes: u64,
}

impl Operations {
    /// Bytes of one; 0 if there are none.
    pub fn average_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}

/// What a trace holds and what in-page logging makes of it.
///
/// ```
/// use tantalum::PageOperation;
/// use tantalum_lab::trace::{Database, Event, Header, Reader, Summary, Writer, pages::Analysis};
///
/// let database = Some(Database { page_bytes: 8192, buffer_pool_bytes: 20 << 20 });
/// let mut writer = Writer::new(Vec::new(), &Header { label: String::new(), database })?;
/// for _ in 0..25 {
///     writer.push(Event::Change { page: 5, operation: PageOperation::Update, bytes: 50 })?;
/// }
/// writer.push(Event::Write { page: 5 })?;
/// let bytes = writer.finish(&Summary::default())?;
///
/// let analysis = Analysis::of(|| Reader::new("example", &bytes[..]), None)?;
/// assert_eq!(analysis.records_per_sector, 10);
/// assert_eq!(analysis.by_count.sector_writes, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The trace's label.
    pub label: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of the buffer pool.
    pub buffer_pool_bytes: u64,
    /// Pages up to the last one that occurs.
    pub pages: u64,
    /// Records that came.
    pub inserts: Operations,
    /// Records and bytes that became others.
    pub updates: Operations,
    /// Records that went.
    pub deletes: Operations,
    /// Pages that became empty, or copies.
    pub wholes: Operations,
    /// Pages written.
    pub page_writes: u64,
    /// Changes that an in-memory log sector takes, in the paper's way of counting.
    pub records_per_sector: u32,
    /// Algorithm 2, as published: a sector takes so many records, whatever their length, and is written with its page.
    pub by_count: Simulated,
    /// The same, but a sector takes so many bytes as it has, and an empty one is not written.
    pub by_bytes: Simulated,
    /// Where the changes and writes go.
    pub locality: Locality,
}

/// What Algorithm 2 counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Simulated {
    /// Log sectors written.
    pub sector_writes: u64,
    /// For each size of the log region.
    pub regions: Vec<Region>,
}

/// What depends on the size of the log region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Bytes of the log region of an erase unit.
    pub region_bytes: u32,
    /// Data pages beside it.
    pub pages_per_unit: u32,
    /// Erase units merged.
    pub merges: u64,
}

impl Analysis {
    /// Analyses a trace, which is read twice. By default a sector takes as many records as have room in it on average, as in the
    /// paper.
    ///
    /// # Errors
    /// As the trace's reader, and if the trace has no page changes.
    pub fn of<R: Read>(open: impl Fn() -> Result<Reader<R>>, records_per_sector: Option<u32>) -> Result<Self> {
        let reader = open()?;
        let Some(Database { page_bytes, buffer_pool_bytes }) = reader.header().database else {
            return Err(reader.damaged(Damage::NoPages));
        };
        let label = reader.header().label.clone();
        let mut kinds = [Operations::default(); 4];
        let (mut page_writes, mut pages) = (0, 0);
        for event in reader {
            let page = match event? {
                Event::Write { page } => {
                    page_writes += 1;
                    page
                }
                Event::Change { page, operation, bytes } => {
                    let kind = &mut kinds[operation as usize];
                    kind.count += 1;
                    kind.bytes += u64::from(bytes);
                    page
                }
                Event::Request(_) => continue,
            };
            pages = pages.max(page + 1);
        }
        let all = kinds.iter().fold(Operations::default(), |all, kind| all.and(*kind));
        let fit = f64::from(SECTOR_BYTES) / all.average_bytes().max(1.0);
        let records_per_sector = records_per_sector.unwrap_or(fit as u32).max(1);

        let mut by_count = Simulator::new(records_per_sector, page_bytes);
        let mut by_bytes = Simulator::new(SECTOR_BYTES, page_bytes);
        let mut counting = Counting::new(page_bytes);
        for event in open()? {
            match event? {
                Event::Change { page, bytes, .. } => {
                    counting.change(page);
                    by_count.change(page, 1);
                    by_bytes.change(page, bytes);
                }
                Event::Write { page } => {
                    counting.write(page);
                    by_count.write(page, true);
                    by_bytes.write(page, false);
                }
                Event::Request(_) => {}
            }
        }
        let of = |operation: PageOperation| kinds[operation as usize];
        Ok(Self {
            label,
            page_bytes,
            buffer_pool_bytes,
            pages,
            inserts: of(PageOperation::Insert),
            updates: of(PageOperation::Update),
            deletes: of(PageOperation::Delete),
            wholes: of(PageOperation::Whole),
            page_writes,
            records_per_sector,
            by_count: by_count.end(),
            by_bytes: by_bytes.end(),
            locality: counting.end(),
        })
    }

    /// All changes.
    pub fn changes(&self) -> Operations {
        self.inserts.and(self.updates).and(self.deletes).and(self.wholes)
    }

    /// Seconds of a server without in-page logging, where this share of the page writes has an erase unit copied and erased: the
    /// paper's t_Conv.
    pub fn conventional_seconds(&self, alpha: f64) -> f64 {
        alpha * self.page_writes as f64 * MERGE.as_secs_f64()
    }

    /// Bytes that the database takes in erase units with such a log region.
    pub fn database_bytes(&self, region: &Region) -> u64 {
        self.pages.div_ceil(region.pages_per_unit.into()) * u64::from(ERASE_UNIT_BYTES)
    }
}

impl Simulated {
    /// Seconds of a server with in-page logging: the paper's t_IPL.
    pub fn seconds(&self, region: &Region) -> f64 {
        self.sector_writes as f64 * SECTOR_WRITE.as_secs_f64() + region.merges as f64 * MERGE.as_secs_f64()
    }

    /// The result for the paper's smallest log region, 8 KiB; `None` if pages are so large that none lies beside it.
    pub fn smallest(&self) -> Option<&Region> {
        self.regions.first()
    }
}

impl Operations {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }
}

/// Algorithm 2, for all sizes of the log region at once.
struct Simulator {
    /// What an in-memory log sector takes, in records or bytes.
    capacity: u32,
    /// What each page's holds.
    filled: HashMap<u64, u32>,
    sector_writes: u64,
    regions: Vec<(Region, HashMap<u64, u32>)>,
}

impl Simulator {
    fn new(capacity: u32, page_bytes: u32) -> Self {
        let region = |region_bytes| {
            let pages_per_unit = (ERASE_UNIT_BYTES - region_bytes) / page_bytes;
            (Region { region_bytes, pages_per_unit, merges: 0 }, HashMap::new())
        };
        let regions = REGION_BYTES.into_iter().map(region).filter(|(region, _)| region.pages_per_unit > 0).collect();
        Self { capacity, filled: HashMap::new(), sector_writes: 0, regions }
    }

    /// Lines 2 to 6. What is longer than a sector takes several.
    fn change(&mut self, page: u64, size: u32) {
        let filled = self.filled.entry(page).or_default();
        let mut full = 0;
        if *filled + size > self.capacity && *filled > 0 {
            (full, *filled) = (1, 0);
        }
        *filled += size;
        while *filled > self.capacity {
            full += 1;
            *filled -= self.capacity;
        }
        (0..full).for_each(|_| self.sector_write(page));
    }

    /// Lines 7 and 8.
    fn write(&mut self, page: u64, also_empty: bool) {
        let filled = self.filled.insert(page, 0).unwrap_or(0);
        if also_empty || filled > 0 {
            self.sector_write(page);
        }
    }

    /// Lines 9 to 14.
    fn sector_write(&mut self, page: u64) {
        self.sector_writes += 1;
        for (region, units) in &mut self.regions {
            let used = units.entry(page / u64::from(region.pages_per_unit)).or_default();
            if *used >= region.region_bytes / SECTOR_BYTES {
                region.merges += 1;
                *used = 0;
            }
            *used += 1;
        }
    }

    fn end(self) -> Simulated {
        let regions = self.regions.into_iter().map(|(region, _)| region).collect();
        Simulated { sector_writes: self.sector_writes, regions }
    }
}
