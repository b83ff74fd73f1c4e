//! How far the opening of a database is, as a bar for each of its phases.

use tantalum::{OpenPhase, OpenProgress};
use tantalum_report::{Progress, Unit};

/// Shows how far creation or recovery is.
pub fn show() -> impl FnMut(OpenProgress) + Send + 'static {
    let mut shown: Option<(OpenPhase, Progress)> = None;
    move |progress| {
        if shown.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            if let Some((_, bar)) = shown.take() {
                bar.finish();
            }
            let label = match progress.phase {
                OpenPhase::Create => "creating",
                OpenPhase::ScanLog => "reading the log",
                OpenPhase::Redo => "recovering",
                _ => "opening",
            };
            shown = Some((progress.phase, Progress::bar(label, progress.total_bytes, Unit::Bytes)));
        }
        if let Some((_, bar)) = &shown {
            bar.set(progress.done_bytes);
        }
    }
}
