//! The catalog's rows: of tables, by name, and of staging tables and value trees, under keys that no table's name can be.

use tantalum_log::Lsn;
use tantalum_store::{PageId, TableId};

use super::CATALOG_ID;
use crate::{
    error::{self, Result},
    space::CATALOG_ROOT,
};

/// What the keys of staging tables and value trees begin with: names of tables have no control characters.
const STAGING_MARK: u8 = 0;

/// States of rows.
const DROPPING: u8 = 4;
const VALUES: u8 = 5;

const TABLE_ROW_BYTES: usize = 1 + 4 + 8;
const FED_TABLE_ROW_BYTES: usize = TABLE_ROW_BYTES + 8;
const STAGING_ROW_BYTES: usize = TABLE_ROW_BYTES + 4 + 8;

/// A table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub is_dropping: bool,
    pub id: TableId,
    pub root: PageId,
    /// From where on the log has the table's changes for readers of the change feed; `None` if it does not have them.
    pub feed_start: Option<Lsn>,
}

/// A staging table's row: a tree that holds writes of a large transaction to one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagingRow {
    pub state: StagingState,
    pub id: TableId,
    pub root: PageId,
    /// The table that the writes are for.
    pub target: TableId,
}

/// What has become of a staging table's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StagingState {
    /// Nothing yet: a crash takes it back.
    Uncommitted,
    /// It is committed. Of two transactions that are, the one that committed later has the larger number.
    Committed(u64),
    /// It is over, and no rows are left, or none count: the pages are being freed.
    Dropping,
}

/// A value tree's row: a tree that holds the large values of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValuesRow {
    pub id: TableId,
    pub root: PageId,
    /// The table that the values are of.
    pub target: TableId,
}

impl ValuesRow {
    /// The key of its row.
    pub fn key(self) -> [u8; 5] {
        staging_key(self.id)
    }

    /// Its row when its pages are being freed.
    pub fn dropping(self) -> StagingRow {
        let Self { id, root, target } = self;
        StagingRow { state: StagingState::Dropping, id, root, target }
    }

    fn encode(self) -> [u8; STAGING_ROW_BYTES] {
        let mut bytes = self.dropping().encode();
        bytes[0] = VALUES;
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes: [u8; STAGING_ROW_BYTES] = bytes.try_into().ok()?;
        if bytes[0] != VALUES {
            return None;
        }
        bytes[0] = DROPPING;
        let StagingRow { id, root, target, .. } = StagingRow::decode(&bytes)?;
        Some(Self { id, root, target })
    }
}

/// A row of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatalogRow {
    Table(Row),
    Staging(StagingRow),
    Values(ValuesRow),
}

impl Row {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = encode_head(u8::from(self.is_dropping), self.id, self.root).to_vec();
        bytes.extend(self.feed_start.into_iter().flat_map(|start| start.get().to_le_bytes()));
        bytes
    }

    /// `None` for bytes that are no row.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<TABLE_ROW_BYTES>()?;
        let (state, id, root) = decode_head(head)?;
        let feed_start = match bytes.len() {
            TABLE_ROW_BYTES => None,
            FED_TABLE_ROW_BYTES => Some(Lsn::new(u64::from_le_bytes(rest.try_into().ok()?))),
            _ => return None,
        };
        (state <= 1).then_some(Self { is_dropping: state == 1, id, root, feed_start })
    }
}

impl StagingRow {
    /// The key of its row.
    pub fn key(self) -> [u8; 5] {
        staging_key(self.id)
    }

    pub fn encode(self) -> [u8; STAGING_ROW_BYTES] {
        let (state, order) = match self.state {
            StagingState::Uncommitted => (2, 0),
            StagingState::Committed(order) => (3, order),
            StagingState::Dropping => (DROPPING, 0),
        };
        let mut bytes = [0; STAGING_ROW_BYTES];
        bytes[..TABLE_ROW_BYTES].copy_from_slice(&encode_head(state, self.id, self.root));
        bytes[TABLE_ROW_BYTES..TABLE_ROW_BYTES + 4].copy_from_slice(&self.target.0.to_le_bytes());
        bytes[TABLE_ROW_BYTES + 4..].copy_from_slice(&order.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<TABLE_ROW_BYTES>()?;
        let (target, order) = rest.split_first_chunk::<4>()?;
        let order = u64::from_le_bytes(order.try_into().ok()?);
        let (state, id, root) = decode_head(head)?;
        let state = match (state, order) {
            (2, 0) => StagingState::Uncommitted,
            (3, 1..) => StagingState::Committed(order),
            (DROPPING, 0) => StagingState::Dropping,
            _ => return None,
        };
        Some(Self { state, id, root, target: TableId(u32::from_le_bytes(*target)) })
    }
}

/// The key of the row of the staging table with this number.
pub(super) fn staging_key(id: TableId) -> [u8; 5] {
    let [a, b, c, d] = id.0.to_be_bytes();
    [STAGING_MARK, a, b, c, d]
}

impl CatalogRow {
    pub fn root(self) -> PageId {
        match self {
            Self::Table(row) => row.root,
            Self::Staging(row) => row.root,
            Self::Values(row) => row.root,
        }
    }

