//! `tantalum log add-device`, `remove-device` and `replace-device`: by way of the process that has the database open, or
//! on the closed database.

use std::{path::Path, process::ExitCode};

use serde_json::Value;
use tantalum::{
    LogChange, LogChangePhase, LogChangeProgress,
    control::{Client, Command, Progress},
};
use tantalum_report::Table;

use crate::{
    db,
    error::{Error, Out, Result},
    progress::Bars,
};

/// A change of a log's devices, as both ways take it.
pub struct Change {
    command: Command,
    change: LogChange,
    /// A device to do without, if the database is closed.
    lost: Option<String>,
}

impl Change {
    /// Lets another device take requests.
    pub fn add(path: String) -> Self {
        Self { change: LogChange::Add { new: (&path).into() }, command: Command::AddDevice { path }, lost: None }
    }

    /// Takes a device out of the log, which may be lost.
    pub fn remove(device: String, is_lost: bool) -> Self {
        let lost = is_lost.then(|| device.clone());
        Self { change: LogChange::Remove { old: device.clone() }, command: Command::RemoveDevice { device }, lost }
    }

    /// Puts a device in the place of another.
    pub fn replace(device: String, path: String) -> Self {
        let change = LogChange::Replace { old: device.clone(), new: (&path).into() };
        Self { change, command: Command::ReplaceDevice { device, path }, lost: None }
    }

    /// Makes the change, and prints the devices that the log has then.
    pub fn run(self, dir: &Path, json: bool) -> Result<ExitCode> {
        let devices = match Client::connect(dir) {
            Ok(mut client) => {
                let mut show = show();
                client.call(&self.command, &mut |progress| {
                    if let Progress::LogChange(progress) = progress {
                        show(progress);
                    }
                })?
            }
            Err(unreachable) => self.run_here(dir, &unreachable)?,
        };
        match json {
            true => tantalum_report::print_json(&devices)?,
            false => print_devices(&devices)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Opens the database, makes the change, and closes it. `unreachable` is why no process that has it open could be asked to.
    fn run_here(self, dir: &Path, unreachable: &tantalum::Error) -> Result<Value> {
        let db = db::open_here(dir, self.lost, unreachable)?;
        db.change_log_devices(self.change, &mut show())?;
        let devices = serde_json::to_value(db.stats()?.log.devices).map_err(|error| Error::Other(error.to_string()))?;
        db.close()?;
        Ok(devices)
    }
}

/// Shows how far a change is.
fn show() -> impl FnMut(LogChangeProgress) {
    let mut bars = Bars::default();
    move |LogChangeProgress { phase, done_bytes, total_bytes }| {
        let label = match phase {
            LogChangePhase::Create => "creating the file",
            LogChangePhase::Join => "telling all devices of the new one",
            LogChangePhase::Leave => "waiting for a checkpoint",
            _ => "changing the log's devices",
        };
        bars.bytes(label, done_bytes, total_bytes);
    }
}

/// The devices of the statistics, as a table.
fn print_devices(devices: &Value) -> Result<()> {
    let mut table = Table::new(["number", "device", "state"]);
    for device in devices.as_array().map_or(&[][..], Vec::as_slice) {
        let text = |field: &str| device[field].as_str().map(str::to_owned);
        let state = match text("set_aside") {
            Some(reason) => format!("set aside: {reason}"),
            None if device["is_changing"] == true => "joining or leaving".to_owned(),
            None => "healthy".to_owned(),
        };
        table.row([device["number"].to_string(), text("name").unwrap_or_default(), state]);
    }
    Out::new().line(table)
}
