//! A consumer of the change feed beside the clients: it follows one table, stores its position with what it has read, and goes on from
//! there after power cuts. In some seeds the feed is ended, and a start later begun anew.
//!
//! What it stores are the events that it sends: those that were sent before a cut are what it has stored.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum::{Change, ChangeFeed, CommittedChanges, Db, Error, ErrorKind, FeedPosition, Table};
use tantalum_rt::{JoinHandle, Random, spawn};

use crate::{
    config::Config,
    content::{Key, Version, decode_key},
    history::{Event, Recorder},
    rows::version_of,
    stop::Stop,
};

/// The table that is followed.
const TABLE: u8 = 0;

/// Of the seeds that can have a consumer, one in so many has one.
const ONE_IN: u8 = 3;

/// What the feed says of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fed {
    /// It has this version.
    Put(Version),
    /// It had a large value, which was replaced before it was read: a later change must follow.
    Replaced,
    /// It is not there.
    Deleted,
}

/// Whether the seed has a consumer. Where devices may lose what is durable, or the log with all devices, it could not go on.
pub(crate) fn is_followed(seed: u64, config: &Config) -> bool {
    let keeps_logs = config.archive.as_ref().is_none_or(|archive| archive.loses_log_one_in == 0);
    let is_one = Random::with_seed(seed ^ 0xfeed_c0de).u8(0..ONE_IN) == 0;
    is_one && config.units.is_none() && config.has_sound_devices() && keeps_logs && config.load.varies()
}

/// How far the end of a feed has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ending {
    #[default]
    No,
    /// It was asked for: the feed may be there after a power cut, or not.
    Asked,
    Durable,
}

/// The consumer of one start of the database.
pub(crate) struct Consumer {
    /// What it has stored; `None` before the first time.
    pub stored: Option<FeedPosition>,
    /// Whether the feed was ended in the start before.
    pub ending: Ending,
    /// It ends the feed in this start.
    pub ends: bool,
}

/// A feed that is followed, perhaps beyond its end.
pub(crate) struct Following {
    feed: ChangeFeed,
    has_ended: bool,
}

impl Consumer {
    /// Reads what the database has committed since the stored position, before clients begin. Begins anew if the feed was ended, and if
    /// the log has the position no more, which must not be with an archive.
    pub fn catch_up(
        self,
        db: &Db,
        contents: &BTreeMap<Key, Version>,
        config: &Config,
        recorder: &Recorder,
    ) -> Result<Following, Stop> {
        let table = db.table(&crate::round::table_name(TABLE))?;
        if let (Ending::Durable, Some(stored)) = (self.ending, self.stored)
            && db.changes(&stored).is_ok()
        {
            return Err(Stop::Violation("a change feed that was ended is there after a power cut".to_owned()));
        }
        if self.ending != Ending::No {
            db.end_change_feed(&table)?;
        } else if let Some(stored) = self.stored {
            // As it is read from a file.
            let stored = FeedPosition::from_bytes(&stored.to_bytes())?;
            let mut feed = db.changes(&stored)?;
            match read_all(&mut feed, config, recorder) {
                Ok(()) if self.ends => return end(db, &table, feed, recorder),
                Ok(()) => return Ok(Following { feed, has_ended: false }),
                Err(Stop::Failed(error)) if error.kind() == ErrorKind::FellBehind => {
                    fell_behind(db, &stored, config, recorder, &error)?
                }
                Err(stop) => return Err(stop),
            }
        }
        db.start_change_feed(&table)?;
        let position = db.feed_position()?;
        let rows = contents.iter().filter(|(key, _)| key.table == TABLE);
        let rows = rows.map(|(key, version)| (key.number, Fed::Put(*version))).collect();
        recorder.record(Event::FeedBegins { position, rows });
        Ok(Following { feed: db.changes(&position)?, has_ended: false })
    }
}

/// Ends the feed of a table, which its readers must be told, once.
fn end(db: &Db, table: &Table, mut feed: ChangeFeed, recorder: &Recorder) -> Result<Following, Stop> {
    recorder.record(Event::FeedEnds(Ending::Asked));
    db.end_change_feed(table)?;
    recorder.record(Event::FeedEnds(Ending::Durable));
    let last = feed.try_next()?.map(|last| last.changes().collect::<tantalum::Result<Vec<_>>>()).transpose()?;
    match last.as_deref() {
        Some([Change::EndFeed { table: ended }]) if **ended == *table.name() => {}
        last => return Err(Stop::Violation(format!("at its end the change feed has {last:?}"))),
    }
    recorder.count("change feeds ended", 1);
    Ok(Following { feed, has_ended: true })
}

