//! `tantalum device show`: what a device says about itself, and what follows from it.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Serialize;
use tantalum_device::{Access, Capabilities, Device, FileDevice};

use crate::error::{Error, Out, Result};

#[derive(Args)]
pub struct Arguments {
    /// A file, a block device, a directory (whose device a file in it would use), or a profile of `device list`.
    #[arg(value_name = "PATH|PROFILE")]
    path: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Print a profile as it is, for a file that is to be changed and given as emulated:FILE.
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

/// The JSON output of `device show`.
#[derive(Serialize)]
struct Found {
    /// The file or device.
    path: PathBuf,
    /// Its size.
    capacity_bytes: Option<u64>,
    /// Requests are multiples of this.
    logical_block_bytes: u32,
    /// Smaller writes read first.
    physical_block_bytes: u32,
    /// Up to this size a power cut leaves all or nothing of a write; 0: unknown.
    atomic_write_bytes: u32,
    /// `none`, `volatile` or `unknown`.
    write_cache: &'static str,
    /// Whether it takes writes that are durable at once.
    fua: Option<bool>,
    /// Whether it is a disk.
    rotational: Option<bool>,
    /// Whether the page cache can be avoided.
    direct_io: bool,
    /// What follows for a database; a sentence each.
    advice: Vec<String>,
}

/// Runs `device show`.
pub fn run(Arguments { path, json, toml }: Arguments) -> Result<ExitCode> {
    match super::emulated::find(&path)? {
        Some(profile) if toml => return super::emulated::print_text(&profile),
        Some(profile) => return super::emulated::show(&profile, json),
        None if toml => {
            return Err(Error::Other(format!("{} is no profile; `tantalum device list` lists them", path.display())));
        }
        None => {}
    }
    let (capabilities, capacity_bytes) = look_at(&path)?;
    if json {
        tantalum_report::print_json(&found(path, &capabilities, capacity_bytes))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = Out::new();
    out.line(path.display())?;
    out.line(capabilities)?;
    for line in capabilities.advice() {
        out.line(format_args!("  - {line}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A directory is asked through a small file in it, which goes away again.
fn look_at(path: &PathBuf) -> Result<(Capabilities, Option<u64>)> {
    let is_directory = path.metadata().map_err(|error| Error::file("look at", path, error))?.is_dir();
    if !is_directory {
        let device = FileDevice::open(path, Access::ReadOnly)?;
        return Ok((device.capabilities(), Some(device.capacity_bytes())));
    }
    let probe = path.join(format!(".tantalum-device-{}", std::process::id()));
    let result = FileDevice::create(&probe, 4096, None).map(|device| device.capabilities());
    let removed = std::fs::remove_file(&probe);
    let capabilities = result?;
    removed.map_err(|error| Error::file("remove", &probe, error))?;
    Ok((capabilities, None))
}

fn found(path: PathBuf, capabilities: &Capabilities, capacity_bytes: Option<u64>) -> Found {
    Found {
        path,
        capacity_bytes,
        logical_block_bytes: capabilities.logical_block,
        physical_block_bytes: capabilities.physical_block,
        atomic_write_bytes: capabilities.atomic_write_bytes,
        write_cache: capabilities.write_cache.name(),
        fua: capabilities.fua,
        rotational: capabilities.rotational,
        direct_io: capabilities.direct,
        advice: capabilities.advice(),
    }
}
