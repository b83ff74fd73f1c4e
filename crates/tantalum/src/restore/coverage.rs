//! Whether an archive leads from a base backup to where the database is to be restored, told before anything is done.

use std::time::SystemTime;

use tantalum_log::{ArchiveInspection, ArchiveRun, Lsn};

use super::{RestoreTarget, manifest::Manifest};
use crate::error::{self, Result};

/// Refuses what cannot be reached without a gap.
pub fn check(archive: &ArchiveInspection, backup: &Manifest, target: RestoreTarget) -> Result<()> {
    let (start, consistent) = (Lsn::new(backup.start_lsn), Lsn::new(backup.end_lsn));
    let lacks = |from: Lsn, to: Lsn| Err(tantalum_log::error::not_archived(&archive.name, from, to));
    let Some(at) = archive.runs.iter().rposition(|run| run.start <= start) else {
        return lacks(start, archive.runs.first().map_or(start, |run| run.start));
    };
    let ArchiveRun { end, last, .. } = archive.runs[at];
    let next = archive.runs.get(at + 1);
    // Up to where the archive lacks something if it has to reach `wanted`.
    let up_to = |wanted: Lsn| next.map_or(wanted, |next| next.start);
    if end < consistent {
        return lacks(end, up_to(consistent));
    }
    let refuse = |what: String| Err(error::restore(what));
    match target {
        RestoreTarget::Lsn(lsn) if lsn < consistent => refuse(format!(
            "LSN {lsn} lies before LSN {consistent}, where the base backup was complete; begin with an earlier backup"
        )),
        RestoreTarget::Lsn(lsn) if lsn > end => lacks(end, up_to(lsn)),
        RestoreTarget::Time(time) if time < backup.taken() => refuse(format!(
            "the base backup was complete only {} after that time, at LSN {consistent}; begin with an earlier backup",
            seconds(time, backup.taken())
        )),
        RestoreTarget::Time(time) if time > last => match next {
            Some(next) if time >= next.begun => lacks(end, next.start),
            _ => refuse(format!(
                "{}: the archive's last records, up to LSN {end}, are {} older than that time, and what followed is not \
                 archived; restore all that there is instead, or an earlier time",
                archive.name,
                seconds(last, time)
            )),
        },
        RestoreTarget::End => next.map_or(Ok(()), |next| lacks(end, next.start)),
        RestoreTarget::Lsn(_) | RestoreTarget::Time(_) => Ok(()),
    }
}

/// How much later one time is than another.
fn seconds(earlier: SystemTime, later: SystemTime) -> String {
    format!("{:.6} s", later.duration_since(earlier).unwrap_or_default().as_secs_f64())
}
