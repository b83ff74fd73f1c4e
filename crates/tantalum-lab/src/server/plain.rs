//! A device that takes no time and loses nothing: contents, and nothing else.

use std::{ops::Range, sync::Arc, time::Duration};

use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, Error, Hardware, PendingWrite, Result, WriteCache,
};
use tantalum_flash::Contents;
use tantalum_rt::Mutex;

/// Contents behind [`Device`].
#[derive(Debug)]
pub(super) struct Plain {
    name: Arc<str>,
    capacity_bytes: u64,
    contents: Mutex<Contents>,
}

const BLOCK: u32 = 512;

impl Plain {
    pub(super) fn new(name: &str, contents: Contents) -> Arc<Self> {
        let capacity_bytes = contents.len();
        Arc::new(Self { name: name.into(), capacity_bytes, contents: Mutex::new(contents) })
    }

    /// What it holds now; a later write changes only one of the two.
    pub(super) fn contents(&self) -> Contents {
        self.contents.lock().fork().expect("a plain device lies in memory")
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        if !offset.is_multiple_of(BLOCK.into()) || !len.is_multiple_of(BLOCK.into()) {
            return Err(Error::Misaligned { device: Arc::clone(&self.name), offset, len, block: BLOCK });
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity_bytes => Ok(()),
            _ => {
                let (device, capacity) = (Arc::clone(&self.name), self.capacity_bytes);
                Err(Error::OutOfRange { device, offset, len, capacity })
            }
        }
    }
}

impl Device for Plain {
    fn name(&self) -> &str {
        &self.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { write_cache: WriteCache::None, fua: Some(true), ..Capabilities::unknown(BLOCK) }
    }

    fn hardware(&self) -> Hardware {
        Hardware::Memory(std::ptr::from_ref(self).addr())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset, buffer.len() as u64)?;
        self.contents.lock().read(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], _durability: Durability) -> Result<()> {
        self.check(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum())?;
        let (mut contents, mut at) = (self.contents.lock(), offset);
        for buffer in buffers {
            contents.write(at, buffer);
            at += buffer.len() as u64;
        }
        Ok(())
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.write(offset, &[&buffer[range]], durability)?;
        Ok(Box::new(Ended))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        match new_capacity_bytes <= self.capacity_bytes {
            true => Ok(()),
            false => Err(Error::Unsupported { device: Arc::clone(&self.name), operation: "grow: its size is fixed" }),
        }
    }
}

/// A write that ended as it began.
pub(super) struct Ended;

impl PendingWrite for Ended {
    fn wait(&mut self, _timeout: Option<Duration>) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn is_done(&mut self) -> bool {
        true
    }
}
