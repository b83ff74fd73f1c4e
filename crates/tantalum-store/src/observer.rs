//! The observer of changed and written pages, for traces. None by default, which costs nothing.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{Change, PageId};

/// Is told of every change of a page and of every page that is written, while a database is open.
///
/// Calls come from many tasks at once, some of which hold latches: they must be quick, and must not use the database. The changes of
/// one page come in the order in which they are made. That it was written is told when that has ended; a change that came
/// meanwhile is told before, and is not in what was written.
///
/// An observer that panics stops the database, until it is opened again: a commit that was being logged returns
/// `OutcomeUnknown`, and all that follows the same cause.
pub trait PageObserver: Send + Sync {
    /// A change of a page was logged, and is about to be made.
    fn changed(&self, page: PageId, change: PageChange);

    /// A page was written to its store. One that keeps changes beside their page is never given a page.
    fn written(&self, page: PageId);
}

/// What a change does to a page.
///
/// ```
/// let change = tantalum_store::PageChange { operation: tantalum_store::PageOperation::Update, bytes: 49 };
/// assert_ne!(change.operation, tantalum_store::PageOperation::Insert);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageChange {
    /// What it does.
    pub operation: PageOperation,
    /// Bytes of its encoding in the log.
    pub bytes: u32,
}

/// The kinds of changes of a page.
///
/// ```
/// assert_eq!(format!("{:?}", tantalum_store::PageOperation::Whole), "Whole");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageOperation {
    /// A record comes.
    Insert,
    /// A record, or some bytes of a page without records, become others.
    Update,
    /// Records go.
    Delete,
    /// The page becomes an empty one, or a copy of an image.
    Whole,
}

/// The observer of a pool. Its panics, which come from code that is not the engine's and may come in a task in the background, are
/// errors here: what it panicked with.
pub struct Observer(Arc<dyn PageObserver>);

impl Observer {
    /// Tells of pages to `observer`.
    pub fn new(observer: Arc<dyn PageObserver>) -> Self {
        Self(observer)
    }

    /// Tells of changes of a page, as they are encoded in a record.
    pub fn changed(&self, page: PageId, changes: &[u8]) -> Result<(), String> {
        catch(|| tell(&*self.0, page, changes))
    }

    /// Tells that pages were written.
    pub fn written(&self, pages: &[PageId]) -> Result<(), String> {
        catch(|| pages.iter().for_each(|page| self.0.written(*page)))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

fn catch(tell: impl FnOnce()) -> Result<(), String> {
    let of_panic = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        format!("the page observer panicked: {}", text.unwrap_or("without a message"))
    };
    catch_unwind(AssertUnwindSafe(tell)).map_err(of_panic)
}

/// # Panics
/// When the changes are not what [`Change::encode_into`] makes.
fn tell(observer: &dyn PageObserver, page: PageId, mut changes: &[u8]) {
    while !changes.is_empty() {
        let before = changes.len();
        let change = Change::decode(&mut changes).expect("what was encoded can be decoded");
        let operation = match change {
            Change::InsertSlot { .. } => PageOperation::Insert,
            Change::ReplaceSlot { .. } | Change::PatchSlot { .. } | Change::WriteBytes { .. } => PageOperation::Update,
            Change::DeleteSlots { .. } => PageOperation::Delete,
            Change::Format { .. } | Change::Image(_) => PageOperation::Whole,
        };
        observer.changed(page, PageChange { operation, bytes: (before - changes.len()) as u32 });
    }
}
