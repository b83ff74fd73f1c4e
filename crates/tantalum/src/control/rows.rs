//! Rows for somewhere else: which are asked for, how they are read, and how they look in JSON.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::{
    db::Db,
    error::{self, ErrorKind, Result},
    salvage::ValueSink,
    table::Table,
    transaction::{Content, Snapshot},
};

/// Progress is told after so many rows.
const COUNTED_ROWS: u64 = 256;

/// Which rows are to be read, all as of one moment: by [`Client::rows`](super::Client::rows) from a database that another process
/// has open, or by [`RowSelection::read`].
///
/// ```
/// use tantalum::control::RowSelection;
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?;
/// let fruit = db.table("fruit")?;
/// let mut tx = db.begin()?;
/// ["apple", "banana", "cherry"].iter().try_for_each(|name| tx.put(&fruit, name, "1"))?;
/// tx.commit()?;
///
/// let last = RowSelection { tables: vec!["fruit".into()], reverse: true, limit: Some(1), ..RowSelection::default() };
/// let mut found = Vec::new();
/// last.read(&db, &mut |table, row| {
///     found.extend(row.map(|(key, _value)| (table.to_owned(), key.to_vec())));
///     Ok(())
/// })?;
/// assert_eq!(found, [("fruit".to_owned(), b"cherry".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSelection {
    /// Of these tables, in this order; of all, by name, if none is given.
    #[serde(default)]
    pub tables: Vec<String>,
    /// The smallest key of a table; absent for no bound.
    #[serde(default, with = "optional_bytes")]
    pub from: Option<Vec<u8>>,
    /// The smallest key that is not read any more; absent for no bound.
    #[serde(default, with = "optional_bytes")]
    pub to: Option<Vec<u8>>,
    /// From the largest key down.
    #[serde(default)]
    pub reverse: bool,
    /// At most so many rows of each table.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Without values, which are empty then.
    #[serde(default)]
    pub keys_only: bool,
}

/// Rows, keys and values.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

impl RowSelection {
    /// The row with this key.
    pub fn of_key(table: &str, key: &[u8]) -> Self {
        let behind = [key, &[0]].concat();
        Self { tables: vec![table.into()], from: Some(key.to_vec()), to: Some(behind), ..Self::default() }
    }

    /// Reads the rows and gives them to `sink`. Large values are not in memory as a whole.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a table that is not there; those of [`Snapshot::range`] and of `sink`.
    pub fn read(&self, db: &Db, sink: ValueSink<'_>) -> Result<()> {
        self.begin(db)?.read(sink)
    }

    /// Counts the rows of all its tables. Large values are not read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn count(&self, db: &Db) -> Result<u64> {
        let mut count = 0;
        self.begin(db)?.for_each_unread(&mut |_, row| {
            count += u64::from(row.is_some());
            Ok(())
        })?;
        Ok(count)
    }

    /// Decides of which tables and which moment rows are read. What is returned does not keep the database open.
    pub(super) fn begin(&self, db: &Db) -> Result<RowReader> {
        // Before the snapshot: a table that is made later would seem empty.
        let all = db.open_tables();
        let named = |name: &String| {
            let found = all.iter().find(|table| table.name() == *name).cloned();
            found.ok_or_else(|| error::no_such_table(name))
        };
        let tables = match self.tables.is_empty() {
            true => all,
            false => self.tables.iter().map(named).collect::<Result<_>>()?,
        };
        Ok(RowReader { selection: self.clone(), snapshot: db.snapshot()?, tables })
    }
}

/// The reading of a [`RowSelection`].
pub(super) struct RowReader {
    selection: RowSelection,
    snapshot: Snapshot,
    tables: Vec<Table>,
}

/// Takes a row whose value may not have been read; `None` when a table begins.
type UnreadSink<'a> = &'a mut dyn FnMut(&Table, Option<(crate::Value, Content)>) -> Result<()>;

