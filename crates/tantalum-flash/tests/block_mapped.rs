//! A drive that rewrites whole units keeps its promises over power cuts.

mod power;

use tantalum_flash::Contents;
use tantalum_flash::block_mapped::{BlockMapped, BlockMappedParameters};

#[test]
fn what_was_flushed_is_there_after_a_power_cut() {
    let mut parameters =
        BlockMappedParameters { segment_units: 2, buffer_kib: 128, ..BlockMappedParameters::example() };
    parameters.geometry.pages_per_block = 2;
    parameters.geometry.channels = 2;
    for seed in 0..100 {
        let mut drive = BlockMapped::new(parameters.clone(), 1 << 20, Contents::in_memory);
        power::search(seed, &mut drive, power::Search { operations: 60, cuts: 6, sectors: 1000, largest: 40 });
    }
}
