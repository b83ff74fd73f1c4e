//! How far a long run has come.

use std::{
    fmt,
    io::{IsTerminal, Write, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tantalum_rt::{Instant, Mutex, now};

use crate::units::{self, Unit, duration_ns};

/// Where standard error is not a terminal, time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// How far a long run has come, on standard error.
///
/// On a terminal: a bar with rate and time left, or for a run without a known end one line that is kept up to date.
/// Elsewhere: a plain line every 10 seconds, so that runs shorter than that say nothing. Safe to share between tasks.
///
/// ```
/// use tantalum_report::{Progress, Unit};
///
/// let progress = Progress::bar("recovering", 3, Unit::Things);
/// for _ in 0..3 {
///     progress.add(1);
/// }
/// progress.finish();
/// ```
pub struct Progress(Kind);

enum Kind {
    Silent,
    Drawn(ProgressBar),
    Lines(Mutex<Lines>),
}

impl Progress {
    /// Progress of work of which `total` is to be done.
    pub fn bar(label: &str, total: u64, unit: Unit) -> Self {
        Self::on_stderr(label, Some(total), unit)
    }

    /// Progress of work that has no known end.
    pub fn open_ended(label: &str, unit: Unit) -> Self {
        Self::on_stderr(label, None, unit)
    }

    /// Progress that prints nothing.
    pub fn silent() -> Self {
        Self(Kind::Silent)
    }

    fn on_stderr(label: &str, total: Option<u64>, unit: Unit) -> Self {
        if !stderr().is_terminal() {
            return Self(Kind::Lines(Mutex::new(Lines::new(label, total, unit, Box::new(stderr())))));
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        bar.set_style(style(total.is_some(), unit));
        bar.set_prefix(label.to_owned());
        Self(Kind::Drawn(bar))
    }

    /// `amount` more is done.
    pub fn add(&self, amount: u64) {
        self.update(|done| done.saturating_add(amount));
    }

    /// `done` is done in all.
    pub fn set(&self, done: u64) {
        self.update(|_| done);
    }

    /// `total` is to be done in all, of work that is found to be more or less than it was taken for.
    pub fn set_total(&self, total: u64) {
        match &self.0 {
            Kind::Silent => {}
            Kind::Drawn(bar) => bar.set_length(total),
            Kind::Lines(lines) => lines.lock().total = Some(total),
        }
    }

    fn update(&self, change: impl Fn(u64) -> u64) {
        match &self.0 {
            Kind::Silent => {}
            Kind::Drawn(bar) => bar.update(|state| state.set_pos(change(state.pos()))),
            Kind::Lines(lines) => lines.lock().update(change),
        }
    }

    /// Replaces the remark that stands behind the numbers.
    pub fn remark(&self, text: &str) {
        match &self.0 {
            Kind::Silent => {}
            Kind::Drawn(bar) => bar.set_message(text.to_owned()),
            Kind::Lines(lines) => text.clone_into(&mut lines.lock().remark),
        }
    }

    /// The work is over: clears a bar; ends plain lines, if there were any, with a last one.
    pub fn finish(&self) {
        match &self.0 {
            Kind::Silent => {}
            Kind::Drawn(bar) => bar.finish_and_clear(),
            Kind::Lines(lines) => lines.lock().finish(),
        }
    }
}

fn style(has_total: bool, unit: Unit) -> ProgressStyle {
    let template = match (has_total, unit) {
        (true, Unit::Things) => "{prefix} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta} left {msg}",
        (true, Unit::Bytes) => {
            "{prefix} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left {msg}"
        }
        (false, Unit::Things) => "{prefix} {human_pos} {per_sec} {elapsed} {msg}",
        (false, Unit::Bytes) => "{prefix} {binary_bytes} {binary_bytes_per_sec} {elapsed} {msg}",
    };
    let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // A bar whose output fails is no failure of the work.
        let _ = write!(out, "{}/s", units::count(state.per_sec().round() as u64));
    };
    ProgressStyle::with_template(template)
        .expect("the templates above are well-formed")
        .with_key("per_sec", rate)
        .progress_chars("=> ")
}

/// Progress as plain lines, now and then.
struct Lines {
    label: String,
    total: Option<u64>,
    unit: Unit,
    done: u64,
    remark: String,
    started: Instant,
    last_line: Option<Instant>,
    out: Box<dyn Write + Send>,
}

impl Lines {
    fn new(label: &str, total: Option<u64>, unit: Unit, out: Box<dyn Write + Send>) -> Self {
        let (label, remark, started) = (label.to_owned(), String::new(), now());
        Self { label, total, unit, done: 0, remark, started, last_line: None, out }
    }

    fn update(&mut self, change: impl Fn(u64) -> u64) {
        self.done = change(self.done);
        if self.last_line.unwrap_or(self.started).elapsed() >= LINE_INTERVAL {
            self.write_line();
            self.last_line = Some(now());
        }
    }

    fn finish(&mut self) {
        if self.last_line.take().is_some() {
            self.write_line();
        }
    }

    fn write_line(&mut self) {
        let elapsed_ns = now().duration_since(self.started).as_nanos().max(1);
        let per_second = u128::from(self.done) * 1_000_000_000 / elapsed_ns;
        let mut line = format!("{}: {}", self.label, self.unit.format(self.done));
        if let Some(total) = self.total {
            line += &format!(" of {}", self.unit.format(total));
        }
        line += &format!(", {}/s", self.unit.format(clamp(per_second)));
        let left = u128::from(self.total.unwrap_or(0).saturating_sub(self.done));
        if left > 0 && self.done > 0 {
            line += &format!(", {} left", duration_ns(clamp(left * elapsed_ns / u128::from(self.done))));
        }
        if !self.remark.is_empty() {
            line += &format!(", {}", self.remark);
        }
        // The work goes on when its progress cannot be printed.
        let _ = writeln!(self.out, "{line}");
    }
}

fn clamp(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tantalum_rt::{Simulation, sleep};

    use super::*;

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What a run prints that adds 100 every second, for so many seconds.
    fn lines(total: Option<u64>, unit: Unit, seconds: u64) -> String {
        let run = move || {
            let text = Arc::new(Mutex::new(Vec::new()));
            let sink = Box::new(Sink(Arc::clone(&text)));
            let progress = Progress(Kind::Lines(Mutex::new(Lines::new("loading", total, unit, sink))));
            progress.remark("no errors");
            for _ in 0..seconds {
                sleep(Duration::from_secs(1));
                progress.add(100);
            }
            progress.finish();
            String::from_utf8(text.lock().clone()).expect("lines are text")
        };
        Simulation::new(0).run(run).expect_finished()
    }

    #[test]
    fn short_runs_say_nothing() {
        assert_eq!(lines(Some(900), Unit::Things, 9), "");
    }

    #[test]
    fn long_runs_say_how_long_they_will_take() {
        let expected = "loading: 1,000 of 2,500, 100/s, 15 s left, no errors
loading: 2,000 of 2,500, 100/s, 5 s left, no errors
loading: 2,500 of 2,500, 100/s, no errors
";
        assert_eq!(lines(Some(2500), Unit::Things, 25), expected);
    }

    #[test]
    fn open_ended_runs_say_how_fast_they_are() {
        let expected = "loading: 1000 B, 100 B/s, no errors\nloading: 1.17 KiB, 100 B/s, no errors\n";
        assert_eq!(lines(None, Unit::Bytes, 12), expected);
    }

    #[test]
    fn bars_of_all_kinds_can_be_drawn_and_set() {
        for unit in [Unit::Things, Unit::Bytes] {
            for total in [Some(10), None] {
                let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
                bar.set_style(style(total.is_some(), unit));
                let progress = Progress(Kind::Drawn(bar));
                progress.set(3);
                progress.add(4);
                let Kind::Drawn(bar) = &progress.0 else { unreachable!("made above") };
                assert_eq!(bar.position(), 7);
                progress.finish();
            }
        }
    }
}