fn read_all(feed: &mut ChangeFeed, config: &Config, recorder: &Recorder) -> Result<(), Stop> {
    while let Some(transaction) = feed.try_next()? {
        note(&transaction, config, recorder)?;
    }
    Ok(())
}

/// Even an archive on a device goes round; but then the consumer is far behind. A commit may take many times its bytes on a device.
fn fell_behind(db: &Db, from: &FeedPosition, config: &Config, recorder: &Recorder, error: &Error) -> Result<(), Stop> {
    let behind_bytes = db.feed_position()?.lsn() - from.lsn();
    if config.archive.is_some() && behind_bytes < config.log_bytes / 32 {
        let what = format!("the log is archived, and its reader fell behind by {behind_bytes} bytes: {error}");
        return Err(Stop::Violation(what));
    }
    recorder.count("times that the consumer of the change feed fell behind", 1);
    Ok(())
}

/// The consumer's task: follows until it is stopped, and then to the end.
pub(crate) fn follow(
    db: &Db,
    following: Following,
    config: &Arc<Config>,
    recorder: &Recorder,
    stop: &Arc<AtomicBool>,
    seed: u64,
) -> JoinHandle<()> {
    let (db, config, recorder, stop) = (db.clone(), Arc::clone(config), recorder.clone(), Arc::clone(stop));
    let mut random = Random::with_seed(seed ^ 0xfeed_ba5e);
    let ended = recorder.clone();
    let Following { mut feed, has_ended } = following;
    let mut run = move || loop {
        let is_last = stop.load(Ordering::Acquire);
        let timeout = config.logs[0].latency * random.u32(1..40);
        let from = feed.position();
        let step = match feed.next_within(timeout) {
            Ok(Some(_)) if has_ended => Err(Stop::Violation("the change feed goes on behind its end".to_owned())),
            Ok(Some(transaction)) => note(&transaction, &config, &recorder),
            Ok(None) if is_last => return Ok(()),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        match step {
            // It begins anew with the next start. The parts of a large transaction may be overwritten while they are read.
            Err(Stop::Failed(error)) if error.kind() == ErrorKind::FellBehind => {
                return fell_behind(&db, &from, &config, &recorder, &error);
            }
            step => step?,
        }
        if random.u8(0..8) == 0 {
            tantalum_rt::sleep(timeout + Duration::from_micros(random.u64(0..500)));
        }
    };
    spawn("feed-consumer", move || {
        let result: Result<(), Stop> = run();
        if let Err(end) = result {
            ended.record(end.into_event());
        }
    })
}

/// Reads a transaction, and stores what it has made of the table with the position behind it.
fn note(transaction: &CommittedChanges, config: &Config, recorder: &Recorder) -> Result<(), Stop> {
    let mut writes = BTreeMap::new();
    for change in transaction.changes() {
        let (key, fed) = match change? {
            Change::Put { key, value, .. } => {
                let number = number_of(&key, config)?;
                let version =
                    value.read()?.map(|value| version_of(Key { table: TABLE, number }, &value)).transpose()?;
                (number, version.map_or(Fed::Replaced, Fed::Put))
            }
            Change::Delete { key, .. } => (number_of(&key, config)?, Fed::Deleted),
            other => return Err(Stop::Violation(format!("the change feed has {other:?}"))),
        };
        if writes.insert(key, fed).is_some() {
            return Err(Stop::Violation(format!("the change feed has key {key} twice in one transaction")));
        }
    }
    recorder.count("transactions read from the change feed", 1);
    recorder.record(Event::Fed { position: transaction.position(), writes });
    Ok(())
}

fn number_of(key: &[u8], config: &Config) -> Result<u32, Stop> {
    let number = decode_key(key, config.load.key_pad);
    number.ok_or_else(|| Stop::Violation(format!("the change feed has key {}", key.escape_ascii())))
}

/// What the consumer has stored, and what it is compared with after the next recovery.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub position: Option<FeedPosition>,
    pub ending: Ending,
    /// Where it began with the contents of the table.
    begun: u64,
    /// Where the last transaction was committed that it has read.
    read_to: u64,
    rows: BTreeMap<u32, Fed>,
    /// What the transactions since the last recovery wrote, by their place in the log.
    commits: BTreeMap<u64, BTreeMap<u32, Fed>>,
}

