//! What the probe finds of emulated devices against what they are, in virtual time.

use std::{sync::Arc, time::Duration};

use tantalum_device::{Access, Characteristics, Device, FileDevice};
use tantalum_flash::{EmulatedDevice, Kind, Profile};
use tantalum_lab::{
    micro::Data,
    probe::{self, Advice, Effort, Found, Plan, Verdict},
};
use tantalum_rt::{Scheduling, Simulation};

/// What is true of a profile, from its parameters.
struct Truth {
    profile: &'static str,
    /// Bytes that show where they begin, if any do.
    unit: Option<u64>,
    /// Units that can be open.
    open: Option<std::ops::RangeInclusive<u32>>,
    /// What can be said of its write cache.
    power: Verdict,
    /// Writes from one outlier among durable ones of 4 KiB to the next, where the profile decides it.
    outlier_every: Option<std::ops::Range<f64>>,
    /// Bytes that are written atomically, which it says itself.
    atomic: u32,
}

const KIB: u64 = 1 << 10;

/// Blocks of all planes are a unit of the log-block drives. Every unit that was written may move, on average after so
/// many writes and after so many pages.
const TRUTHS: &[Truth] = &[
    // 4 planes of 32 pages; 1 / (1 / 500 + 1 / 2500).
    Truth { unit: Some(512 * KIB), open: Some(4..=4), outlier_every: Some(150.0..800.0), ..safe("usb-a") },
    // 1 plane of 64 pages; 1 / (1 / 900 + 1 / 1500).
    Truth { unit: Some(256 * KIB), open: Some(4..=4), outlier_every: Some(150.0..1200.0), ..safe("usb-b") },
    // 2 planes of 128 pages; every 135th write.
    Truth { unit: Some(1024 * KIB), open: Some(2..=2), outlier_every: Some(60.0..270.0), ..safe("usb-c") },
    // 8 planes of 64 pages. Memory for 7 units, a quarter of the profile's, stands for open ones. The fullest leaves first, so
    // that the rate falls slowly from there on, and to 0.6 only with twice as many: the limit is soft.
    Truth { unit: Some(2048 * KIB), open: Some(7..=16), ..safe("mtron") },
    // Eight units of 128 KiB lie in turn in a segment, so that the segment is what shows. Memory for 4, a quarter too.
    Truth { unit: Some(1024 * KIB), open: Some(3..=4), ..safe("mtron-p35") },
    // Pages mapped one by one: whatever is written next to each other in time lies in the same block, so that no
    // alignment shows the unit.
    safe("intel-x25e"),
    safe("ocz-vertex-ex"),
    safe("ssd-2008"),
    safe("ssd-a"),
    safe("ssd-b"),
    // The same under capacitors: that the memory survives cannot be seen.
    Truth { power: Verdict::Claimed, atomic: 512 << 10, ..safe("durassd") },
    Truth { power: Verdict::Claimed, atomic: 128 << 10, ..safe("nvme-plp") },
    Truth { power: Verdict::Claimed, atomic: 128 << 10, ..safe("nvme-fdp") },
    // Nothing is erased.
    Truth { atomic: 512, ..safe("hdd-7200") },
    Truth { atomic: 512, ..safe("hdd-10k") },
    Truth { atomic: 512, ..safe("hdd-15k") },
    // It loses what it acknowledges, and says that it does not: only a power cut could tell.
    Truth { power: Verdict::Claimed, atomic: 512, ..safe("hdd-10k-cached") },
    safe("cloud-volume"),
];

/// A device that does what it says, and shows no unit.
const fn safe(profile: &'static str) -> Truth {
    Truth { profile, unit: None, open: None, power: Verdict::Consistent, outlier_every: None, atomic: 0 }
}

/// Probes a new device of so many bytes, or of its own size, with enough time for slow ones.
fn probed(profile: Profile, range_bytes: u64, write_bytes: u64, operations: u64) -> Found {
    let run = move || {
        let device: Arc<dyn Device> = EmulatedDevice::new("drive", profile.build().unwrap());
        let plan = Plan {
            time: Duration::from_secs(3000),
            write_bytes,
            operations,
            data: Data::Zeros,
            ..Plan::new(Effort::Quick, 0..range_bytes)
        };
        probe::probe(&device, &plan, &|_| ()).unwrap()
    };
    let found = Simulation::new(1).scheduling(Scheduling::InOrder).run(run).expect_finished();
    assert!(found.written_bytes <= write_bytes, "{} of {write_bytes}", found.written_bytes);
    found
}