    pub fn with_root(self, root: PageId) -> Self {
        match self {
            Self::Table(row) => Self::Table(Row { root, ..row }),
            Self::Staging(row) => Self::Staging(StagingRow { root, ..row }),
            Self::Values(row) => Self::Values(ValuesRow { root, ..row }),
        }
    }

    pub fn id(self) -> TableId {
        match self {
            Self::Table(row) => row.id,
            Self::Staging(row) => row.id,
            Self::Values(row) => row.id,
        }
    }

    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Table(row) => row.encode(),
            Self::Staging(row) => row.encode().into(),
            Self::Values(row) => row.encode().into(),
        }
    }

    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) for what is no row.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Self> {
        let row = if key.first() == Some(&STAGING_MARK) {
            let values = ValuesRow::decode(value).filter(|row| row.key() == key).map(Self::Values);
            values.or_else(|| StagingRow::decode(value).filter(|row| row.key() == key).map(Self::Staging))
        } else {
            Row::decode(value).filter(|_| std::str::from_utf8(key).is_ok()).map(Self::Table)
        };
        row.ok_or_else(|| {
            let name = String::from_utf8_lossy(key).escape_debug().to_string();
            error::corrupt("the data file", CATALOG_ROOT, 0, format!("the catalog's row of table {name:?} is none"))
        })
    }
}

fn encode_head(state: u8, id: TableId, root: PageId) -> [u8; TABLE_ROW_BYTES] {
    let mut bytes = [0; TABLE_ROW_BYTES];
    bytes[0] = state;
    bytes[1..5].copy_from_slice(&id.0.to_le_bytes());
    bytes[5..].copy_from_slice(&root.0.to_le_bytes());
    bytes
}

fn decode_head(bytes: &[u8; TABLE_ROW_BYTES]) -> Option<(u8, TableId, PageId)> {
    let (state, rest) = bytes.split_first()?;
    let (id, root) = rest.split_first_chunk::<4>()?;
    let id = TableId(u32::from_le_bytes(*id));
    let root = PageId(u64::from_le_bytes(root.try_into().ok()?));
    (id > CATALOG_ID && root > CATALOG_ROOT).then_some((*state, id, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_nonsense_is_refused() {
        let row = Row { is_dropping: true, id: TableId(7), root: PageId(9), feed_start: None };
        assert_eq!(Row::decode(&row.encode()), Some(row));
        let fed = Row { feed_start: Some(Lsn::new(1 << 40)), ..row };
        assert_eq!(Row::decode(&fed.encode()), Some(fed));
        assert_eq!(Row::decode(&fed.encode()[..20]), None);
        assert_eq!(Row::decode(&row.encode()[1..]), None);
        assert_eq!(Row::decode(&[2; TABLE_ROW_BYTES]), None);
        assert_eq!(Row::decode(&[0; TABLE_ROW_BYTES]), None);
        assert_eq!(Row::decode(b""), None);
    }

    /// So does a program that knows no value trees, with theirs.
    #[test]
    fn no_row_of_a_value_tree_is_one_of_a_table_or_a_staging_table() {
        let row = ValuesRow { id: TableId(7), root: PageId(9), target: TableId(2) };
        assert_eq!(CatalogRow::read(&row.key(), &row.encode()).unwrap(), CatalogRow::Values(row));
        assert_eq!((Row::decode(&row.encode()), StagingRow::decode(&row.encode())), (None, None));
        assert_eq!(ValuesRow::decode(&row.dropping().encode()), None);
    }

    /// A program that knows no staging tables takes their rows for damaged ones, so it does not open the database.
    #[test]
    fn no_row_of_a_staging_table_is_one_of_a_table() {
        for state in [StagingState::Uncommitted, StagingState::Committed(5), StagingState::Dropping] {
            let row = StagingRow { state, id: TableId(7), root: PageId(9), target: TableId(2) };
            assert_eq!(CatalogRow::read(&row.key(), &row.encode()).unwrap(), CatalogRow::Staging(row));
            assert_eq!(Row::decode(&row.encode()), None);
            assert!(CatalogRow::read(b"name", &row.encode()).is_err());
            assert!(CatalogRow::read(&staging_key(TableId(8)), &row.encode()).is_err());
        }
    }
}
