//! [`Stats`] as metrics of the facade `metrics`: each number under the name that it has in the statistics, where it is declared.

use metrics::{Label, counter, gauge};
use serde_json::Value;
use tantalum_rt::Since;

use super::Stats;
use crate::error::{Error, ErrorKind, Result};

impl Stats {
    /// Gives every number of the statistics to the recorder of the crate `metrics`: for programs that export metrics, as often as these
    /// are asked for. It costs nothing between calls, and no lock that commits take.
    ///
    /// A metric is called `tantalum`, and then as the path of its field, with `_` between: `tantalum_transactions_commits`. Its unit is
    /// at the end of the name, where it has one. Counts are counters, everything else, flags too, is a gauge. All bear a label
    /// `database`, and those of an element of a list `name`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// // Once, at the start of the program: an exporter of your choice as recorder. Then, as often as it is scraped:
    /// db.stats()?.record_metrics("orders")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the statistics cannot be serialized, which no state of a database leads to.
    pub fn record_metrics(&self, database: &str) -> Result<()> {
        let fields = serde_json::to_value(self).map_err(|error| {
            let what = format!("the statistics cannot be recorded as metrics: {error}");
            Error::new(ErrorKind::Unsupported, what).with_source(error)
        })?;
        record(&fields, &mut Vec::new(), &[Label::new("database", database.to_owned())]);
        Ok(())
    }
}

/// Records what stands at `path`.
fn record<'v>(value: &'v Value, path: &mut Vec<&'v str>, labels: &[Label]) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(name);
                record(value, path, labels);
                path.pop();
            }
        }
        Value::Array(elements) => {
            for (number, element) in elements.iter().enumerate() {
                let name = element.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
                let name = name.map_or_else(|| number.to_string(), str::to_owned);
                let labels: Vec<_> = labels.iter().cloned().chain([Label::new("name", name)]).collect();
                record(element, path, &labels);
            }
        }
        Value::Number(number) => match number.as_u64() {
            Some(count) if Stats::is_count(path) => counter!(name_of(path), labels.to_vec()).absolute(count),
            _ => gauge!(name_of(path), labels.to_vec()).set(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Bool(flag) => gauge!(name_of(path), labels.to_vec()).set(u8::from(*flag)),
        // Texts say what the database is, and are no metrics.
        Value::String(_) | Value::Null => {}
    }
}

fn name_of(path: &[&str]) -> String {
    format!("tantalum_{}", path.join("_"))
}
