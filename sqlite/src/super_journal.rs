//! Transactions over several SQLite databases. SQLite names their journals in a *super-journal*, hands its name to each database when
//! that has been written (`SQLITE_FCNTL_SYNC`), and commits by deleting it. Here each database hands its writes over then, and the
//! deletion commits them in one transaction of the engine. If anything else happens first, SQLite is rolling back.
//!
//! A rollback journal ends with the name of its super-journal, and SQLite takes what it was to undo for committed if that is gone: it would
//! keep the pages in its cache. So one that does not commit is there as long as a journal mentions it, also when SQLite deletes it because
//! one of the databases has been rolled back.

use std::{collections::HashMap, path::Path, sync::Arc};

use tantalum_rt::{Mutex, random_seed};

use crate::{
    client::Remote,
    database::Database,
    failure::{Failure, Result},
    fragments::{SIZE_KEY, key_of},
    journal::is_journal_of_open,
    writes::Writes,
};

/// Of all databases of a transaction but the one with the most writes, so many bytes at most: they are in memory for a moment.
const MOST_BYTES_IN_MEMORY: u64 = 256 << 20;

/// SQLite appends so many bytes to the path of the main database: `-mj` and nine digits.
const NAME_END_BYTES: usize = 12;

/// Those that are there, by name.
static NAMED: Mutex<Option<HashMap<Vec<u8>, Arc<SuperJournal>>>> = Mutex::new(None);

/// Those of other processes, by the numbers that they have given them.
static SERVED: Mutex<Option<HashMap<u128, Arc<SuperJournal>>>> = Mutex::new(None);

/// A super-journal.
#[derive(Default)]
pub(crate) struct SuperJournal {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    content: Vec<u8>,
    /// How many rollback journals end with its name.
    mentions: usize,
    members: Vec<Member>,
    /// The process that has the members, if it is another one, and the number by which it knows the super-journal.
    elsewhere: Option<(u128, Arc<Remote>)>,
    outcome: Option<Outcome>,
}

/// A database with what its connection has written.
pub(crate) struct Member {
    pub database: Arc<Database>,
    pub writes: Writes,
    pub is_durable: bool,
}

/// How its transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    RolledBack,
}

impl SuperJournal {
    /// A new one, for a transaction that begins to commit.
    pub fn create(name: &[u8]) -> Result<Arc<Self>> {
        let new = Arc::new(Self::default());
        match NAMED.lock().get_or_insert_default().insert(name.to_vec(), Arc::clone(&new)) {
            None => Ok(new),
            Some(_) => Err(Failure::cannot_open("two transactions chose one name for their super-journals")),
        }
    }

    /// The one of that name.
    pub fn named(name: &[u8]) -> Option<Arc<Self>> {
        NAMED.lock().as_ref()?.get(name).cloned()
    }

    /// Deletes the super-journal. If that `commits`, what was handed over becomes part of the databases; after a failure, the super-journal
    /// is still there. `None` if there is none of that name.
    pub fn delete(name: &[u8], commits: bool) -> Option<Result<()>> {
        let found = Self::named(name)?;
        if commits {
            if let Err(failure) = found.commit() {
                return Some(Err(failure));
            }
        } else {
            found.end();
            if found.state.lock().mentions > 0 {
                return Some(Ok(()));
            }
        }
        NAMED.lock().as_mut()?.remove(name);
        Some(Ok(()))
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.state.lock().content.len() as u64
    }

