//! What was measured of a device, in a file that can be kept beside it: `docs/use/devices.md#characteristics-files`.

use std::path::Path;
use std::time::Duration;

use crate::toml::{Problem, Table, Value};
use crate::{Error, ErrorKind, Result};

/// The newest format that this code reads.
const FORMAT: u32 = 1;
/// More sizes than this are no measurement but a mistake.
const SIZES_MAX: usize = 1000;
/// A file is not read beyond this.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// One hour: no device is slower.
const MEAN_US_MAX: f64 = 3.6e9;

/// The mean latencies of a device ("FlashLogging", section 3.4: the table that is part of the device description).
///
/// ```
/// use tantalum_device::Characteristics;
/// let text = "format = 1\ndevice = \"/dev/sdb\"\n\
///             [[write_latency]]\nbytes = 4096\nmean_us = 810.0\n[[write_latency]]\nbytes = 65536\nmean_us = 5200.0\n";
/// let measured = Characteristics::parse(text)?;
/// assert_eq!(measured.write_latency[1].bytes, 65536);
/// assert_eq!(Characteristics::parse(&measured.to_toml())?, measured);
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Characteristics {
    /// The format, 1.
    pub format: u32,
    /// The device that was measured, for readers.
    pub device: String,
    /// Sequential durable writes, one after another, by ascending size.
    pub write_latency: Vec<WriteLatency>,
}

/// The mean latency of writes of one size.
///
/// ```
/// let latency = tantalum_device::WriteLatency { bytes: 4096, mean_us: 0.5 };
/// assert_eq!(latency.mean().as_nanos(), 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteLatency {
    /// The size of the writes in bytes.
    pub bytes: u64,
    /// Microseconds from submission to completion.
    pub mean_us: f64,
}

impl WriteLatency {
    /// The mean as a duration.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.mean_us.clamp(0.0, MEAN_US_MAX) / 1e6)
    }
}

impl Characteristics {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or as [`Characteristics::parse`].
    pub fn load(path: impl AsRef<Path>) -> Result<Characteristics> {
        let path = path.as_ref();
        let read = || -> std::io::Result<String> {
            use std::io::Read;
            let mut text = String::new();
            let file = std::fs::File::open(path)?;
            if file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)? as u64 > FILE_BYTES_MAX {
                return Err(std::io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
            }
            Ok(text)
        };
        let text = read().map_err(|cause| {
            let what = format!("{}: cannot read the device characteristics: {cause}; check the path", path.display());
            Error::new(ErrorKind::Io, what).with_source(cause)
        })?;
        Characteristics::parse_named(path, &text)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): a format that is not known, an unknown or missing key, sizes
    /// that do not ascend, or a latency that no device has.
    pub fn parse(text: &str) -> Result<Characteristics> {
        Self::parse_named(Path::new(""), text)
    }

    fn parse_named(file: &Path, text: &str) -> Result<Characteristics> {
        let invalid = |line, what| {
            let remedy =
                "measure the device again, or write the file as docs/use/devices.md#characteristics-files says";
            Error::new(ErrorKind::InvalidInput, format!("{}: line {line}: {what}; {remedy}", file.display()))
        };
        let refuse = |Problem { line, what }| invalid(line, what);
        let mut table = Table::parse(text.as_bytes()).map_err(refuse)?;
        let format = table.require("format").map_err(refuse)?;
        if format != FORMAT {
            return Err(invalid(1, format!("format {format} is not known, only {FORMAT}")));
        }
        let read = Self::of_table(format, table).map_err(refuse)?;
        match read.problem() {
            None => Ok(read),
            Some((index, what)) => {
                let header = |line: &&str| line.trim_start().starts_with("[[write_latency]]");
                let line = text.lines().enumerate().filter(|(_, line)| header(line)).nth(index);
                Err(invalid(line.map_or(1, |(number, _)| number + 1), what))
            }
        }
    }

    fn of_table(format: u32, mut table: Table) -> Result<Self, Problem> {
        let device = table.require("device")?;
        let write_latency = table.take_tables("write_latency")?;
        table.finish()?;
        let latency = |mut entry: Table| {
            let latency = WriteLatency { bytes: entry.require("bytes")?, mean_us: entry.require("mean_us")? };
            entry.finish()?;
            Ok(latency)
        };
        Ok(Self { format, device, write_latency: write_latency.into_iter().map(latency).collect::<Result<_, _>>()? })
    }

    /// The file's text.
    pub fn to_toml(&self) -> String {
        use std::fmt::Write;
        let device = Value::Text(self.device.clone());
        let mut text = format!("format = {}\ndevice = {device}\n", self.format);
        for WriteLatency { bytes, mean_us } in &self.write_latency {
            let written = write!(text, "\n[[write_latency]]\nbytes = {bytes}\nmean_us = {mean_us:?}\n");
            written.expect("writing to a string does not fail");
        }
        text
    }

    /// The first entry that cannot be, and why.
    fn problem(&self) -> Option<(usize, String)> {
        let sizes = &self.write_latency;
        if sizes.is_empty() {
            return Some((0, "write_latency has no entry".into()));
        }
        if sizes.len() > SIZES_MAX {
            return Some((SIZES_MAX, format!("write_latency has more than {SIZES_MAX} entries")));
        }
        let mut last = 0;
        for (index, entry) in sizes.iter().enumerate() {
            if entry.bytes <= last {
                return Some((
                    index,
                    format!("bytes is {}, but must exceed {last}, that of the entry before", entry.bytes),
                ));
            }
            last = entry.bytes;
            if !(entry.mean_us > 0.0 && entry.mean_us <= MEAN_US_MAX) {
                return Some((
                    index,
                    format!("mean_us is {}, but must lie between 0 and {MEAN_US_MAX}", entry.mean_us),
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(text: &str) -> String {
        Characteristics::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let entry = |bytes: i64, mean: &str| format!("[[write_latency]]\nbytes = {bytes}\nmean_us = {mean}\n");
        let file = |entries: &str| format!("format = 1\ndevice = \"d\"\n{entries}");
        for text in ["", "write_latency = []\n"] {
            assert!(problem(&file(text)).contains("no entry"), "{text}");
        }
        assert!(problem("format = 1\n").contains("missing field `device`"));
        let twice = problem(&file(&(entry(4096, "1.0") + &entry(4096, "2.0"))));
        assert!(twice.contains("line 6") && twice.contains("4096"), "{twice}");
        for mean in ["0.0", "-1.0", "nan", "inf", "1e10"] {
            assert!(problem(&file(&entry(4096, mean))).contains("mean_us"), "{mean}");
        }
        assert!(problem(&file(&entry(-4096, "1.0"))).contains("line 4"));
        assert!(problem(&format!("{}colour = 3\n", file(&entry(1, "1.0")))).contains("colour"));
        assert!(problem("format = 2\nmood = 1\n").contains("format 2"));
        let missing = Characteristics::load("/nonexistent/file").unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/file"), "{missing}");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            let _ = Characteristics::parse(&text);
            let _ = Characteristics::parse(&format!("format = 1\ndevice = \"\"\n[[write_latency]]\n{text}"));
        }

        #[test]
        fn what_is_written_is_read_back(device: String, sizes in prop::collection::btree_map(1u64..1 << 40, 0.001f64..1e9, 1..20)) {
            let write_latency = sizes.into_iter().map(|(bytes, mean_us)| WriteLatency { bytes, mean_us }).collect();
            let written = Characteristics { format: FORMAT, device, write_latency };
            prop_assert_eq!(Characteristics::parse(&written.to_toml()).expect("its own text"), written);
        }
    }
}
