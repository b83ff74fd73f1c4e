//! Profiles with other values.

use tantalum_flash::Profile;

/// Few planes and small blocks, so that collection, wear and power cuts meet early.
pub const SMALL: [(&str, &str); 5] = [
    ("channels", "2"),
    ("packages_per_channel", "1"),
    ("pages_per_block", "16"),
    ("pool_bytes", "131072"),
    ("max_command_bytes", "65536"),
];

/// The profile of this text, with these values for all keys of these names.
pub fn edited<'a>(name: &str, mut text: String, edits: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Profile {
    for (key, value) in edits {
        let lines = text.lines().map(|line| match line.split_once(" = ") {
            Some((found, _)) if found == *key => format!("{key} = {value}\n"),
            _ => format!("{line}\n"),
        });
        text = lines.collect();
    }
    Profile::parse(name, &text).unwrap()
}
