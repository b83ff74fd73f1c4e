//! Damage at rest, and operations that go astray.

use tantalum_flash::MediaError;
use tantalum_flash::faults::{FaultKind, Parameters, Planned, When};

use super::rig::{Rig, block, prove, whole};

fn differing_bits(bytes: &[u8], byte: u8) -> u32 {
    bytes.iter().zip(block(byte)).map(|(found, written)| (found ^ written).count_ones()).sum()
}

/// Bits that differ at the first read, at the second, after a power cut, and after the block was written again.
fn rotten(rig: &mut Rig) -> [u32; 4] {
    rig.write(7, &[1], true);
    let first = rig.read(7).unwrap();
    let second = rig.read(7).unwrap();
    rig.cut();
    let third = rig.read(7).unwrap();
    rig.write(7, &[2], true);
    let last = rig.read(7).unwrap();
    [differing_bits(&first, 1), differing_bits(&second, 1), differing_bits(&third, 1), differing_bits(&last, 2)]
}

pub fn bit_rot() {
    for device in ["ssd-a", "usb-b", "hdd-15k", "durassd"] {
        let fault = Planned::new(When::Read(1), FaultKind::BitRot);
        prove(device, fault, rotten, |&bits| bits == [0; 4], |&bits| bits == [1, 1, 1, 0]);
        let parameters = Parameters { offset: Some(7 * 4096), bits: Some(5), ..Parameters::default() };
        let placed = Planned { parameters, ..Planned::new(When::Write(1), FaultKind::BitRot) };
        prove(device, placed, rotten, |&bits| bits == [0; 4], |&bits| bits == [5, 5, 5, 0]);
    }
}

pub fn unreadable_sector() {
    let schedule = |rig: &mut Rig| {
        rig.write(6, &[1, 2], true);
        let first = rig.read(7);
        let beside = rig.read(6).map(|bytes| whole(&bytes));
        rig.cut();
        let second = rig.read(7);
        rig.write(7, &[3], true);
        (first, beside, second, rig.read(7).map(|bytes| whole(&bytes)))
    };
    let is_lost = |read: &Result<Vec<u8>, MediaError>| matches!(read, Err(MediaError::Unreadable { offset }) if offset / 4096 == 7);
    for device in ["ssd-a", "usb-b", "hdd-15k", "cloud-volume"] {
        let parameters = Parameters { offset: Some(7 * 4096), ..Parameters::default() };
        let at_a_time = When::At(1_000_000_001);
        let placed = Planned { parameters, ..Planned::new(at_a_time, FaultKind::UnreadableSector) };
        for fault in [placed, Planned::new(When::Read(1), FaultKind::UnreadableSector)] {
            prove(
                device,
                fault,
                schedule,
                |found| found.0 == Ok(block(2)) && found.2 == Ok(block(2)) && found.3 == Ok(Some(3)),
                |found| is_lost(&found.0) && found.1 == Ok(Some(1)) && is_lost(&found.2) && found.3 == Ok(Some(3)),
            );
        }
    }
}

pub fn misdirected_write() {
    let schedule = |rig: &mut Rig| {
        (0..4).for_each(|number| rig.write(number, &[1], true));
        rig.write(1, &[2], true);
        rig.cut();
        let blocks: Vec<Vec<u8>> = rig.read_all(1024);
        let changed: Vec<usize> = (0..1024).filter(|&n| blocks[n][1] == 2).collect();
        (blocks[1][1], changed)
    };
    let clean = |found: &(u8, Vec<usize>)| *found == (2, vec![1]);
    let fault = Planned::new(When::Write(5), FaultKind::MisdirectedWrite);
    for device in ["ssd-a", "hdd-10k"] {
        let parameters = Parameters { offset: Some(3 * 4096), ..Parameters::default() };
        let placed = Planned { parameters, ..fault.clone() };
        prove(device, placed, schedule, clean, |found| *found == (1, vec![3]));
        // Anywhere: it may begin within a block.
        prove(device, fault.clone(), schedule, clean, |(own, changed)| *own == 1 && !changed.contains(&1));
    }
}

pub fn misdirected_read() {
    let schedule = |rig: &mut Rig| {
        rig.write(1, &[2], true);
        rig.write(3, &[4], true);
        (rig.read(1).unwrap()[1], rig.read(1).unwrap()[1])
    };
    let fault = Planned::new(When::Read(1), FaultKind::MisdirectedRead);
    for device in ["ssd-a", "hdd-10k"] {
        let parameters = Parameters { offset: Some(3 * 4096), ..Parameters::default() };
        let placed = Planned { parameters, ..fault.clone() };
        prove(device, placed, schedule, |&found| found == (2, 2), |&found| found == (4, 2));
        let results = prove(device, fault.clone(), schedule, |&found| found == (2, 2), |&(_, second)| second == 2);
        assert!(results.iter().any(|&(first, _)| first == 0), "it comes from where nothing is");
    }
}
