//! `tantalum probe powercut-write`, `powercut-listen` and `powercut-check`: whether what a device acknowledges survives a power cut,
//! where the operator can pull the plug.
//!
//! Promise: a write is reported only when it has returned, and the listener keeps each report before it reads the next.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Subcommand};
use tantalum_device::{Access, Device, FileDevice};
use tantalum_lab::probe::power_cut::{self, Header, Record};
use tantalum_report::units;

use crate::{
    bench::parse_bytes,
    device::overwrite,
    error::{Error, Out, Result},
};

#[derive(Subcommand)]
pub enum Command {
    /// Write blocks until the power goes, and report each that was acknowledged to another machine.
    #[command(name = "powercut-write")]
    Write(WriteArguments),
    /// On the other machine: keep what a writer reports in a file.
    #[command(name = "powercut-listen")]
    Listen(ListenArguments),
    /// After the power is back: look whether everything is there that was reported. Exit code 1 if not.
    #[command(name = "powercut-check")]
    Check(CheckArguments),
}

#[derive(Args)]
pub struct WriteArguments {
    /// A file that does not exist, which is made and stays; or with --destructive a block device, whose first bytes are lost.
    path: PathBuf,
    /// Where powercut-listen listens.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "record")]
    to: Option<String>,
    /// Report to this file instead, which must lie on a device that keeps its power.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    record: Option<PathBuf>,
    /// Bytes to write in.
    #[arg(long, default_value = "64M", value_parser = parse_bytes)]
    size: u64,
    /// Bytes of a write.
    #[arg(long, default_value = "16K", value_parser = parse_bytes)]
    block: u64,
    /// Report what has completed, without making it durable: for devices that say that their cache survives.
    #[arg(long)]
    cached: bool,
    /// End after so many writes, instead of with the power.
    #[arg(long, value_name = "N")]
    writes: Option<u64>,
    /// Overwrite PATH, which exists.
    #[arg(long)]
    destructive: bool,
}

#[derive(Args)]
pub struct ListenArguments {
    /// The address to listen at, such as 0.0.0.0:7700. Any host that reaches it can write to RECORD: use a network that you trust.
    address: String,
    /// The record; it must not exist.
    record: PathBuf,
    /// End after so many seconds without a report: then the power has gone.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    silence: u64,
    /// Keep no more than this.
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    most: u64,
}

#[derive(Args)]
pub struct CheckArguments {
    /// What powercut-write has written to.
    path: PathBuf,
    /// What powercut-listen, or powercut-write --record, has kept.
    record: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// No line is longer, its line feed included.
const LINE_BYTES_MAX: u64 = 128;

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Write(arguments) => write(arguments),
        Command::Listen(arguments) => listen(arguments),
        Command::Check(arguments) => check(arguments),
    }
}

fn write(arguments: &WriteArguments) -> Result<ExitCode> {
    let path = &arguments.path;
    let header = Header {
        run: tantalum_rt::random_seed(),
        block_bytes: arguments.block,
        slots: arguments.size / arguments.block.max(1),
        is_durable: !arguments.cached,
    };
    // What the check would refuse is not written.
    Header::parse(&header.to_line()).map_err(|what| Error::Other(format!("--block and --size: {what}")))?;
    let bytes = (header.block_bytes * header.slots).next_multiple_of(4096);
    let device: Arc<dyn Device> = match (path.exists(), arguments.destructive) {
        (false, _) => Arc::new(FileDevice::create(path, bytes, None)?),
        (true, true) => Arc::new(overwrite::open(path)?),
        (true, false) => {
            let path = path.display();
            return Err(Error::Other(format!(
                "{path} exists; name a file that does not, or give --destructive to overwrite it"
            )));
        }
    };
    let mut reports = open_reports(arguments)?;
    let failed =
        |error: std::io::Error| Error::Other(format!("cannot report what was written: {error}; look at the listener"));
    writeln!(reports, "{}", header.to_line()).map_err(failed)?;
    Out::new().line("writing until the power goes; pull the plug")?;
    let mut failure = None;
    power_cut::write(&*device, &header, |sequence, slot| {
        failure = writeln!(reports, "{sequence} {slot}").err();
        failure.is_none() && arguments.writes.is_none_or(|most| sequence < most)
    })?;
    failure.map_or(Ok(ExitCode::SUCCESS), |error| Err(failed(error)))
}

