//! When planned faults happen, what is wrong with plans, those of profiles, and what the document says of the kinds.

use tantalum_flash::faults::{FaultKind, Parameters, Plan, Planned, Survival, When};
use tantalum_flash::{ErrorKind, Profile, Result};

use super::rig::{BLOCK, Rig};

/// Which of ten writes are lost; the fifth is followed by a flush, and a second passes between them.
fn lost(fault: Planned) -> Vec<u64> {
    let mut rig = Rig::new("hdd-10k", Plan::new(1).with_fault(fault), 1);
    for number in 0..10 {
        rig.now = (number + 1) * 1_000_000_000;
        rig.write(number, &[number as u8 + 1], true);
        if number == 4 {
            rig.flush().unwrap();
        }
        if number == 6 {
            rig.read(0).unwrap();
        }
    }
    let lost: Vec<u64> = (0..10).filter(|&number| rig.read(number).unwrap()[1] == 0).collect();
    assert_eq!(rig.log.count(FaultKind::LostWrite), lost.len() as u64);
    let events = rig.log.events();
    let places: Vec<u64> = events.iter().map(|event| event.offset / BLOCK as u64).collect();
    assert_eq!(places, lost);
    lost
}

#[test]
fn faults_happen_when_they_are_planned() {
    let fault = |when| Planned::new(when, FaultKind::LostWrite);
    assert_eq!(lost(fault(When::Write(3))), [2]);
    assert_eq!(lost(fault(When::At(4_000_000_000))), [3], "the first write at the time or later");
    assert_eq!(lost(fault(When::At(4_000_000_001))), [4]);
    assert_eq!(lost(fault(When::Operation(6))), [5], "the sixth operation is the flush, the next write comes");
    assert_eq!(lost(fault(When::Flush(1))), [5]);
    assert_eq!(lost(fault(When::Read(1))), [7]);
    assert_eq!(lost(fault(When::Write(3)).times(3)), [2, 3, 4]);
    let range = 4 * BLOCK as u64..7 * BLOCK as u64;
    assert_eq!(lost(fault(When::Write(2)).within(range.clone())), [5], "the second of those that touch the range");
    assert_eq!(lost(fault(When::Write(2)).within(range).times(5)), [5, 6], "and no other write is harmed");
    assert_eq!(lost(fault(When::Write(11))), []);
    assert_eq!(lost(fault(When::Cut(1))), []);
}

#[test]
fn rates_are_met() {
    let mut rig = Rig::new("nvme-plp", Plan::new(5).with_rate(FaultKind::NoSpace, 0.1), 1);
    for number in 0..5000 {
        let _ = rig.submit(number % 1000, &[1], false);
    }
    let count = rig.log.count(FaultKind::NoSpace);
    assert!((400..600).contains(&count), "{count} of 5000 at a rate of 0.1");
}

#[test]
fn faults_of_a_plan_compose() {
    let plan = Plan::new(1)
        .with_fault(Planned::new(When::Write(1), FaultKind::Slow))
        .with_fault(Planned::new(When::Write(1), FaultKind::MisdirectedWrite).within(0..4096))
        .with_fault(Planned::new(When::Cut(1), FaultKind::LoseUnsynced))
        .with_fault(Planned::new(When::Flush(1), FaultKind::IgnoredFlush));
    let mut rig = Rig::new("hdd-7200", plan, 1);
    let start = rig.now;
    rig.write(0, &[1], false);
    assert!(rig.now - start >= 200_000_000);
    rig.flush().unwrap();
    rig.sleep(5_000_000_000);
    rig.cut();
    // The write went astray, the flush did not cover it, so that it was at stake and is lost.
    assert!(rig.read_all(1024).iter().flatten().all(|&byte| byte == 0));
    assert_eq!(rig.log.total(), 4, "{:?}", rig.log.events());
}

#[test]
fn mistakes_in_a_plan_are_named() {
    let bad = [
        ("sede = 1", "sede"),
        ("[rates]\nbit-rott = 0.1", "bit-rott"),
        ("[rates]\nbit-rot = 1.5", "rates.bit-rot = 1.5"),
        ("[rates]\nbit-rot = -0.1", "from 0 to 1"),
        ("[rates]\nbit-rot = nan", "rates.bit-rot = NaN"),
        ("[[fault]]\nkind = \"slow\"", "expected one of at, operation, write, read, flush and cut"),
        ("[[fault]]\nat = \"5 ms\"\nwrite = 1\nkind = \"slow\"", "found 2"),
        ("[[fault]]\nwrite = 1", "kind"),
        ("[[fault]]\nwrite = 0\nkind = \"slow\"", "counted from 1"),
        ("[[fault]]\nwrite = 1\nkind = \"fast\"", "fast"),
        ("[[fault]]\nat = \"5 parsecs\"\nkind = \"slow\"", "5 ms"),
        ("[[fault]]\nat = \"99999999999 s\"\nkind = \"slow\"", "at = "),
        ("[[fault]]\nwrite = 1\nkind = \"slow\"\nbits = 3", "bits"),
        ("[[fault]]\nwrite = 1\nkind = \"bit-rot\"\nbits = 0", "bits = 0"),
        ("[[fault]]\ncut = 1\nkind = \"weak-capacitor\"\nshare = 2.0", "share = 2"),
        ("[[fault]]\nwrite = 1\nkind = \"slow\"\nrange = [9, 9]", "range = [9, 9]"),
        ("[[fault]]\nwrite = 1\nkind = \"slow\"\ntimes = 0", "times = 0"),
        ("[[fault]]\nwrite = 1\nkind = \"slow\"\nwhen = 3", "when"),
    ];
    for (text, expected) in bad {
        let error = Plan::parse("plan.toml", text).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(message.contains("plan.toml") && message.contains(expected), "{text:?} gives {message}");
    }
}

