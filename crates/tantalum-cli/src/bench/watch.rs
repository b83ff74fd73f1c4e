//! How far a benchmark is, in either world.
//!
//! A simulation must not wait for the world outside, so the benchmark only sends what it is at, and a thread of its own
//! draws that. (The benchmark has the main thread: glibc gives others memory page by page.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use tantalum_report::{Progress, Unit};

use crate::error::{Error, Result};

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
        let mut shown = None;
        while !is_over.load(Ordering::Acquire) {
            tantalum_rt::sleep(REDRAW);
            draw(&stages, &mut shown);
        }
        if let Some((_, bar)) = shown {
            bar.finish();
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

fn draw(stages: &Receiver<Stage>, shown: &mut Option<(&'static str, Progress)>) {
    let Some(stage) = stages.try_iter().last() else { return };
    if shown.as_ref().is_none_or(|(label, _)| *label != stage.label) {
        let bar = match stage.total {
            Some(total) => Progress::bar(stage.label, total, Unit::Things),
            None => Progress::open_ended(stage.label, Unit::Things),
        };
        if let Some((_, old)) = shown.replace((stage.label, bar)) {
            old.finish();
        }
    }
    if let Some((_, bar)) = shown {
        bar.remark(&stage.remark);
        bar.set(stage.done);
    }
}
