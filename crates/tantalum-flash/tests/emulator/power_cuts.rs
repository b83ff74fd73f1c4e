//! Every kind of device keeps its promises over power cuts, also those that come while it recovers.

use tantalum_flash::disk::{CacheMode, DiskParameters};
use tantalum_flash::ftl::hybrid::{HybridParameters, UpdateOrder};
use tantalum_flash::{Kind, Profile, UsbParameters};

use crate::edited::{SMALL, edited};
use crate::power::{self, Search};

/// Searches new devices of one kind, a seed each.
fn search(seeds: u64, profile: &Profile, search: Search) {
    for seed in 0..seeds {
        power::search(seed, &mut *profile.build().unwrap(), search);
    }
}

fn search_disks(edit: impl FnOnce(&mut DiskParameters)) {
    let mut profile = Profile::named("hdd-10k").unwrap().with_capacity(1 << 30);
    let Kind::HardDisk(parameters) = &mut profile.device else { panic!("{profile:?}") };
    edit(parameters);
    search(30, &profile, Search { operations: 60, cuts: 6, sectors: 2000, largest: 64 });
}

#[test]
fn a_disk_without_a_write_cache_keeps_whatever_has_ended() {
    search_disks(|disk| disk.write_cache = CacheMode::Off);
}

#[test]
fn a_disk_with_a_write_cache_keeps_what_was_flushed_or_forced() {
    search_disks(|disk| (disk.write_cache, disk.write_cache_kib) = (CacheMode::On, 64));
}

#[test]
fn on_a_disk_without_forced_unit_access_a_durable_write_flushes() {
    search_disks(|disk| (disk.write_cache, disk.fua) = (CacheMode::On, false));
}

#[test]
fn a_cloud_volume_keeps_whatever_has_ended() {
    let profile = Profile::named("cloud-volume").unwrap().with_capacity(1 << 30);
    search(100, &profile, Search { operations: 60, cuts: 6, sectors: 2000, largest: 64 });
}

fn search_sticks(update_order: UpdateOrder, planes: u32, interleave_pages: u32) {
    let mut ftl = HybridParameters {
        update_order,
        interleave_pages,
        level_every_pages: 30,
        level_every_writes: 20,
        ..HybridParameters::example()
    };
    ftl.geometry.pages_per_block = 8;
    ftl.geometry.planes_per_die = planes;
    let (command_us, write_mb_per_s, read_mb_per_s) = (300.0, 10.0, 20.0);
    let stick = UsbParameters { ftl, command_us, write_mb_per_s, read_mb_per_s, buffer_pages: 2, boot_us: 10.0 };
    let shape = Search { operations: 80, cuts: 6, sectors: 1000, largest: 40 };
    let mut profile = Profile::named("usb-a").unwrap().with_capacity(1 << 20);
    profile.device = Kind::UsbDrive(stick);
    search(150, &profile, shape);
}

#[test]
fn usb_drives_that_take_updates_in_strict_order() {
    search_sticks(UpdateOrder::Sequential, 1, 1);
    search_sticks(UpdateOrder::Sequential, 3, 1);
}

#[test]
fn usb_drives_that_take_updates_in_any_order() {
    search_sticks(UpdateOrder::Any, 1, 1);
    search_sticks(UpdateOrder::Any, 4, 1);
}

#[test]
fn usb_drives_with_planes_that_take_turns() {
    search_sticks(UpdateOrder::Sequential, 2, 4);
    search_sticks(UpdateOrder::Any, 3, 2);
}

#[test]
fn a_block_mapped_drive_keeps_what_was_flushed() {
    let mut profile = Profile::named("mtron-p35").unwrap().with_capacity(1 << 20);
    let Kind::BlockMapped(drive) = &mut profile.device else { panic!("{profile:?}") };
    (drive.segment_units, drive.buffer_kib, drive.wear) = (2, 128, None);
    drive.geometry.pages_per_block = 2;
    drive.geometry.channels = 2;
    search(100, &profile, Search { operations: 60, cuts: 6, sectors: 1000, largest: 40 });
}

#[test]
fn a_drive_with_a_hybrid_layer_keeps_what_was_flushed() {
    let mut profile = Profile::named("mtron").unwrap().with_capacity(1 << 20);
    let Kind::BlockSsd(drive) = &mut profile.device else { panic!("{profile:?}") };
    drive.ftl.geometry.pages_per_block = 4;
    drive.buffer_kib = 64;
    search(100, &profile, Search { operations: 60, cuts: 6, sectors: 1000, largest: 40 });
}

/// Solid-state drives with few planes, small blocks and a small pool, so that collection and cuts meet.
fn search_drives(name: &str, edits: &[(&str, &str)]) {
    let sectors = [("logical_block", "512")];
    let profile = edited(name, Profile::text(name).unwrap(), SMALL.iter().chain(&sectors).chain(edits));
    search(20, &profile.with_capacity(2 << 20), Search { operations: 80, cuts: 8, sectors: 4096, largest: 40 });
}

#[test]
fn a_volatile_cache_keeps_what_was_flushed() {
    for name in ["ssd-a", "ssd-b", "ssd-2008", "intel-x25e", "ocz-vertex-ex"] {
        search_drives(name, &[]);
    }
}

#[test]
fn a_volatile_cache_with_forced_unit_access_keeps_what_was_forced() {
    search_drives("ssd-a", &[("fua", "true")]);
}

#[test]
fn a_drive_without_a_write_cache_keeps_whatever_has_ended() {
    search_drives("ssd-a", &[("mode", "\"write-through\"")]);
}

#[test]
fn protected_memory_keeps_whatever_has_ended() {
    search_drives("nvme-plp", &[]);
    search_drives("nvme-fdp", &[("placement_handles", "3")]);
    search_drives("durassd", &[]);
}

#[test]
#[should_panic(expected = "after the cut")]
fn a_volatile_cache_that_claims_protection_is_found_out() {
    search_drives("durassd", &[("count", "0")]);
}
