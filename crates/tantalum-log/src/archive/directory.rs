//! An archive in a directory: a control file, and a file for each segment, named by the LSN at which it starts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantalum_device::{Access, Device, files};

use super::store::{Place, Segment, Store};
use crate::format::BLOCK;
use crate::format::archive::{ArchiveSuperblock, CONTROL_BYTES, SegmentHeader};
use crate::{Error, ErrorKind, Lsn, Result, error};

const CONTROL: &str = "control";
/// The control file before it is whole.
const CONTROL_FRESH: &str = "control.new";
const SUFFIX: &str = ".segment";
/// A segment's file begins with this size and doubles when it is full, up to the segment's size: what is written is
/// allocated and zero before, so that a write changes no metadata.
const FIRST_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    name: String,
    control: Arc<dyn Device>,
    superblock: ArchiveSuperblock,
}

/// What is at the place of an archive in a directory.
pub(crate) enum Found {
    /// Nothing, or an empty directory.
    Blank,
    /// A control file, opened.
    Control(Arc<dyn Device>),
}

impl Directory {
    /// Looks for an archive in `path`.
    pub(crate) fn find(path: &Path, access: Access) -> Result<Found> {
        let names = files::list(path);
        let has_others =
            |names: &[std::ffi::OsString]| names.iter().any(|name| name != CONTROL && name != CONTROL_FRESH);
        let control = path.join(CONTROL);
        if files::exists(&control) {
            let device = files::open(&control, access)?;
            // Earlier versions made it in place, so a power cut could leave a part of it, and nothing else.
            return match device.capacity_bytes() < CONTROL_BYTES && names.is_ok_and(|names| !has_others(&names)) {
                true => Ok(Found::Blank),
                false => Ok(Found::Control(device)),
            };
        }
        match names {
            Ok(names) if has_others(&names) => {
                Err(error::not_an_archive(path.display(), "the directory is not empty and has no control file"))
            }
            Ok(_) => Ok(Found::Blank),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Blank),
            Err(error) => Err(failed(path, "list", error)),
        }
    }

    /// Makes the directory and its control file, which is blank, and is there as a whole or not at all.
    pub(crate) fn create(path: &Path) -> Result<Arc<dyn Device>> {
        let missing: Vec<_> = path.ancestors().take_while(|path| !files::exists(path)).collect();
        for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
            files::create_directory(path).map_err(|error| failed(path, "create", error))?;
        }
        let (fresh, control) = (path.join(CONTROL_FRESH), path.join(CONTROL));
        remove_if_there(&fresh)?;
        drop(files::create(&fresh, CONTROL_BYTES, None)?);
        let renamed = files::rename(&fresh, &control).and_then(|()| files::sync_directory(path));
        renamed.map_err(|error| failed(&control, "create", error))?;
        files::open(&control, Access::ReadWrite)
    }

    /// Removes the archive.
    pub(crate) fn remove(&self) -> Result<()> {
        self.blank()?;
        remove_if_there(&self.path.join(CONTROL))?;
        files::sync_directory(&self.path).map_err(|error| failed(&self.path, "sync", error))
    }

    pub(crate) fn new(path: &Path, control: Arc<dyn Device>, superblock: ArchiveSuperblock) -> Directory {
        Directory { path: path.into(), name: path.display().to_string(), control, superblock }
    }

    /// Removes all segments.
    pub(crate) fn blank(&self) -> Result<()> {
        for start in self.starts()? {
            let path = self.file(start);
            files::remove(&path).map_err(|error| failed(&path, "remove", error))?;
        }
        files::sync_directory(&self.path).map_err(|error| failed(&self.path, "sync", error))
    }

    fn file(&self, start: Lsn) -> PathBuf {
        self.path.join(format!("{:020}{SUFFIX}", start.get()))
    }

    /// The LSNs that the names of files tell, ascending.
    fn starts(&self) -> Result<Vec<Lsn>> {
        let names = files::list(&self.path).map_err(|error| failed(&self.path, "list", error))?;
        let mut starts = Vec::new();
        for name in names {
            let digits = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).filter(|digits| digits.len() == 20);
            starts.extend(digits.and_then(|digits| digits.parse().ok()).map(Lsn::new));
        }
        starts.sort_unstable();
        Ok(starts)
    }
}

impl Store for Directory {
    fn name(&self) -> &str {
        &self.name
    }

    fn control(&self) -> &Arc<dyn Device> {
        &self.control
    }

    fn superblock(&self) -> &ArchiveSuperblock {
        &self.superblock
    }

    fn segments(&self, from: Option<Lsn>, writable: bool) -> Result<Vec<Segment>> {
        let starts = self.starts()?;
        let first = from.map_or(0, |from| starts.partition_point(|start| *start <= from).saturating_sub(1));
        let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
        let mut segments = Vec::new();
        for &start in &starts[first..] {
            let path = self.file(start);
            let device = match files::open(&path, access) {
                Ok(device) => device,
                // Retention or another process that prunes the archive has removed it since the directory was listed.
                Err(_) if !files::exists(&path) => continue,
                Err(error) => return Err(error),
            };
            let bytes = device.capacity_bytes() / BLOCK as u64 * BLOCK as u64;
            let place = Place { device, range: 0..bytes };
            let header = place.read_header(self.superblock.log_id)?;
            segments.push(Segment { place, header, start });
        }
        Ok(segments)
    }

    fn place_before(&self, _header: &SegmentHeader) -> (String, u64) {
        (self.name.clone(), 0)
    }

    fn place_behind(&self, _number: u64) -> Option<Place> {
        None
    }

    fn create(&self, _number: u64, start: Lsn, bytes: u64) -> Result<Place> {
        let path = self.file(start);
        remove_if_there(&path)?;
        let segment_bytes = u64::from(self.superblock.segment_bytes);
        let device = files::create(&path, FIRST_BYTES.max(bytes).min(segment_bytes), None)?;
        Ok(Place { device, range: 0..segment_bytes })
    }

    fn extend(&self, place: &Place, bytes: u64) -> Result<()> {
        let capacity = place.device.capacity_bytes();
        if bytes <= capacity {
            return Ok(());
        }
        place.device.grow((2 * capacity).max(bytes).min(place.range.end))
    }

    fn remove(&self, segment: &Segment) -> Result<()> {
        let path = self.file(segment.start);
        // It may be gone: retention and another process that prunes the archive do not know of each other.
        remove_if_there(&path)?;
        files::sync_directory(&self.path).map_err(|error| failed(&path, "remove", error))
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match files::remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, "remove", error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path, doing: &'static str, error: io::Error) -> Error {
    let path = path.display();
    let what = format!("{path}: cannot {doing} it: {error}; check the archive's directory and its file system");
    Error::new(ErrorKind::Io, what).with_source(error)
}
