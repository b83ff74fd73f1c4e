//! A table with two secondary indexes, kept right by transactions: one is unique, one has many rows for a value.
//!
//! `cargo run -p tantalum --example secondary_index --features postcard -- /path/to/users.db`

use std::{env, path::Path};

use serde::{Deserialize, Serialize};
use tantalum::{Db, ErrorKind, Postcard, Reader, Result, Transaction, TypedTable};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct User {
    email: String,
    city: String,
}

/// The rows, and what finds them.
struct Users {
    rows: TypedTable<u64, Postcard<User>>,
    /// One user for an e-mail address.
    by_email: TypedTable<String, u64>,
    /// Many users of a city: the number is part of the key, and there is no value.
    by_city: TypedTable<(String, u64), ()>,
}

impl Users {
    fn open(db: &Db) -> Result<Self> {
        Ok(Self {
            rows: db.table("users")?.typed(),
            by_email: db.table("users-by-email")?.typed(),
            by_city: db.table("users-by-city")?.typed(),
        })
    }

    /// Adds or changes a user, and the entries of the indexes with it. An address that another user has is refused by the index.
    fn put(&self, tx: &mut Transaction, id: u64, user: &User) -> Result<()> {
        self.delete(tx, id)?;
        self.by_email.insert(tx, &user.email, &id)?;
        self.by_city.put(tx, (&user.city, id), &())?;
        self.rows.put(tx, id, user)
    }

    fn delete(&self, tx: &mut Transaction, id: u64) -> Result<()> {
        if let Some(before) = self.rows.get_for_update(tx, id)? {
            self.by_email.delete(tx, &before.email)?;
            self.by_city.delete(tx, (&before.city, id))?;
            self.rows.delete(tx, id)?;
        }
        Ok(())
    }

    fn of_email(&self, from: &impl Reader, email: &str) -> Result<Option<User>> {
        match self.by_email.get(from, email)? {
            Some(id) => self.rows.get(from, id),
            None => Ok(None),
        }
    }

    fn of_city(&self, from: &impl Reader, city: &str) -> Result<Vec<User>> {
        let mut users = Vec::new();
        for entry in self.by_city.prefix(from, (city,))? {
            let ((_, id), ()) = entry?;
            users.extend(self.rows.get(from, id)?);
        }
        Ok(users)
    }
}

fn main() -> Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-users").into());
    run(path.as_ref())
}

fn run(path: &Path) -> Result<()> {
    let db = Db::open(path)?;
    let users = Users::open(&db)?;
    let user = |email: &str, city: &str| User { email: email.into(), city: city.into() };
    db.transact(|tx| {
        users.put(tx, 1, &user("ada@example.org", "London"))?;
        users.put(tx, 2, &user("grace@example.org", "New York"))?;
        users.put(tx, 3, &user("edsger@example.org", "Nuenen"))
    })?;

    // Grace moves, and the index with her. All of it is durable, or none.
    db.transact(|tx| users.put(tx, 2, &user("grace@example.org", "London")))?;

    // An address is taken once: the transaction that tries it again changes nothing.
    let refused = db.transact(|tx| users.put(tx, 3, &user("ada@example.org", "Austin")));
    assert!(refused.is_err_and(|error| error.kind() == ErrorKind::AlreadyExists));

    // A snapshot shows rows and indexes of one moment.
    let snapshot = db.snapshot()?;
    for user in users.of_city(&snapshot, "London")? {
        println!("in London: {}", user.email);
    }
    assert_eq!(users.of_city(&snapshot, "London")?.len(), 2);
    assert_eq!(users.of_city(&snapshot, "New York")?, []);
    assert_eq!(users.of_email(&snapshot, "edsger@example.org")?, Some(user("edsger@example.org", "Nuenen")));
    db.close()
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("db")).unwrap();
    run(&dir.path().join("db")).unwrap(); // again, on what is there
}
