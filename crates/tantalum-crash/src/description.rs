//! What is printed of a failed seed's devices, options and clients.

use std::fmt;

use crate::config::{Archive, Config, Drive, DriveKind, Units};

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let barriers = match &self.kind {
            DriveKind::Emulated { sends_barriers: false, .. } => " without barriers",
            _ => "",
        };
        write!(f, "{} on {}{barriers}", self.name, self.profile)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (log, load) = (&self.log, &self.load);
        let archive = match &self.archive {
            None => String::new(),
            Some(Archive { logs, loses_log_one_in: 0, .. }) => format!(", archived on {logs} times as much"),
            Some(Archive { logs, loses_log_one_in: n, .. }) => {
                format!(", archived on {logs} times as much, lost as a whole at one in {n} power cuts")
            }
        };
        let drives: Vec<_> = self.drives().map(Drive::to_string).collect();
        let units = self.units.map_or(String::new(), |Units { unit, region, carry_over_percent }| {
            let (unit, region) = (unit >> 10, region >> 10);
            format!(" in units of {unit} KiB, {region} of them for the log, of which {carry_over_percent} % are carried over")
        });
        let segments = self.segments.map_or(String::new(), |segments| segments.to_string());
        let held = if load.holds_snapshots { ", snapshots are held" } else { "" };
        let staged = if load.stages { ", writes are staged" } else { "" };
        let in_bulk = if load.bulk_loads { ", tables are loaded in bulk" } else { "" };
        let streamed = if load.streams { ", values are larger than records" } else { "" };
        let edited = if load.edits_rows { ", rows are edited" } else { "" };
        let blind = if load.writes_blindly { ", rows are written unread" } else { "" };
        write!(
            f,
            "{} protection, {}, pages of {} bytes{units}{segments}, {} frames{held}{staged}{in_bulk}{streamed}{edited}{blind}, log {log:?} of {} KiB{archive}, {} copies, late writes hidden: {:?}, {}; {}; {}, locks released {}, {} clients{}, \
             {} tables of {} keys, {} rounds{}{}{}{}",
            self.protection,
            self.writing,
            self.page_size,
            self.pool_pages,
            self.log_bytes >> 10,
            self.log_copies,
            self.log_hiding[1],
            drives.join(", "),
            self.faults,
            if self.is_serializable { "serializable" } else { "snapshot isolation" },
            if self.early_lock_release { "early" } else { "when durable" },
            load.clients,
            if self.panics { " of which one panics" } else { "" },
            load.tables,
            load.keys,
            self.rounds,
            if self.uses_up_segments { ", segments used up first" } else { "" },
            if self.compacts_beside_clients { ", compactions beside clients" } else { "" },
            if self.checks_beside_clients { ", and checks beside clients" } else { "" },
            if self.closes_beside_clients { ", and closing beside clients" } else { "" },
        )
    }
}
