//! Orders to a database that is open in another process, through the Unix socket `control.sock` in its directory. It is
//! there if [`Builder::control_socket`](crate::Builder::control_socket) asks for it.
//!
//! The socket can be used by the directory's owner only (mode 0600). It speaks JSON, a line at a time. A request is
//!
//! ```json
//! {"version":1,"command":"add-device","path":"/mnt/fast/log"}
//! ```
//!
//! with one of the commands of [`Command`]. The answer is any number of lines `{"progress":{...}}`, and then one line
//! `{"result":...}` or `{"error":"..."}`. Before the last line come, if they were asked for:
//!
//! - rows, as lines `{"rows":{"table":"...","rows":[["key","value"],...]}}`: each character of keys and values, U+0000 to U+00FF, is a byte;
//! - values of 128 KiB and more in pieces, as lines `{"piece":{"table":"...","key":"...","bytes":"...","is_last":false}}`;
//! - changes of the [change feed](crate::ChangeFeed), as lines `{"changes":{"changes":[...],"position":"..."}}`.
//!
//! Behind the request to put a large value come its pieces, as lines `{"bytes":"...","is_last":false}`.
//!
//! A connection can carry several requests, one after the other. The database hangs up on a line that is longer than 1 MiB, on
//! one that is not there within ten seconds, and on more than four connections at a time, besides eight that follow the change feed;
//! and on a client that takes no rows or changes for ten minutes. A command that was begun ends, also if the client hangs up; but a
//! value of which the end does not come is not written.
//!
//! ```
//! use tantalum::control::{Client, Command};
//!
//! # let dir = tempfile::tempdir()?;
//! let db = tantalum::Db::builder().log_bytes(4 << 20).control_socket(true).open(dir.path())?;
//! let mut client = Client::connect(dir.path())?; // from any process
//! client.call(&Command::AddDevice { path: "log-1".into() }, &mut |_| {})?;
//! assert_eq!(db.stats()?.log.devices.len(), 2);
//! # db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod changes;
mod client;
mod pieces;
mod protocol;
mod rows;
mod server;
mod write;

pub use crate::ValueSink;
pub use changes::{ChangeSelection, ChangeSink, ChangesFrom, FedChange};
pub use client::Client;
pub use protocol::{Command, LINE_BYTES_MAX, Progress};
pub use rows::{RowSelection, Rows, TableSize, table_sizes};
pub(crate) use server::serve;
pub use write::{KeyBounds, TableWrite, Written};
