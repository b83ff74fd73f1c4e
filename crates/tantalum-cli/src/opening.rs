//! How far the opening of a database is, as a bar for each of its phases.

use tantalum::{OpenPhase, OpenProgress};

use crate::phases::Phases;

/// Shows how far creation or recovery is.
pub fn show() -> impl FnMut(OpenProgress) + Send + 'static {
    let mut phases = Phases::new();
    move |OpenProgress { phase, done_bytes, total_bytes, .. }| {
        let label = match phase {
            OpenPhase::Create => "creating",
            OpenPhase::ScanLog => "reading the log",
            OpenPhase::CheckPages => "checking pages",
            OpenPhase::Redo => "recovering",
            _ => "opening",
        };
        phases.show(phase, label, done_bytes, total_bytes);
    }
}
