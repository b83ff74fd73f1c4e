//! What clients do, as the seed has it.

use std::ops::Range;

use tantalum_rt::Random;

/// Bytes of values that are larger than a record of the log: half of what a log of the smallest size takes, and more.
pub(crate) const STREAMED_BYTES: Range<usize> = 8 << 10..80 << 10;
/// One value in so many is such a one.
pub(crate) const STREAMED_EVERY: u32 = 6;

/// What clients do.
#[derive(Clone, Debug)]
pub struct Load {
    /// Clients at the same time.
    pub clients: usize,
    /// Tables.
    pub tables: u8,
    /// Keys in each table.
    pub keys: u32,
    /// Bytes added to a key, to twice as many.
    pub key_pad: u16,
    /// Bytes of an ordinary value.
    pub value_len: Range<usize>,
    /// One value in so many is too large for its leaf.
    pub large_value_every: u32,
    /// Operations in a transaction, at most.
    pub operations_max: usize,
    /// Percent of operations that only read.
    pub reads_percent: u32,
    /// Percent of transactions that are rolled back.
    pub rollbacks_percent: u32,
    /// Percent of transactions that are read-only snapshots.
    pub snapshots_percent: u32,
    /// Unfinished commits that a client may have.
    pub async_depth: usize,
    /// Whether clients also create and drop tables.
    pub drops_tables: bool,
    /// Whether snapshots are held while others commit much, with little memory for the row versions that they see.
    pub holds_snapshots: bool,
    /// Whether transactions have memory for very few writes, so that most are staged, and some are of many writes.
    pub stages: bool,
    /// Whether values are written and read that are larger than a record of the log.
    pub streams: bool,
    /// Whether a row that is written anew differs from the row before in a few bytes, and sometimes in its length.
    pub edits_rows: bool,
    /// Whether tables are filled by bulk loads.
    pub bulk_loads: bool,
    /// Whether the rows of ranges are deleted by one call.
    pub deletes_ranges: bool,
    /// Whether most transactions write rows without reading any.
    pub writes_blindly: bool,
    /// Whether clients are told of some commits by a call, instead of waiting for them.
    pub awaits_calls: bool,
    /// What is special about it.
    pub kind: LoadKind,
}

/// What is special about a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadKind {
    /// Nothing.
    Mixed,
    /// All transactions write one value of one size and do nothing else. Then nearly all log records are equally long,
    /// and after a cut new ones start where lost ones did: what was left behind must not be taken for their
    /// continuation.
    Uniform,
    /// The tables are empty at first and become many times as large as the file was, so that power cuts find pages that are
    /// new to the file.
    Growing,
}

impl LoadKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed load",
            Self::Uniform => "uniform load",
            Self::Growing => "growing load",
        }
    }
}

impl Load {
    pub(crate) fn new(random: &mut Random, page_size: usize) -> Self {
        let is_contended = random.bool();
        let value_len_max = [24, 100, page_size / 8][random.usize(0..3)];
        Self {
            clients: random.usize(2..=8),
            tables: random.u8(1..=3),
            keys: if is_contended { random.u32(4..=24) } else { random.u32(50..=600) },
            key_pad: [0, 0, 20, 150][random.usize(0..4)],
            value_len: 8..value_len_max,
            large_value_every: [8, 40, 1000][random.usize(0..3)],
            operations_max: [2, 5, 12][random.usize(0..3)],
            reads_percent: [10, 40, 70][random.usize(0..3)],
            rollbacks_percent: [0, 10, 30][random.usize(0..3)],
            snapshots_percent: [0, 10, 30][random.usize(0..3)],
            async_depth: [0, 0, 2, 6][random.usize(0..4)],
            drops_tables: random.u8(0..4) == 0,
            holds_snapshots: false,
            stages: false,
            streams: false,
            edits_rows: false,
            bulk_loads: false,
            deletes_ranges: false,
            writes_blindly: false,
            awaits_calls: false,
            kind: LoadKind::Mixed,
        }
        .or_uniform(random)
    }

