//! The ways in which a log can lie on its devices: FlashLogging's, and those that its paper compares it with.
//!
//! Above this file a striped log is a log of one device, an array, on which as many requests are under way at a time as it
//! has devices; or all that there are, with a request for each flush ([`LogOptions::request_per_flush`](crate::LogOptions)). Each device keeps its own superblock; the array writes slots to all of them.
//!
//! A power cut may leave any of the array's requests under way torn and others, placed later, whole. So that recovery can
//! tell that from damage, the request that opens a section is under way by itself ([`crate::log_device`]): when a section
//! opens, all before it is durable, and torn requests can only lie in the last section. There the log ends before the first
//! request that is not intact. That it was never acknowledged is witnessed by the headers of those behind it, which say what
//! was durable when they were composed.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use tantalum_device::toml::{Field, Value};
use tantalum_device::{Device, Striped};

use crate::format::BLOCK;
use crate::format::superblock::FIXED_BLOCKS;
use crate::{Result, error};

/// How requests are laid out on a log's devices; fixed when the log is created. All layouts recover alike.
///
/// As text: `flash-logging`, `single`, `striped:64KiB`.
///
/// ```
/// use tantalum_log::LogLayout;
/// assert_eq!("striped:64KiB".parse::<LogLayout>()?, LogLayout::Striped { unit_bytes: 65536 });
/// assert_eq!(LogLayout::default().to_string(), "flash-logging");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogLayout {
    /// A request goes to any device that is free, as one write that touches nothing written before ("FlashLogging",
    /// section 3.3).
    #[default]
    FlashLogging,
    /// One device, as conventional logs have it: requests are packed byte after byte, and each writes the partly
    /// filled block again in which the one before it ended ("FlashLogging", sections 4 and 5.2, Figures 11 and 17).
    ///
    /// A power cut must leave each block either as it was or as it is written, which sectors of 512 bytes and the
    /// logical block of a device do: the bytes of earlier requests are the same in both.
    Single,
    /// All devices as one, conventionally striped in units of `unit_bytes`, a multiple of the block from 512 to 262144:
    /// a request goes where its address says, split into a write for each device that it touches, also while another
    /// device is idle ("FlashLogging", section 3.3 and Figure 13). The failure of one device ends the log.
    Striped {
        /// Bytes of the stripe unit.
        unit_bytes: u32,
    },
}

/// The units that the paper tried.
pub(crate) const UNIT_BYTES: RangeInclusive<u32> = 512..=256 << 10;

impl LogLayout {
    /// Refuses what the layout cannot be: with so many devices, whose blocks have `block_bytes`.
    pub(crate) fn check(self, devices: usize, block_bytes: u32) -> Result<()> {
        match self {
            LogLayout::Single if devices != 1 => {
                let expected = "the single layout has exactly one; give one, or choose another layout";
                Err(error::invalid_option("devices", devices as u64, expected))
            }
            LogLayout::Striped { unit_bytes } if !is_unit(unit_bytes, block_bytes) => {
                let expected = "a stripe unit must be a multiple of the block between 512 and 262144 bytes";
                Err(error::invalid_option("unit_bytes", unit_bytes.into(), expected))
            }
            LogLayout::FlashLogging | LogLayout::Single | LogLayout::Striped { .. } => Ok(()),
        }
    }
}

impl LogLayout {
    /// What a log of this layout on these devices, in the order of their ordinals, is written to.
    pub(crate) fn array(self, devices: &[Arc<dyn Device>]) -> Result<Vec<Arc<dyn Device>>> {
        let LogLayout::Striped { unit_bytes } = self else { return Ok(devices.to_vec()) };
        Ok(vec![Arc::new(Striped::new(devices.to_vec(), unit_bytes, FIXED_BLOCKS * BLOCK as u64)?)])
    }
}

pub(crate) fn is_unit(unit_bytes: u32, block_bytes: u32) -> bool {
    UNIT_BYTES.contains(&unit_bytes) && unit_bytes.is_multiple_of(block_bytes)
}

impl fmt::Display for LogLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogLayout::FlashLogging => f.write_str("flash-logging"),
            LogLayout::Single => f.write_str("single"),
            LogLayout::Striped { unit_bytes } if unit_bytes.is_multiple_of(1024) => {
                write!(f, "striped:{}KiB", unit_bytes / 1024)
            }
            LogLayout::Striped { unit_bytes } => write!(f, "striped:{unit_bytes}B"),
        }
    }
}

impl FromStr for LogLayout {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<LogLayout, String> {
        match text {
            "flash-logging" => Ok(LogLayout::FlashLogging),
            "single" => Ok(LogLayout::Single),
            _ => {
                let unit_bytes = text.strip_prefix("striped:").and_then(parse_unit);
                let layout = unit_bytes.map(|unit_bytes| LogLayout::Striped { unit_bytes });
                layout.ok_or_else(|| {
                    format!(
                        "{text:?} is no log layout; there are flash-logging, single, and striped:512B to striped:256KiB"
                    )
                })
            }
        }
    }
}

/// In a file: a name, `striped:64KiB`, or `{ striped = "64KiB" }`.
impl Field for LogLayout {
    fn from_value(value: &Value) -> std::result::Result<Self, String> {
        let expected =
            || format!("{value} was given; expected flash-logging, single, striped:64KiB or {{ striped = \"64KiB\" }}");
        match value {
            Value::Text(text) => text.parse(),
            Value::Table(table) => {
                let mut table = table.clone();
                let unit = table.require::<String>("striped").map_err(|_| expected())?;
                table.finish().map_err(|_| expected())?;
                format!("striped:{unit}").parse()
            }
            _ => Err(expected()),
        }
    }

    fn to_value(&self) -> std::result::Result<Value, String> {
        Ok(Value::Text(self.to_string()))
    }
}

/// Bytes from `512B`, `512` or `64KiB`.
fn parse_unit(text: &str) -> Option<u32> {
    let (number, factor) = match text.strip_suffix("KiB") {
        Some(number) => (number, 1024),
        None => (text.strip_suffix('B').unwrap_or(text), 1),
    };
    let bytes = number.trim().parse::<u32>().ok()?.checked_mul(factor)?;
    UNIT_BYTES.contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        let striped = |unit_bytes| LogLayout::Striped { unit_bytes };
        for layout in [LogLayout::FlashLogging, LogLayout::Single, striped(512), striped(1536), striped(262_144)] {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        assert_eq!("striped:4096".parse(), Ok(striped(4096)));
        for text in
            ["", "Single", "striped", "striped:", "striped:0", "striped:257KiB", "striped:-1B", "striped:4194304KiB"]
        {
            let error = text.parse::<LogLayout>().unwrap_err();
            assert!(error.contains("flash-logging"), "{error}");
        }
    }

    #[test]
    fn a_unit_is_a_multiple_of_the_block() {
        assert!(LogLayout::Striped { unit_bytes: 4096 }.check(2, 4096).is_ok());
        assert!(LogLayout::Striped { unit_bytes: 512 }.check(2, 4096).is_err());
        assert!(LogLayout::Striped { unit_bytes: 1000 }.check(2, 512).is_err());
    }
}
