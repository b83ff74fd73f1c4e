//! The name of an emulated device, wherever a path of a device is asked for: `emulated:PROFILE` or
//! `emulated:PROFILE:FILE`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{EmulatedDevice, Error, ErrorKind, Profile, Result};

/// What such a name begins with.
const PREFIX: &str = "emulated:";

/// An emulated device as a user names it.
///
/// Without a file its contents lie in memory and are gone with it; every opening makes another device. With a file they
/// lie in it, and the device is the one that the file holds ([`Profile::open_file`]).
///
/// ```
/// use tantalum_flash::EmulatedSpec;
/// assert!(EmulatedSpec::parse("/dev/sda").is_none());
/// let spec = EmulatedSpec::parse("emulated:usb-c:/tmp/stick").expect("it begins as such a name does")?;
/// assert_eq!((&*spec.profile_name, spec.file.as_deref()), ("usb-c", Some("/tmp/stick".as_ref())));
/// let stick = EmulatedSpec::parse("emulated:usb-c").expect("this one too")?.open(Some(16 << 20))?;
/// assert_eq!(stick.shape().capacity_bytes, 16 << 20);
/// # Ok::<(), tantalum_flash::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatedSpec {
    /// A profile that comes with the crate, or the path of a TOML file without a colon in it.
    pub profile_name: String,
    /// What holds the medium, if it is not memory.
    pub file: Option<PathBuf>,
}

impl EmulatedSpec {
    /// Reads a name; `None` if it is not that of an emulated device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the profile or the file is empty. Whether they exist is seen when the device is opened.
    pub fn parse(text: &str) -> Option<Result<Self>> {
        let rest = text.strip_prefix(PREFIX)?;
        let (profile_name, file) = match rest.split_once(':') {
            Some((profile, file)) => (profile, Some(file)),
            None => (rest, None),
        };
        let problem = match (profile_name, file) {
            ("", _) => "the profile is missing",
            (_, Some("")) => "the file is missing after the second colon",
            _ => return Some(Ok(Self { profile_name: profile_name.to_owned(), file: file.map(PathBuf::from) })),
        };
        let what = format!(
            "{text:?} names no emulated device: {problem}; write emulated:PROFILE or emulated:PROFILE:FILE, with one of {}, or the \
             path of a TOML file",
            Profile::known()
        );
        Some(Err(Error::new(ErrorKind::InvalidInput, what)))
    }

    /// The profile that it names.
    ///
    /// # Errors
    /// Those of [`Profile::named`].
    pub fn profile(&self) -> Result<Profile> {
        Profile::named(&self.profile_name)
    }

    /// The device, of its profile's capacity or of another one. It begins to exist, or is powered on.
    ///
    /// # Errors
    /// Those of [`Profile::named`], [`Profile::build`] and [`Profile::open_file`].
    pub fn open(&self, capacity: Option<u64>) -> Result<Arc<EmulatedDevice>> {
        let mut profile = self.profile()?;
        if let Some(capacity_bytes) = capacity {
            profile = profile.with_capacity(capacity_bytes);
        }
        let model = match &self.file {
            Some(path) => profile.open_file(path)?,
            None => profile.build()?,
        };
        Ok(EmulatedDevice::new(self.to_string(), model))
    }
}

impl std::fmt::Display for EmulatedSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}", self.profile_name)?;
        match &self.file {
            Some(file) => write!(f, ":{}", file.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_say_what_is_there() {
        for bad in ["emulated:", "emulated::file", "emulated:ssd-a:"] {
            let message = EmulatedSpec::parse(bad).unwrap().unwrap_err().to_string();
            assert!(message.contains(bad) && message.contains("durassd"), "{message}");
        }
        let unknown = EmulatedSpec::parse("emulated:no-such-drive").unwrap().unwrap().open(None).unwrap_err();
        assert!(unknown.to_string().contains("durassd"), "{unknown}");
        assert!(EmulatedSpec::parse("emulate:ssd-a").is_none());
    }

    #[test]
    fn a_name_reads_as_it_is_written() {
        for text in ["emulated:ssd-a", "emulated:my.toml:/tmp/a:b"] {
            assert_eq!(EmulatedSpec::parse(text).unwrap().unwrap().to_string(), text);
        }
    }
}
