//! Delivering the merged requests record by record, with bounded memory.

use std::ops::Range;
use std::sync::Arc;

use tantalum_device::Device;

use super::chunks::read_unaligned;
use super::progress::in_parallel;
use super::scan::{Found, Scan};
use super::{Record, RecoveryPhase};
use crate::format::request::{DecodedRequest, FRAME_BYTES, HEADER_BYTES, RequestHeader, decode_record};
use crate::{Damage, Error, Lsn, Result};

/// Tasks that read what was not kept.
const READERS: usize = 8;
/// What they read at a time, at most.
const AHEAD_REQUESTS: usize = 64;
const AHEAD_BYTES: u64 = 4 << 20;

/// Where delivery stands.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Requests as (scan, index), in LSN order.
    order: std::vec::IntoIter<(usize, usize)>,
    /// The rest of the request that is being delivered.
    current: Option<Records>,
    /// Records that start before it are not delivered.
    checkpoint: Lsn,
}

/// Records that lie behind each other in memory, as [`Recovery::next_records`](super::Recovery::next_records) delivers them.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions};
/// # let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
/// # Log::create(7, vec![device.clone()], LogOptions::default())?;
/// # let log = Log::open(vec![device.clone()], LogOptions::default(), &mut |_| {})?.finish()?;
/// # log.flush(log.append(&[b"abc"])?.end)?;
/// # drop(log);
/// let mut recovery = Log::open(vec![device], LogOptions::default(), &mut |_| {})?;
/// let mut records = recovery.next_records()?.expect("something was appended");
/// let record = records.next_record()?.expect("it is a record");
/// assert_eq!(&records.bytes()[record.bytes], b"abc");
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[derive(Debug)]
pub struct Records {
    device: Arc<dyn Device>,
    payload: Box<[u8]>,
    at: usize,
    start: Lsn,
    offset: u64,
    time_us: u64,
    /// Records that start before it are not delivered.
    checkpoint: Lsn,
}

/// One of some [`Records`].
///
/// ```
/// # use tantalum_log::{Lsn, RecordPlace};
/// let record = RecordPlace { start: Lsn::new(0), end: Lsn::new(7), bytes: 4..7 };
/// assert_eq!(record.end.bytes_since(record.start), 4 + record.bytes.len() as u64);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// Where the record starts.
    pub start: Lsn,
    /// Where the next record starts.
    pub end: Lsn,
    /// Where in [`Records::bytes`] the bytes are that were given to [`Log::append`](crate::Log::append).
    pub bytes: Range<usize>,
}

impl Records {
    /// Those of a whole request with these records; those that start before `from` are left out.
    pub(crate) fn of(device: Arc<dyn Device>, request: &DecodedRequest, payload: Box<[u8]>, from: Lsn) -> Records {
        let RequestHeader { start, offset, time_us, .. } = request.header;
        Records { device, payload, at: 0, start, offset, time_us, checkpoint: from }
    }

    /// Leaves out the records that start before `from`, of those that were not delivered yet.
    pub(crate) fn skip_to(&mut self, from: Lsn) {
        self.checkpoint = from;
    }

    /// The next record; `None` behind the last.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt).
    pub fn next_record(&mut self) -> Result<Option<RecordPlace>> {
        while self.at < self.payload.len() {
            let start = Lsn::new(self.start.get() + self.at as u64);
            let record = decode_record(&self.payload[self.at..]).map_err(|error| {
                Error::from(Damage {
                    device: self.device.name().into(),
                    offset: self.offset,
                    lsn: Some(start),
                    what: format!("the request is intact, but its records are not: {error}"),
                })
            })?;
            let from = self.at + FRAME_BYTES;
            self.at = from + record.len();
            if start >= self.checkpoint {
                let end = Lsn::new(self.start.get() + self.at as u64);
                return Ok(Some(RecordPlace { start, end, bytes: from..self.at }));
            }
        }
        Ok(None)
    }

    /// The memory that the records lie in.
    pub fn bytes(&self) -> &[u8] {
        &self.payload
    }

    /// As [`bytes`](Self::bytes), when no more records are wanted.
    pub fn into_bytes(self) -> Box<[u8]> {
        self.payload
    }
}

impl Reader {
    pub(crate) fn new(order: Vec<(usize, usize)>, checkpoint: Lsn) -> Reader {
        Reader { order: order.into_iter(), current: None, checkpoint }
    }

