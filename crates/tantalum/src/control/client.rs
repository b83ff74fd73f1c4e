//! The client's side of the control socket.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::Value;

use super::{
    address::Address,
    changes::{ChangeSelection, ChangeSink},
    protocol::{Answer, Command, LINE_BYTES_MAX, Progress},
    rows::{RowSelection, RowSink},
    write::too_long,
};
use crate::{
    db::files::SOCKET,
    error::{Error, ErrorKind, Result},
};

/// A connection to a database that is open in another process. See [`control`](super) for an example.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    socket: String,
}

fn broken(socket: &str, what: &'static str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{socket}: {what}: {error}")).with_source(error)
}

impl Client {
    /// Connects to the database in `directory`.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if no database answers there: it is closed, or open without a control socket.
    pub fn connect(directory: &Path) -> Result<Self> {
        let socket = directory.join(SOCKET).display().to_string();
        match Address::of(directory).and_then(|address| UnixStream::connect(address.path())) {
            Ok(stream) => Ok(Self { stream: BufReader::new(stream), socket }),
            Err(error) => Err(broken(&socket, "no process answers", error)),
        }
    }

    /// Has the database carry out `command`, and waits for it. `report` hears how far it is.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) with the database's answer, or when the connection breaks, after which the command may have been carried
    /// out or not; [`TooLarge`](ErrorKind::TooLarge) for a command of more than 1 MiB as JSON, of which nothing was sent.
    pub fn call(&mut self, command: &Command, report: &mut dyn FnMut(Progress)) -> Result<Value> {
        self.ask(command, &mut |answer| {
            if let Answer::Progress(progress) = answer {
                report(progress);
            }
            Ok(())
        })
    }

    /// Has the database read rows, as of one moment, and gives them to `sink` as they come.
    ///
    /// # Errors
    /// As [`call`](Self::call), and those of `sink`, after which the connection is of no use.
    pub fn rows(&mut self, selection: RowSelection, sink: RowSink<'_>) -> Result<()> {
        let rows = self.ask(&Command::Rows { selection }, &mut |answer| match answer {
            Answer::Rows { table, rows } => sink(&table, rows),
            _ => Ok(()),
        });
        rows.map(drop)
    }

    /// Has the database read changes of the change feed, and gives them to `sink` as they come; with
    /// [`follow`](ChangeSelection::follow), until that fails or the database is closed.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn changes(&mut self, selection: ChangeSelection, sink: ChangeSink<'_>) -> Result<()> {
        let changes = self.ask(&Command::Changes { selection }, &mut |answer| match answer {
            Answer::Changes { changes, position } => sink(changes, position),
            _ => Ok(()),
        });
        changes.map(drop)
    }

    /// Sends a command, gives all lines of the answer but the last to `take`, and returns the result.
    fn ask(&mut self, command: &Command, take: &mut dyn FnMut(Answer) -> Result<()>) -> Result<Value> {
        let failed = |socket: &str, what: String| Error::new(ErrorKind::Io, format!("{socket}: {what}"));
        let socket = self.socket.clone();
        let hung_up = |error| broken(&socket, "the connection to the database broke", error);
        let line = command.to_line().map_err(hung_up)?;
        if line.len() > LINE_BYTES_MAX {
            return Err(too_long(line.len(), LINE_BYTES_MAX));
        }
        self.stream.get_mut().write_all(&line).map_err(hung_up)?;
        loop {
            let mut line = Vec::new();
            let bytes = self.stream.read_until(b'\n', &mut line);
            if bytes.map_err(hung_up)? == 0 {
                return Err(failed(
                    &self.socket,
                    "the database hung up before the end: look whether it was done".into(),
                ));
            }
            match Answer::of_line(&line).map_err(|what| failed(&self.socket, what))? {
                Answer::Result(result) => return Ok(result),
                Answer::Error(what) => return Err(failed(&self.socket, what)),
                answer => take(answer)?,
            }
        }
    }
}
