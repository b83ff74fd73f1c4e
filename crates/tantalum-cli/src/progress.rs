//! How far a command is, on standard error: one bar after the other.
//!
//! A simulation must not wait for the world outside, so a benchmark only sends what it is at ([`Watch`]), and a thread of its own
//! draws that. (The benchmark has the main thread: glibc gives others memory page by page.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use tantalum::{OpenPhase, OpenProgress};
use tantalum_report::{Progress, Unit};

use crate::error::{Error, Result};

/// The bar of what a command is at. Another label begins another bar.
#[derive(Default)]
pub struct Bars(Option<(&'static str, Progress)>);

impl Bars {
    /// Shows how many bytes of a phase are done.
    pub fn bytes(&mut self, label: &'static str, done: u64, total: u64) {
        self.show(label, Unit::Bytes, done, Some(total), "");
    }

    /// Shows how many things of a phase are done.
    pub fn things(&mut self, label: &'static str, done: u64, total: u64) {
        self.show(label, Unit::Things, done, Some(total), "");
    }

    /// Without a total, the end is not known.
    fn show(&mut self, label: &'static str, unit: Unit, done: u64, total: Option<u64>, remark: &str) {
        if self.0.as_ref().is_none_or(|(shown, _)| *shown != label) {
            self.end();
            self.0 = Some((
                label,
                match total {
                    Some(total) => Progress::bar(label, total, unit),
                    None => Progress::open_ended(label, unit),
                },
            ));
        }
        if let Some((_, bar)) = &self.0 {
            bar.remark(remark);
            if let Some(total) = total {
                bar.set_total(total);
            }
            bar.set(done);
        }
    }

    fn end(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish();
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.end();
    }
}

/// Shows how far the creation or recovery of a database is.
pub fn show_opening() -> impl FnMut(OpenProgress) + Send + 'static {
    let mut bars = Bars::default();
    move |OpenProgress { phase, done_bytes, total_bytes, .. }| {
        let label = match phase {
            OpenPhase::Create => "creating",
            OpenPhase::ScanLog => "reading the log",
            OpenPhase::CheckPages => "checking pages",
            OpenPhase::Redo => "recovering",
            _ => "opening",
        };
        bars.bytes(label, done_bytes, total_bytes);
    }
}

/// What a benchmark is at.
pub struct Stage {
    /// What it does; another label begins another bar.
    pub label: &'static str,
    pub done: u64,
    /// Without one, the end is not known.
    pub total: Option<u64>,
    pub remark: String,
}

/// Where a benchmark tells what it is at.
pub struct Watch(Sender<Stage>);

impl Watch {
    pub fn show(&self, stage: Stage) {
        // A benchmark goes on when the receiver is gone.
        let _ = self.0.send(stage);
    }

    /// A stage without numbers.
    pub fn label(&self, label: &'static str) {
        self.show(Stage { label, done: 0, total: None, remark: String::new() });
    }
}

/// Runs `body` to its end and shows meanwhile what it is at.
pub fn watched<T>(body: impl FnOnce(Watch) -> Result<T>) -> Result<T> {
    const REDRAW: Duration = Duration::from_millis(20);
    let (sender, stages) = channel();
    let over = Over(Arc::default());
    let is_over = Arc::clone(&over.0);
    let drawer = tantalum_rt::spawn("progress", move || {
        let mut bars = Bars::default();
        while !is_over.load(Ordering::Acquire) {
            tantalum_rt::sleep(REDRAW);
            if let Some(Stage { label, done, total, remark }) = stages.try_iter().last() {
                bars.show(label, Unit::Things, done, total, &remark);
            }
        }
    });
    let result = body(Watch(sender));
    drop(over);
    // Joined before anything is printed over its line.
    drawer.join().map_err(|_| Error::Other("the progress bar panicked; the message is above".to_owned()))?;
    result
}

/// Ends the drawing, also where the benchmark panics.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
