//! The key `log_layout` of `tantalum.toml`: a name, `striped:64KiB`, or `{ striped = "64KiB" }`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use tantalum_log::LogLayout;

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected flash-logging, single, striped:64KiB or { striped = \"64KiB\" }")]
enum Written {
    Text(String),
    Table(Table),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    striped: String,
}

pub(crate) fn serialize<S: Serializer>(layout: &Option<LogLayout>, serializer: S) -> Result<S::Ok, S::Error> {
    match layout {
        Some(layout) => serializer.collect_str(layout),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LogLayout>, D::Error> {
    let text = match Written::deserialize(deserializer)? {
        Written::Text(text) => text,
        Written::Table(Table { striped }) => format!("striped:{striped}"),
    };
    text.parse().map(Some).map_err(D::Error::custom)
}
