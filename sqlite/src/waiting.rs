//! How a busy handler waits. SQLite's own sleeps through the VFS, and does not say for what: it is for the database that last refused
//! this thread a lock.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    database::Database,
    write_lock::{ConnectionId, Place},
};

/// What this thread was refused.
struct Wanted {
    database: Weak<Database>,
    connection: ConnectionId,
    place: Place,
}

thread_local! {
    static WANTED: RefCell<Option<Wanted>> = const { RefCell::new(None) };
}

/// Notes that a connection of this thread was refused the write lock.
pub(crate) fn want(database: &Arc<Database>, connection: ConnectionId, place: Option<Place>) {
    let wanted = place.map(|place| Wanted { database: Arc::downgrade(database), connection, place });
    WANTED.with(|cell| *cell.borrow_mut() = wanted);
}

/// Notes that a connection of this thread got its lock.
pub(crate) fn forget() {
    WANTED.with(|cell| *cell.borrow_mut() = None);
}

/// `xSleep`: until the connection's turn comes, at most so long.
pub(crate) fn sleep(at_most: Duration) {
    let wanted = WANTED.with(|cell| cell.borrow_mut().take());
    match wanted.and_then(|wanted| Some((wanted.database.upgrade()?, wanted))) {
        Some((database, wanted)) => database.write_lock.sleep(wanted.connection, wanted.place, at_most),
        None => tantalum_rt::sleep(at_most),
    }
}