    /// The wall clock when the request was written that holds the record delivered last.
    pub(crate) fn time_us(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.time_us)
    }

    /// The next record. Requests that were delivered give their memory back.
    pub(crate) fn next(&mut self, scans: &mut [Scan]) -> Result<Option<Record>> {
        loop {
            if self.current.is_none() {
                self.current = self.next_request(scans)?;
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            if let Some(RecordPlace { start, end, bytes }) = current.next_record()? {
                return Ok(Some(Record { start, end, bytes: current.payload[bytes].to_vec() }));
            }
            self.current = None;
        }
    }

    /// Whether there are requests that were not delivered whole.
    pub(crate) fn has_more(&self) -> bool {
        self.current.is_some() || !self.order.as_slice().is_empty()
    }

    /// The rest of the request that is being delivered, or the next one.
    pub(crate) fn next_records(&mut self, scans: &mut [Scan]) -> Result<Option<Records>> {
        match self.current.take() {
            Some(current) => Ok(Some(current)),
            None => self.next_request(scans),
        }
    }

    fn next_request(&mut self, scans: &mut [Scan]) -> Result<Option<Records>> {
        let Some(&(scan, index)) = self.order.as_slice().first() else { return Ok(None) };
        if scans[scan].found[index].payload.is_none() {
            self.read_ahead(scans);
        }
        self.order.next();
        let payload = match scans[scan].found[index].payload.take() {
            Some(payload) => payload,
            None => read_any(scans, &scans[scan].found[index])?,
        };
        let found = &scans[scan].found[index];
        let (header, device) = (&found.request.header, Arc::clone(&found.device));
        let (start, offset, time_us) = (header.start, header.offset, header.time_us);
        Ok(Some(Records { device, payload, at: 0, start, offset, time_us, checkpoint: self.checkpoint }))
    }

    /// Reads the next requests that were not kept, several at a time. Unreadable requests are left out: the caller that needs one
    /// tries again, also elsewhere, and says what is wrong.
    fn read_ahead(&self, scans: &mut [Scan]) {
        let mut bytes = 0;
        let upcoming = self.order.as_slice().iter().copied().take_while(|&(scan, index)| {
            let is_first = bytes == 0;
            bytes += scans[scan].found[index].request.header.bytes();
            is_first || bytes <= AHEAD_BYTES
        });
        let missing = upcoming.filter(|&(scan, index)| scans[scan].found[index].payload.is_none());
        let wanted: Vec<_> = missing
            .take(AHEAD_REQUESTS)
            .map(|(scan, index)| {
                let found = &scans[scan].found[index];
                (scan, index, found.request, Arc::clone(&found.device))
            })
            .collect();
        if wanted.len() < 2 {
            return;
        }
        let parts: Vec<_> = wanted.chunks(wanted.len().div_ceil(READERS)).map(<[_]>::to_vec).collect();
        let read = in_parallel(&parts, RecoveryPhase::Scan, 0, &mut |_| {}, |part, _| {
            Ok(part.iter().map(|(_, _, request, device)| read_again(request, &**device).ok()).collect::<Vec<_>>())
        });
        for (part, payloads) in parts.iter().zip(read) {
            for (&(scan, index, ..), payload) in part.iter().zip(payloads.into_iter().flatten()) {
                scans[scan].found[index].payload = payload;
            }
        }
    }
}

/// The records of a request that the scan found intact: kept, or read again.
pub(crate) fn payload(scans: &[Scan], found: &Found) -> Result<Box<[u8]>> {
    found.payload.clone().map_or_else(|| read_any(scans, found), Ok)
}

/// The records of a request that the scan found intact but did not keep; from another device that has them, if this one
/// fails.
fn read_any(scans: &[Scan], found: &Found) -> Result<Box<[u8]>> {
    let id = |found: &Found| {
        let header = &found.request.header;
        (header.start, header.end(), header.epoch)
    };
    let mut others = scans.iter().flat_map(|scan| &scan.found).filter(|other| id(other) == id(found));
    let read = |found: &Found| read_again(&found.request, &*found.device);
    read(found).or_else(|error| others.find_map(|other| read(other).ok()).ok_or(error))
}

/// The records of a request that the scan found intact but did not keep.
fn read_again(request: &DecodedRequest, device: &dyn Device) -> Result<Box<[u8]>> {
    let header = &request.header;
    let bytes = read_unaligned(device, header.offset, header.bytes())?;
    let same = RequestHeader::decode(&bytes).is_ok_and(|again| again == *request);
    if !same || request.check_payload(&bytes).is_err() {
        return Err(Damage {
            device: device.name().into(),
            offset: header.offset,
            lsn: Some(header.start),
            what: "the request was intact during the scan, and is not any more".into(),
        }
        .into());
    }
    Ok(bytes[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize].into())
}
