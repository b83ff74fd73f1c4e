//! FlashLogging (SIGMOD 2009), sections 1.1 and 5: TPC-C on a server whose log lies on a disk, USB drives or an SSD.
//!
//! The server is that of [`tpcc_server`]. Its one free parameter is what a call to the engine takes of a hardware thread.

mod disk;
mod flash;
mod hiding;
mod recovery;
mod ssd;
mod striping;
mod tpcc_server;

pub(super) use tpcc_server::{FOUR_CORES_WITHOUT_NETWORK, GIGABIT_ROUND_TRIP, MANY, TpccServer};

use super::Experiment;

/// What runs of these sections.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: disk::IDEAL_OVER_DISK, profiles: &[disk::DISK, disk::IDEAL], run: disk::ideal_over_disk },
    Experiment { id: disk::FLUSH_SIZES, profiles: &[disk::DISK], run: disk::flush_sizes },
    Experiment { id: disk::DISK_OVER_IDEAL, profiles: &[disk::DISK, disk::IDEAL], run: disk::disk_over_ideal },
    Experiment { id: flash::NAIVE, profiles: &["usb-a", "usb-b", "usb-c", disk::DISK], run: flash::naive },
    Experiment {
        id: flash::BEST_OVER_DISK,
        profiles: &["usb-a", "usb-b", "usb-c", disk::DISK, disk::IDEAL],
        run: flash::best_over_disk,
    },
    Experiment {
        id: flash::BEST_OVER_IDEAL,
        profiles: &["usb-a", "usb-b", "usb-c", disk::IDEAL],
        run: flash::best_over_ideal,
    },
    Experiment { id: striping::LOSS, profiles: &["usb-a", "usb-b", "usb-c"], run: striping::loss },
    Experiment { id: hiding::BANDWIDTH, profiles: &["usb-a", "usb-b", "usb-c"], run: hiding::bandwidth },
    Experiment { id: hiding::REISSUES, profiles: &["usb-c"], run: hiding::reissues },
    Experiment { id: hiding::TPCC, profiles: &["usb-c"], run: hiding::tpcc },
    Experiment { id: recovery::PARALLEL, profiles: &["usb-a", "usb-b", "usb-c"], run: recovery::parallel_scan },
    Experiment {
        id: recovery::AGAINST_DISK,
        profiles: &["usb-a", "usb-b", "usb-c", disk::DISK],
        run: recovery::against_disk,
    },
    Experiment { id: ssd::SSD, profiles: &[ssd::PROFILE, disk::DISK, disk::IDEAL], run: ssd::partitions },
];
