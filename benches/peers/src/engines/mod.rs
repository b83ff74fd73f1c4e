//! One adapter for each engine: how it is set up, and why so.

pub mod fjall;
pub mod group_log;
pub mod lmdb;
pub mod raw;
pub mod redb;
pub mod rocksdb;
pub mod sqlite;
pub mod tantalum;
#[cfg(test)]
mod tests;
