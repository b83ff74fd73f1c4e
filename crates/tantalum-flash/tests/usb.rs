//! USB drives keep their promises over power cuts.

mod power;

use tantalum_flash::Contents;
use tantalum_flash::ftl::hybrid::{HybridParameters, UpdateOrder};
use tantalum_flash::usb::{UsbParameters, UsbStick};

fn search(update_order: UpdateOrder, planes: u32, interleave_pages: u32) {
    let mut ftl = HybridParameters {
        update_order,
        interleave_pages,
        level_every_pages: 30,
        level_every_writes: 20,
        ..HybridParameters::example()
    };
    ftl.geometry.pages_per_block = 8;
    ftl.geometry.planes_per_die = planes;
    let parameters = UsbParameters {
        ftl,
        command_us: 300.0,
        write_mb_per_s: 10.0,
        read_mb_per_s: 20.0,
        buffer_pages: 2,
        boot_us: 10.0,
    };
    for seed in 0..150 {
        let mut stick = UsbStick::new(parameters.clone(), 1 << 20, Contents::in_memory);
        power::search(seed, &mut stick, power::Search { operations: 80, cuts: 6, sectors: 1000, largest: 40 });
    }
}

#[test]
fn in_strict_order() {
    search(UpdateOrder::Sequential, 1, 1);
    search(UpdateOrder::Sequential, 3, 1);
}

#[test]
fn in_any_order() {
    search(UpdateOrder::Any, 1, 1);
    search(UpdateOrder::Any, 4, 1);
}

#[test]
fn with_planes_that_take_turns() {
    search(UpdateOrder::Sequential, 2, 4);
    search(UpdateOrder::Any, 3, 2);
}