#[test]
fn faults_must_lie_within_the_device() {
    let shape = Profile::named("durassd").unwrap().with_capacity(1 << 20).build().unwrap().describe();
    let check = |fault: Planned| Plan::new(1).with_fault(fault).check("plan.toml", &shape).map_err(|e| e.to_string());
    let fault = Planned::new(When::Write(1), FaultKind::BitRot);
    assert_eq!(check(fault.clone().within(0..1 << 20)), Ok(()));
    assert!(check(fault.clone().within(0..(1 << 20) + 1)).unwrap_err().contains("1048576"));
    let at = |offset| Parameters { offset: Some(offset), ..Parameters::default() };
    assert_eq!(check(Planned { parameters: at(8192), ..fault.clone() }), Ok(()));
    assert!(check(Planned { parameters: at(512), ..fault.clone() }).unwrap_err().contains("multiple of 4096"));
    assert!(check(Planned { parameters: at(1 << 20), ..fault }).unwrap_err().contains("offset"));
    let rate = Plan::new(1).with_rate(FaultKind::Slow, f64::NAN).check("plan.toml", &shape);
    assert!(rate.unwrap_err().to_string().contains("rates.slow"));
}

#[test]
fn a_plan_reads_as_it_is_written() {
    let plan = Plan::new(u64::MAX - 3)
        .with_rate(FaultKind::LoseSubset, 0.25)
        .with_fault(Planned::new(When::At(5_000_000), FaultKind::Stuck))
        .with_fault(Planned {
            parameters: Parameters { back: Some(1_500), share: Some(0.5), ..Parameters::default() },
            ..Planned::new(When::Cut(2), FaultKind::WeakCapacitor).within(0..4096).times(3)
        });
    let text = plan.to_toml();
    assert!(text.contains("at = \"5 ms\"") && text.contains("back = \"1500 ns\""), "{text}");
    assert_eq!(Plan::parse("again", &text).unwrap(), plan);
}

fn faulty(faults: &str) -> Result<Profile> {
    Profile::parse("mine.toml", &format!("{}\n{faults}", Profile::text("ssd-a").unwrap()))
}

#[test]
fn a_profile_with_faults_is_a_faulty_device() {
    let text = "[faults]\nseed = 3\n[[faults.fault]]\nread = 1\nkind = \"unreadable-sector\"\n";
    let profile = faulty(text).unwrap().with_capacity(1 << 20);
    let (mut model, log) = profile.build_logged().unwrap();
    assert!(model.read(0, 4096, &mut [0; 4096]).result.is_err());
    assert_eq!(log.count(FaultKind::UnreadableSector), 1);
    assert!(profile.build().unwrap().read(0, 4096, &mut [0; 4096]).result.is_err());
}

#[test]
fn damage_outlives_the_program_in_the_device_s_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    let rot = "[faults]\n[[faults.fault]]\nwrite = 1\nkind = \"bit-rot\"\noffset = 4096\nbits = 3\n";
    let damaged = faulty(rot).unwrap().with_capacity(1 << 20);
    damaged.open_file(&path).unwrap().write(0, 4096, &[7; 4096], true).result.unwrap();
    let mut block = [0; 4096];
    faulty("").unwrap().with_capacity(1 << 20).open_file(&path).unwrap().read(0, 4096, &mut block).result.unwrap();
    assert_eq!(block.iter().map(|byte| (byte ^ 7).count_ones()).sum::<u32>(), 3);
}

#[test]
fn mistakes_in_a_profile_s_faults_are_named() {
    let message = faulty("[faults]\nrates = { bit-rott = 0.1 }").unwrap_err().to_string();
    assert!(message.contains("mine.toml") && message.contains("bit-rott"), "{message}");
    let outside = "[faults]\n[[faults.fault]]\nwrite = 1\nkind = \"slow\"\nrange = [0, 9000000]\n";
    let message = faulty(outside).unwrap().with_capacity(1 << 20).build().unwrap_err().to_string();
    assert!(message.contains("mine.toml") && message.contains("range"), "{message}");
}

#[test]
fn a_plan_without_faults_is_the_model_itself() {
    let (_, log) = faulty("[faults]\nseed = 3").unwrap().with_capacity(1 << 20).build_logged().unwrap();
    assert_eq!(log.total(), 0);
}

const DOCUMENT: &str = include_str!("../../../../../docs/understand/faults.md");

#[test]
fn the_document_says_what_the_code_says() {
    for kind in FaultKind::ALL {
        let survival = match kind.survival() {
            Survival::Survivable => "survivable",
            Survival::Reported => "reported",
            Survival::Unknowable => "unknowable",
        };
        let row = format!("| `{kind}` | {survival} | {} |", kind.doc());
        assert!(DOCUMENT.contains(&row), "docs/understand/faults.md lacks the line\n{row}");
    }
}

#[test]
fn its_plans_are_valid() {
    let plans: Vec<&str> = DOCUMENT.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!plans.is_empty());
    for plan in plans {
        let plan = Plan::parse("docs/understand/faults.md", plan).unwrap_or_else(|error| panic!("{error}"));
        assert!(!plan.is_empty());
    }
}
