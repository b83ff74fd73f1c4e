//! Devices made small: of the same kind and with the same habits, but soon made, soon full, and soon recovered.

use tantalum_flash::{Kind, Profile, ftl::hybrid::HybridParameters};

/// The profile with few and small parts, so that a few thousand writes collect garbage and fill caches.
pub(crate) fn miniature(mut profile: Profile) -> Profile {
    match &mut profile.device {
        Kind::SolidState(drive) => {
            let geometry = &mut drive.geometry;
            geometry.channels = geometry.channels.min(2);
            geometry.packages_per_channel = 1;
            geometry.dies_per_package = 1;
            geometry.planes_per_die = geometry.planes_per_die.min(2);
            geometry.pages_per_block = geometry.pages_per_block.min(16);
            drive.cache.pool_bytes = drive.cache.pool_bytes.min(256 << 10);
            drive.interface.max_command_bytes = drive.interface.max_command_bytes.min(64 << 10);
            if let Some(zones) = &mut drive.zones {
                // The superblock and the root of a map.
                zones.conventional_bytes = zones.conventional_bytes.min(128 << 10);
                zones.blocks = zones.blocks.min(2);
                // A page of each is in the small memory.
                zones.max_active = zones.max_active.min(4);
            }
        }
        Kind::UsbDrive(stick) => shrink(&mut stick.ftl),
        Kind::BlockMapped(drive) => {
            drive.geometry.pages_per_block = drive.geometry.pages_per_block.min(16);
            drive.segment_units = drive.segment_units.min(4);
            drive.buffer_kib = drive.buffer_kib.min(1024);
        }
        Kind::BlockSsd(drive) => {
            shrink(&mut drive.ftl);
            drive.buffer_kib = drive.buffer_kib.min(256);
        }
        Kind::RawFlash(flash) => {
            flash.geometry.dies_per_package = 1;
            flash.geometry.pages_per_block = flash.geometry.pages_per_block.min(16);
        }
        Kind::HardDisk(disk) => disk.write_cache_kib = disk.write_cache_kib.min(256),
        _ => {}
    }
    profile
}

fn shrink(ftl: &mut HybridParameters) {
    let geometry = &mut ftl.geometry;
    geometry.channels = geometry.channels.min(2);
    geometry.packages_per_channel = 1;
    geometry.pages_per_block = geometry.pages_per_block.min(16);
    ftl.open_logs = ftl.open_logs.min(geometry.planes() * geometry.pages_per_block - 1);
}
