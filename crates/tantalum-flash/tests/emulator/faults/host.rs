//! What the host is told, and when.

use tantalum_flash::faults::{FaultKind, Parameters, Planned, When};
use tantalum_flash::{MediaError, Nanos};

use super::rig::{BLOCK, Rig, SECOND, prove, whole};

pub fn flush_fails_once() {
    // The second flush claims that all is well; the block written after the first is safe with it, the one before is not.
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1], false);
        let first = rig.flush();
        let readable = rig.read(0).unwrap()[1];
        rig.write(1, &[2], false);
        let second = rig.flush();
        rig.cut();
        (first, readable, second, rig.read_all(2).iter().map(|block| whole(block)).collect::<Vec<_>>())
    };
    for device in ["ssd-a", "hdd-7200", "mtron"] {
        prove(
            device,
            Planned::new(When::Flush(1), FaultKind::FlushFailsOnce),
            schedule,
            |found| *found == (Ok(()), 1, Ok(()), vec![Some(1), Some(2)]),
            |found| *found == (Err(MediaError::FlushFailed), 1, Ok(()), vec![Some(0), Some(2)]),
        );
    }
    // Where nothing waits for a flush, its failure loses nothing.
    prove(
        "durassd",
        Planned::new(When::Flush(1), FaultKind::FlushFailsOnce),
        schedule,
        |found| *found == (Ok(()), 1, Ok(()), vec![Some(1), Some(2)]),
        |found| *found == (Err(MediaError::FlushFailed), 1, Ok(()), vec![Some(1), Some(2)]),
    );
}

pub fn no_space() {
    let schedule = |rig: &mut Rig| {
        let first = rig.submit(3, &[1], true).result;
        let second = rig.submit(4, &[2], true).result;
        rig.sleep(SECOND);
        (first, second, rig.read(3).unwrap()[1], rig.read(4).unwrap()[1])
    };
    for device in ["cloud-volume", "ssd-b"] {
        prove(
            device,
            Planned::new(When::Write(1), FaultKind::NoSpace),
            schedule,
            |found| *found == (Ok(()), Ok(()), 1, 2),
            |found| *found == (Err(MediaError::NoSpace { offset: 3 * BLOCK as u64 }), Ok(()), 0, 2),
        );
    }
}

pub fn short_read() {
    let schedule = |rig: &mut Rig| {
        rig.write(3, &[9], true);
        let mut bytes = vec![0xaa; BLOCK];
        let outcome = rig.model.read(rig.now, 3 * BLOCK as u64, &mut bytes);
        let filled = bytes[1..].iter().filter(|&&byte| byte == 9).count();
        (rig.wait(outcome), filled as u64, rig.read(3).map_or(0, |bytes| bytes[1]))
    };
    let fault = Planned::new(When::Read(1), FaultKind::ShortRead);
    let parameters = Parameters { bytes: Some(513), ..Parameters::default() };
    let half = Planned { parameters, ..fault.clone() };
    let clean = |found: &(Result<(), MediaError>, u64, u8)| found.0.is_ok() && found.2 == 9;
    prove("usb-c", half, schedule, clean, |found| {
        *found == (Err(MediaError::Short { offset: 12288, found: 513 }), 511, 9)
    });
    prove(
        "usb-c",
        fault,
        schedule,
        clean,
        |found| matches!(found.0, Err(MediaError::Short { found, .. }) if found < 4096),
    );
}

pub fn stuck() {
    // What hangs is not done; a power cut ends it.
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1], true);
        let ends = [rig.submit(0, &[2], true).done, rig.model.flush(rig.now).done];
        rig.sleep(SECOND);
        rig.cut();
        (ends.map(|end| end == Nanos::MAX), rig.read(0).unwrap()[1])
    };
    let forever = Planned::new(When::Write(2), FaultKind::Stuck);
    for device in ["ssd-a", "usb-a", "hdd-10k"] {
        let clean = |found: &([bool; 2], u8)| *found == ([false; 2], 2);
        let hangs = |found: &([bool; 2], u8)| *found == ([true; 2], 1);
        // By rate it hangs from the first operation on.
        let mut rig = Rig::new(device, tantalum_flash::faults::Plan::new(1).with_rate(FaultKind::Stuck, 1.0), 1);
        assert_eq!(rig.submit(0, &[1], true).done, Nanos::MAX);
        prove(device, forever.clone(), schedule, clean, hangs);
    }
    // For a while: everything ends when it is over, and is done.
    let for_a_while = |rig: &mut Rig| {
        let start = rig.now;
        rig.write(0, &[1], true);
        let first = rig.now - start;
        let read = rig.read(0).unwrap()[1];
        (first >= 7 * SECOND, rig.now - start < 8 * SECOND, read)
    };
    let parameters = Parameters { delay: Some(7 * SECOND), ..Parameters::default() };
    let fault = Planned { parameters, ..Planned::new(When::Write(1), FaultKind::Stuck) };
    prove("ssd-a", fault, for_a_while, |&found| found == (false, true, 1), |&found| found == (true, true, 1));
}

pub fn slow() {
    let schedule = |rig: &mut Rig| {
        let mut took = || {
            let start = rig.now;
            let byte = rig.read(0).unwrap()[1];
            assert_eq!(byte, 0);
            rig.now - start
        };
        [took(), took()]
    };
    for device in ["nvme-plp", "hdd-15k"] {
        let fault = Planned::new(When::Read(2), FaultKind::Slow);
        let slow = |took: &[Nanos; 2]| took[0] < SECOND / 10 && (SECOND / 5..SECOND / 4).contains(&took[1]);
        prove(device, fault.clone(), schedule, |took| took[0].max(took[1]) < SECOND / 10, slow);
        let parameters = Parameters { delay: Some(3 * SECOND), ..Parameters::default() };
        let by = |took: &[Nanos; 2]| (3 * SECOND..4 * SECOND).contains(&took[1]);
        prove(device, Planned { parameters, ..fault }, schedule, |took| took[1] < SECOND / 10, by);
    }
}
