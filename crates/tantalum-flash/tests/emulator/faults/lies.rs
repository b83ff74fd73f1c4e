//! Devices that claim what they have not done.

use tantalum_flash::faults::{FaultKind, Parameters, Planned, When};

use super::rig::{Rig, SECOND, at_cut, block, prove, whole};

fn bytes(rig: &mut Rig, count: u64) -> Vec<u8> {
    rig.read_all(count).iter().map(|block| whole(block).expect("the block is whole")).collect()
}

pub fn ignored_flush() {
    let flushed = |rig: &mut Rig| {
        rig.write(0, &[1], false);
        assert_eq!(rig.flush(), Ok(()));
        rig.cut();
        bytes(rig, 1)
    };
    let fault = Planned::new(When::Flush(1), FaultKind::IgnoredFlush);
    prove("ssd-a", fault, flushed, |found| found == &[1], |found| found == &[0]);
    // The flush within a durable write is one as well.
    let durable = |rig: &mut Rig| {
        rig.write(0, &[1], true);
        rig.cut();
        bytes(rig, 1)
    };
    let fault = Planned::new(When::Write(1), FaultKind::IgnoredFlush);
    prove("ssd-a", fault, durable, |found| found == &[1], |found| found == &[0]);
}

pub fn ignored_fua() {
    // Destaging begins at once, but the arm needs longer than this.
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1], true);
        rig.write(900, &[2], true);
        rig.cut();
        (rig.read(0).unwrap() == block(1), rig.read(900).unwrap() == block(2))
    };
    let fault = Planned::new(When::Write(2), FaultKind::IgnoredFua);
    let results = prove("hdd-fua", fault, schedule, |&found| found == (true, true), |&(first, _)| first);
    assert!(results.iter().any(|found| !found.1), "what stayed in the cache can be lost");
}

pub fn flush_reorder() {
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1, 1], false);
        rig.flush().unwrap();
        rig.write(2, &[3], false);
        // The disk destages it of itself.
        rig.sleep(SECOND);
        rig.cut();
        bytes(rig, 3)
    };
    let fault = at_cut(FaultKind::FlushReorder);
    prove("hdd-7200", fault, schedule, |found| found == &[1, 1, 3], |found| found == &[0, 0, 3]);
}

pub fn map_rollback() {
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1], true);
        rig.write(1, &[2], true);
        rig.sleep(SECOND);
        rig.write(1, &[12], true);
        rig.write(2, &[13], true);
        rig.cut();
        bytes(rig, 3)
    };
    let parameters = Parameters { back: Some(SECOND / 2), ..Parameters::default() };
    let clean = |found: &Vec<u8>| found == &[1, 12, 13];
    for device in ["ssd-a", "durassd", "usb-c"] {
        let fault = Planned { parameters, ..at_cut(FaultKind::MapRollback) };
        prove(device, fault, schedule, clean, |found| found == &[1, 2, 0]);
        // By itself it goes back by up to 700 ms: the first two are safe, the others go in order.
        let drawn = |found: &Vec<u8>| found == &[1, 2, 0] || found == &[1, 12, 0];
        prove(device, at_cut(FaultKind::MapRollback), schedule, clean, drawn);
    }
}

pub fn weak_capacitor() {
    let schedule = |rig: &mut Rig| {
        (0..8).for_each(|number| rig.write(number, &[number as u8 + 1], false));
        rig.cut();
        bytes(rig, 8)
    };
    let clean = |found: &Vec<u8>| found == &[1, 2, 3, 4, 5, 6, 7, 8];
    for device in ["durassd", "nvme-plp"] {
        let parameters = Parameters { share: Some(0.5), ..Parameters::default() };
        let half = Planned { parameters, ..at_cut(FaultKind::WeakCapacitor) };
        prove(device, half, schedule, clean, |found| found == &[1, 2, 3, 4, 0, 0, 0, 0]);
        let some = |found: &Vec<u8>| {
            let kept = found.iter().take_while(|&&byte| byte != 0).count();
            kept < 8 && found[..kept] == [1, 2, 3, 4, 5, 6, 7, 8][..kept] && found[kept..].iter().all(|&byte| byte == 0)
        };
        prove(device, at_cut(FaultKind::WeakCapacitor), schedule, clean, some);
        let long_ago = |rig: &mut Rig| {
            (0..8).for_each(|number| rig.write(number, &[number as u8 + 1], false));
            rig.sleep(SECOND);
            rig.write(8, &[9], false);
            rig.cut();
            bytes(rig, 9)
        };
        let all = |found: &Vec<u8>| found == &[1, 2, 3, 4, 5, 6, 7, 8, 9];
        let latest = |found: &Vec<u8>| found == &[1, 2, 3, 4, 5, 6, 7, 8, 0];
        prove(device, at_cut(FaultKind::WeakCapacitor), long_ago, all, latest);
    }
}

pub fn lost_write() {
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1], true);
        rig.write(0, &[2], true);
        let seen = rig.read(0).unwrap()[1];
        rig.cut();
        (seen, rig.read(0).unwrap()[1], rig.model.counters().host_writes)
    };
    let fault = Planned::new(When::Write(2), FaultKind::LostWrite);
    for device in ["ssd-a", "usb-a", "hdd-10k", "cloud-volume"] {
        prove(device, fault.clone(), schedule, |&found| found == (2, 2, 2), |&found| found == (1, 1, 1));
    }
}
