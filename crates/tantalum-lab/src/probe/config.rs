//! What was found as files that the engine reads.

use tantalum_device::{Characteristics, WriteLatency};

use super::{advice::Advice, found::Found};

/// The characteristics file of the device, for the log; `None` if no durable write was measured.
pub fn characteristics(found: &Found) -> Option<Characteristics> {
    let latency = |row: &super::found::Durable| WriteLatency {
        bytes: row.bytes.into(),
        // A device that takes no time has no average that could be exceeded.
        mean_us: (row.latency.mean_ns / 1e3).max(0.001),
    };
    let write_latency: Vec<_> = found.durable.iter().map(latency).collect();
    (!write_latency.is_empty()).then(|| Characteristics { format: 1, device: found.claims.name.clone(), write_latency })
}

/// A `tantalum.toml` with what is recommended, each key under its reason. `characteristics` is the name of the characteristics
/// file, seen from the database's directory.
pub fn settings(found: &Found, advice: &Advice, characteristics: Option<&str>) -> String {
    use std::fmt::Write;
    let name = found.claims.name.replace(char::is_control, " ");
    let mut text = format!("# What tantalum probe recommends for a database on {name}.\n");
    let mut key = |why: &str, key: &str, value: &str| {
        let written = write!(text, "\n# {}\n{key} = {value}\n", why.replace('\n', " "));
        written.expect("writing to a string does not fail");
    };
    for recommendation in &advice.recommendations {
        // A store that this engine does not have would keep it from reading the file.
        let store = recommendation.value.trim_matches('"').parse::<tantalum::StoreKind>();
        match (recommendation.setting, store) {
            ("page_store", Err(_)) => {
                key(&recommendation.why, "# not in this version: page_store", &recommendation.value)
            }
            (setting, _) => key(&recommendation.why, setting, &recommendation.value),
        }
    }
    if let Some(file) = characteristics {
        key("what durable writes usually take, by size", "log_characteristics", &format!("[{file:?}]"));
    }
    text
}
