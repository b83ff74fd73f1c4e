//! Where a probe's results go: to the terminal, what it may do, what was measured, and last what follows; and to the files that
//! `--write-config` writes. Nothing that exists is replaced without being told to.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tantalum_lab::probe::{self, Advice, Found, Plan};
use tantalum_report::{Table, units};

use super::subject::Subject;
use crate::error::{Error, Out, Result};

pub fn introduce(out: &mut Out, subject: &Subject, plan: &Plan) -> Result<()> {
    let clock = if subject.is_emulated() { " of virtual time" } else { "" };
    let (seconds, range) = (plan.time.as_secs(), units::bytes(plan.range_bytes()));
    let writes = match (plan.writes(), subject.creation_bytes()) {
        (false, _) => "nothing is written".to_owned(),
        (true, 0) => format!("at most {} are written", units::bytes(plan.write_bytes)),
        (true, creation) => format!(
            "at most {} are written, after {} to make a file",
            units::bytes(plan.write_bytes),
            units::bytes(creation)
        ),
    };
    out.line(format_args!("{range} are used; {writes}; at most {seconds} s{clock}"))
}

pub fn found(out: &mut Out, found: &Found) -> Result<()> {
    for (title, table) in probe::tables(found) {
        out.line(format_args!("\n{title}"))?;
        out.line(table)?;
    }
    out.line("")?;
    probe::statements(found).iter().try_for_each(|line| out.line(line))
}

pub fn advice(out: &mut Out, found: &Found, advice: &Advice) -> Result<()> {
    let (name, seconds) = (&found.claims.name, Duration::from_secs_f64(found.seconds).as_secs_f64());
    let written = units::bytes(found.written_bytes);
    out.line(format_args!("\n{name}: probed in {seconds:.0} s, {written} written\n"))?;
    if let Some(power) = &advice.power_safe {
        out.line(format_args!("power-safe: {power}\n"))?;
    }
    if advice.recommendations.is_empty() {
        return out
            .line("Without writing to it there is nothing to recommend; give a directory on it, or --destructive.");
    }
    let mut table = Table::new(["recommended", ""]);
    for row in &advice.recommendations {
        table.row([row.setting, &row.value]);
    }
    out.line(table)?;
    out.line("")?;
    advice.recommendations.iter().try_for_each(|row| out.line(format_args!("{}: {}", row.setting, row.why)))
}

const SETTINGS: &str = "tantalum.toml";
const CHARACTERISTICS: &str = "log.characteristics.toml";

/// Where they go.
pub struct Config {
    directory: PathBuf,
}

impl Config {
    /// Looks whether they may be written, before it takes minutes to know what.
    pub fn at(directory: &Path, force: bool) -> Result<Self> {
        for path in [SETTINGS, CHARACTERISTICS].map(|name| directory.join(name)) {
            if path.exists() && !force {
                let path = path.display();
                return Err(Error::Other(format!(
                    "{path} exists; name another directory, or give --force to replace it"
                )));
            }
        }
        fs::create_dir_all(directory).map_err(|error| Error::file("create", directory, error))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Writes them, and says which.
    pub fn write(&self, found: &Found, advice: &Advice) -> Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        let mut write = |name: &str, text: &str| -> Result<()> {
            let path = self.directory.join(name);
            fs::write(&path, text).map_err(|error| Error::file("write", &path, error))?;
            written.push(path);
            Ok(())
        };
        let measured = probe::characteristics(found);
        if let Some(characteristics) = &measured {
            write(CHARACTERISTICS, &characteristics.to_toml())?;
        }
        write(SETTINGS, &probe::settings(found, advice, measured.map(|_| CHARACTERISTICS)))?;
        Ok(written)
    }
}
