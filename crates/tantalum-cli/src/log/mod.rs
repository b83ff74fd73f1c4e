//! `tantalum log`: looks at the devices of a log, and changes which they are.

mod archive;
mod change;
mod devices;
mod rebuild;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
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
                tantalum_report::print_json(&inspection)?;
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
                tantalum_report::print_json(&verification)?;
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
    let clean = match inspection.clean_end_lsn {
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
        out.line(Table::of_rows(&device.sections)?)?;
        let live = device.requests.iter().filter(|request| request.state == RequestState::Live).count();
        out.line(format_args!("  {} requests, {live} of them live", device.requests.len()))?;
        if with_requests {
            out.line(Table::of_rows(&device.requests)?)?;
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
