//! Table 1: what one access takes, to a disk and to a flash chip.

use std::sync::Arc;

use tantalum_device::Device;
use tantalum_flash::{EmulatedDevice, Kind, Profile};
use tantalum_rt::Simulation;

use super::super::{
    Settings,
    device_under_test::{Cache, DeviceUnderTest},
};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    micro::{FlashJob, FlashLayout, FlashOperation, Job, Pattern, run_flash},
    published,
};

pub(super) const ID: &str = "ipl.table1.access_times";
pub(super) const PROFILES: &[&str] = &["hdd-7200", "nand-k9wag08u1a"];

const BLOCK_BYTES: u32 = 128 << 10;
const PAGE_BYTES: u32 = 2048;
const SECTOR_BYTES: u32 = 512;

pub(super) fn access_times(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    progress("disk");
    let [disk_read, disk_write] = [on_disk(100, settings)?, on_disk(0, settings)?];
    progress("chip");
    let chip = |operation, bytes| on_chip(operation, bytes, settings);
    let read = chip(FlashOperation::RandomRead, PAGE_BYTES)?;
    let [sector, page] = [chip(FlashOperation::Program, SECTOR_BYTES)?, chip(FlashOperation::Program, PAGE_BYTES)?];
    let erase = chip(FlashOperation::Erase, BLOCK_BYTES)?;
    // Of a page's four sectors, three more have crossed the bus.
    let transfer = (page - sector) * 4.0 / 3.0;
    let mut comparisons = Vec::new();
    let mut compare = |row: &str, column: &str, measured, profile| -> Result<()> {
        let basis = DeviceUnderTest::new(profile, settings.seed).basis_of_cell(ID, row, column)?;
        let published = Bound::Value(published::of(ID).cell(&[row], &format!("{column}_ms")));
        comparisons.push(Comparison::new(format!("{row}, {column}"), published, measured, "ms", basis));
        Ok(())
    };
    compare("disk", "read", disk_read, PROFILES[0])?;
    compare("disk", "write", disk_write, PROFILES[0])?;
    compare("nand", "read", read, PROFILES[1])?;
    compare("nand", "write", page - transfer, PROFILES[1])?;
    compare("nand", "erase", erase, PROFILES[1])?;
    // Beside the write.
    let with_transfer =
        Comparison::new("nand, write with its transfer", Bound::Unpublished, page, "ms", Basis::Predicted);
    comparisons.insert(4, with_transfer);
    let says = "a sector of 512 B takes as long to write as 2 KiB, but for its transfer";
    let found = format!("{:.0} us against {:.0} us", sector * 1e3, page * 1e3);
    let statement = Statement::new(says, sector > 0.8 * page, found);
    let configuration = vec![
        "2 KiB anywhere on the disk, its write cache off; pages of 2 KiB and blocks of 128 KiB of the chip".into(),
        "the published write of the chip is its program time: the transfer into it, known from writes of 512 B and 2 KiB, is taken off".into(),
    ];
    Ok(Findings { configuration, comparisons, statements: vec![statement], ..Findings::default() })
}

/// Mean milliseconds of 2 KiB anywhere on the disk.
fn on_disk(reads_percent: u8, settings: Settings) -> Result<f64> {
    let tested =
        DeviceUnderTest { cache: Cache::Off, is_filled: false, ..DeviceUnderTest::new(PROFILES[0], settings.seed) };
    let job = Job { pattern: Pattern::Random, reads_percent, ..Job::writes(PAGE_BYTES, 5000, 0..0) };
    Ok(tested.measure(job)?.summary().latency.mean_ns / 1e6)
}

/// Mean milliseconds of an operation of the chip.
fn on_chip(operation: FlashOperation, request_bytes: u32, settings: Settings) -> Result<f64> {
    let profile = Profile::named(PROFILES[1])?;
    let Kind::RawFlash(flash) = &profile.device else { unreachable!("the chip has no translation layer") };
    let layout = FlashLayout::of(flash, profile.capacity_bytes);
    let job = FlashJob { layout, operation, request_bytes, planes: 1, operations: 500, seed: settings.seed };
    let model = profile.build()?;
    let run = move || {
        let device: Arc<dyn Device> = EmulatedDevice::new(PROFILES[1], model);
        run_flash(&device, &job)
    };
    Ok(Simulation::new(settings.seed).run(run).expect_finished()?.summary().latency.mean_ns / 1e6)
}