impl Stored {
    /// Begins with the contents of the table.
    pub fn begin(&mut self, position: FeedPosition, rows: BTreeMap<u32, Fed>) {
        *self = Self { position: Some(position), ..Self::beginning(position.lsn(), rows) };
    }

    fn beginning(lsn: u64, rows: BTreeMap<u32, Fed>) -> Self {
        Self { position: None, ending: Ending::No, begun: lsn, read_to: lsn, rows, commits: BTreeMap::new() }
    }

    /// Takes a transaction.
    pub fn take(&mut self, position: FeedPosition, writes: BTreeMap<u32, Fed>) -> Result<(), String> {
        self.position = Some(position);
        self.take_at(position.lsn(), writes)
    }

    fn take_at(&mut self, lsn: u64, writes: BTreeMap<u32, Fed>) -> Result<(), String> {
        let before = std::mem::replace(&mut self.read_to, lsn);
        if lsn <= before {
            return Err(format!("the change feed goes on at LSN {lsn} behind LSN {before}"));
        }
        for (&number, &fed) in &writes {
            match fed {
                Fed::Deleted => drop(self.rows.remove(&number)),
                fed => drop(self.rows.insert(number, fed)),
            }
        }
        self.commits.insert(lsn, writes);
        Ok(())
    }

    /// Whether what was read is what recovery found, and has every transaction that was acknowledged.
    pub fn check<'t>(
        &mut self,
        contents: &BTreeMap<Key, Version>,
        acknowledged: impl Iterator<Item = (u64, &'t BTreeMap<Key, Option<Version>>)>,
    ) -> Result<(), String> {
        if self.begun == 0 {
            return Ok(());
        }
        let recovered = contents.iter().filter(|(key, _)| key.table == TABLE);
        let recovered: BTreeMap<_, _> = recovered.map(|(key, version)| (key.number, Fed::Put(*version))).collect();
        if recovered != self.rows {
            let differs = |number: &&u32| recovered.get(number) != self.rows.get(number);
            let number = recovered.keys().chain(self.rows.keys()).find(differs).expect("they differ");
            let (found, fed) = (recovered.get(number), self.rows.get(number));
            return Err(format!("the change feed makes of key {number} {fed:?}, and recovery found {found:?}"));
        }
        for (position, writes) in acknowledged.filter(|(position, _)| *position > self.begun) {
            let put = |(key, version): (&Key, &Option<Version>)| Some((key.number, (*version)?));
            let expected: Vec<_> = writes.iter().filter(|(key, _)| key.table == TABLE).filter_map(put).collect();
            let none = BTreeMap::new();
            let fed = self.commits.get(&position).unwrap_or(&none);
            let is_put = |number: &u32, version: Version| match fed.get(number) {
                Some(Fed::Put(found)) => *found == version,
                Some(Fed::Replaced) => true,
                Some(Fed::Deleted) | None => false,
            };
            let puts = fed.values().filter(|fed| **fed != Fed::Deleted).count();
            if puts != expected.len() || !expected.iter().all(|(number, version)| is_put(number, *version)) {
                return Err(format!("the commit at LSN {position} wrote {expected:?}, the change feed has {fed:?}"));
            }
        }
        self.commits.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_repeated_or_invented_is_noticed() {
        let version = |transaction| Version { transaction, operation: 0 };
        let key = Key { table: TABLE, number: 1 };
        let contents = BTreeMap::from([(key, version(2))]);
        let writes = [BTreeMap::from([(key, Some(version(1)))]), BTreeMap::from([(key, Some(version(2)))])];
        let acknowledged = || [(10, &writes[0]), (20, &writes[1])].into_iter();
        let fed = |transaction| BTreeMap::from([(1, Fed::Put(version(transaction)))]);
        let read = |transactions: &[(u64, u32)]| {
            let mut stored = Stored::beginning(5, BTreeMap::new());
            transactions.iter().try_for_each(|&(lsn, id)| stored.take_at(lsn, fed(id)))?;
            stored.check(&contents, acknowledged())
        };
        assert_eq!(read(&[(10, 1), (20, 2)]), Ok(()));
        for wrong in
            [&[(10, 1)][..], &[(20, 2)], &[(10, 1), (10, 1), (20, 2)], &[(10, 2), (20, 1)], &[(10, 2), (20, 2)]]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
