//! The client's side of the control socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::Value;

use super::{
    address::Address,
    changes::{ChangeSelection, ChangeSink},
    pieces::{Coming, Cut},
    protocol::{Answer, Command, LINE_BYTES_MAX, Progress, line_of},
    rows::RowSelection,
    write::{TableWrite, too_long},
};
use crate::{
    ValueSink,
    db::files::SOCKET,
    error::{Error, ErrorKind, Result},
};

/// A connection to a database that is open in another process. See [`control`](super) for an example.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    socket: String,
}

const HUNG_UP: &str = "the connection to the database broke";

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

    /// Has the database read rows, as of one moment, and gives them to `sink` as they come. Large values are not in memory as a whole.
    ///
    /// # Errors
    /// As [`call`](Self::call), and those of `sink`, after which the connection is of no use.
    pub fn rows(&mut self, selection: RowSelection, sink: ValueSink<'_>) -> Result<()> {
        self.send(&Command::Rows { selection })?;
        let mut begun = None;
        loop {
            let answer = self.answer()?;
            let (Answer::Rows { table, .. } | Answer::Piece { table, .. }) = &answer else {
                match answer {
                    Answer::Result(_) => return Ok(()),
                    _ => continue,
                }
            };
            if begun.as_ref() != Some(table) {
                sink(table, None)?;
                begun = Some(table.clone());
            }
            match answer {
                Answer::Rows { table, rows } => {
                    rows.iter().try_for_each(|(key, value)| sink(&table, Some((key, &mut &value[..]))))?;
                }
                Answer::Piece { table, key, bytes, is_last } => {
                    let mut value = Coming::begin(self, bytes, is_last);
                    let taken = sink(&table, Some((&key, &mut value)));
                    value.end(taken)?;
                }
                _ => unreachable!("it has a table"),
            }
        }
    }

    /// Has the database write a row, in a table that is created if there is none. Durable when it returns. A large value is not in
    /// memory as a whole; the transaction that writes it is not run again.
    ///
    /// # Errors
    /// As [`call`](Self::call), and those of `value`, after which the row is as before and the connection is of no use.
    pub fn put(&mut self, table: &str, key: &[u8], value: &mut dyn Read) -> Result<()> {
        let unreadable =
            |error| Error::new(ErrorKind::Io, format!("the value cannot be read: {error}")).with_source(error);
        let mut cut = Cut::begin(value).map_err(unreadable)?;
        if let Some(value) = cut.small() {
            let write = TableWrite { create: true, ..TableWrite::of_put(table, key, &value) };
            return self.call(&Command::Write { write }, &mut |_| {}).map(drop);
        }
        self.send(&Command::PutInPieces { table: table.into(), key: key.to_vec() })?;
        loop {
            let piece = cut.piece().map_err(|error| {
                // So that the database waits for no more of it; if that fails, it knows already.
                let _ = self.stream.get_ref().shutdown(Shutdown::Both);
                unreadable(error)
            })?;
            let line = line_of(&piece).map_err(|error| broken(&self.socket, HUNG_UP, error))?;
            // If the database hears no more, its answer says why.
            if self.stream.get_mut().write_all(&line).is_err() || piece.is_last {
                return self.result(&mut |_| Ok(())).map(drop);
            }
        }
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
        self.send(command)?;
        self.result(take)
    }

    fn send(&mut self, command: &Command) -> Result<()> {
        let hung_up = |error| broken(&self.socket, HUNG_UP, error);
        let line = command.to_line().map_err(hung_up)?;
        if line.len() > LINE_BYTES_MAX {
            return Err(too_long(line.len(), LINE_BYTES_MAX));
        }
        self.stream.get_mut().write_all(&line).map_err(|error| broken(&self.socket, HUNG_UP, error))
    }

    /// The result of a command that was sent.
    fn result(&mut self, take: &mut dyn FnMut(Answer) -> Result<()>) -> Result<Value> {
        loop {
            match self.answer()? {
                Answer::Result(result) => return Ok(result),
                answer => take(answer)?,
            }
        }
    }

    /// The next line of the answer.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) with what the database says; when the connection breaks, and for a line that is not understood.
    pub(super) fn answer(&mut self) -> Result<Answer> {
        let failed = |what: String| Error::new(ErrorKind::Io, format!("{}: {what}", self.socket));
        let mut line = Vec::new();
        let bytes = self.stream.read_until(b'\n', &mut line);
        if bytes.map_err(|error| broken(&self.socket, HUNG_UP, error))? == 0 {
            return Err(failed("the database hung up before the end: look whether it was done".into()));
        }
        match Answer::of_line(&line).map_err(failed)? {
            Answer::Error(what) => Err(failed(what)),
            answer => Ok(answer),
        }
    }
}
