//! The log record of a change group: all changes of several pages that happen together or not at all.
//!
//! Record: tag, flags, commit sequence; with the second tag the length of what stands there for the [change
//! feed](GroupRecord::feed), and this; then for each page its number, the number of its changes, and the changes.

use super::{
    Change, PageId,
    change::{take_bytes, take_number, take_u8},
    varint,
};

/// The first byte of a change group's record.
const TAG: u8 = 1;

/// The first byte of the record of a change group that has something for the change feed.
const TAG_WITH_FEED: u8 = 3;

/// Flag: the record is the commit of a user's transaction.
pub const COMMIT: u8 = 1;

/// What stands before the image of a page that has a record of its own, at most.
pub const IMAGE_HEADS_BYTES: usize = 32;

const KNOWN_FLAGS: u8 = COMMIT;

/// Appends the part of a record that stands before the pages, or, if there are `feed_bytes` bytes for the change feed, before those.
pub fn encode_start(out: &mut Vec<u8>, flags: u8, sequence: u64, feed_bytes: usize) {
    let tag = if feed_bytes > 0 { TAG_WITH_FEED } else { TAG };
    out.extend_from_slice(&[tag, flags]);
    varint::put(out, sequence);
    if feed_bytes > 0 {
        varint::put(out, feed_bytes as u64);
    }
}

/// What the record of a change group has for the change feed, without a look at its pages. `None` if nothing.
///
/// # Errors
/// Says what is wrong with the record.
pub fn feed_of(mut bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    decode_start(&mut bytes).map(|(_, _, feed)| Some(feed).filter(|feed| !feed.is_empty()))
}

/// Takes flags, commit sequence, and what there is for the change feed.
fn decode_start<'a>(bytes: &mut &'a [u8]) -> Result<(u8, u64, &'a [u8]), &'static str> {
    let tag = take_u8(bytes)?;
    if !matches!(tag, TAG | TAG_WITH_FEED) {
        return Err("an unknown kind of record");
    }
    let flags = take_u8(bytes)?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err("unknown flags");
    }
    let sequence = take_number(bytes)?;
    let feed = match tag {
        TAG_WITH_FEED => {
            Some(take_bytes(bytes)?).filter(|feed| !feed.is_empty()).ok_or("nothing for the change feed")?
        }
        _ => &[],
    };
    Ok((flags, sequence, feed))
}

/// Appends what stands before the `changes` changes of a page.
pub fn encode_page(out: &mut Vec<u8>, page: PageId, changes: usize) {
    varint::put(out, page.0);
    varint::put(out, changes as u64);
}

/// A record that is known to be well-formed.
#[derive(Clone, Copy, Debug)]
pub struct GroupRecord<'a> {
    flags: u8,
    sequence: u64,
    feed: &'a [u8],
    pages: &'a [u8],
}

impl<'a> GroupRecord<'a> {
    /// Checks a whole record.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn decode(mut bytes: &'a [u8]) -> Result<Self, &'static str> {
        let (flags, sequence, feed) = decode_start(&mut bytes)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            decode_page(&mut rest)?;
        }
        Ok(Self { flags, sequence, feed, pages: bytes })
    }

    /// Whether the record is the commit of a user's transaction.
    pub fn is_commit(&self) -> bool {
        self.flags & COMMIT != 0
    }

    /// The commit sequence number; 0 in a record that is no commit.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What the group has for the change feed, by which the pages are not changed; empty if nothing.
    pub fn feed(&self) -> &'a [u8] {
        self.feed
    }

    /// The pages and their changes, in the order of the record.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, Changes<'a>)> + use<'a> {
        let mut rest = self.pages;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| decode_page(&mut rest).expect("decode() has checked the record"))
        })
    }
}

/// The changes of one page in a [`GroupRecord`].
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    bytes: &'a [u8],
}

impl<'a> Changes<'a> {
    /// The changes as they stand in a record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What [`bytes`](Self::bytes) of others returned.
    pub fn checked(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        (!self.bytes.is_empty()).then(|| Change::decode(&mut self.bytes).expect("decode() has checked the record"))
    }
}

fn decode_page<'a>(bytes: &mut &'a [u8]) -> Result<(PageId, Changes<'a>), &'static str> {
    let page = PageId(take_number(bytes)?);
    let count: u64 = take_number(bytes)?;
    if count == 0 {
        return Err("a page without changes");
    }
    let start = *bytes;
    // Every change takes at least a byte, so the loop ends with the bytes, whatever the count says.
    for _ in 0..count {
        Change::decode(bytes)?;
    }
    Ok((page, Changes { bytes: &start[..start.len() - bytes.len()] }))
}
