//! Opening for reading only: it changes nothing, and shows what an open for writing recovers.

use std::{ops::Range, sync::Arc};

use tantalum::{Builder, Devices, ErrorKind};
use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, Result};

use crate::{checks::check, history::Recorder, model::Contents, round::followed, rows::read_everything, stop::Stop};

/// Reads everything in the database on these devices, without changing them; `None` if there is no database yet.
pub(crate) fn read_only(
    builder: impl FnOnce(Option<Arc<dyn Device>>) -> Builder,
    devices: Devices,
    archive: Option<Arc<dyn Device>>,
    key_pad: u16,
    recorder: &Recorder,
) -> std::result::Result<Option<Contents>, Stop> {
    let over = |device| Arc::new(Unchanged { device, recorder: recorder.clone() }) as Arc<dyn Device>;
    let Devices { data, double_write, log } = devices;
    let devices =
        Devices { data: over(data), double_write: double_write.map(over), log: log.into_iter().map(over).collect() };
    let db = match builder(archive.map(over)).read_only(true).open_on(devices) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    check(&db, recorder)?;
    let contents = read_everything(&db.snapshot()?, &followed(&db)?, key_pad)?;
    db.close()?;
    recorder.count("databases opened for reading only", 1);
    Ok(Some(contents))
}

/// A device on which nothing may change.
#[derive(Debug)]
struct Unchanged {
    device: Arc<dyn Device>,
    recorder: Recorder,
}

impl Unchanged {
    fn refuse(&self, what: &str) -> ! {
        let device = self.device.name();
        let what = format!("a database that is opened for reading only has its device {device} {what}");
        self.recorder.record(Stop::Violation(what).into_event());
        tantalum_rt::power_cut()
    }
}

impl Device for Unchanged {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read);

    fn write(&self, _: u64, _: &[&[u8]], _: Durability) -> Result<()> {
        self.refuse("written")
    }

    fn submit(&self, _: u64, _: Arc<AlignedBuffer>, _: Range<usize>, _: Durability) -> Result<Box<dyn PendingWrite>> {
        self.refuse("written")
    }

    fn flush(&self) -> Result<()> {
        self.refuse("flushed")
    }

    fn discard(&self, _: u64, _: u64) -> Result<()> {
        self.refuse("trimmed")
    }

    fn reset_zone(&self, _: u64) -> Result<()> {
        self.refuse("reset in part")
    }

    fn finish_zone(&self, _: u64) -> Result<()> {
        self.refuse("finished in part")
    }

    fn grow(&self, _: u64) -> Result<()> {
        self.refuse("made larger")
    }
}
