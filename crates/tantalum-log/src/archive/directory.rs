//! An archive in a directory: a control file, and a file for each segment, named by the LSN at which it starts.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantalum_device::{Access, Device, FileDevice};

use super::store::{Place, Segment, Store};
use crate::format::BLOCK;
use crate::format::archive::{ArchiveSuperblock, CONTROL_BYTES, SegmentHeader};
use crate::{Error, Lsn, Result};

const CONTROL: &str = "control";
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
        let control = path.join(CONTROL);
        if control.exists() {
            return Ok(Found::Control(Arc::new(FileDevice::open(&control, access)?)));
        }
        match fs::read_dir(path) {
            Ok(mut entries) => match entries.next() {
                None => Ok(Found::Blank),
                Some(_) => Err(Error::NotAnArchive {
                    archive: path.display().to_string(),
                    what: "the directory is not empty and has no control file".into(),
                }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Blank),
            Err(error) => Err(failed(path, "list", error)),
        }
    }

    /// Makes the directory and its control file, which is blank.
    pub(crate) fn create(path: &Path) -> Result<Arc<dyn Device>> {
        fs::create_dir_all(path).map_err(|error| failed(path, "create", error))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| failed(parent, "sync", error))?;
        Ok(Arc::new(FileDevice::create(path.join(CONTROL), CONTROL_BYTES, None)?))
    }

    pub(crate) fn new(path: &Path, control: Arc<dyn Device>, superblock: ArchiveSuperblock) -> Directory {
        Directory { path: path.into(), name: path.display().to_string(), control, superblock }
    }

    /// Removes all segments.
    pub(crate) fn blank(&self) -> Result<()> {
        for start in self.starts()? {
            let path = self.file(start);
            fs::remove_file(&path).map_err(|error| failed(&path, "remove", error))?;
        }
        File::open(&self.path).and_then(|path| path.sync_all()).map_err(|error| failed(&self.path, "sync", error))
    }

    fn file(&self, start: Lsn) -> PathBuf {
        self.path.join(format!("{:020}{SUFFIX}", start.get()))
    }

    /// The LSNs that the names of files tell, ascending.
    fn starts(&self) -> Result<Vec<Lsn>> {
        let entries = fs::read_dir(&self.path).map_err(|error| failed(&self.path, "list", error))?;
        let mut starts = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(&self.path, "list", error))?;
            let name = entry.file_name();
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
            let device: Arc<dyn Device> = match FileDevice::open(&path, access) {
                Ok(device) => Arc::new(device),
                // Retention, or whoever prunes the archive, has removed it since the directory was listed.
                Err(_) if !path.exists() => continue,
                Err(error) => return Err(error.into()),
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
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&path, "replace", error)),
            Ok(()) | Err(_) => {}
        }
        let segment_bytes = u64::from(self.superblock.segment_bytes);
        let device = FileDevice::create(&path, FIRST_BYTES.max(bytes).min(segment_bytes), None)?;
        Ok(Place { device: Arc::new(device), range: 0..segment_bytes })
    }

    fn extend(&self, place: &Place, bytes: u64) -> Result<()> {
        let capacity = place.device.capacity_bytes();
        if bytes <= capacity {
            return Ok(());
        }
        Ok(place.device.grow((2 * capacity).max(bytes).min(place.range.end))?)
    }

    fn remove(&self, segment: &Segment) -> Result<()> {
        let path = self.file(segment.start);
        let removed = match fs::remove_file(&path) {
            // By another process: retention and whoever prunes the archive do not know of each other.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed.and_then(|()| File::open(&self.path)?.sync_all()).map_err(|error| failed(&path, "remove", error))
    }
}

fn failed(path: &Path, doing: &'static str, error: io::Error) -> Error {
    Error::ArchiveDirectory { path: path.display().to_string(), doing, source: Arc::new(error) }
}