fn check(truth: &Truth) {
    let name = truth.profile;
    let profile = Profile::named(name).unwrap();
    let is_flash = !name.starts_with("hdd") && name != "cloud-volume";
    let (range, writes) = if name.starts_with("mtron") { (64 << 20, 3 << 30) } else { (128 << 20, 1 << 30) };
    // So that all of a flash drive has been written once.
    let mut profile = if is_flash { profile.with_capacity(range) } else { profile };
    // A quarter of the memory, beside which a quarter of the writes is much.
    match &mut profile.device {
        Kind::BlockSsd(drive) => drive.buffer_kib /= 4,
        Kind::BlockMapped(drive) => drive.buffer_kib /= 4,
        _ => {}
    }
    let found = probed(profile, range, writes, 5000);
    let advice = Advice::of(&found);
    assert_eq!(found.erase_unit.bytes, truth.unit, "{name}: {:?}", found.erase_unit);
    match &truth.open {
        Some(open) => {
            let limit = found.open_units.limit.unwrap_or_default();
            assert!(open.contains(&limit), "{name}: {:?}", found.open_units);
        }
        None => assert_eq!(found.open_units.limit, None, "{name}: {:?}", found.open_units),
    }
    let power = advice.power_safe.clone().unwrap();
    assert_eq!(power.verdict, truth.power, "{name}: {power}");
    assert_eq!(found.claims.atomic_write_bytes, truth.atomic, "{name}");
    if let Some(every) = &truth.outlier_every {
        let row = found.durable.iter().find(|row| row.bytes == 4096).unwrap();
        assert!(every.contains(&(1.0 / row.outliers.share)), "{name}: {row:?}");
        assert!(row.outliers.times_normal > 10.0, "{name}: {row:?}");
    }
    let protection = if found.claims.atomic_write_bytes >= 4096 { "\"device\"" } else { "\"double-write\"" };
    if advice.value("page_store") == Some("\"in-place\"") {
        assert_eq!(advice.value("torn_page_protection"), Some(protection), "{name}");
    }
    let segment = advice.value("segment_bytes").map(|bytes| bytes.parse::<u64>().unwrap());
    assert_eq!(segment.is_some(), advice.value("page_store") == Some("\"log-structured\""), "{name}");
    let streams = match (segment, found.claims.placement_handles, found.open_units.limit) {
        (Some(_), 8.., _) => Some("\"by-lifetime\""),
        (Some(_), _, Some(..3)) => Some("\"one\""),
        _ => None,
    };
    assert_eq!(advice.value("page_streams"), streams, "{name}");
    assert_eq!(advice.value("discard_segments"), streams.map(|_| "true"), "{name}");
    let fills_units = |segment: u64| truth.unit.is_none_or(|unit| segment.is_multiple_of(unit));
    assert!(segment.is_none_or(|segment| segment >= 1 << 20 && fills_units(segment)), "{name}: {segment:?}");
    // Whatever it is, what is recommended can be read.
    let characteristics = probe::characteristics(&found).unwrap();
    assert_eq!(Characteristics::parse(&characteristics.to_toml()).unwrap(), characteristics);
    let settings = probe::settings(&found, &advice, Some("log.characteristics.toml"));
    assert!(toml::from_str::<toml::Table>(&settings).unwrap().contains_key("page_size"), "{settings}");
}

fn check_those(belongs: impl Fn(&str) -> bool) {
    let those: Vec<&Truth> = TRUTHS.iter().filter(|truth| belongs(truth.profile)).collect();
    assert!(!those.is_empty());
    those.into_iter().for_each(check);
}

#[test]
fn every_profile_has_its_truth() {
    // Of these, what is true is in tests of their own.
    let others = ["nand-k9wag08u1a", "nvme-zns"];
    let mut known: Vec<&str> = TRUTHS.iter().map(|truth| truth.profile).chain(others).collect();
    known.sort_unstable();
    assert_eq!(known, Profile::names().collect::<Vec<_>>());
}

#[test]
fn of_usb_drives_the_probe_finds_what_they_are() {
    check_those(|name| name.starts_with("usb"));
}

#[test]
fn of_drives_behind_segments_the_probe_finds_what_they_are() {
    check_those(|name| name.starts_with("mtron"));
}

#[test]
fn of_page_mapped_drives_the_probe_finds_what_they_are() {
    let others = ["usb", "mtron", "hdd", "cloud"];
    check_those(|name| others.iter().all(|other| !name.starts_with(other)));
}

#[test]
fn of_disks_and_volumes_the_probe_finds_what_they_are() {
    check_those(|name| name.starts_with("hdd") || name.starts_with("cloud"));
}

