//! Reading the files of bbolt, etcd's database: a tree of pages with keys and values, of which some values are trees in turn (buckets).
//!
//! The file may be anything: each number in it is checked before it is used, and no page is read twice in one tree.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// Of a page: its number (8 bytes), flags (2), count of elements (2), further pages (4).
const HEADER_BYTES: usize = 16;
const ELEMENT_BYTES: usize = 16;
const IS_BRANCH: u16 = 1;
const IS_LEAF: u16 = 2;
/// Of an element of a leaf.
const IS_BUCKET: u32 = 1;
/// A bucket's first page and its sequence, before an inline page.
const BUCKET_BYTES: usize = 16;
/// Trees are not deeper.
const MAX_DEPTH: u32 = 32;
/// Page sizes that there are.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 512..=1 << 20;
/// A page with its further pages is not larger: values have etcd's largest request, many times over.
const MAX_RUN_BYTES: u64 = 1 << 30;

/// Is told of an element of a leaf: its flags, key and value.
type OnElement<'e> = dyn FnMut(u32, &[u8], &[u8]) -> io::Result<()> + 'e;

/// An open file.
pub struct Bolt {
    file: File,
    bytes: u64,
    page_bytes: u64,
    root: u64,
}

/// A bucket: the number of its first page, or that page itself.
pub enum Bucket {
    Page(u64),
    Inline(Vec<u8>),
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("etcd's database is damaged: {what}"))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// FNV-1a of 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What the page at `at` says of the whole file, if it is whole: page size, first page of the root bucket, and transaction.
fn read_meta(file: &File, at: u64) -> Option<(u64, u64, u64)> {
    let mut page = [0; HEADER_BYTES + 64];
    file.read_exact_at(&mut page, at).ok()?;
    let meta = &page[HEADER_BYTES..];
    let is_whole = u32_at(meta, 0)? == MAGIC && u32_at(meta, 4)? == VERSION && u64_at(meta, 56)? == fnv(&meta[..56]);
    let page_bytes = u64::from(u32_at(meta, 8)?);
    let is_possible = PAGE_BYTES.contains(&page_bytes) && page_bytes.is_power_of_two();
    (is_whole && is_possible).then_some((page_bytes, u64_at(meta, 16)?, u64_at(meta, 48)?))
}

impl Bolt {
    /// Whether a file begins as one of bbolt's.
    pub fn is_one(file: &File) -> bool {
        let mut magic = [0; 4];
        file.read_exact_at(&mut magic, HEADER_BYTES as u64).is_ok() && u32::from_le_bytes(magic) == MAGIC
    }

    /// Opens a file, as its last transaction left it.
    pub fn open(file: File) -> io::Result<Bolt> {
        let bytes = file.metadata()?.len();
        let first = read_meta(&file, 0);
        // The second lies at the second page, whose size the first says; else, sizes are tried.
        let sizes = first.map_or((9..=20).map(|bits| 1 << bits).collect(), |(page_bytes, _, _)| vec![page_bytes]);
        let seconds =
            sizes.into_iter().filter_map(|at| read_meta(&file, at).filter(|(page_bytes, _, _)| *page_bytes == at));
        let newest = first.into_iter().chain(seconds).max_by_key(|(_, _, transaction)| *transaction);
        let (page_bytes, root, _) = newest.ok_or_else(|| damaged("both of its meta pages are"))?;
        Ok(Bolt { file, bytes, page_bytes, root })
    }

    /// A page with those that belong to it.
    fn page(&self, number: u64) -> io::Result<Vec<u8>> {
        let at = number.checked_mul(self.page_bytes).filter(|at| *at < self.bytes);
        let at = at.ok_or_else(|| damaged("a page lies beyond its end"))?;
        let mut page = vec![0; self.page_bytes as usize];
        self.file.read_exact_at(&mut page, at).map_err(|_| damaged("its last page is cut off"))?;
        let further = u64::from(u32_at(&page, 12).expect("a page has a header"));
        let run =
            (further + 1).checked_mul(self.page_bytes).filter(|run| *run <= MAX_RUN_BYTES && at + *run <= self.bytes);
        let run = run.ok_or_else(|| damaged("a page is longer than the file"))?;
        page.resize(run as usize, 0);
        self.file.read_exact_at(&mut page, at)?;
        Ok(page)
    }

