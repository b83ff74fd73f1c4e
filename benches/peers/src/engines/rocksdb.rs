//! RocksDB: each commit is synchronized in the write-ahead log, `WriteOptions::sync`.
//!
//! - `recycle_log_file_num`: with old log files written over, `fdatasync` has no new length and no new extents to write. That
//!   begins when the first log file has been filled, which takes longer than a run, and again in each process: so one is filled and put
//!   back into use before clients begin ([`warm_log`](Engine::warm_log)). Point-in-time recovery, the default, goes with it.
//! - No compression (values are random bytes) and no such library in the build.
//! - Block cache as large as every engine's cache, bloom filters of 10 bits in whole tables, index and filter blocks in the
//!   cache. Where the operating system's cache must not add to it, tables are read with direct I/O, so that the operating
//!   system's cache does not add to it.
//! - The memtables together may be half as large as the log budget, and the log as large as that: the trade that every engine with a
//!   log makes. Two background jobs, as the machines compared on have few cores.
//! - Blind updates and reads go to a plain database; read-modify-write to a `TransactionDB`, whose `get_for_update` locks: for
//!   contended keys that beats its optimistic transactions. Both are serializable for what is read with the lock.
//! - Draining waits for compactions of the plain database; a `TransactionDB` has no such call here, and is only closed.
//! - Rows are loaded as a sorted table file, which is then ingested: RocksDB's own way.

use std::path::PathBuf;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBAccess, DBCompressionType, DBRawIteratorWithThreadMode, ErrorKind, Options,
    SstFileWriter, TransactionDB, TransactionDBOptions, TransactionOptions, WaitForCompactOptions, WriteBatch,
    WriteBatchWithTransaction, WriteOptions,
};

use crate::{
    data::KEY_BYTES,
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "rocksdb";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str = "sync=true, recycled log files, no compression, bloom filters, block cache; TransactionDB with get_for_update for read-modify-write";

fn failed(doing: &'static str) -> impl Fn(rocksdb::Error) -> Error {
    move |error| match error.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain => Error::Conflict,
        _ => Error::engine(NAME, doing)(error),
    }
}

/// At most at a time.
const MEMTABLES: u64 = 4;

/// Opens it, in the way that the workload needs.
///
/// # Errors
/// Of the engine.
pub fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let options = options(setup);
    if setup.has_transactions {
        let db = TransactionDB::open(&options, &TransactionDBOptions::default(), &setup.directory);
        return Ok(Box::new(Transactional {
            db: db.map_err(failed("opening"))?,
            log_file_bytes: memtable_bytes(setup),
        }));
    }
    let db = DB::open(&options, &setup.directory).map_err(failed("opening"))?;
    Ok(Box::new(Plain {
        db,
        options,
        log_file_bytes: memtable_bytes(setup),
        table_file: setup.directory.join("loaded.sst"),
    }))
}

fn options(setup: &Setup) -> Options {
    const BLOOM_BITS_PER_KEY: f64 = 10.0;
    const LOG_FILES_KEPT: usize = 4;
    const BACKGROUND_JOBS: i32 = 2;
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(usize::try_from(setup.cache_bytes).unwrap_or(usize::MAX)));
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::None);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_recycle_log_file_num(LOG_FILES_KEPT);
    options.set_max_total_wal_size(setup.log_bytes);
    options.set_write_buffer_size(usize::try_from(memtable_bytes(setup)).unwrap_or(usize::MAX));
    options.set_max_write_buffer_number(MEMTABLES as i32);
    options.set_use_direct_reads(setup.is_cold);
    options
}

/// Of each memtable, and so of each log file.
fn memtable_bytes(setup: &Setup) -> u64 {
    setup.log_bytes / 2 / MEMTABLES
}

/// Fills a log file with versions of a row that is deleted then, and has it used again: the next but one memtable takes it.
fn warm_log(
    bytes: u64,
    put: impl Fn(&[u8], &[u8], &WriteOptions) -> Result<(), rocksdb::Error>,
    delete: impl Fn(&[u8]) -> Result<(), rocksdb::Error>,
    flush: impl Fn() -> Result<(), rocksdb::Error>,
) -> Result<()> {
    const VALUE_BYTES: u64 = 256 << 10;
    const PLACEHOLDER: &[u8] = &[0xff; KEY_BYTES];
    let (value, unsynchronized) = (vec![0; VALUE_BYTES as usize], WriteOptions::default());
    let warm = || {
        // Not quite full, so that no other memtable begins meanwhile.
        for _ in 0..bytes * 9 / 10 / VALUE_BYTES {
            put(PLACEHOLDER, &value, &unsynchronized)?;
        }
        for _ in 0..2 {
            delete(PLACEHOLDER)?;
            flush()?;
        }
        Ok(())
    };
    warm().map_err(failed("filling a log file"))
}

fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

fn scan<D: DBAccess>(
    mut iterator: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    rows: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    iterator.seek(from);
    for _ in 0..rows {
        match iterator.item() {
            Some((key, value)) => visit(key, value),
            None => break,
        }
        iterator.next();
    }
    iterator.status().map_err(failed("scanning"))
}

fn copy(found: Option<impl AsRef<[u8]>>, value: &mut Vec<u8>) -> bool {
    value.clear();
    found.as_ref().inspect(|found| value.extend_from_slice(found.as_ref())).is_some()
}

/// For blind updates and reads.
struct Plain {
    db: DB,
    options: Options,
    log_file_bytes: u64,
    table_file: PathBuf,
}

impl Engine for Plain {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(PlainClient { db: &self.db, durable: durable() }))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(&self.table_file).map_err(failed("creating a table file"))?;
        for (key, value) in rows {
            writer.put(key, value).map_err(failed("writing a table file"))?;
        }
        writer.finish().map_err(failed("finishing a table file"))?;
        let mut ingest = rocksdb::IngestExternalFileOptions::default();
        ingest.set_move_files(true);
        self.db.ingest_external_file_opts(&ingest, vec![&self.table_file]).map_err(failed("ingesting a table file"))
    }

    fn put_at_once(&self, rows: Rows<'_>) -> Result<()> {
        let mut batch = WriteBatch::default();
        rows.for_each(|(key, value)| batch.put(key, value));
        self.db.write_opt(batch, &durable()).map_err(failed("committing"))
    }

    fn warm_log(&self) -> Result<()> {
        let put = |key: &[u8], value: &[u8], options: &WriteOptions| self.db.put_opt(key, value, options);
        warm_log(self.log_file_bytes, put, |key| self.db.delete(key), || self.db.flush())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.db);
        Ok(())
    }

    fn drain(self: Box<Self>, _: &Setup) -> Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.db.wait_for_compact(&wait).map_err(failed("compacting"))?;
        self.close()
    }
}

struct PlainClient<'a> {
    db: &'a DB,
    durable: WriteOptions,
}

impl Session for PlainClient<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let committed = match rows {
            [(key, value)] => self.db.put_opt(key, value, &self.durable),
            rows => {
                let mut batch = WriteBatch::default();
                rows.iter().for_each(|(key, value)| batch.put(key, value));
                self.db.write_opt(batch, &self.durable)
            }
        };
        committed.map_err(failed("committing"))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(copy(self.db.get_pinned(key).map_err(failed("reading"))?, value))
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        scan(self.db.raw_iterator(), from, rows, visit)
    }

    fn modify(&mut self, _keys: &[&[u8]], _change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        Err(Error::Other("RocksDB was opened without transactions".to_owned()))
    }
}

/// For read-modify-write.
struct Transactional {
    db: TransactionDB,
    log_file_bytes: u64,
}

impl Engine for Transactional {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(TransactionalClient { db: &self.db, durable: durable() }))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::default();
        rows.for_each(|(key, value)| batch.put(key, value));
        self.db.write_opt(batch, &durable()).map_err(failed("committing"))
    }

    fn warm_log(&self) -> Result<()> {
        let put = |key: &[u8], value: &[u8], options: &WriteOptions| self.db.put_opt(key, value, options);
        warm_log(self.log_file_bytes, put, |key| self.db.delete(key), || self.db.flush())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.db);
        Ok(())
    }
}

struct TransactionalClient<'a> {
    db: &'a TransactionDB,
    durable: WriteOptions,
}

impl Session for TransactionalClient<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::default();
        rows.iter().for_each(|(key, value)| batch.put(key, value));
        self.db.write_opt(batch, &self.durable).map_err(failed("committing"))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(copy(self.db.get_pinned(key).map_err(failed("reading"))?, value))
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        scan(self.db.raw_iterator(), from, rows, visit)
    }

    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        let transaction = self.db.transaction_opt(&self.durable, &TransactionOptions::default());
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            let value = transaction.get_for_update(key, true).map_err(failed("reading"))?;
            values.push(value.unwrap_or_default());
        }
        change(&mut values);
        for (key, value) in keys.iter().zip(&values) {
            transaction.put(key, value).map_err(failed("writing"))?;
        }
        transaction.commit().map_err(failed("committing"))
    }
}
