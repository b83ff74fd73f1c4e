//! The settings of a database as options of the command line, from the engine's list of them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};
use serde::{Serialize, Serializer};
use tantalum::{Builder, SETTINGS, Setting, SettingKind, StoreKind};

use super::parse_bytes;
use crate::emulator::with_absolute_profile;
use crate::error::{Error, Result};

/// Options that are shorter than the names of their settings.
const SHORT: [(&str, &str); 5] = [
    ("buffer_pool_bytes", "buffer-pool"),
    ("data_device", "data"),
    ("log_archive", "archive"),
    ("log_devices", "log"),
    ("torn_page_protection", "protection"),
];

/// The settings that were given, by name.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: BTreeMap<&'static str, Vec<String>>,
}

impl Settings {
    /// Hands all that were given to a builder, but for devices.
    pub fn apply(&self, mut builder: Builder) -> Result<Builder> {
        for (name, values) in &self.given {
            for value in values {
                match *name {
                    "data_device" | "log_archive" | "log_devices" => {}
                    "log_characteristics" => {
                        let path = Path::new(value);
                        let path = std::path::absolute(path).map_err(|error| Error::file("find", path, error))?;
                        builder = builder.set(name, &path.display().to_string())?;
                    }
                    _ => builder = builder.set(name, value)?,
                }
            }
        }
        Ok(builder)
    }

    /// Hands the devices that were given to a builder.
    pub fn apply_devices(&self, mut builder: Builder) -> Result<Builder> {
        for name in ["data_device", "log_archive", "log_devices"] {
            for path in self.paths(name) {
                builder = builder.set(name, &with_absolute_profile(&path).display().to_string())?;
            }
        }
        Ok(builder)
    }

    /// The names of those that were given.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.given.keys().copied()
    }

    /// The paths that were given for a setting.
    pub fn paths(&self, name: &str) -> Vec<PathBuf> {
        self.given.get(name).into_iter().flatten().map(PathBuf::from).collect()
    }

    /// The number that was given for a setting.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.given.get(name)?.last()?.parse().ok()
    }

    /// How pages are stored.
    pub fn page_store(&self) -> StoreKind {
        let given = self.given.get("page_store").and_then(|values| values.last());
        given.and_then(|name| name.parse().ok()).unwrap_or_default()
    }
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| command.arg(option(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Self::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in SETTINGS {
            let Some(values) = matches.get_many::<String>(setting.name) else { continue };
            let values: Result<Vec<_>, _> = values.map(|value| checked(setting, value)).collect();
            let refused = |what| clap::Error::raw(ErrorKind::ValueValidation, format!("--{}: {what}\n", long(setting)));
            self.given.insert(setting.name, values.map_err(refused)?);
        }
        Ok(())
    }
}

/// As in `tantalum.toml`.
impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.given.iter().map(|(name, values)| (name, json(kind_of(name), values))))
    }
}

fn json(kind: SettingKind, values: &[String]) -> serde_json::Value {
    let last = values.last().map_or("", String::as_str);
    match kind {
        SettingKind::Bytes | SettingKind::Number => last.parse::<u64>().map_or(serde_json::Value::Null, Into::into),
        SettingKind::Flag => (last == "true").into(),
        SettingKind::Name | SettingKind::Path => last.into(),
        SettingKind::Paths => values.into(),
    }
}

fn kind_of(name: &str) -> SettingKind {
    let setting = SETTINGS.iter().find(|setting| setting.name == name);
    setting.expect("only settings of the list are given").kind
}

fn long(setting: &Setting) -> String {
    let short = SHORT.iter().find(|(name, _)| *name == setting.name);
    short.map_or_else(|| setting.name.replace('_', "-"), |(_, short)| (*short).to_owned())
}

fn option(setting: &'static Setting) -> Arg {
    let (long, whole) = (long(setting), setting.name.replace('_', "-"));
    let takes_device = matches!(setting.name, "data_device" | "log_archive" | "log_devices");
    let emulated = if takes_device { " Or emulated:PROFILE[:FILE], an emulated device." } else { "" };
    let option = Arg::new(setting.name)
        .help(format!("{}{emulated} [default: {}]", summary(setting.help), setting.default.replace('`', "")))
        .help_heading(if setting.is_expert { "Expert settings of the database" } else { "Settings of the database" })
        .hide_short_help(setting.is_expert);
    let option = match setting.kind {
        SettingKind::Bytes => option.value_name("BYTES"),
        SettingKind::Number => option.value_name("N"),
        SettingKind::Name => option.value_name("NAME"),
        SettingKind::Path => option.value_name("PATH"),
        SettingKind::Paths => option.value_name("PATH").action(ArgAction::Append),
        SettingKind::Flag => {
            option.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true")
        }
    };
    let option = if long == whole { option } else { option.alias(whole) };
    option.long(long)
}

/// The value as the engine reads it, if it can be one.
fn checked(setting: &Setting, value: &str) -> Result<String, String> {
    let value = match setting.kind {
        SettingKind::Bytes => parse_bytes(value)?.to_string(),
        _ => value.to_owned(),
    };
    match Builder::new().set(setting.name, &value) {
        Ok(_) => Ok(value),
        Err(error) => Err(error.to_string()),
    }
}

/// The first paragraph of a help text, without the marks of links.
fn summary(help: &str) -> String {
    let paragraph = help.split("\n\n").next().unwrap_or_default();
    let mut text = String::new();
    let mut rest = paragraph;
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(['[', ']', '`'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Settings, clap::Error> {
        let command = Settings::augment_args(Command::new("test"));
        Settings::from_arg_matches(&command.try_get_matches_from([&["test"], arguments].concat())?)
    }

    #[test]
    fn options_become_settings() {
        let settings =
            parse(&["--buffer-pool", "16M", "--log", "a", "--log-devices", "b", "--durable-page-writes"]).unwrap();
        assert_eq!(
            serde_json::to_value(&settings).unwrap(),
            serde_json::json!({
                "buffer_pool_bytes": 16 << 20, "durable_page_writes": true, "log_devices": ["a", "b"]
            })
        );
        assert_eq!(parse(&["--log-gather=false"]).unwrap().names().collect::<Vec<_>>(), ["log_gather"]);
    }

    #[test]
    fn values_that_cannot_be_are_refused_by_name() {
        for (option, value, expected) in [
            ("--buffer-pool", "16X", "--buffer-pool"),
            ("--isolation", "none", "snapshot-isolation"),
            ("--page-store", "heap", "log-structured"),
            ("--log-copies", "many", "no number"),
            ("--erase-unit-bytes", "99G", "erase_unit_bytes"),
        ] {
            let error = parse(&[option, value]).unwrap_err().to_string();
            assert!(error.contains(expected), "{option} {value}: {error}");
        }
    }

    #[test]
    fn each_setting_has_a_help_text_without_marks() {
        for setting in SETTINGS {
            let text = summary(setting.help);
            assert!(text.ends_with('.') && !text.contains(['[', ']', '`']) && !text.contains("crate::"), "{text}");
        }
    }
}