    /// Reads bytes of the names, and returns how many there were.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let state = self.state.lock();
        let rest = state.content.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(bytes.len());
        bytes[..read].copy_from_slice(&rest[..read]);
        read
    }

    /// Adds names of journals, each ended by a zero.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let end = offset as usize + bytes.len();
        let len = state.content.len().max(end);
        state.content.resize(len, 0);
        state.content[offset as usize..end].copy_from_slice(bytes);
    }

    /// Refuses a transaction with a database that is not in Tantalum: its journal would be looked for on the file system after a crash, and
    /// so would the super-journal, which is not there.
    pub fn check_names(&self) -> Result<()> {
        let state = self.state.lock();
        let mut names = state.content.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        match names.find(|name| !is_journal_of_open(name)) {
            None => Ok(()),
            Some(name) => Err(Failure::io(format!(
                "{} belongs to a database outside of Tantalum; a transaction cannot change one beside databases in Tantalum",
                String::from_utf8_lossy(name)
            ))),
        }
    }

    /// Hands over what a connection has written.
    pub fn enlist(&self, member: Member) -> Result<()> {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return Err(Failure::io("the transaction over several databases is over"));
        }
        let store = &member.database.store;
        if let Some(first) = state.members.first()
            && !first.database.store.is_same(store)
        {
            return Err(apart(first.database.store.directory(), store.directory()));
        }
        if let Some((_, elsewhere)) = &state.elsewhere {
            return Err(apart(elsewhere.directory(), store.directory()));
        }
        state.members.push(member);
        Ok(())
    }

    /// Notes that another process has what a connection has written. Returns the number by which it is to know the super-journal.
    pub fn enlist_remote(&self, remote: &Arc<Remote>) -> Result<u128> {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return Err(Failure::io("the transaction over several databases is over"));
        }
        if let Some(first) = state.members.first() {
            return Err(apart(first.database.store.directory(), remote.directory()));
        }
        let new = || u128::from(random_seed()) << 64 | u128::from(random_seed());
        let (number, first) = state.elsewhere.get_or_insert_with(|| (new(), Arc::clone(remote)));
        if first.directory() != remote.directory() {
            return Err(apart(first.directory(), remote.directory()));
        }
        Ok(*number)
    }

    /// That of another process, by its number, which exists as long as one of those that hand something over to it.
    pub fn served(number: u128) -> Served {
        let super_journal = Arc::clone(SERVED.lock().get_or_insert_default().entry(number).or_default());
        Served { super_journal, number }
    }

    /// Commits what was handed over to one of another process.
    pub fn commit_served(number: u128) -> Result<()> {
        let found = SERVED.lock().as_ref().and_then(|served| served.get(&number).cloned());
        found.ok_or_else(|| Failure::io("nothing was handed over to this super-journal"))?.commit()
    }

    /// Forgets what was handed over, unless it was committed; says which.
    pub fn end(&self) -> Outcome {
        let mut state = self.state.lock();
        let outcome = *state.outcome.get_or_insert(Outcome::RolledBack);
        state.members.clear();
        outcome
    }

    fn commit(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return Err(Failure::io("the transaction over several databases is over"));
        }
        state.outcome = Some(Outcome::RolledBack);
        match state.elsewhere.take() {
            Some((number, remote)) => remote.commit_together(number)?,
            None => commit_together(std::mem::take(&mut state.members))?,
        }
        state.outcome = Some(Outcome::Committed);
        Ok(())
    }
}

fn apart(first: &Path, second: &Path) -> Failure {
    let (first, second) = (first.display(), second.display());
    Failure::io(format!(
        "the databases are in {first} and in {second}; a transaction can change several databases of one Tantalum database only"
    ))
}

/// A super-journal of another process.
pub(crate) struct Served {
    pub super_journal: Arc<SuperJournal>,
    number: u128,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(served) = SERVED.lock().as_mut() {
            served.remove(&self.number);
        }
    }
}

/// A rollback journal has the name of the super-journal at its end.
pub(crate) struct Mention(Arc<SuperJournal>);

impl Mention {
    /// If these bytes of a journal are such a name. SQLite writes it alone.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let begin = bytes.len().checked_sub(NAME_END_BYTES)?;
        if !bytes[begin..].starts_with(b"-mj") {
            return None;
        }
        let found = SuperJournal::named(bytes)?;
        found.state.lock().mentions += 1;
        Some(Self(found))
    }
}

impl Drop for Mention {
    fn drop(&mut self) {
        self.0.state.lock().mentions -= 1;
    }
}

/// Commits the writes of several databases in one transaction: that of the database with most writes takes those of the others. Their
/// own transactions end before, because they have the keys locked.
fn commit_together(mut members: Vec<Member>) -> Result<()> {
    members.sort_by_key(|member| member.writes.written.len() * member.database.fragment_bytes as u64);
    let is_durable = members.iter().any(|member| member.is_durable);
    let Some(largest) = members.pop() else { return Ok(()) };
    let mut transaction = largest.writes.transaction;
    let bytes = |member: &Member| member.writes.written.len() * member.database.fragment_bytes as u64;
    if members.iter().map(bytes).sum::<u64>() > MOST_BYTES_IN_MEMORY {
        return Err(Failure::full(format!(
            "a transaction over several databases can change {MOST_BYTES_IN_MEMORY} bytes at most beside those of one database"
        )));
    }
    let mut databases = vec![largest.database];
    for Member { database, writes, .. } in members {
        let keys = || writes.written.iter().map(|fragment| key_of(fragment).to_vec()).chain([SIZE_KEY.to_vec()]);
        let rows = keys().map(|key| Ok((writes.transaction.get(&database.table, &key)?, key)));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let cut = writes.cut;
        drop(writes);
        if cut < u64::MAX {
            transaction.delete_range(&database.table, key_of(cut).as_slice()..)?;
        }
        for (value, key) in rows {
            match value {
                Some(value) => transaction.put(&database.table, key, value)?,
                None => transaction.blind_delete(&database.table, key)?,
            }
        }
        databases.push(database);
    }
    let ticket = transaction.commit_async()?;
    databases.iter().for_each(|database| database.write_lock.count_commit());
    if is_durable {
        ticket.wait()?;
    }
    Ok(())
}
