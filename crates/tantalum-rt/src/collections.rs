//! Hash maps and sets whose iteration order is the same in every run.
//!
//! The hasher has a fixed seed. It does not resist chosen keys: use a `BTreeMap` where an attacker picks them and
//! their number is not bounded.

/// A hash map with a fixed hasher: the same insertions give the same iteration order in every process.
///
/// ```
/// let mut pages: tantalum_rt::collections::HashMap<u64, &str> = Default::default();
/// pages.insert(7, "root");
/// assert_eq!(pages.get(&7), Some(&"root"));
/// ```
pub type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// A hash set with a fixed hasher, as [`HashMap`].
pub type HashSet<K> = hashbrown::HashSet<K, FixedState>;

/// The hasher of [`HashMap`] and [`HashSet`].
pub type FixedState = foldhash::fast::FixedState;

/// Entries of a [`HashMap`], found with one look-up.
pub use hashbrown::hash_map::Entry;
