//! What the report says of how many seeds had which configuration, of a [`Search`].

use tantalum::LogHiding;

use super::Search;
use crate::config::LogLayout;

impl Search {
    pub(super) fn note_configuration(&mut self) {
        let config = &self.config;
        let layout = match config.log {
            LogLayout::Devices(n) => format!("log on {n} devices"),
            LogLayout::Partitions(n) => format!("log on {n} partitions"),
            LogLayout::Single => "log in the single layout".to_owned(),
            LogLayout::Striped(n, _) => format!("log striped over {n} devices"),
        };
        let isolation = if config.is_serializable { "serializable" } else { "snapshot isolation" };
        let release = if config.early_lock_release { "early lock release" } else { "locks held until durable" };
        let faults = config.faults.describe();
        let hiding = match config.log {
            LogLayout::Devices(n) if n > 1 => match config.log_hiding {
                [LogHiding::Off, LogHiding::On] => "late log writes: hiding without areas".to_owned(),
                [_, opened] => format!("late log writes: hiding {opened:?}").to_lowercase(),
            },
            _ => "late log writes waited for: one device".to_owned(),
        };
        let copies = match config.log_copies {
            1 => "log with one copy",
            _ => "log with two copies",
        };
        let coming = match config.spares.len() {
            0 => "log devices that stay".to_owned(),
            n => format!("log devices that come and go, {n} spare"),
        };
        let archive = match &config.archive {
            None => "log not archived",
            Some(archive) if archive.loses_log_one_in == 0 => "log archived",
            Some(_) => "log archived, and lost with all its devices now and then",
        };
        for profile in config.profiles() {
            self.report.profiles.entry(profile).or_default().seeds += 1;
        }
        for name in [
            format!("protection {}", config.protection),
            config.load.kind.name().to_owned(),
            format!("page size {}", config.page_size),
            layout,
            faults.to_owned(),
            hiding,
            coming,
            archive.to_owned(),
            copies.to_owned(),
            isolation.to_owned(),
            release.to_owned(),
            if config.checks_beside_clients { "checks beside clients" } else { "checks before and after clients" }
                .to_owned(),
            if config.closes_beside_clients { "closing beside clients" } else { "closing after clients" }.to_owned(),
            if config.panics { "commits that panic".to_owned() } else { "no panics".to_owned() },
        ] {
            self.report.configured(name);
        }
    }
}