/// Each line is passed on at once.
fn open_reports(arguments: &WriteArguments) -> Result<Box<dyn Write>> {
    match (&arguments.to, &arguments.record) {
        (Some(address), _) => {
            let connect = || {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(stream)
            };
            let stream = connect().map_err(|error: std::io::Error| {
                Error::Other(format!("cannot reach {address}: {error}; start powercut-listen there first"))
            })?;
            Ok(Box::new(std::io::LineWriter::new(stream)))
        }
        (None, Some(path)) => Ok(Box::new(std::io::LineWriter::new(create(path)?))),
        (None, None) => Err(Error::Other("name a listener with --to or a file with --record".into())),
    }
}

fn create(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| Error::file("create", path, error))
}

fn listen(arguments: &ListenArguments) -> Result<ExitCode> {
    let mut file = create(&arguments.record)?;
    let failed = |error: std::io::Error| Error::Other(format!("cannot listen at {}: {error}", arguments.address));
    let listener = TcpListener::bind(&arguments.address).map_err(failed)?;
    let mut out = Out::new();
    out.line(format_args!("listening at {}", listener.local_addr().map_err(failed)?))?;
    let (stream, writer) = listener.accept().map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(arguments.silence))).map_err(failed)?;
    out.line(format_args!("{writer} reports"))?;
    let (record, why) = keep(BufReader::new(stream), &mut file, arguments.most)?;
    let count = record.map_or(0, |record| record.last());
    out.line(format_args!("{} writes are kept in {}; {why}", units::count(count), arguments.record.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Keeps whole lines that a writer writes, until something else comes, or nothing.
fn keep(mut input: impl BufRead, file: &mut File, most: u64) -> Result<(Option<Record>, String)> {
    let mut record: Option<Record> = None;
    let mut kept = 0;
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return Ok((record, "the writer has ended".into())),
            Ok(_) => {}
            Err(error) => return Ok((record, format!("nothing more came: {error}"))),
        }
        let Some(text) = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok()) else {
            return Ok((record, "what came then is no whole line".into()));
        };
        let taken = match &mut record {
            None => Header::parse(text).map(|header| record = Some(Record::new(header))),
            Some(record) => record.take(text),
        };
        if let Err(what) = taken {
            return Ok((record, format!("what came then was refused: {what}")));
        }
        kept += line.len() as u64;
        if kept > most {
            return Ok((record, "that is as much as may be kept".into()));
        }
        file.write_all(&line).map_err(|error| Error::Other(format!("cannot keep a report: {error}")))?;
    }
}

fn check(arguments: &CheckArguments) -> Result<ExitCode> {
    let bytes = fs::read(&arguments.record).map_err(|error| Error::file("read", &arguments.record, error))?;
    let record = Record::parse(&bytes).map_err(|error| Error::file("use", &arguments.record, error))?;
    let device = FileDevice::open(&arguments.path, Access::ReadOnly)?;
    let outcome = power_cut::check(&device, &record)?;
    let code = if outcome.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if arguments.json {
        tantalum_report::print_json(&outcome)?;
        return Ok(code);
    }
    let mut out = Out::new();
    let mode = if record.header.is_durable { "durable" } else { "completed" };
    out.line(format_args!(
        "{} writes were reported as {mode}, to {} slots: {} kept, {} lost, {} torn by the cut",
        units::count(outcome.reported),
        units::count(outcome.slots),
        units::count(outcome.kept),
        units::count(outcome.lost),
        units::count(outcome.torn)
    ))?;
    match outcome.first_lost_offset {
        Some(offset) => {
            out.line(format_args!("LOST what it had acknowledged, first at byte {offset}: it is not power-safe"))?
        }
        None => out.line("everything acknowledged is there; one cut proves little, repeat it some times")?,
    }
    Ok(code)
}
