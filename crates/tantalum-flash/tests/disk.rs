//! Hard disks keep their promises over power cuts.

mod power;

use tantalum_flash::Contents;
use tantalum_flash::disk::{CacheMode, DiskParameters, HardDisk};

fn search(parameters: DiskParameters) {
    for seed in 0..30 {
        let mut disk = HardDisk::new(parameters.clone(), 1 << 30, Contents::in_memory);
        power::search(seed, &mut disk, power::Search { operations: 60, cuts: 6, sectors: 2000, largest: 64 });
    }
}

#[test]
fn without_a_write_cache_whatever_has_ended_is_there() {
    search(DiskParameters::example());
}

#[test]
fn with_a_write_cache_what_was_flushed_or_forced_is_there() {
    search(DiskParameters { write_cache: CacheMode::On, write_cache_kib: 64, ..DiskParameters::example() });
}

#[test]
fn without_forced_unit_access_a_durable_write_flushes() {
    search(DiskParameters { write_cache: CacheMode::On, fua: false, ..DiskParameters::example() });
}
