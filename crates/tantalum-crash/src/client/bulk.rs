//! Bulk loads of a [`Client`]: of the tables that the model follows, before any client uses them, and of others beside clients.

use tantalum::{BulkLoad, ErrorKind};

use super::{Client, SCRATCH};
use crate::{
    content::{Key, encode_key},
    history::Event,
    session::Session,
    stop::Stop,
};

impl Client {
    /// Gives the tables most of their rows by bulk loads, one after the other.
    pub(crate) fn fill_in_bulk(&mut self, loads: Vec<BulkLoad>) -> Result<(), Stop> {
        for (table, mut load) in (0..).zip(loads) {
            let mut session = self.begin(self.shared.kind);
            let numbers: Vec<_> = (0..self.shared.load.keys).filter(|_| self.random.u32(0..3) > 0).collect();
            let mut added = Ok(());
            for number in numbers {
                let (key, version) = (Key { table, number }, session.next_version());
                added = load.add(self.bytes(key), self.value(version));
                if added.is_err() {
                    break;
                }
                session.writes.insert(key, Some(version));
                if number.is_multiple_of(64) {
                    self.pause();
                }
            }
            // One that is given up leaves nothing.
            let is_unwanted = self.random.u32(0..100) < self.shared.load.rollbacks_percent;
            if let (Ok(()), true) = (&added, is_unwanted) {
                drop(load);
                self.rolled_back(session, "bulk loads given up");
                continue;
            }
            let Session { id, reads, writes, .. } = session;
            self.shared.recorder.record(Event::Commit { id, reads: reads.clone(), writes });
            match added.and_then(|()| load.finish()) {
                Ok(report) => {
                    self.shared.recorder.record(Event::Acknowledged { id, position: None });
                    self.shared.recorder.count("bulk loads", 1);
                    self.shared.recorder.count("pages built by bulk loads", report.pages);
                }
                Err(error) => {
                    let stop = Stop::from(error);
                    if !stop.leaves_outcome_open() {
                        self.shared.recorder.record(Event::RolledBack { id, reads });
                    }
                    match stop {
                        Stop::Refused(why) => self.shared.recorder.count(why, 1),
                        stop => return Err(stop),
                    }
                }
            }
        }
        Ok(())
    }

    /// As [`create_and_drop_table`](Self::create_and_drop_table), by a bulk load. Of a table that is still there, the rows are changed.
    pub(super) fn load_and_drop_table(&mut self, name: &str) -> Result<(), Stop> {
        let count = self.random.u32(0..self.shared.load.keys);
        let rows: Vec<_> = (0..count).map(|number| (encode_key(number, 0), self.value(SCRATCH))).collect();
        let table = self.shared.db.table(name)?;
        match self.shared.db.bulk_load(name, rows.iter().map(|(key, value)| (key, value))) {
            Ok(report) => {
                self.shared.recorder.count("bulk loads", 1);
                self.shared.recorder.count("pages built by bulk loads", report.pages);
                let snapshot = self.shared.db.snapshot()?;
                let found =
                    snapshot.range(&table, ..)?.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())));
                let found = found.collect::<tantalum::Result<Vec<_>>>()?;
                if found != rows {
                    return Err(Stop::Violation(format!("a bulk load of {count} rows shows {}", found.len())));
                }
            }
            // It has rows.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => return Err(error.into()),
        }
        let changed: Vec<_> = (0..count).filter(|_| self.random.u8(0..16) == 0).collect();
        self.put_scratch_rows(&table, changed)?;
        if self.random.bool() {
            self.drop_scratch_table(name)?;
        }
        Ok(())
    }
}
