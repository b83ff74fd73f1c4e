//! The leaf of a key, without coming down to it where that is known from before.
//!
//! Every page that is a leaf of this table and whose fences include a position is the leaf of that position: a table has one
//! tree, and whatever takes keys from a leaf, or a leaf from the tree, changes its page in the same group, under its latch. So a
//! hint from before needs nothing but a look at the page that it leads to.

use tantalum_store::{PageKind, page::header};

use super::Tree;
use super::cursor::LeafPosition;
use super::node::Node;
use crate::buffer::{PageView, Question};
use crate::error::Result;

impl LeafPosition<'_> {
    fn question(self, tree: &Tree) -> Question {
        let (kind, key) = match self {
            LeafPosition::Containing(key) => (0u8, key),
            LeafPosition::Before(bound) => (1, bound),
            LeafPosition::First => (2, &[][..]),
            LeafPosition::Last => (3, &[][..]),
        };
        Question::new((tree.owner.0, kind, key))
    }
}

impl Tree {
    /// Shows `f` the leaf of a position, latched for reading meanwhile, and the entry that `f` returned of it the last time, or any
    /// other. `f` must be quick and wait for no inner page.
    pub(super) fn at_leaf<R>(
        &self,
        at: LeafPosition<'_>,
        f: impl FnOnce(&Node<'_>, &PageView<'_>, usize) -> Result<(R, usize)>,
    ) -> Result<R> {
        let question = at.question(self);
        // What was guessed wrong is let go before anything else is latched.
        if let Some((page, entry)) = self.pool.guess(question)
            && let Some(node) = self.leaf_at(at, &page)
        {
            let (result, found) = f(&node, &page, entry)?;
            self.pool.found(question, &page, found, Some(entry));
            return Ok(result);
        }
        let page = self.descend(at, 0)?;
        let (result, found) = f(&Node::read(&page)?, &page, 0)?;
        self.pool.found(question, &page, found, None);
        Ok(result)
    }

    /// The leaf in a page, if it is that of a position.
    fn leaf_at<'p>(&self, at: LeafPosition<'_>, page: &'p PageView<'_>) -> Option<Node<'p>> {
        let is_ours = header::kind(page).ok()? == PageKind::Leaf && header::owner(page) == self.owner;
        let node = is_ours.then(|| Node::read(page).ok())??;
        at.is_in(&node).then_some(node)
    }
}