impl RowReader {
    /// Gives the rows to `sink`, which reads the values.
    pub fn read(&self, sink: ValueSink<'_>) -> Result<()> {
        self.for_each_unread(&mut |table, row| {
            let name = table.name();
            match row {
                None => sink(name, None),
                Some((key, _)) if self.selection.keys_only => sink(name, Some((&key, &mut &[][..]))),
                Some((key, Content::Bytes(value))) => sink(name, Some((&key, &mut &value[..]))),
                Some((key, Content::Large(_))) => {
                    let mut value =
                        self.snapshot.reader(table, &key)?.expect("the snapshot has shown the row just now");
                    sink(name, Some((&key, &mut value)))
                }
            }
        })
    }

    fn for_each_unread(&self, sink: UnreadSink<'_>) -> Result<()> {
        let RowSelection { from, to, reverse, limit, tables, .. } = &self.selection;
        let from = from.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let bounds = (from, to.as_ref().map_or(Bound::Unbounded, Bound::Excluded));
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        for table in &self.tables {
            let mut range = match self.snapshot.range(table, bounds) {
                // Dropped since all were listed.
                Err(error) if error.kind() == ErrorKind::NotFound && tables.is_empty() => continue,
                range => range?,
            };
            sink(table, None)?;
            let mut next = || if *reverse { range.next_back_unread() } else { range.next_unread() };
            for _ in 0..limit {
                let Some(row) = next() else { break };
                sink(table, Some(row?))?;
            }
        }
        Ok(())
    }
}

/// The size of a table.
///
/// ```
/// let size = tantalum::control::TableSize { name: "t".into(), rows: 2, bytes: 10 };
/// assert_eq!(serde_json::to_value(&size)?["rows"], 2);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSize {
    /// The table.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

/// Adds up the rows of all tables as of one moment; `counted` hears of each batch how many they are.
///
/// # Errors
/// As [`RowSelection::read`].
pub fn table_sizes(db: &Db, counted: &mut dyn FnMut(u64)) -> Result<Vec<TableSize>> {
    let RowReader { snapshot, tables, .. } = RowSelection::default().begin(db)?;
    let mut sizes = Vec::new();
    for table in tables {
        let mut rows = match snapshot.range(&table, ..) {
            // Dropped since all were listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            rows => rows?,
        };
        let mut size = TableSize { name: table.name().into(), rows: 0, bytes: 0 };
        // The lengths of large values stand in their rows.
        while let Some(row) = rows.next_unread() {
            let (key, content) = row?;
            size.rows += 1;
            size.bytes += key.len() as u64 + content.len();
            if size.rows.is_multiple_of(COUNTED_ROWS) {
                counted(COUNTED_ROWS);
            }
        }
        counted(size.rows % COUNTED_ROWS);
        sizes.push(size);
    }
    Ok(sizes)
}

/// Bytes as a string in JSON: a character for each byte, U+0000 to U+00FF.
fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn of_text<E: serde::de::Error>(text: &str) -> Result<Vec<u8>, E> {
    let byte = |char| u8::try_from(u32::from(char)).map_err(|_| E::custom("a character beyond U+00FF is no byte"));
    text.chars().map(byte).collect()
}

/// A field of bytes.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::to_text(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        super::of_text(&String::deserialize(deserializer)?)
    }
}

/// A field of bytes that may be absent.
pub(super) mod optional_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(super::to_text).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(deserializer)?.map(|text| super::of_text(&text)).transpose()
    }
}

/// A field of rows.
pub(super) mod row_list {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Rows;

    pub fn serialize<S: Serializer>(rows: &Rows, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(rows.iter().map(|(key, value)| [super::to_text(key), super::to_text(value)]))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rows, D::Error> {
        let rows = Vec::<(String, String)>::deserialize(deserializer)?;
        rows.iter().map(|(key, value)| Ok((super::of_text(key)?, super::of_text(value)?))).collect()
    }
}

/// A field of keys.
pub(super) mod byte_list {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(keys: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(keys.iter().map(|key| super::to_text(key)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<String>::deserialize(deserializer)?.iter().map(|text| super::of_text(text)).collect()
    }
}