    /// One in four loads is uniform instead.
    fn or_uniform(self, random: &mut Random) -> Self {
        if random.u8(0..4) > 0 {
            return self;
        }
        Self {
            keys: random.u32(4..=24),
            key_pad: 0,
            large_value_every: u32::MAX,
            value_len: 40..41,
            operations_max: 1,
            reads_percent: 0,
            rollbacks_percent: 0,
            snapshots_percent: 0,
            drops_tables: false,
            kind: LoadKind::Uniform,
            ..self
        }
    }

    /// The same with snapshots that are held.
    pub(crate) fn holding_snapshots(self) -> Self {
        Self { holds_snapshots: true, snapshots_percent: self.snapshots_percent.max(10), reads_percent: 10, ..self }
    }

    /// The same with transactions that are staged.
    pub(crate) fn staging(self) -> Self {
        Self { stages: true, operations_max: 40, ..self }
    }

    /// The same with few rows, of which some are larger than a record of the log.
    pub(crate) fn streaming(self) -> Self {
        Self { streams: true, keys: self.keys.min(30), operations_max: self.operations_max.min(8), ..self }
    }

    /// The same with rows of several fields, most of them of the same length.
    pub(crate) fn editing_rows(self, page_size: usize) -> Self {
        Self { edits_rows: true, value_len: 80..self.value_len.end.max(page_size / 16), ..self }
    }

    /// The same with tables that are filled by bulk loads.
    pub(crate) fn loading_in_bulk(self) -> Self {
        Self { bulk_loads: true, drops_tables: true, keys: self.keys.max(200), ..self }
    }

    /// The same, where the seed has it so, with ranges that are deleted, with rows that are written but not read, and with commits that
    /// clients are told of by a call.
    pub(crate) fn with_calls(self, seed: u64) -> Self {
        let one_in = |of: u8, salt| Random::with_seed(seed ^ salt).u8(0..of) == 0;
        Self {
            deletes_ranges: self.varies() && one_in(6, 0x0de1_e7e5),
            writes_blindly: self.varies() && one_in(3, 0x0b11_d175),
            awaits_calls: one_in(6, 0xca11_bac5),
            ..self
        }
    }

    /// Whether transactions differ from each other.
    pub(crate) fn varies(&self) -> bool {
        self.kind != LoadKind::Uniform
    }

    /// The same with many rows that fill leaves quickly.
    pub(crate) fn growing(self, random: &mut Random, page_size: usize) -> Self {
        Self {
            keys: random.u32(1000..=4000),
            value_len: page_size / 8..page_size / 4,
            large_value_every: [4, 40][random.usize(0..2)],
            operations_max: 12,
            reads_percent: 10,
            kind: LoadKind::Growing,
            ..self
        }
    }

    /// Room for all that the load may store at a time, several times over.
    pub(crate) fn data_bytes(&self, page_size: usize) -> u64 {
        let scratch_rows = if self.drops_tables { self.clients as u64 * 40 } else { 0 };
        // A load has room for as many pages as it has written, half again, and its table may be dropped and loaded at the same time.
        let scratch_rows = if self.bulk_loads { 3 * self.clients as u64 * u64::from(self.keys) } else { scratch_rows };
        let rows = u64::from(self.tables) * u64::from(self.keys) + scratch_rows;
        let row = 32 + 2 * u64::from(self.key_pad) + self.value_len.end as u64;
        let large = 4 * page_size as u64 * rows / u64::from(self.large_value_every);
        // Each client may have staged as much as it writes, a leaf for each row at worst.
        let staged = if self.stages { 40 * self.clients as u64 * 3 * page_size as u64 } else { 0 };
        // Every row may have such a value, and each client may have written several that do not count.
        let streamed = if self.streams { (rows + 16 * self.clients as u64) * STREAMED_BYTES.end as u64 } else { 0 };
        (4 * (rows * row + large) + staged + streamed + 64 * page_size as u64).next_multiple_of(1 << 20) + (3 << 20)
    }
}
