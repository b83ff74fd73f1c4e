//! What a power cut does.

use tantalum_flash::MediaError;
use tantalum_flash::faults::FaultKind;

use super::rig::{BLOCK, Rig, SECOND, at_cut, block, prove, sectors, whole};

/// Blocks 0 and 1 are flushed as 1 and 2, then blocks 1 to 4 are written as 12 to 15 and not flushed; the disk has them
/// on the platter of itself after a while. Returns blocks 0 to 5.
fn unsynced(rig: &mut Rig) -> Vec<Vec<u8>> {
    rig.write(0, &[1, 2], false);
    rig.flush().unwrap();
    rig.write(1, &[12, 13], false);
    rig.write(3, &[14], false);
    rig.write(4, &[15], false);
    rig.sleep(5 * SECOND);
    rig.cut();
    rig.read_all(6)
}

/// The blocks' bytes; all must be whole.
fn bytes(blocks: &[Vec<u8>]) -> Vec<u8> {
    blocks.iter().map(|block| whole(block).expect("the block is whole")).collect()
}

fn is_clean(blocks: &[Vec<u8>]) -> bool {
    bytes(blocks) == [1, 12, 13, 14, 15, 0]
}

pub fn lose_unsynced() {
    let lost = |blocks: &Vec<Vec<u8>>| bytes(blocks) == [1, 2, 0, 0, 0, 0];
    prove("hdd-7200", at_cut(FaultKind::LoseUnsynced), unsynced, |blocks| is_clean(blocks), lost);
}

pub fn lose_subset() {
    let by_write = |blocks: &Vec<Vec<u8>>| {
        let found = bytes(blocks);
        let first = (found[1], found[2]) == (12, 13) || (found[1], found[2]) == (2, 0);
        found[0] == 1 && first && [0, 14].contains(&found[3]) && [0, 15].contains(&found[4]) && found[5] == 0
    };
    let fault = at_cut(FaultKind::LoseSubset);
    let results = prove("hdd-7200", fault, unsynced, |blocks| is_clean(blocks), by_write);
    let is_reordered = |blocks: &Vec<Vec<u8>>| whole(&blocks[3]) == Some(0) && whole(&blocks[4]) == Some(15);
    assert!(results.iter().any(is_reordered), "a later write survives without an earlier one");
}

/// For each sector of the four unsynced blocks: whether it is new. `None` if one is neither new nor old.
fn new_sectors(blocks: &[Vec<u8>]) -> Option<Vec<bool>> {
    let olds = [2, 0, 0, 0];
    let found = blocks[1..5].iter().flat_map(|block| sectors(block));
    let is_new = |(n, byte): (usize, Option<u8>)| match byte? {
        byte if byte == 12 + (n / 8) as u8 => Some(true),
        byte if byte == olds[n / 8] => Some(false),
        _ => None,
    };
    found.enumerate().map(is_new).collect()
}

fn is_prefix(sectors: &[bool]) -> bool {
    sectors.is_sorted_by(|a, b| a >= b)
}

pub fn prefix_tear() {
    let torn = |blocks: &Vec<Vec<u8>>| {
        let new = new_sectors(blocks).expect("sectors are whole");
        whole(&blocks[0]) == Some(1) && is_prefix(&new[..16]) && is_prefix(&new[16..24]) && is_prefix(&new[24..])
    };
    let fault = at_cut(FaultKind::PrefixTear);
    let results = prove("hdd-7200", fault, unsynced, |blocks| is_clean(blocks), torn);
    let is_torn = |blocks: &Vec<Vec<u8>>| blocks.iter().any(|block| whole(block).is_none());
    assert!(results.iter().any(is_torn), "a write is torn within a block");
}

pub fn scattered_tear() {
    let torn = |blocks: &Vec<Vec<u8>>| whole(&blocks[0]) == Some(1) && new_sectors(blocks).is_some();
    let fault = at_cut(FaultKind::ScatteredTear);
    let results = prove("hdd-7200", fault, unsynced, |blocks| is_clean(blocks), torn);
    let is_scattered = |blocks: &Vec<Vec<u8>>| !is_prefix(&new_sectors(blocks).unwrap()[..16]);
    assert!(results.iter().any(is_scattered), "later sectors of a write survive without earlier ones");
}

/// Block 1 of the drive is overwritten in its cache when the power goes.
fn overwritten(rig: &mut Rig) -> Vec<Vec<u8>> {
    rig.write(0, &[1, 2, 3], false);
    rig.flush().unwrap();
    rig.write(1, &[12], false);
    rig.cut();
    rig.read_all(4)
}

