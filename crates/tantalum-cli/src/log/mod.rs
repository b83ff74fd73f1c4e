//! `tantalum log`: looks at the devices of a log, and changes which they are.

mod archive;
mod change;
mod devices;
mod rebuild;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use serde::Serialize;
use tantalum_log::{Damage, Inspection, RequestState, Verification, inspect, verify};
use tantalum_report::{Table, units};

use crate::error::{Error, Out, Result};
pub use archive::open as open_archive;
use change::Change;

#[derive(Subcommand)]
pub enum Command {
    /// List what is on the devices: superblocks, checkpoints, sections, requests.
    Inspect {
        #[command(flatten)]
        place: Place,
        /// List every request too.
        #[arg(long)]
        requests: bool,
        /// Print JSON, with every request.
        #[arg(long)]
        json: bool,
    },
    /// Give the log new devices when all its devices are lost, from its archive.
    ///
    /// What was committed and not archived yet is lost with the devices. Refused while one of them is still there.
    Rebuild(rebuild::Arguments),
    /// Look at the log's archive, check it, or remove its oldest part.
    #[command(subcommand)]
    Archive(archive::Command),
    /// Read all that recovery would read, and name every damaged place. Exit code 1 if there is one.
    Verify {
        #[command(flatten)]
        place: Place,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Let another device take the log's requests, while the database is open or closed.
    ///
    /// A database that is open in another process is asked through the socket control.sock in its directory; a closed one is
    /// opened for it. A file that is missing is created; what exists must be blank, or have been a device of this log.
    AddDevice {
        /// The database's directory.
        dir: PathBuf,
        /// The new device's path, or an emulated one. A relative path starts at the database's directory.
        path: String,
        /// Print the log's devices as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take a device out of the log, while the database is open or closed.
    ///
    /// Waits for a checkpoint. The device keeps its contents, but they are never read as part of the log again.
    RemoveDevice {
        /// The database's directory.
        dir: PathBuf,
        /// The device's path, as the settings or `add-device` named it, or its number in `db stat`.
        device: String,
        /// The device is gone for good, and therefore the closed database does not open. Refused, with the records that are
        /// missing, if any on it may be needed: if the database was not closed in order.
        #[arg(long)]
        lost: bool,
        /// Print the log's devices as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a device in the place of another, while the database is open or closed.
    ///
    /// With the path of the old device as the new one, it is formatted and used again: for a device that failed or hung and
    /// was repaired.
    ReplaceDevice {
        /// The database's directory.
        dir: PathBuf,
        /// The path or number of the device that goes.
        device: String,
        /// The path of the device that comes.
        path: String,
        /// Print the log's devices as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Where the log lies.
#[derive(Args)]
pub struct Place {
    /// A database's directory, or all log files or devices of one log, emulated:PROFILE:FILE too. The database must be
    /// closed.
    #[arg(required = true, value_name = "DIR|PATH")]
    paths: Vec<PathBuf>,
    /// Into how many partitions each file is cut; default: what its superblock tells.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: Option<u16>,
}

/// Runs a `log` command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Inspect { place, requests, json } => {
            let inspection = inspect(&place.open()?)?;
            if json {
                tantalum_report::print_json(&InspectionJson::new(&inspection))?;
            } else {
                print_inspection(&inspection, requests)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::AddDevice { dir, path, json } => Change::add(path).run(&dir, json),
        Command::RemoveDevice { dir, device, lost, json } => Change::remove(device, lost).run(&dir, json),
        Command::ReplaceDevice { dir, device, path, json } => Change::replace(device, path).run(&dir, json),
        Command::Archive(command) => archive::run(command),
        Command::Rebuild(arguments) => rebuild::run(arguments),
        Command::Verify { place, json } => {
            let verification = verify(&place.open()?)?;
            if json {
                tantalum_report::print_json(&VerificationJson::new(&verification))?;
            } else {
                print_verification(&verification)?;
            }
            match verification.damage.len() {
                0 => Ok(ExitCode::SUCCESS),
                n => Err(Error::Other(format!("the log is damaged in {n} places; restore the database from a backup"))),
            }
        }
    }
}

impl Place {
    fn open(&self) -> Result<Vec<std::sync::Arc<dyn tantalum_device::Device>>> {
        devices::open(&self.paths, self.partitions.map(usize::from))
    }
}

fn print_inspection(inspection: &Inspection, with_requests: bool) -> Result<()> {
    let mut out = Out::new();
    let clean = match inspection.clean_end {
        Some(end) => format!("closed cleanly at {end}"),
        None => "not closed cleanly".to_owned(),
    };
    out.line(format_args!(
        "log {:032x}: checkpoint {}, epoch {}, {clean}",
        inspection.log_id, inspection.checkpoint_lsn, inspection.epoch
    ))?;
    for device in &inspection.devices {
        out.line(format_args!(
            "\n{}: device {} of {}, identity {:016x}, {} sections, {} more to hide late writes in, of {}, layout {} in blocks of {} bytes",
            device.name,
            device.ordinal,
            inspection.device_count,
            device.device_id,
            device.section_count,
            device.hiding_section_count,
            units::bytes(u64::from(device.section_bytes)),
            device.layout,
            device.block_bytes
        ))?;
        for (number, slot) in device.slots.iter().enumerate() {
            match slot {
                None => out.line(format_args!("  slot {number}: invalid"))?,
                Some(slot) => out.line(format_args!(
                    "  slot {number} at {}: sequence {}, checkpoint {}, epoch {}",
                    slot.offset, slot.sequence, slot.checkpoint_lsn, slot.epoch
                ))?,
            }
        }
        let mut table = Table::new(["area", "section", "offset", "header", "lsn before it"]);
        for section in &device.sections {
            let header = if section.header_valid { "valid" } else { "invalid" };
            let number = section.number.to_string();
            let area = area_name(section.is_hiding).to_owned();
            table.row([area, number, section.offset.to_string(), header.to_owned(), section.stream_lsn.to_string()]);
        }
        out.line(table)?;
        let live = device.requests.iter().filter(|request| request.state == RequestState::Live).count();
        out.line(format_args!("  {} requests, {live} of them live", device.requests.len()))?;
        if with_requests {
            let mut table = Table::new(["area", "offset", "bytes", "epoch", "sequence", "start", "end", "state"]);
            for request in &device.requests {
                table.row([
                    area_name(request.is_hidden).to_owned(),
                    request.offset.to_string(),
                    request.bytes.to_string(),
                    request.epoch.to_string(),
                    request.sequence.to_string(),
                    request.start.to_string(),
                    request.end.to_string(),
                    state_name(request.state).to_owned(),
                ]);
            }
            out.line(table)?;
        }
    }
    Ok(())
}

fn print_verification(verification: &Verification) -> Result<()> {
    let mut out = Out::new();
    for damage in &verification.damage {
        out.line(damage_line(damage))?;
    }
    out.line(format_args!(
        "{} requests with {} records of {} intact, from LSN {} to {}",
        units::count(verification.requests),
        units::count(verification.records),
        units::bytes(verification.record_bytes),
        verification.checkpoint_lsn,
        verification.end_lsn
    ))
}

/// What is wrong, and where.
fn damage_line(Damage { device, offset, lsn, what }: &Damage) -> String {
    let lsn = lsn.map_or_else(String::new, |lsn| format!(" (LSN {lsn})"));
    format!("{device}: offset {offset}{lsn}: {what}")
}

fn area_name(is_hiding: bool) -> &'static str {
    if is_hiding { "hiding" } else { "main" }
}

fn state_name(state: RequestState) -> &'static str {
    match state {
        RequestState::Live => "live",
        RequestState::Released => "released",
        RequestState::Void => "void",
        RequestState::BehindGap => "behind-gap",
        RequestState::Damaged => "damaged",
        _ => "other",
    }
}

/// The JSON output of `log inspect`.
#[derive(Serialize)]
struct InspectionJson {
    log_id: String,
    checkpoint_lsn: u64,
    epoch: u64,
    clean_end_lsn: Option<u64>,
    devices: Vec<DeviceJson>,
}

#[derive(Serialize)]
struct DeviceJson {
    name: String,
    ordinal: u32,
    device_id: String,
    device_count: u32,
    layout: String,
    block_bytes: u32,
    section_bytes: u32,
    section_count: u32,
    hiding_section_count: u32,
    slots: Vec<Option<SlotJson>>,
    sections: Vec<SectionJson>,
    requests: Vec<RequestJson>,
}

#[derive(Serialize)]
struct SlotJson {
    offset: u64,
    sequence: u64,
    checkpoint_lsn: u64,
    epoch: u64,
    clean_end_lsn: Option<u64>,
}

#[derive(Serialize)]
struct SectionJson {
    area: &'static str,
    offset: u64,
    number: u64,
    header_valid: bool,
    stream_lsn: u64,
}

#[derive(Serialize)]
struct RequestJson {
    area: &'static str,
    offset: u64,
    bytes: u64,
    epoch: u64,
    sequence: u64,
    start_lsn: u64,
    end_lsn: u64,
    state: &'static str,
}

impl InspectionJson {
    fn new(inspection: &Inspection) -> Self {
        Self {
            log_id: format!("{:032x}", inspection.log_id),
            checkpoint_lsn: inspection.checkpoint_lsn.get(),
            epoch: inspection.epoch,
            clean_end_lsn: inspection.clean_end.map(|lsn| lsn.get()),
            devices: inspection.devices.iter().map(|device| DeviceJson::new(device, inspection.device_count)).collect(),
        }
    }
}

impl DeviceJson {
    fn new(device: &tantalum_log::DeviceInspection, device_count: u32) -> Self {
        let slot = |slot: &tantalum_log::SlotInspection| SlotJson {
            offset: slot.offset,
            sequence: slot.sequence,
            checkpoint_lsn: slot.checkpoint_lsn.get(),
            epoch: slot.epoch,
            clean_end_lsn: slot.clean_end.map(|lsn| lsn.get()),
        };
        let section = |section: &tantalum_log::SectionInspection| SectionJson {
            area: area_name(section.is_hiding),
            offset: section.offset,
            number: section.number,
            header_valid: section.header_valid,
            stream_lsn: section.stream_lsn.get(),
        };
        let request = |request: &tantalum_log::RequestInspection| RequestJson {
            area: area_name(request.is_hidden),
            offset: request.offset,
            bytes: request.bytes,
            epoch: request.epoch,
            sequence: request.sequence,
            start_lsn: request.start.get(),
            end_lsn: request.end.get(),
            state: state_name(request.state),
        };
        Self {
            name: device.name.clone(),
            ordinal: device.ordinal,
            device_id: format!("{:016x}", device.device_id),
            device_count,
            layout: device.layout.to_string(),
            block_bytes: device.block_bytes,
            section_bytes: device.section_bytes,
            section_count: device.section_count,
            hiding_section_count: device.hiding_section_count,
            slots: device.slots.iter().map(|found| found.as_ref().map(slot)).collect(),
            sections: device.sections.iter().map(section).collect(),
            requests: device.requests.iter().map(request).collect(),
        }
    }
}

/// The JSON output of `log verify`.
#[derive(Serialize)]
struct VerificationJson {
    requests: u64,
    records: u64,
    record_bytes: u64,
    checkpoint_lsn: u64,
    end_lsn: u64,
    damage: Vec<DamageJson>,
}

#[derive(Serialize)]
struct DamageJson {
    device: String,
    offset: u64,
    lsn: Option<u64>,
    what: String,
}

impl DamageJson {
    fn new(damage: &Damage) -> Self {
        let lsn = damage.lsn.map(|lsn| lsn.get());
        Self { device: damage.device.clone(), offset: damage.offset, lsn, what: damage.what.clone() }
    }
}

impl VerificationJson {
    fn new(verification: &Verification) -> Self {
        Self {
            requests: verification.requests,
            records: verification.records,
            record_bytes: verification.record_bytes,
            checkpoint_lsn: verification.checkpoint_lsn.get(),
            end_lsn: verification.end_lsn.get(),
            damage: verification.damage.iter().map(DamageJson::new).collect(),
        }
    }
}
