//! What is drawn: lines about transactions, log and pages, a line of past rates, and a table of the log's devices.

use std::{collections::VecDeque, path::Path};

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Cell, Paragraph, Row, Sparkline, Table},
};
use tantalum_report::units;

use super::reading::{CommitTimes, DeviceReading, LogReading, PageReading, Reading};

/// What a line is about stands in so many columns.
const LABEL_WIDTH: usize = 12;
/// Columns of a bar.
const BAR_WIDTH: usize = 20;

/// Everything that is drawn.
pub struct Screen<'a> {
    pub dir: &'a Path,
    pub reading: &'a Reading,
    /// Past rates of commits, the latest last.
    pub commits: &'a VecDeque<u64>,
}

impl Screen<'_> {
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let lines = self.lines();
        let devices = self.reading.devices.len() as u16;
        let [top, middle, history, table, rest, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(lines.len() as u16),
            Constraint::Length(4),
            Constraint::Length(devices + 1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.title(top), top);
        frame.render_widget(Paragraph::new(lines), middle);
        frame.render_widget(self.history(history), history);
        frame.render_widget(self.devices(table), table);
        frame.render_widget(Paragraph::new(self.troubles()), rest);
        frame.render_widget(Line::from("q ends").dim(), keys);
    }

    fn title(&self, area: Rect) -> Line<'static> {
        let process = format!("process {}", self.reading.process);
        let width = usize::from(area.width).saturating_sub(process.len() + 2);
        let dir = shortened(&self.dir.display().to_string(), width);
        Line::from(vec![Span::from(format!("{dir:<width$}  ")).bold(), Span::from(process)])
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let Reading { commits_per_second, rollbacks_per_second, lock_waits_per_second, .. } = self.reading;
        let Reading { commit_times: times, lost_locks_per_second, snapshots, log, pages, .. } = self.reading;
        let mut lines = vec![
            line(
                "commits",
                [each_second(*commits_per_second), format!("rolled back {}", each_second(*rollbacks_per_second))],
            ),
            line("latency", commit_times(times)),
            line(
                "locks",
                [
                    format!("waits {}", each_second(*lock_waits_per_second)),
                    format!("deadlocks, timeouts {}", each_second(*lost_locks_per_second)),
                    format!("snapshots {snapshots}"),
                ],
            ),
        ];
        lines.extend(log_lines(log, *commits_per_second));
        lines.extend(page_lines(pages));
        lines
    }

    fn history(&self, area: Rect) -> Sparkline<'static> {
        let shown = self.commits.len().saturating_sub(usize::from(area.width));
        let rates: Vec<u64> = self.commits.iter().skip(shown).copied().collect();
        let most = rates.iter().max().copied().unwrap_or_default();
        let title = format!("commits a second, up to {}", units::count(most));
        Sparkline::default().block(Block::new().title(title.dim())).data(rates)
    }

    fn devices(&self, area: Rect) -> Table<'static> {
        const NUMBERS: [&str; 6] = ["writes/s", "bytes/s", "mean", "busy", "late/s", "hidden/s"];
        let widths = [9, 9, 8, 5, 7, 8];
        let name_width = usize::from(area.width).saturating_sub(widths.iter().map(|width| width + 1).sum());
        let right = |text: String| Cell::from(Line::from(text).right_aligned());
        let rows = self.reading.devices.iter().map(|device| {
            let DeviceReading { name, write_us, set_aside, is_changing, .. } = device;
            let state = if set_aside.is_some() {
                " (set aside)"
            } else if *is_changing {
                " (changing)"
            } else {
                ""
            };
            let name = shortened(name, name_width.saturating_sub(state.len())) + state;
            let numbers = [
                rate_of(device.writes_per_second),
                units::bytes(device.bytes_per_second.round() as u64),
                write_us.map_or("-".into(), duration_us),
                format!("{:.0} %", device.busy_share * 100.0),
                rate_of(device.late_per_second),
                rate_of(device.hidden_per_second),
            ];
            let row = Row::new([Cell::from(name)].into_iter().chain(numbers.map(right)));
            if set_aside.is_some() { row.style(Style::new().red()) } else { row }
        });
        let header = [Cell::from("log device")].into_iter().chain(NUMBERS.map(|name| right(name.into())));
        let widths = [Constraint::Fill(1)].into_iter().chain(widths.map(|width| Constraint::Length(width as u16)));
        Table::new(rows, widths).header(Row::new(header).dim()).column_spacing(1)
    }

    /// What an operator should look after.
    fn troubles(&self) -> Vec<Line<'static>> {
        let aside = self.reading.devices.iter().filter_map(|device| {
            let why = device.set_aside.as_ref()?;
            Some(format!("{} is set aside: {why}", device.name))
        });
        let failed = self.reading.pages.failed_writes;
        let failed = (failed > 0).then(|| format!("{} batches of pages could not be written", units::count(failed)));
        aside.chain(failed).map(|text| Line::from(text).red()).collect()
    }
}

