//! Tantalum from C. `include/tantalum.h` is made from this crate, doc comments and all, and says what a C program has to know.
//!
//! Parameters have the types that C's pointers stand for: `Option<&T>` is a pointer that may be null, `Option<Box<T>>` one that the
//! function takes over. So what C promises by calling is said in a signature, and `unsafe` is left for bytes and texts
//! ([`tantalum_slice`], [`bytes`]), and for cursors, which borrow from a transaction that C holds ([`transaction`]).
//!
//! No panic crosses the border: every function runs in [`status::guarded`].

#![allow(unsafe_code)] // Exported names are unsafe attributes; each block says why it is sound.
#![allow(non_camel_case_types)] // The names are those of C.

pub mod bytes;
pub mod cursor;
pub mod database;
pub mod snapshot;
pub mod status;
pub mod transaction;

pub use bytes::{tantalum_buffer, tantalum_slice};
pub use cursor::{tantalum_bound, tantalum_cursor, tantalum_range};
pub use database::{tantalum_db, tantalum_options, tantalum_table};
pub use snapshot::tantalum_snapshot;
pub use status::tantalum_code;
pub use transaction::{tantalum_ticket, tantalum_transaction};
