//! What was reported, as lines of text: what a listener receives, keeps, and gives to the check. Anything else is refused; only the
//! last line may be cut short.

use std::collections::BTreeMap;

/// The first words of a record.
const MAGIC: &str = "tantalum-powercut 1";
/// No line is longer, the line feed not counted.
const LINE_BYTES_MAX: usize = 120;
/// More slots than this are no test but a mistake.
const SLOTS_MAX: u64 = 1 << 24;
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// What was written, and where.
///
/// ```
/// use tantalum_lab::probe::power_cut::Header;
/// let header = Header { run: 7, block_bytes: 4096, slots: 100, is_durable: true };
/// assert_eq!(header.to_line(), "tantalum-powercut 1 7 4096 100 durable");
/// assert_eq!(Header::parse(&header.to_line()), Ok(header));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Tells this run's blocks from those of others.
    pub run: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks from the device's first byte on.
    pub slots: u64,
    /// Whether each write was durable when it was reported; else only completed.
    pub is_durable: bool,
}

/// What was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Of which run.
    pub header: Header,
    /// The newest write that was reported, by slot.
    newest: BTreeMap<u64, u64>,
    /// The last one of all.
    last: u64,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} of the record of acknowledged writes: {what}; give the file that the listener or the writer has made"
)]
pub struct RecordError {
    /// From 1.
    pub line: u64,
    /// What was found and what was expected.
    pub what: String,
}

impl Header {
    /// The first line, without its line feed.
    pub fn to_line(&self) -> String {
        let mode = if self.is_durable { "durable" } else { "cached" };
        format!("{MAGIC} {} {} {} {mode}", self.run, self.block_bytes, self.slots)
    }

    /// Reads the first line.
    ///
    /// # Errors
    /// What it should be.
    pub fn parse(line: &str) -> Result<Self, String> {
        let expected = || format!("expected `{MAGIC} RUN BLOCK SLOTS durable|cached`");
        let rest = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')).ok_or_else(expected)?;
        let [run, block, slots, mode] = rest.split(' ').collect::<Vec<_>>()[..] else { return Err(expected()) };
        let is_durable = match mode {
            "durable" => true,
            "cached" => false,
            _ => return Err(expected()),
        };
        let (Some(run), Some(block_bytes), Some(slots)) = (number(run), number(block), number(slots)) else {
            return Err(expected());
        };
        if !(512..=BLOCK_BYTES_MAX).contains(&block_bytes) || !block_bytes.is_multiple_of(512) {
            return Err(format!("a block of {block_bytes} bytes; expected a multiple of 512 up to {BLOCK_BYTES_MAX}"));
        }
        if !(1..=SLOTS_MAX).contains(&slots) {
            return Err(format!("{slots} slots; expected 1 to {SLOTS_MAX}"));
        }
        Ok(Self { run, block_bytes, slots, is_durable })
    }
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl Record {
    /// A record of nothing.
    pub fn new(header: Header) -> Self {
        Self { header, newest: BTreeMap::new(), last: 0 }
    }

    /// Takes a line: the number of a write and its slot, with a space between.
    ///
    /// # Errors
    /// What it should be. Numbers ascend, and slots are the header's.
    pub fn take(&mut self, line: &str) -> Result<(), String> {
        if line.len() > LINE_BYTES_MAX {
            return Err(format!("it is longer than {LINE_BYTES_MAX} bytes"));
        }
        let fields = line.split_once(' ').and_then(|(sequence, slot)| Some((number(sequence)?, number(slot)?)));
        let Some((sequence, slot)) = fields else { return Err("expected `WRITE SLOT`, two numbers".into()) };
        if sequence <= self.last {
            return Err(format!("write {sequence} follows {}; they must ascend", self.last));
        }
        if slot >= self.header.slots {
            return Err(format!("slot {slot}, but there are {}", self.header.slots));
        }
        self.last = sequence;
        self.newest.insert(slot, sequence);
        Ok(())
    }

    /// Reads a whole record. What follows the last line feed is left out: it was cut off.
    ///
    /// # Errors
    /// The first line that no writer writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = (1..).zip(bytes[..whole].split_inclusive(|&byte| byte == b'\n'));
        let text = |line: u64, bytes: &[u8]| {
            let text = str::from_utf8(&bytes[..bytes.len().saturating_sub(1)]);
            text.map(str::to_owned).map_err(|_| RecordError { line, what: "it is no text".into() })
        };
        let (line, first) = lines.next().ok_or(RecordError { line: 1, what: "it has no line".into() })?;
        let header = Header::parse(&text(line, first)?).map_err(|what| RecordError { line, what })?;
        let mut record = Self::new(header);
        for (line, bytes) in lines {
            record.take(&text(line, bytes)?).map_err(|what| RecordError { line, what })?;
        }
        Ok(record)
    }

    /// The newest write that was reported, by slot.
    pub fn newest(&self) -> impl Iterator<Item = (u64, u64)> {
        self.newest.iter().map(|(&slot, &sequence)| (slot, sequence))
    }

    /// The number of the last write that was reported.
    pub fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "tantalum-powercut 1 7 4096 10 durable\n1 3\n2 9\n5 3\n";

    #[test]
    fn the_newest_write_of_each_slot_counts() {
        let record = Record::parse(format!("{GOOD}6 1").as_bytes()).unwrap();
        assert_eq!(record.newest().collect::<Vec<_>>(), [(3, 5), (9, 2)], "the last line is cut off");
        assert_eq!(record.last(), 5);
    }

    #[test]
    fn what_no_writer_writes_is_refused_by_its_line() {
        let line = |more: &str| Record::parse(format!("{GOOD}{more}\n").as_bytes()).unwrap_err();
        for more in ["5 1", "6 10", "6", "six 1", "+6 1", "6 1 1", "", &"6 ".repeat(100)] {
            assert_eq!(line(more).line, 5, "{more}");
        }
        for first in ["", "\n", "tantalum-powercut 2 7 4096 10 durable\n", "tantalum-powercut 1 7 4096 0 durable\n"] {
            assert_eq!(Record::parse(first.as_bytes()).unwrap_err().line, 1, "{first}");
        }
        assert!(Header::parse("tantalum-powercut 1 7 99999999999 10 durable").is_err());
    }

    proptest! {
        #[test]
        fn anything_may_be_in_a_record(bytes: Vec<u8>, lines in "[0-9 \n]*") {
            let _ = Record::parse(&bytes);
            let _ = Record::parse(format!("{GOOD}{lines}").as_bytes());
        }
    }
}
