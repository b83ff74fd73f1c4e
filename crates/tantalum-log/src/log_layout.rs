//! The ways in which a log can lie on its devices: FlashLogging's, and those that its paper compares it with.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// How requests are laid out on a log's devices; fixed when the log is created. All layouts recover alike.
///
/// As text: `flash-logging`, `single`.
///
/// ```
/// use tantalum_log::LogLayout;
/// assert_eq!("single".parse::<LogLayout>()?, LogLayout::Single);
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
}

impl LogLayout {
    /// Refuses a number of devices that the layout cannot use.
    pub(crate) fn check(self, devices: usize) -> Result<()> {
        match self {
            LogLayout::Single if devices != 1 => {
                let expected = "the single layout has exactly one; give one, or choose another layout";
                Err(Error::InvalidOption { option: "devices", value: devices as u64, expected })
            }
            LogLayout::FlashLogging | LogLayout::Single => Ok(()),
        }
    }
}

impl fmt::Display for LogLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogLayout::FlashLogging => "flash-logging",
            LogLayout::Single => "single",
        })
    }
}

impl FromStr for LogLayout {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<LogLayout, String> {
        match text {
            "flash-logging" => Ok(LogLayout::FlashLogging),
            "single" => Ok(LogLayout::Single),
            _ => Err(format!("{text:?} is no log layout; there are flash-logging and single")),
        }
    }
}
