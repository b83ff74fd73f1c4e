//! `tantalum bench`: workloads on a database in a directory, or on emulated devices in virtual time.

mod benchmark;
mod counters;
mod database;
mod documents;
mod kv;
mod linkbench;
mod raw;
mod settings;
mod simulate;
mod tpcc;
mod trace;
mod ycsb;

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};

use crate::{error::Result, interrupt};

/// The arguments of `tantalum bench`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// TPC-C: transactions of a wholesale supplier, without think times; then its twelve consistency conditions.
    Tpcc(tpcc::Arguments),
    /// LinkBench: requests to a social graph; then its lists and counts are checked.
    Linkbench(linkbench::Arguments),
    /// YCSB: the core workloads A to F on records of 1 KB.
    Ycsb(ycsb::Arguments),
    /// Durable updates of small values, against the raw speed of the device.
    Kv(kv::Arguments),
}

/// Runs a benchmark.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    interrupt::handle()?;
    match arguments.workload {
        Workload::Tpcc(arguments) => benchmark::run(arguments),
        Workload::Linkbench(arguments) => benchmark::run(arguments),
        Workload::Ycsb(arguments) => ycsb::run(arguments),
        Workload::Kv(arguments) => benchmark::run(arguments),
    }
}

/// Microseconds for people.
fn latency(microseconds: f64) -> String {
    tantalum_report::units::duration_ns((microseconds * 1e3) as u64)
}

/// A rate for people.
fn rate(per_second: f64) -> String {
    tantalum_report::units::count(per_second.round() as u64)
}

/// So many things of this name.
fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A number of bytes such as 65536, 64k, 64M or 64GiB; the letters mean powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        unit => return Err(format!("{unit:?} is no unit; use k, M or G")),
    };
    let number: u64 = digits.trim().parse().map_err(|error| format!("{digits:?} is no number: {error}"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// A time such as 80us, 1.5ms or 2s.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        unit => return Err(format!("{unit:?} is no unit; use ns, us, ms or s")),
    };
    let number: f64 = digits.parse().map_err(|error| format!("{digits:?} is no number: {error}"))?;
    match Duration::try_from_secs_f64(number * unit_s) {
        Ok(Duration::ZERO) => Err("it must be above zero, or time would stand still".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parse_bytes, parse_duration};

    #[test]
    fn times_are_read() {
        assert_eq!(parse_duration("80us"), Ok(Duration::from_micros(80)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        for bad in ["", "5", "0us", "-1s", "5 m", "xs", "1e99s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        for bad in ["", "x", "4q", "-1", "99999999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
