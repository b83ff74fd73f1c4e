//! SQLite databases in [Tantalum](tantalum): a VFS for SQLite, so that programs which use SQLite get group commit, readers that never wait
//! for a writer, a log over several devices, and the backups of the engine.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("app.db");
//! # let path = path.display();
//! tantalum_sqlite::register(tantalum_sqlite::Options::new())?;
//! let connection = rusqlite::Connection::open(format!("file:{path}?vfs=tantalum"))?;
//! connection.execute_batch("CREATE TABLE users (name TEXT); INSERT INTO users VALUES ('Ada')")?; // durable when it returns
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Connections, of one process or several, write one after another, but wait together until what they wrote is durable: SQLite itself keeps a database
//! locked until then. The page [SQLite](https://github.com/tantalum/tantalum/blob/main/docs/use/sqlite.md) of the documentation says what
//! is as in SQLite and what is not.

mod api;
mod client;
mod database;
mod database_file;
mod failure;
mod file;
mod fragments;
mod journal;
mod main_file;
mod options;
mod pointer;
mod pragma;
mod process;
mod protocol;
mod server;
mod status;
mod store;
mod super_journal;
mod vfs;
mod view;
mod write_lock;
mod writes;

#[doc(hidden)]
pub use api::{Api, AutoExtension, TableApi};
pub use failure::last_error;
pub use options::Options;
pub use store::Engine;
#[doc(hidden)]
pub use tantalum::ErrorKind;
#[cfg(feature = "linked")]
pub use vfs::register;
#[doc(hidden)]
pub use vfs::register_with;

/// The name under which SQLite knows the VFS.
pub const VFS_NAME: &str = "tantalum";