#[test]
fn raw_flash_is_read_only_and_needs_in_page_logging() {
    let profile = Profile::named("nand-k9wag08u1a").unwrap();
    let found = probed(profile.with_capacity(64 << 20), 64 << 20, 1 << 30, 200);
    assert_eq!((found.written_bytes, found.erase_unit.bytes), (0, Some(128 * KIB)));
    let advice = Advice::of(&found);
    assert_eq!(advice.value("page_store"), Some("\"in-page-logging\""));
    assert_eq!(advice.value("erase_unit_bytes"), Some("131072"));
    assert_eq!(advice.power_safe, None);
}

#[test]
fn zones_are_read_only_and_need_a_log_structured_store_of_their_size() {
    let profile = Profile::named("nvme-zns").unwrap().with_capacity(128 << 20);
    let found = probed(profile, 128 << 20, 1 << 30, 200);
    assert_eq!((found.written_bytes, found.erase_unit.bytes, found.open_units.limit), (0, Some(16 << 20), Some(14)));
    assert!(found.left_out.iter().any(|what| what.contains("zones are written in order")), "{:?}", found.left_out);
    let advice = Advice::of(&found);
    assert_eq!(advice.value("page_store"), Some("\"log-structured\""));
    assert_eq!(advice.value("segment_bytes"), Some("16777216"));
    assert_eq!(advice.value("page_streams"), None);
    assert!(probe::page(&found, &advice).to_html().contains("zones are written in order"));
}

#[test]
fn segments_are_of_two_units_where_enough_are_left_and_streams_follow_the_handles() {
    let profile = Profile::named("usb-c").unwrap().with_capacity(128 << 20);
    let mut found = probed(profile, 128 << 20, 1 << 30, 5000);
    assert_eq!(found.erase_unit.bytes, Some(1 << 20));
    // Of a larger drive that is as fast.
    for (capacity_bytes, segment) in
        [(128 << 20, 1 << 20), (511 << 20, 1 << 20), (512 << 20, 2 << 20), (1 << 40, 2 << 20)]
    {
        found.claims.capacity_bytes = capacity_bytes;
        assert_eq!(Advice::of(&found).value("segment_bytes"), Some(&*u64::to_string(&segment)), "{capacity_bytes}");
    }
    for (handles, streams) in [(1, "\"one\""), (7, "\"one\""), (8, "\"by-lifetime\"")] {
        found.claims.placement_handles = handles;
        let advice = Advice::of(&found);
        assert_eq!([advice.value("page_streams"), advice.value("discard_segments")], [Some(streams), Some("true")]);
    }
    for (unit, segment) in [(64 << 20, "134217728"), (1 << 30, "2147483648"), (2 << 30, "2147483648")] {
        found.erase_unit.bytes = Some(unit);
        assert_eq!(Advice::of(&found).value("segment_bytes"), Some(segment), "{unit}");
    }
    found.erase_unit.bytes = None;
    assert_eq!(Advice::of(&found).value("segment_bytes"), Some("16777216"));
}

#[test]
fn a_flush_that_lies_contradicts_itself() {
    let mut profile = Profile::named("mtron").unwrap().with_capacity(128 << 20);
    if let Kind::BlockSsd(drive) = &mut profile.device {
        drive.buffer_kib /= 4;
    }
    profile.faults = Some(toml::from_str("seed = 1\n[rates]\nignored-flush = 1.0\n").unwrap());
    let found = probed(profile, 128 << 20, 1 << 30, 2000);
    let power = Advice::of(&found).power_safe.unwrap();
    assert_eq!(power.verdict, Verdict::Contradicted, "{power}");
}

#[test]
fn the_same_plan_finds_the_same() {
    let found = || probed(Profile::named("usb-c").unwrap().with_capacity(64 << 20), 64 << 20, 128 << 20, 50);
    assert_eq!(found(), found());
}

#[test]
fn what_may_not_be_written_is_only_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    drop(FileDevice::create(&path, 32 << 20, None).unwrap());
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, Access::ReadOnly).unwrap());
    let plan = Plan { operations: 20, ..Plan::new(Effort::Quick, 0..32 << 20) }.read_only();
    let found = probe::probe(&device, &plan, &|_| ()).unwrap();
    assert_eq!((found.written_bytes, found.cache.clone()), (0, None));
    assert!(!found.read_gaps().is_empty() && found.write_gaps().is_empty());
    assert!(found.left_out.iter().any(|what| what.contains("nothing may be written")), "{:?}", found.left_out);
    assert!(Advice::of(&found).recommendations.is_empty());
    assert!(probe::page(&found, &Advice::of(&found)).to_html().contains("Figure 3"));
}
