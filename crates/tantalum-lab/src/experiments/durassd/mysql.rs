//! The server that the paper ran LinkBench on: MySQL on XFS, at its true size ([`innodb`]).

use std::time::Duration;

use tantalum_flash::Profile;

use super::scaled_server::DRIVE;
use crate::{
    error::Result,
    experiments::Settings,
    finding::Basis,
    micro::Fsync,
    scenario::{Drive, FileUse, Filled, innodb::Server},
};

pub(super) const GB: u64 = 1_000_000_000;

/// Of Figure 5 and Table 3.
const BUFFER_GB: u64 = 10;

/// Of the paper's drives, of which the database takes 100 GB and the three files of the log 12 (section 4.2). The emulated ones are
/// smaller, and the same share of them is used: nothing is collected. That of the log is so small since the emulator writes a block of
/// its map in one go, where firmware would spread it: with 4 GiB a commit in a hundred takes 86 ms. Chosen after that was seen.
const DRIVE_GB: u64 = 480;
const DATABASE_GB: u64 = 100;
const LOG_GB: u64 = 12;
const DATA_DRIVE_BYTES: u64 = 2 << 30;
const LOG_DRIVE_BYTES: u64 = 128 << 20;

/// Section 4.3.1.
const CLIENTS: usize = 128;
/// Section 4.2: four processors of eight cores, of two hardware threads each (Intel's data sheet of the E5-4620).
const CORES: usize = 32;
/// What two hardware threads do together, as in FlashLogging's experiments.
const TWO_THREADS_PERCENT: u32 = 121;

/// Requests of a run, of which there were three or more (sections 4.3 and 4.3.1): what has been buffered by the last grows with them.
pub(super) const RUN: u64 = 6_400_000;

/// With the client's part, which ran on the same machine. Chosen by the 25th percentile of `count link` with OFF/OFF, of pages that are
/// in memory.
const CPU_PER_STATEMENT: Duration = Duration::from_micros(420);

/// Whether a number of Table 3 was used to choose something: the time of a processor; that the drive of the log is flushed in all
/// settings, since adding a node, which needs no page, takes as long without barriers as with them; the size of that drive; and how many
/// of the page cleaner's requests the block layer has at a time.
pub(super) fn basis(operation: &str, setting: &str, column: &str) -> Basis {
    let is_fitted = match (operation, setting) {
        ("add node", "OFF/OFF, 4KB") => true,
        (_, "OFF/OFF, 4KB") => column == "p99" || (operation, column) == ("count link", "p25"),
        _ => false,
    };
    if is_fitted { Basis::Fitted } else { Basis::Predicted }
}

/// A setting of the paper: write barriers, double writes, the page.
pub(super) fn server(settings: Settings, has_barriers: bool, double_writes: bool, page_bytes: u32) -> Result<Server> {
    let drive = |bytes: u64, used_gb: u64| -> Result<Drive> {
        let profile = Profile::named(DRIVE)?.with_capacity(bytes);
        let files = (bytes * used_gb / DRIVE_GB).next_multiple_of(1 << 20);
        let used_bytes = Some(files + Fsync::JOURNAL_BYTES);
        Ok(Drive { filled: Filled::Database, used_bytes, file: FileUse::None, ..Drive::new(profile) })
    };
    Ok(Server {
        database_bytes: DATABASE_GB * GB,
        page_bytes,
        buffer_pool_bytes: BUFFER_GB * GB,
        double_writes,
        single_places: Server::single_places(page_bytes),
        flushes_files_together: false,
        latches_trees: true,
        data: Drive { has_barriers, ..drive(DATA_DRIVE_BYTES, DATABASE_GB)? },
        log: drive(LOG_DRIVE_BYTES, LOG_GB)?,
        clients: CLIENTS,
        cores: CORES,
        two_threads_percent: TWO_THREADS_PERCENT,
        cpu_per_statement: CPU_PER_STATEMENT,
        history: RUN,
        warm_up: 50_000,
        counted: 100_000,
        seed: settings.seed,
    })
}

/// As the paper writes a setting.
pub(super) fn notation(server: &Server) -> &'static str {
    match (server.data.has_barriers, server.double_writes) {
        (true, true) => "ON/ON",
        (true, false) => "ON/OFF",
        (false, true) => "OFF/ON",
        (false, false) => "OFF/OFF",
    }
}

/// How it is set up, a line each.
pub(super) fn configuration() -> Vec<String> {
    vec![
        format!(
            "a model of MySQL 5.7.2's InnoDB at the paper's size: {DATABASE_GB} GB of pages without contents, a buffer pool of \
             {BUFFER_GB} GB in 8 instances, unless said; its page cleaner, its search for free frames, its latches of trees and its \
             double writes as in the source; 96 files on XFS"
        ),
        format!(
            "{CLIENTS} clients on the same machine: {} us of one of {CORES} cores of two threads for each statement (fitted: count \
             link, OFF/OFF, p25); requests by LinkBench's default configuration",
            CPU_PER_STATEMENT.as_micros(),
        ),
        "two drives; that of the log is flushed in all settings (a reading that was chosen: add node, OFF/OFF)".into(),
    ]
}