fn commit_times(times: &CommitTimes) -> [String; 4] {
    let CommitTimes { p50_us, p99_us, p999_us, max_us } = *times;
    [("p50", p50_us), ("p99", p99_us), ("p99.9", p999_us), ("longest", max_us)]
        .map(|(name, us)| format!("{name} {}", us.map_or("-".into(), |us| duration_us(us as f64))))
}

fn log_lines(log: &LogReading, commits_per_second: f64) -> Vec<Line<'static>> {
    let LogReading { requests_per_second, bytes_per_second, write_us, used_bytes, capacity_bytes, .. } = log;
    let together = if *requests_per_second > 0.0 { commits_per_second / requests_per_second } else { 0.0 };
    let checkpoint = format!("{} since the checkpoint", units::bytes(log.since_checkpoint_bytes));
    let archive = log.archive_behind_bytes.map(|bytes| line("archive", [format!("{} behind", units::bytes(bytes))]));
    let mut lines = vec![
        line(
            "log",
            [
                format!("{} writes", each_second(*requests_per_second)),
                format!("{}/s", units::bytes(bytes_per_second.round() as u64)),
                format!("mean {}", write_us.map_or("-".into(), duration_us)),
                format!("{} commits each", units::number(together)),
            ],
        ),
        line("", [bar(*used_bytes, *capacity_bytes), checkpoint]),
    ];
    lines.extend(archive);
    lines
}

fn page_lines(pages: &PageReading) -> [Line<'static>; 3] {
    let PageReading { memory_bytes, frames, free_frames, reserve_frames, dirty, hit_share, .. } = pages;
    let hits = hit_share.map_or("-".into(), |share| format!("{:.2} %", share * 100.0));
    let cleaner = match reserve_frames {
        0 => "none: reads clean for themselves".to_owned(),
        reserve => format!("keeps {} frames free", units::count(*reserve)),
    };
    [
        line(
            "pool",
            [
                bar(frames.saturating_sub(*free_frames), *frames),
                format!("of {}", units::bytes(*memory_bytes)),
                format!("dirty {}", units::count(*dirty)),
            ],
        ),
        line(
            "pages",
            [
                format!("hits {hits}"),
                format!("read {}", each_second(pages.read_per_second)),
                format!("written {}", each_second(pages.written_per_second)),
                format!("dropped {}", each_second(pages.evicted_per_second)),
            ],
        ),
        line("cleaner", [cleaner, format!("reads that waited for it {}", each_second(pages.blocked_reads_per_second))]),
    ]
}

fn line(label: &str, parts: impl IntoIterator<Item = String>) -> Line<'static> {
    let parts: Vec<String> = parts.into_iter().collect();
    Line::from(vec![Span::from(format!("{label:<LABEL_WIDTH$}")).dim(), Span::from(parts.join("   "))])
}

fn each_second(rate: f64) -> String {
    rate_of(rate) + "/s"
}

