//! The paper's database server (section 4.1.1), as far as a device sees it: a table of 64,000 pages, an index, a buffer
//! pool, and a processor that takes its time for each page.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::{Instant, now, work};

use crate::{
    error::Result,
    micro::{self, Data},
};

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 8192;
/// Pages of the table.
pub(super) const TABLE_PAGES: u64 = 64_000;
/// Pages of the buffer pool: 20 MBytes.
const POOL_PAGES: usize = 2560;
/// Pages of an index: 640,000 records, for each an identifier of eight bytes.
const INDEX_PAGES: u64 = 625;
/// Records of a page, and so many identifiers in a page of an index.
const RECORDS: u64 = 10;
const IDENTIFIERS: u64 = 1024;
/// Pages that a scan reads with one request, and a lookup of the first column: records of 16 pages have the same value.
pub(super) const TOGETHER: u64 = 16;

/// What the processor does with a page of ten records. Neither is published; the first is chosen by the time of Q1, the
/// second by that of Q4, both on flash.
pub(super) const READ_A_PAGE: Duration = Duration::from_micros(90);
pub(super) const CHANGE_A_PAGE: Duration = Duration::from_micros(295);

/// A query of section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Query {
    /// Scans the table.
    Scan,
    /// Reads 16 pages together, the next 16 somewhere else, until all are read.
    Groups,
    /// Reads pages that lie so many apart, again and again, until all are read.
    Strides(u64),
    /// Changes pages that lie so many apart, again and again, until all are changed.
    Updates(u64),
}

/// The server and its device.
pub(super) struct Server {
    device: Arc<dyn Device>,
    /// Where the table begins; the index lies behind it.
    table: u64,
    pool: Pool,
    buffer: AlignedBuffer,
    seed: u64,
}

/// Which pages are in memory, the oldest first, and whether they were changed. A page of the table is used once, so
/// that the oldest is also the one that was not used for longest.
#[derive(Default)]
struct Pool {
    pages: VecDeque<(u64, bool)>,
    known: BTreeSet<u64>,
}

impl Server {
    /// A server with its table in the middle of the device, filled.
    pub fn new(device: Arc<dyn Device>, seed: u64) -> Result<Self> {
        let middle = device.capacity_bytes() / 2;
        let table = middle - middle % (1 << 20);
        let end = table + (TABLE_PAGES + INDEX_PAGES) * PAGE_BYTES;
        micro::fill(&device, table..end, Data::Zeros, &|_| ())?;
        let buffer = AlignedBuffer::zeroed((TOGETHER * PAGE_BYTES) as usize);
        Ok(Self { device, table, pool: Pool::default(), buffer, seed })
    }

    /// Runs a query, with the pool empty; returns how long it took. Its changes are on the device then.
    pub fn run(&mut self, query: Query) -> Result<Duration> {
        self.pool = Pool::default();
        let begin: Instant = now();
        match query {
            Query::Scan => (0..TABLE_PAGES).step_by(TOGETHER as usize).try_for_each(|first| self.read(first))?,
            Query::Groups => {
                let mut groups: Vec<u64> = (0..TABLE_PAGES / TOGETHER).collect();
                tantalum_rt::Random::with_seed(self.seed).shuffle(&mut groups);
                for group in groups {
                    let records = TOGETHER * RECORDS;
                    self.look_up(group * records..(group + 1) * records)?;
                    self.read(group * TOGETHER)?;
                }
            }
            Query::Strides(stride) => {
                for (entry, page) in (0..).zip(order(stride)) {
                    self.look_up(entry..entry + 1)?;
                    self.read_page(page)?;
                    work(READ_A_PAGE);
                }
            }
            Query::Updates(stride) => {
                for page in order(stride) {
                    work(CHANGE_A_PAGE);
                    self.keep(page, true)?;
                }
                while let Some(oldest) = self.pool.pages.pop_front() {
                    self.write_back(oldest)?;
                }
                self.device.flush()?;
            }
        }
        Ok(now() - begin)
    }

    /// Reads pages of the table together.
    fn read(&mut self, first: u64) -> Result<()> {
        self.device.read(self.table + first * PAGE_BYTES, &mut self.buffer)?;
        for page in first..first + TOGETHER {
            work(READ_A_PAGE);
            self.keep(page, false)?;
        }
        Ok(())
    }

    /// Reads the index pages with some identifiers, if they are not in the pool.
    fn look_up(&mut self, identifiers: Range<u64>) -> Result<()> {
        for leaf in identifiers.start / IDENTIFIERS..identifiers.end.div_ceil(IDENTIFIERS) {
            let page = TABLE_PAGES + leaf;
            if !self.pool.known.contains(&page) {
                self.read_page(page)?;
                work(READ_A_PAGE);
            }
        }
        Ok(())
    }

    fn read_page(&mut self, page: u64) -> Result<()> {
        self.device.read(self.table + page * PAGE_BYTES, &mut self.buffer[..PAGE_BYTES as usize])?;
        self.keep(page, false)
    }

    /// Takes a page into the pool, in which the oldest makes room.
    fn keep(&mut self, page: u64, is_changed: bool) -> Result<()> {
        while self.pool.pages.len() >= POOL_PAGES
            && let Some(oldest) = self.pool.pages.pop_front()
        {
            self.write_back(oldest)?;
        }
        self.pool.known.insert(page);
        self.pool.pages.push_back((page, is_changed));
        Ok(())
    }

    fn write_back(&mut self, (page, is_changed): (u64, bool)) -> Result<()> {
        self.pool.known.remove(&page);
        if is_changed {
            let bytes = &self.buffer[..PAGE_BYTES as usize];
            self.device.write(self.table + page * PAGE_BYTES, &[bytes], Durability::Cached)?;
        }
        Ok(())
    }
}

/// All pages of the table, each once: 0, 16, 32, ... 1, 17, 33, ... for a stride of 16.
fn order(stride: u64) -> impl Iterator<Item = u64> {
    (0..stride).flat_map(move |first| (first..TABLE_PAGES).step_by(stride as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_in_the_published_order() {
        let of = |stride, at: usize, count| order(stride).skip(at).take(count).collect::<Vec<_>>();
        assert_eq!((of(16, 0, 3), of(16, 3999, 3)), (vec![0, 16, 32], vec![63_984, 1, 17]));
        assert_eq!((of(128, 0, 3), of(128, 499, 3)), (vec![0, 128, 256], vec![63_872, 1, 129]));
        assert_eq!(order(128).collect::<BTreeSet<_>>(), (0..TABLE_PAGES).collect());
    }
}
