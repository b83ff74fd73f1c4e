//! Nodes in memory: those that were used lately.
//!
//! Two generations: what is used goes into the young one; when that is full it becomes the old one, and what was in the
//! old one and was not used since is dropped.

use std::{collections::HashMap, sync::Arc};

use super::node::{Node, Place};

#[derive(Default)]
pub(super) struct Cache {
    young: HashMap<Place, Arc<Node>>,
    old: HashMap<Place, Arc<Node>>,
    generation: usize,
}

impl Cache {
    /// Of so many nodes, at least 2.
    pub(super) fn new(nodes: usize) -> Self {
        Self { generation: nodes / 2, ..Self::default() }
    }

    pub(super) fn get(&mut self, place: Place) -> Option<Arc<Node>> {
        if let Some(node) = self.young.get(&place) {
            return Some(Arc::clone(node));
        }
        let node = self.old.remove(&place)?;
        self.insert(place, Arc::clone(&node));
        Some(node)
    }

    pub(super) fn insert(&mut self, place: Place, node: Arc<Node>) {
        if self.young.len() >= self.generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(place, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut cache = Cache::new(20);
        let node = |place| Arc::new(Node::new(0, vec![super::super::node::Entry { key: vec![1], place }]));
        cache.insert(0, node(0));
        for place in 1..100 {
            cache.insert(place, node(place));
            assert!(cache.get(0).is_some(), "{place}");
        }
        assert!(cache.get(50).is_none());
        assert!(cache.young.len() + cache.old.len() <= 21);
    }
}
