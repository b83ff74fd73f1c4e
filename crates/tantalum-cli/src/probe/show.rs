//! A probe on the terminal: what it may do, what was measured, and last what follows.

use std::time::Duration;

use tantalum_lab::probe::{self, Advice, Found, Plan};
use tantalum_report::{Table, units};

use super::subject::Subject;
use crate::error::{Out, Result};

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
