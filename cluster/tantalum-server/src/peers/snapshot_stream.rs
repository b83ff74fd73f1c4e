//! A snapshot as a stream of parts, and back.

use std::io::{self, BufWriter, Read, Write};

use tantalum_raft::StateSnapshot;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;

use crate::api::peer::SnapshotPart;

/// Bytes of rows in a part.
const PART_BYTES: usize = 256 << 10;
/// Parts that are made, or have come, and wait.
const WAITING: usize = 4;

/// Sends what is written.
struct Sending(mpsc::Sender<SnapshotPart>);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = SnapshotPart { address: None, head: Vec::new(), rows: bytes.to_vec() };
        self.0.blocking_send(part).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first part, and those of a snapshot's rows, which are read as they are wanted. A snapshot that cannot be read ends early, which
/// the receiver notices.
pub fn parts(first: SnapshotPart, snapshot: StateSnapshot) -> impl Stream<Item = SnapshotPart> {
    let (sender, parts) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        if sender.blocking_send(first).is_ok()
            && let Err(error) = snapshot.write_to(BufWriter::with_capacity(PART_BYTES, Sending(sender)))
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            tracing::warn!("a snapshot for another member cannot be read: {error}");
        }
    });
    ReceiverStream::new(parts)
}

/// Reads what comes.
struct Receiving {
    parts: mpsc::Receiver<Vec<u8>>,
    part: io::Cursor<Vec<u8>>,
}

impl Read for Receiving {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.part.read(bytes)?;
            if read > 0 || bytes.is_empty() {
                return Ok(read);
            }
            match self.parts.blocking_recv() {
                Some(part) => self.part = io::Cursor::new(part),
                None => return Ok(0),
            }
        }
    }
}

/// A snapshot that is read from parts, and where to put their rows. It is refused if it is not whole.
pub fn receive() -> (mpsc::Sender<Vec<u8>>, tokio::task::JoinHandle<io::Result<StateSnapshot>>) {
    let (sender, parts) = mpsc::channel(WAITING);
    let receiving = Receiving { parts, part: io::Cursor::default() };
    (sender, tokio::task::spawn_blocking(move || StateSnapshot::read_from(receiving)))
}
