//! From text to parameters, and from mistakes to messages that name file, line and key.

use super::Profile;
use crate::{Error, Result};

impl Profile {
    /// Reads a profile from TOML. `name` is used in messages.
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut profile: Self = toml::from_str(text).map_err(|error| Error::Syntax {
            file: name.to_owned(),
            line: error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            message: error.message().to_owned(),
        })?;
        name.clone_into(&mut profile.name);
        Ok(profile)
    }
}
