//! Ways down the tree: with read latches to a node, and with write latches to a node and its parent.

use super::cursor::LeafPosition;
use super::node::Node;
use super::{Tree, damaged};
use crate::buffer::{PageView, PageWriteGuard};
use crate::error::Result;
use crate::page::header;

/// A node latched for a change of structure, and its parent.
pub(super) struct Latched {
    pub(super) parent: Option<Parent>,
    pub(super) node: PageWriteGuard,
}

/// The parent of a node that is about to change.
pub(super) struct Parent {
    pub(super) guard: PageWriteGuard,
    /// The parent's entry that names the node.
    pub(super) entry: usize,
}

impl LeafPosition<'_> {
    /// The entry of an inner node to go down by.
    fn choose(self, node: &Node<'_>) -> Result<usize> {
        match self {
            LeafPosition::Containing(key) => node.child_for(key),
            LeafPosition::Before(bound) => node.child_before(bound),
            LeafPosition::First if node.len() > 0 => Ok(0),
            LeafPosition::Last if node.len() > 0 => Ok(node.len() - 1),
            LeafPosition::First | LeafPosition::Last => Err(node.error("an inner page without children")),
        }
    }

    /// Whether the way to this position can lead through the node.
    pub(super) fn is_in(self, node: &Node<'_>) -> bool {
        match self {
            LeafPosition::Containing(key) => node.covers(key),
            LeafPosition::Before(bound) => node.covers_before(bound),
            LeafPosition::First => node.lower().is_empty(),
            LeafPosition::Last => node.upper().is_none(),
        }
    }
}

impl Tree {
    /// Goes down to the node of the given level, or to the root when the tree is lower than that, taking each read
    /// latch before it releases the parent's.
    pub(super) fn descend(&self, at: LeafPosition<'_>, level: u8) -> Result<PageView<'_>> {
        let mut page = self.pool.read(self.root)?;
        loop {
            let node = Node::read(&page)?;
            self.check_owner(&page)?;
            if !at.is_in(&node) {
                return Err(node.error("the way to a key leads through it, but its fences exclude the key"));
            }
            if node.level() <= level {
                return Ok(page);
            }
            let child = self.pool.read(node.child(at.choose(&node)?)?)?;
            check_step(node.level(), &child)?;
            page = child;
        }
    }

    /// Latches the node of `level` on the way to `key` for writing, and its parent. `None` when the tree is lower than
    /// that.
    pub(super) fn latch_for_change(&self, key: &[u8], level: u8) -> Result<Option<Latched>> {
        let at = LeafPosition::Containing(key);
        loop {
            let root = self.pool.pin(self.root)?;
            let height = header::level(&root.read());
            if height < level {
                return Ok(None);
            }
            if height > level.saturating_add(1) {
                let above = self.descend(at, level + 2)?;
                if header::level(&above) != level + 2 {
                    continue;
                }
                let node = Node::read(&above)?;
                let page = self.pool.pin(node.child(at.choose(&node)?)?)?;
                let guard = page.write();
                check_step(level + 2, &guard)?;
                drop(above);
                return self.latch_child(guard, key).map(Some);
            }
            let guard = root.write();
            self.check_owner(&guard)?;
            if header::level(&guard) != height {
                continue;
            }
            if height == level {
                return Ok(Some(Latched { parent: None, node: guard }));
            }
            return self.latch_child(guard, key).map(Some);
        }
    }

    /// Latches the child of a latched parent. Nobody who holds the child's latch waits for an inner page, so waiting is
    /// safe.
    fn latch_child(&self, guard: PageWriteGuard, key: &[u8]) -> Result<Latched> {
        let at = LeafPosition::Containing(key);
        let parent = Node::read(&guard)?;
        self.check_owner(&guard)?;
        if !at.is_in(&parent) {
            return Err(parent.error("the way to a key leads through it, but its fences exclude the key"));
        }
        let entry = at.choose(&parent)?;
        let child = self.pool.pin(parent.child(entry)?)?.write();
        check_step(parent.level(), &child)?;
        self.check_owner(&child)?;
        if !at.is_in(&Node::read(&child)?) {
            return Err(damaged(&child, "the way to a key leads through it, but its fences exclude the key"));
        }
        Ok(Latched { parent: Some(Parent { guard, entry }), node: child })
    }
}

/// Checks that a step down goes down by one: no damage can make a descent endless.
pub(super) fn check_step(parent_level: u8, child: &[u8]) -> Result<()> {
    if header::level(child).checked_add(1) == Some(parent_level) {
        return Ok(());
    }
    Err(damaged(
        child,
        &format!("it stands below a page of level {parent_level}, but its own level is {}", header::level(child)),
    ))
}
