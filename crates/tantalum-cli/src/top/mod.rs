//! `tantalum top`: what a database does that another process has open, on the terminal or as JSON, an object for each interval.
//!
//! It asks that process for its [statistics](tantalum::Stats) again and again, and shows the [difference](reading).

mod reading;
mod screen;

use std::{
    collections::VecDeque,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tantalum_rt::{now, sleep};

use crate::{
    db::source::Remote,
    error::{Error, Out, Result},
};
use reading::{Reading, Sample};
use screen::Screen;

/// Rates of commits that are kept to be drawn.
const HISTORY: usize = 512;

#[derive(clap::Args)]
pub struct Arguments {
    /// The database's directory. A process must have the database open.
    dir: PathBuf,
    /// Seconds between two looks, from 0.1 to 60.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print a JSON object at each interval instead, until the database is closed.
    #[arg(long)]
    json: bool,
    /// End after so many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, from 0.1 to 60".to_owned())
}

/// Shows what the database does until the user ends it, or the database is closed.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { dir, json, .. } = arguments;
    if !json && !io::stdout().is_terminal() {
        return Err(Error::Usage("standard output is no terminal; --json prints an object at each interval".into()));
    }
    let remote = Remote::find(dir).map_err(|error| not_open(dir, &error))??;
    let first = sample(&remote)?;
    match json {
        true => stream(arguments, &remote, first)?,
        false => show(arguments, &remote, first)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn not_open(dir: &Path, error: &tantalum::Error) -> Error {
    let dir = dir.display();
    Error::Other(format!(
        "no process that has {dir} open can be asked: {error}; `tantalum db stat` shows a closed database"
    ))
}

fn sample(remote: &Remote) -> Result<Sample> {
    Ok(Sample { at: now(), stats: remote.call(&tantalum::control::Command::Stats)? })
}

fn stream(arguments: &Arguments, remote: &Remote, mut before: Sample) -> Result<()> {
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        sleep(arguments.interval);
        let after = sample(remote)?;
        let reading = Reading::between(remote.process, &before, &after);
        let line = serde_json::to_string(&reading).map_err(|error| Error::Other(error.to_string()))?;
        let mut out = Out::new();
        out.line(line)?;
        out.flush()?;
        (before, left) = (after, left - 1);
    }
    Ok(())
}

fn show(arguments: &Arguments, remote: &Remote, before: Sample) -> Result<()> {
    let mut terminal = ratatui::try_init().map_err(terminal_failed)?;
    let shown = draw_until_end(arguments, remote, before, &mut terminal);
    // What was shown goes with the screen; errors are printed after it.
    ratatui::restore();
    shown
}

fn terminal_failed(error: io::Error) -> Error {
    Error::Other(format!("the terminal cannot be used: {error}; --json prints an object at each interval"))
}

fn draw_until_end(
    arguments: &Arguments,
    remote: &Remote,
    mut before: Sample,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<()> {
    let Arguments { dir, interval, count, .. } = arguments;
    let mut left = count.unwrap_or(u64::MAX);
    let mut commits = VecDeque::new();
    let mut reading = Reading::between(remote.process, &before, &before);
    while left > 0 {
        let screen = Screen { dir, reading: &reading, commits: &commits };
        terminal.draw(|frame| screen.draw(frame)).map_err(terminal_failed)?;
        let elapsed = now() - before.at;
        match interval.checked_sub(elapsed) {
            Some(rest) if !rest.is_zero() => {
                if is_end_requested(rest)? {
                    return Ok(());
                }
            }
            _ => {
                let after = sample(remote)?;
                reading = Reading::between(remote.process, &before, &after);
                commits.push_back(reading.commits_per_second.round() as u64);
                if commits.len() > HISTORY {
                    commits.pop_front();
                }
                (before, left) = (after, left - 1);
            }
        }
    }
    Ok(())
}

/// Waits for a key or another size of the terminal. Whether the user wants to end.
fn is_end_requested(wait: Duration) -> Result<bool> {
    if !event::poll(wait).map_err(terminal_failed)? {
        return Ok(false);
    }
    Ok(match event::read().map_err(terminal_failed)? {
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        },
        _ => false,
    })
}