    /// A bucket of the file, if there is one of this name.
    pub fn bucket(&self, name: &str) -> io::Result<Option<Bucket>> {
        let mut found = None;
        self.for_each_element(&Bucket::Page(self.root), &mut |flags, key, value| {
            if flags & IS_BUCKET != 0 && key == name.as_bytes() {
                let first = u64_at(value, 0).ok_or_else(|| damaged("a bucket has no first page"))?;
                found = Some(match first {
                    0 => Bucket::Inline(value.get(BUCKET_BYTES..).unwrap_or_default().to_vec()),
                    page => Bucket::Page(page),
                });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `row` for each key of a bucket, in their order.
    pub fn for_each(&self, bucket: &Bucket, mut row: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.for_each_element(bucket, &mut |flags, key, value| {
            if flags & IS_BUCKET == 0 { row(key, value) } else { Ok(()) }
        })
    }

    fn for_each_element(&self, bucket: &Bucket, element: &mut OnElement<'_>) -> io::Result<()> {
        match bucket {
            Bucket::Inline(page) => self.walk(page, &mut BTreeSet::new(), 0, element),
            Bucket::Page(number) => self.walk(&self.page(*number)?, &mut BTreeSet::from([*number]), 0, element),
        }
    }

    fn walk(&self, page: &[u8], seen: &mut BTreeSet<u64>, depth: u32, element: &mut OnElement<'_>) -> io::Result<()> {
        let broken = || damaged("an element of a page is none");
        let flags = page.get(8..10).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])).ok_or_else(broken)?;
        let count = page.get(10..12).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])).ok_or_else(broken)?;
        for number in 0..usize::from(count) {
            let at = HEADER_BYTES + ELEMENT_BYTES * number;
            let field = |index: usize| u32_at(page, at + 4 * index).ok_or_else(broken);
            if flags & IS_BRANCH != 0 {
                let child = u64_at(page, at + 8).ok_or_else(broken)?;
                if depth == MAX_DEPTH || !seen.insert(child) {
                    return Err(damaged("its pages go round"));
                }
                self.walk(&self.page(child)?, seen, depth + 1, element)?;
            } else if flags & IS_LEAF != 0 {
                let (begin, key_bytes, value_bytes) = (at + field(1)? as usize, field(2)? as usize, field(3)? as usize);
                let key = page.get(begin..begin + key_bytes).ok_or_else(broken)?;
                let value = page.get(begin + key_bytes..begin + key_bytes + value_bytes).ok_or_else(broken)?;
                element(field(0)?, key, value)?;
            } else {
                return Err(damaged("a page of a tree is of another kind"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Of etcd 3.4: `etcdctl snapshot save`, without the checksum.
    const SAVED: &[u8] = include_bytes!("../../tests/server/etcd-3.4.snapshot");

    fn bolt(bytes: &[u8]) -> io::Result<Bolt> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("it is written");
        Bolt::open(file)
    }

    /// How many rows the buckets have.
    fn count(bolt: &Bolt) -> io::Result<usize> {
        let mut rows = 0;
        for name in ["key", "meta", "lease", "members"] {
            if let Some(bucket) = bolt.bucket(name)? {
                bolt.for_each(&bucket, |_, _| {
                    rows += 1;
                    Ok(())
                })?;
            }
        }
        Ok(rows)
    }

    #[test]
    fn whatever_is_changed_there_is_an_error_or_other_rows() {
        let whole = &SAVED[..SAVED.len() / 512 * 512];
        assert!(count(&bolt(whole).expect("it is whole")).expect("it is whole") > 40);
        let mut random = fastrand::Rng::with_seed(1);
        let mut refused = 0;
        for _ in 0..400 {
            let mut bytes = whole.to_vec();
            for _ in 0..random.usize(1..4) {
                // Mostly where pages say what they have.
                let within = if random.u8(..4) == 0 { random.usize(..4096) } else { random.usize(..96) };
                let at = random.usize(..bytes.len() / 4096) * 4096 + within;
                bytes[at] ^= 1 << random.u32(..8);
            }
            refused += usize::from(bolt(&bytes).and_then(|bolt| count(&bolt)).is_err());
        }
        assert!(refused > 20, "{refused}");
        for len in (0..whole.len()).step_by(1024) {
            // What it has lies in front, or is missed.
            drop(bolt(&whole[..len]).and_then(|bolt| count(&bolt)));
        }
    }
}