fn rate_of(rate: f64) -> String {
    if rate == 0.0 { "0".into() } else { units::number(rate) }
}

fn duration_us(us: f64) -> String {
    units::duration_ns((us * 1000.0).round() as u64)
}

/// How much of a whole is used.
fn bar(used: u64, whole: u64) -> String {
    let share = if whole > 0 { (used as f64 / whole as f64).min(1.0) } else { 0.0 };
    let filled = (share * BAR_WIDTH as f64).round() as usize;
    format!("[{}{}] {:3.0} %", "#".repeat(filled), ".".repeat(BAR_WIDTH - filled), share * 100.0)
}

/// The end of a path that is too long: it tells more than its beginning.
fn shortened(path: &str, width: usize) -> String {
    let length = path.chars().count();
    match length <= width {
        true => path.to_owned(),
        false => "..".chars().chain(path.chars().skip(length + 2 - width.max(2))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::{super::reading, *};

    fn drawn(dir: &str, reading: &Reading, width: u16, height: u16) -> Vec<String> {
        let commits = (0..300).map(|n| n * 40).collect();
        let screen = Screen { dir: Path::new(dir), reading, commits: &commits };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    #[test]
    fn everything_fits_in_80_columns() {
        let lines = drawn("/srv/data/shop.db", &reading::tests::reading(), 80, 24);
        let text = lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>();
        assert!(text[0].starts_with("/srv/data/shop.db") && text[0].ends_with("process 4242"), "{}", text[0]);
        let has = |words: &str| assert!(text.iter().any(|line| line.contains(words)), "{words}\n{}", text.join("\n"));
        has("commits     10,000/s   rolled back 1.00/s");
        has("latency     p50 180 us   p99 2.30 ms   p99.9 -   longest 12 ms");
        has("locks       waits 15.0/s   deadlocks, timeouts 1.00/s   snapshots 3");
        has("log         1,500/s writes   3 MiB/s   mean 150 us   6.67 commits each");
        has("[########............]  39 %   10 MiB since the checkpoint");
        has("archive     4 KiB behind");
        has("[####################] 100 %   of 1 GiB   dirty 12,345");
        has("hits 99.00 %   read 5.00/s   written 250/s   dropped 4.00/s");
        has("keeps 32 frames free   reads that waited for it 1.00/s");
        has("commits a second, up to 11,960");
        has("/mnt/fast/log-0                  1,000  3.91 MiB   150 us  15 %    2.00     3.00");
        has("log-1 (changing)");
        has("log-2 (set aside)                    0       0 B        -   0 %");
        has("log-2 is set aside: it does not answer");
        assert_eq!(text[23], "q ends");
    }

    #[test]
    fn a_wide_terminal_shows_long_paths_and_a_small_one_what_fits() {
        let dir = format!("/srv/{}shop.db", "deep/".repeat(20));
        let reading = reading::tests::reading();
        let wide = drawn(&dir, &reading, 140, 40);
        assert!(wide[0].starts_with(&dir) && wide[0].ends_with("process 4242"), "{}", wide[0]);
        assert!(wide.iter().any(|line| line.contains("hidden/s")), "the table takes the whole width");
        let narrow = drawn(&dir, &reading, 80, 24);
        assert!(narrow[0].starts_with("..") && narrow[0].contains("deep/shop.db  process 4242"), "{}", narrow[0]);
        // Whatever does not fit is left out; nothing fails.
        for (width, height) in [(20, 5), (1, 1), (80, 3)] {
            assert_eq!(drawn(&dir, &reading, width, height).len(), usize::from(height));
        }
    }

    #[test]
    fn paths_keep_their_ends() {
        assert_eq!(shortened("/a/log-0", 8), "/a/log-0");
        assert_eq!(shortened("/a/b/log-0", 8), "../log-0");
        assert_eq!(shortened("/a/b", 1), "..");
        assert_eq!(bar(1, 0), format!("[{}]   0 %", ".".repeat(BAR_WIDTH)));
    }
}
