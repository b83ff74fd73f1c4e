//! What the log and emulated devices did below a benchmark.

use serde::Serialize;
use tantalum::{LogArchive, LogHidingSummary, LogSummary};
use tantalum_device::Device;
use tantalum_flash::{Counters, EmulatedDevice};
use tantalum_lab::trace::Medium;
use tantalum_report::{Table, units};

use crate::error::{Out, Result};

/// One device's counters, from the end of loading to the end of the run.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    name: String,
    host_reads: u64,
    host_read_bytes: u64,
    host_writes: u64,
    host_written_bytes: u64,
    flushes: u64,
    coalesced: u64,
    media_written_bytes: u64,
    /// Bytes written to the medium for each of the host's; null where one of the two is zero.
    write_amplification: Option<f64>,
    programs: u64,
    erases: u64,
    gc_copies: u64,
    switch_merges: u64,
    partial_merges: u64,
    full_merges: u64,
    seeks: u64,
}

impl DeviceReport {
    /// What the device has done since its counters were `before`.
    pub fn since(before: &Counters, device: &EmulatedDevice) -> Self {
        let now = device.counters();
        let (host_bytes, media_bytes) = (
            now.host_written_bytes.saturating_sub(before.host_written_bytes),
            now.media_written_bytes.saturating_sub(before.media_written_bytes),
        );
        Self {
            name: device.name().to_owned(),
            host_reads: now.host_reads.saturating_sub(before.host_reads),
            host_read_bytes: now.host_read_bytes.saturating_sub(before.host_read_bytes),
            host_writes: now.host_writes.saturating_sub(before.host_writes),
            host_written_bytes: host_bytes,
            flushes: now.flushes.saturating_sub(before.flushes),
            coalesced: now.coalesced.saturating_sub(before.coalesced),
            media_written_bytes: media_bytes,
            write_amplification: (host_bytes > 0 && media_bytes > 0).then(|| media_bytes as f64 / host_bytes as f64),
            programs: now.programs.saturating_sub(before.programs),
            erases: now.erases.saturating_sub(before.erases),
            gc_copies: now.gc_copies.saturating_sub(before.gc_copies),
            switch_merges: now.switch_merges.saturating_sub(before.switch_merges),
            partial_merges: now.partial_merges.saturating_sub(before.partial_merges),
            full_merges: now.full_merges.saturating_sub(before.full_merges),
            seeks: now.seeks.saturating_sub(before.seeks),
        }
    }

    /// What it did inside, for a trace.
    pub fn medium(&self) -> Medium {
        Medium {
            name: self.name.clone(),
            reads: self.host_reads,
            writes: self.host_writes,
            host_bytes: self.host_written_bytes,
            medium_bytes: self.media_written_bytes,
        }
    }
}

/// What the log hid and archived, and what the devices did, as far as there is something to tell.
pub fn print(out: &mut Out, log: &LogSummary, devices: &[DeviceReport]) -> Result<()> {
    hiding(log).map_or(Ok(()), |table| out.line(table))?;
    table(devices).map_or(Ok(()), |table| out.line(table))?;
    log.archive.as_ref().map_or(Ok(()), |archive| out.line(archive_line(archive)))
}

/// The devices as a table; `None` without any.
fn table(devices: &[DeviceReport]) -> Option<Table> {
    let mut table = Table::new([
        "device",
        "writes",
        "written",
        "reads",
        "flushes",
        "to the medium",
        "amplification",
        "erases",
        "merges (switch/partial/full)",
    ]);
    for device in devices {
        table.row([
            device.name.clone(),
            units::count(device.host_writes),
            units::bytes(device.host_written_bytes),
            units::count(device.host_reads),
            units::count(device.flushes),
            units::bytes(device.media_written_bytes),
            device.write_amplification.map_or_else(|| "-".to_owned(), |times| format!("{times:.2}")),
            units::count(device.erases),
            format!("{}/{}/{}", device.switch_merges, device.partial_merges, device.full_merges),
        ]);
    }
    (!devices.is_empty()).then_some(table)
}

/// What hiding late writes did on each log device; `None` if there was none.
fn hiding(log: &LogSummary) -> Option<Table> {
    let mut table =
        Table::new(["log device", "writes", "outliers", "taken over", "first with", "late with", "time saved"]);
    let mut row = |name: &str, writes: u64, hiding: &LogHidingSummary| {
        table.row([
            name.to_owned(),
            units::count(writes),
            units::count(hiding.outliers),
            units::count(hiding.reissued),
            units::count(hiding.won),
            units::count(hiding.lost),
            format!("{:.1} ms", hiding.saved_us as f64 / 1e3),
        ]);
    };
    log.devices.iter().for_each(|device| row(&device.name, device.writes, &device.hiding));
    row("all", log.devices.iter().map(|device| device.writes).sum(), &log.hiding);
    (log.hiding.outliers > 0).then_some(table)
}

/// A line on the log's archive.
fn archive_line(archive: &LogArchive) -> String {
    let LogArchive { name, writes, completed, .. } = archive;
    let (writes, completed) = (units::count(*writes), units::count(*completed));
    let busy = units::duration_ns(archive.busy_us.saturating_mul(1000));
    let line = format!(
        "archive {name}: {writes} writes of {} of records, {busy}; it had {completed} requests before any log device, {} are \
         not archived yet",
        units::bytes(archive.bytes),
        units::bytes(archive.behind_bytes)
    );
    match &archive.set_aside {
        None => line,
        Some(reason) => format!("{line}; SET ASIDE: {reason}"),
    }
}
