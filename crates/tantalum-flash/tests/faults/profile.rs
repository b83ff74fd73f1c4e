//! Faults in a profile.

use tantalum_flash::faults::FaultKind;
use tantalum_flash::{Error, Profile};

fn faulty(faults: &str) -> Result<Profile, Error> {
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
