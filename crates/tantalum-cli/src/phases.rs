//! How far something is that has several phases: a bar for each.

use tantalum_report::{Progress, Unit};

/// The bar of the present phase.
pub struct Phases<P> {
    shown: Option<(P, Progress)>,
}

impl<P: PartialEq> Phases<P> {
    /// Before the first phase.
    pub fn new() -> Self {
        Self { shown: None }
    }

    /// Shows how far `phase`, whose bar bears `label`, is.
    pub fn show(&mut self, phase: P, label: &str, done_bytes: u64, total_bytes: u64) {
        if self.shown.as_ref().is_none_or(|(before, _)| *before != phase) {
            self.end();
            self.shown = Some((phase, Progress::bar(label, total_bytes, Unit::Bytes)));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set(done_bytes);
        }
    }
}

impl<P> Phases<P> {
    fn end(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish();
        }
    }
}

impl<P> Drop for Phases<P> {
    fn drop(&mut self) {
        self.end();
    }
}