fn others_are_whole(blocks: &[Vec<u8>]) -> bool {
    whole(&blocks[0]) == Some(1) && whole(&blocks[2]) == Some(3) && whole(&blocks[3]) == Some(0)
}

fn is_old_or_new(blocks: &[Vec<u8>]) -> bool {
    others_are_whole(blocks) && matches!(whole(&blocks[1]), Some(2 | 12))
}

pub fn sector_shear() {
    let sheared = |blocks: &Vec<Vec<u8>>| {
        let (old, new) = (block(2), block(12));
        let mixed = (1..BLOCK).any(|from| blocks[1][..from] == new[..from] && blocks[1][from..] == old[from..]);
        let by_sector = sectors(&blocks[1]).iter().filter(|sector| sector.is_none()).count() <= 1;
        others_are_whole(blocks) && (mixed || by_sector)
    };
    let fault = at_cut(FaultKind::SectorShear);
    for device in ["ssd-a", "mtron"] {
        let results = prove(device, fault.clone(), overwritten, |blocks| is_old_or_new(blocks), sheared);
        let is_sheared = |blocks: &Vec<Vec<u8>>| sectors(&blocks[1]).contains(&None);
        assert!(results.iter().any(is_sheared), "{device}: a write ends within a sector");
    }
}

pub fn sector_garbage() {
    let spoiled = |blocks: &Vec<Vec<u8>>| {
        let found = sectors(&blocks[1]);
        others_are_whole(blocks) && found.iter().any(|sector| !matches!(sector, Some(2 | 12)))
    };
    for device in ["ssd-a", "mtron"] {
        prove(device, at_cut(FaultKind::SectorGarbage), overwritten, |blocks| is_old_or_new(blocks), spoiled);
    }
}

pub fn neighbour_damage() {
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1, 2, 3], false);
        rig.flush().unwrap();
        rig.write(1, &[12], false);
        rig.cut();
        (0..4).map(|number| rig.read(number).map(|bytes| whole(&bytes))).collect::<Vec<_>>()
    };
    type Found = Vec<Result<Option<u8>, MediaError>>;
    let clean = |found: &Found| found.iter().all(|block| block.is_ok());
    let damaged = |found: &Found| {
        let unreadable: Vec<usize> = (0..4).filter(|&n| found[n].is_err()).collect();
        let is_error =
            |n: usize| matches!(found[n], Err(MediaError::Unreadable { offset }) if offset / 4096 == n as u64);
        matches!(unreadable[..], [n] if n != 1 && is_error(n))
    };
    // On a disk it is next to the write; on flash it was written before, wherever it is.
    let results = prove("hdd-7200", at_cut(FaultKind::NeighbourDamage), schedule, clean, damaged);
    assert!((0..4).all(|n| [0, 2].contains(&n) == results.iter().any(|found| found[n].is_err())));
    let results = prove("ssd-a", at_cut(FaultKind::NeighbourDamage), schedule, clean, damaged);
    assert!(results.iter().all(|found| found[3].is_ok()), "block 3 was not written");
}

pub fn dead_after_cut() {
    let schedule = |rig: &mut Rig| {
        rig.write(0, &[1], true);
        rig.cut();
        let write = rig.submit(0, &[2], true).result;
        let (flush, read) = (rig.flush(), rig.read(0).map(|_| ()));
        rig.cut();
        [write, flush, read, rig.read(0).map(|_| ())]
    };
    let is_dead = |results: &[Result<(), MediaError>; 4]| results.iter().all(|result| *result == Err(MediaError::Dead));
    let is_alive = |results: &[Result<(), MediaError>; 4]| results.iter().all(|result| result.is_ok());
    for device in ["durassd", "usb-a", "hdd-10k"] {
        prove(device, at_cut(FaultKind::DeadAfterCut).times(1), schedule, is_alive, is_dead);
    }
}

pub fn cut_during_recovery() {
    let schedule = |rig: &mut Rig| {
        (0..20).for_each(|number| rig.write(number, &[number as u8 + 1], true));
        rig.cut();
        let blocks = rig.read_all(20);
        let kept = blocks.iter().enumerate().all(|(n, block)| whole(block) == Some(n as u8 + 1));
        (kept, rig.model.counters().power_cuts)
    };
    for device in ["durassd", "ssd-a"] {
        let cut_again = |&(kept, cuts): &(bool, u64)| kept && cuts == 2;
        prove(device, at_cut(FaultKind::CutDuringRecovery), schedule, |&found| found == (true, 1), cut_again);
    }
}
