//! Transactions of a [`Db`] that are run by it, and run again when they lose against others.

use std::time::Duration;

use tantalum_rt::{Random, random_seed, sleep};

use super::Db;
use crate::{
    error::{Error, Result},
    options::Isolation,
    transaction::{Snapshot, Transaction},
};

/// Before the second try, a pause of up to so long; before each further one, of up to twice that.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How [`Db::transact_with`] runs a transaction.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::{Isolation, TransactOptions};
///
/// let letters = db.table("letters")?;
/// let options = TransactOptions::default().isolation(Isolation::SnapshotIsolation).tries(3);
/// db.transact_with(options, |tx| tx.put(&letters, "a", "1"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TransactOptions {
    isolation: Option<Isolation>,
    tries: u32,
}

impl Default for TransactOptions {
    fn default() -> Self {
        Self { isolation: None, tries: 32 }
    }
}

impl TransactOptions {
    /// The isolation; by default that of the database.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { isolation: Some(isolation), ..self }
    }

    /// How often the transaction is run at most, at least once; by default 32 times.
    #[must_use]
    pub fn tries(self, tries: u32) -> Self {
        Self { tries, ..self }
    }
}

impl Db {
    /// Runs a transaction and commits it: what it wrote is durable when this returns. If it loses against others (see
    /// [`Error::is_retryable`](crate::Error::is_retryable)), it is run again after a short random pause, up to 32 times; so `run` should
    /// change nothing outside of the transaction but what it may change several times.
    ///
    /// An error of `run` rolls the transaction back and is returned. [`Error::application`](crate::Error::application) makes one of an
    /// error of your own.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// use tantalum::{Error, ErrorKind};
    ///
    /// let accounts = db.table("accounts")?;
    /// db.increment(&accounts, "alice", 100)?;
    /// let pay = |sum: i64| {
    ///     db.transact(|tx| {
    ///         let left = tx.increment(&accounts, "alice", -sum)?;
    ///         tx.increment(&accounts, "bob", sum)?;
    ///         if left < 0 {
    ///             return Err(Error::application(std::io::Error::other("alice has not enough")));
    ///         }
    ///         Ok(left)
    ///     })
    /// };
    /// assert_eq!(pay(70)?, 30);
    /// assert_eq!(pay(70).unwrap_err().kind(), ErrorKind::Application);
    /// assert_eq!(db.increment(&accounts, "alice", 0)?, 30, "nothing of it is left");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `run` and of [`Transaction::commit`]. After the last try, the kind of its error, which is the source.
    pub fn transact<T>(&self, run: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(TransactOptions::default(), run)
    }

    /// As [`transact`](Self::transact), with options.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T>(
        &self,
        options: TransactOptions,
        mut run: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        retry(options.tries, || {
            let isolation = options.isolation.unwrap_or_else(|| self.core().settings.isolation());
            let mut transaction = self.begin_with(isolation).map_err(Failure::ForGood)?;
            let ran = run(&mut transaction);
            // However `run` deals with the error that has ended it.
            let lost = transaction.is_to_be_run_again();
            let committed = ran.and_then(|result| transaction.commit().map(|_| result));
            committed.map_err(|error| {
                if lost || error.is_retryable() { Failure::Retryable(error) } else { Failure::ForGood(error) }
            })
        })
    }

    /// Reads from a [snapshot](Self::snapshot), which is let go afterwards. Where its row versions could not be kept, `read` is run again
    /// with a new one, as [`transact`](Self::transact) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let (letters, words) = (db.table("letters")?, db.table("words")?);
    /// let rows = db.read(|snapshot| Ok(snapshot.range(&letters, ..)?.count() + snapshot.range(&words, ..)?.count()))?;
    /// assert_eq!(rows, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `read`, [`Closed`](crate::ErrorKind::Closed).
    pub fn read<T>(&self, mut read: impl FnMut(&Snapshot) -> Result<T>) -> Result<T> {
        retry(TransactOptions::default().tries, || {
            let read = self.snapshot().and_then(|snapshot| read(&snapshot));
            read.map_err(|error| if error.is_retryable() { Failure::Retryable(error) } else { Failure::ForGood(error) })
        })
    }
}

/// How a try has failed.
enum Failure {
    Retryable(Error),
    ForGood(Error),
}

/// Runs what may lose against other transactions until it does not, with random pauses between, so that those that lost against each
/// other do not meet again.
fn retry<T>(tries: u32, mut run: impl FnMut() -> Result<T, Failure>) -> Result<T> {
    let mut random = None;
    let mut pause = FIRST_PAUSE;
    let mut tried = 1;
    loop {
        let error = match run() {
            Ok(result) => return Ok(result),
            Err(Failure::ForGood(error)) => return Err(error),
            Err(Failure::Retryable(error)) => error,
        };
        if tried >= tries {
            let what = format!("gave up after {tried} tries: {error}");
            return Err(Error::new(error.kind(), what).with_source(error));
        }
        tried += 1;
        let random = random.get_or_insert_with(|| Random::with_seed(random_seed()));
        sleep(Duration::from_nanos(random.u64(..=pause.as_nanos() as u64)));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
