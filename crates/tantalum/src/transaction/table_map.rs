//! A map by table, for what a transaction knows of each table that it uses. Nearly always that is one table, or a few: they lie side by
//! side, and the first takes no more memory than it needs.

use std::ops::Index;

use tantalum_store::TableId;

/// Values by table, in the order of the tables' numbers.
#[derive(Clone, Debug)]
pub(super) struct TableMap<T> {
    values: Vec<(TableId, T)>,
}

impl<T> Default for TableMap<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T> TableMap<T> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn get(&self, table: TableId) -> Option<&T> {
        self.find(table).ok().map(|at| &self.values[at].1)
    }

    pub fn get_mut(&mut self, table: TableId) -> Option<&mut T> {
        self.find(table).ok().map(|at| &mut self.values[at].1)
    }

    /// Sets what is known of a table.
    pub fn insert(&mut self, table: TableId, value: T) {
        match self.find(table) {
            Ok(at) => self.values[at].1 = value,
            Err(at) => self.add(at, table, value),
        }
    }

    /// What is known of a table, or the default from now on.
    pub fn or_default(&mut self, table: TableId) -> &mut T
    where
        T: Default,
    {
        let at = match self.find(table) {
            Ok(at) => at,
            Err(at) => {
                self.add(at, table, T::default());
                at
            }
        };
        &mut self.values[at].1
    }

    pub fn iter(&self) -> impl Iterator<Item = (TableId, &T)> {
        self.values.iter().map(|(table, value)| (*table, value))
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, value)| value)
    }

    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.values.into_iter().map(|(_, value)| value)
    }

    fn find(&self, table: TableId) -> Result<usize, usize> {
        self.values.binary_search_by_key(&table, |(known, _)| *known)
    }

    fn add(&mut self, at: usize, table: TableId, value: T) {
        if self.values.is_empty() {
            self.values.reserve_exact(1);
        }
        self.values.insert(at, (table, value));
    }
}

/// # Panics
/// If nothing is known of the table.
impl<T> Index<TableId> for TableMap<T> {
    type Output = T;

    fn index(&self, table: TableId) -> &T {
        self.get(table).expect("the table is known")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec((0u32..8, 0u8..4), 0..24)) {
            let (mut map, mut model) = (TableMap::default(), BTreeMap::new());
            for (table, step) in steps {
                let table = TableId(table);
                match step {
                    0 => {
                        map.insert(table, u32::from(step));
                        model.insert(table, u32::from(step));
                    }
                    1 => {
                        *map.or_default(table) += 1;
                        *model.entry(table).or_default() += 1;
                    }
                    _ => {
                        prop_assert_eq!(map.get_mut(table).map(|value| std::mem::replace(value, 9)).is_some(), model.contains_key(&table));
                        model.get_mut(&table).map(|value| std::mem::replace(value, 9));
                    }
                }
                prop_assert_eq!(map.get(table), model.get(&table));
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(map.iter().eq(model.iter().map(|(table, value)| (*table, value))));
                prop_assert!(map.values().eq(model.values()));
            }
            prop_assert!(map.into_values().eq(model.into_values()));
        }
    }
}
