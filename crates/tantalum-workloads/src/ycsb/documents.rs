//! Documents in an append-only tree: YCSB's updates and reads as Couchbase does them (DuraSSD, section 4.3.3).

use std::sync::Arc;

use tantalum_rt::Random;

use super::load_phase::Parameters;
use super::mix::Chooser;
use super::records::{Records, key, record};
use crate::append_only::AppendOnlyTree;
use crate::driver::{Completed, Recorder, Workload, client_random};
use crate::error::{self, Result};

/// Documents of an update while loading.
const PER_UPDATE: usize = 1000;

/// YCSB's records in an append-only tree, and how often they are updated rather than read. An update puts the whole
/// record anew; the tree decides when it is flushed.
///
/// ```
/// use std::sync::Arc;
///
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_workloads::append_only::{AppendOnlyTree, Options};
/// use tantalum_workloads::driver;
/// use tantalum_workloads::ycsb::{Documents, Parameters};
///
/// let device: Arc<dyn Device> = MemoryDevice::new("couch", 16 << 20);
/// AppendOnlyTree::create(&device)?;
/// let tree = Arc::new(AppendOnlyTree::open(device, Options::default())?);
/// Documents::load(&tree, Parameters::new(2000))?;
/// let workload = Arc::new(Documents::new(tree, Parameters::new(2000), 50));
/// let report = driver::run(&workload, driver::Options::transactions(1, 100), &mut |_| ())?;
/// assert_eq!(report.total.committed, 100);
/// # Ok::<(), tantalum_workloads::Error>(())
/// ```
pub struct Documents {
    tree: Arc<AppendOnlyTree>,
    parameters: Parameters,
    records: Records,
    updates_percent: u8,
}

impl Documents {
    /// Puts all records, in the order of their keys, and flushes.
    ///
    /// # Errors
    /// Parameters out of range; errors of the tree.
    pub fn load(tree: &AppendOnlyTree, parameters: Parameters) -> Result<()> {
        parameters.validate()?;
        let mut keys: Vec<Vec<u8>> = (0..parameters.records).map(key).collect();
        keys.sort_unstable();
        let mut random = Random::with_seed(parameters.seed);
        for keys in keys.chunks(PER_UPDATE) {
            let rows: Vec<Vec<u8>> = keys.iter().map(|_| record(&parameters, &mut random)).collect();
            let entries: Vec<(&[u8], &[u8])> = keys.iter().zip(&rows).map(|(key, row)| (&key[..], &row[..])).collect();
            tree.put_all(&entries)?;
        }
        tree.flush()
    }

    /// The workload on a tree that was loaded with these parameters: so many of a hundred operations are updates, the others
    /// reads.
    pub fn new(tree: Arc<AppendOnlyTree>, parameters: Parameters, updates_percent: u8) -> Self {
        Self { tree, parameters, records: Records::loaded(parameters.records), updates_percent }
    }
}

impl Workload for Documents {
    type Client<'a> = Random;

    fn kinds(&self) -> &'static [&'static str] {
        &["read", "update"]
    }

    fn client(&self, number: usize, seed: u64) -> Result<Random> {
        Ok(client_random(seed, number))
    }

    fn step(&self, random: &mut Random, recorder: &mut Recorder) -> Result<()> {
        let key = key(self.records.choose(Chooser::Zipfian, random));
        if random.u8(0..100) < self.updates_percent {
            let row = record(&self.parameters, random);
            recorder.run(1, || self.tree.put(&key, &row).map(|()| Completed::Committed))?;
        } else {
            recorder.run(0, || match self.tree.get(&key)? {
                Some(_) => Ok(Completed::Committed),
                None => Err(error::missing(super::TABLE_NAMES[1], &key)),
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tantalum_device::MemoryDevice;

    use super::*;
    use crate::append_only::Options;
    use crate::driver;

    #[test]
    fn operations_have_their_shares_and_updates_their_flushes() {
        let device: Arc<dyn tantalum_device::Device> = MemoryDevice::new("couch", 64 << 20);
        AppendOnlyTree::create(&device).unwrap();
        let options = Options { updates_per_flush: 5, ..Options::default() };
        let tree = Arc::new(AppendOnlyTree::open(device, options).unwrap());
        let parameters = Parameters { field_bytes: 10, ..Parameters::new(500) };
        Documents::load(&tree, parameters).unwrap();
        assert_eq!(tree.check().unwrap(), 500);
        let before = tree.stats();
        let run = |updates_percent| {
            let workload = Arc::new(Documents::new(Arc::clone(&tree), parameters, updates_percent));
            driver::run(&workload, driver::Options::transactions(2, 200), &mut |_| ()).unwrap()
        };
        assert_eq!(run(100).kinds[1].committed, 400);
        let after = tree.stats();
        assert_eq!((after.sequence - before.sequence, after.flushes - before.flushes), (400, 80));
        let half = run(50);
        assert!(half.kinds[0].committed.abs_diff(200) < 50 && half.total.committed == 400, "{half:?}");
        assert_eq!(tree.check().unwrap(), 500);
    }
}
