//! A search index that follows a table by its change feed. The index is a database of its own, as it could be another program's: it
//! stores where it stands with what it has indexed, in the same transaction, and goes on from there when it is started again.
//!
//! `cargo run -p tantalum --example search_index -- /path/to/directory`

use std::{collections::BTreeSet, env, path::Path, time::Duration};

use tantalum::{Change, ChangeFeed, CommittedChanges, Db, ErrorKind, FeedPosition, Result, Transaction};

/// Which notes have which words.
struct Index {
    db: Db,
    /// From a word, a zero byte and the key of a note, to nothing.
    places: tantalum::Table,
    /// From the key of a note to its words, which go when the note is changed.
    words: tantalum::Table,
    state: tantalum::Table,
}

const POSITION: &str = "position";

fn words_of(text: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(text).to_lowercase();
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn place(word: &str, note: &[u8]) -> Vec<u8> {
    [word.as_bytes(), b"\0", note].concat()
}

impl Index {
    fn open(path: &Path) -> Result<Self> {
        let db = Db::open(path)?;
        let [places, words, state] = [db.table("places")?, db.table("words")?, db.table("state")?];
        Ok(Self { db, places, words, state })
    }

    /// The feed, from where the index stands on. A new index, and one that fell too far behind, begins with the notes as they are.
    fn follow(&self, notes: &Db) -> Result<ChangeFeed> {
        let table = notes.table("notes")?;
        notes.start_change_feed(&table)?;
        if let Some(stored) = self.db.get(&self.state, POSITION)? {
            let mut feed = notes.changes(&FeedPosition::from_bytes(&stored)?)?;
            match self.catch_up(&mut feed) {
                Err(error) if error.kind() == ErrorKind::FellBehind => println!("{error}"),
                caught_up => return caught_up.map(|()| feed),
            }
        }
        // First the position, then the rows: what is committed in between comes twice, which does no harm.
        let position = notes.feed_position()?;
        self.db.transact(|tx| {
            tx.delete_range(&self.places, ..)?;
            tx.delete_range(&self.words, ..)?;
            for row in notes.range(&table, ..)? {
                let (key, text) = row?;
                self.index(tx, &key, &text)?;
            }
            tx.put(&self.state, POSITION, position.to_bytes())
        })?;
        notes.changes(&position)
    }

    fn catch_up(&self, feed: &mut ChangeFeed) -> Result<()> {
        // A service waits longer, and for ever.
        while let Some(transaction) = feed.next_within(Duration::from_millis(1))? {
            self.apply(&transaction)?;
        }
        Ok(())
    }

    /// Indexes what a transaction changed, and stores that it did.
    fn apply(&self, transaction: &CommittedChanges) -> Result<()> {
        self.db.transact(|tx| {
            for change in transaction.changes() {
                match change? {
                    Change::Put { table, key, value } if &*table == "notes" => {
                        // A large text that was replaced since comes with a later change.
                        if let Some(text) = value.read()? {
                            self.index(tx, &key, &text)?;
                        }
                    }
                    Change::Delete { table, key } if &*table == "notes" => self.index(tx, &key, b"")?,
                    _ => {}
                }
            }
            tx.put(&self.state, POSITION, transaction.position().to_bytes())
        })
    }

    /// The words of a note are these now.
    fn index(&self, tx: &mut Transaction, note: &[u8], text: &[u8]) -> Result<()> {
        let before = tx.get(&self.words, note)?.map(|words| words_of(&words)).unwrap_or_default();
        let now = words_of(text);
        for word in before.difference(&now) {
            tx.delete(&self.places, place(word, note))?;
        }
        for word in now.difference(&before) {
            tx.put(&self.places, place(word, note), "")?;
        }
        if now.is_empty() {
            return tx.delete(&self.words, note).map(drop);
        }
        tx.put(&self.words, note, now.into_iter().collect::<Vec<_>>().join(" "))
    }

    fn search(&self, word: &str) -> Result<Vec<String>> {
        let begin = place(&word.to_lowercase(), b"");
        let mut found = Vec::new();
        for row in self.db.prefix(&self.places, &begin)? {
            found.push(String::from_utf8_lossy(&row?.0[begin.len()..]).into_owned());
        }
        Ok(found)
    }
}

fn main() -> Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-search").into());
    run(path.as_ref())
}

fn run(path: &Path) -> Result<()> {
    let notes = Db::open(path.join("notes"))?;
    let table = notes.table("notes")?;
    let index = Index::open(&path.join("index"))?;
    let mut feed = index.follow(&notes)?;
    notes.transact(|tx| {
        tx.put(&table, "monday", "Water the flowers, and buy bread")?;
        tx.put(&table, "tuesday", "Buy flowers for Ada")
    })?;
    notes.put(&table, "monday", "Buy bread")?;
    index.catch_up(&mut feed)?;
    println!("flowers: {:?}", index.search("flowers")?);
    println!("buy: {:?}", index.search("buy")?);
    assert_eq!(index.search("flowers")?, ["tuesday"]);
    assert_eq!(index.search("Buy")?, ["monday", "tuesday"]);
    index.db.close()?;
    notes.close()
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path()).unwrap();
    // What changes while the indexer does not run is found when the index is opened again.
    let notes = Db::open(dir.path().join("notes")).unwrap();
    let table = notes.table("notes").unwrap();
    notes.delete(&table, "tuesday").unwrap();
    notes.put(&table, "friday", "Ada thanks for the flowers").unwrap();
    let index = Index::open(&dir.path().join("index")).unwrap();
    assert_eq!(index.search("ada").unwrap(), ["tuesday"]);
    index.follow(&notes).unwrap();
    assert_eq!(index.search("ada").unwrap(), ["friday"]);
    // A second index begins with what is there.
    let second = Index::open(&dir.path().join("second")).unwrap();
    second.follow(&notes).unwrap();
    assert_eq!(second.search("flowers").unwrap(), ["friday"]);
    assert_eq!(second.search("bread").unwrap(), ["monday"]);
}
