//! The rules of the flash, and what a power cut leaves.

use std::sync::Arc;

use proptest::prelude::*;
use tantalum_rt::Random;

use super::*;
use crate::{MediaError, Model};

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    packages_per_channel: 1,
    dies_per_package: 1,
    planes_per_die: 2,
    blocks_per_plane: 4,
    pages_per_block: 4,
    page_bytes: 8192,
    spare_bytes: 256,
    partial_programs: 4,
};
const TIMING: Timing = Timing { read_ns: 50_000, program_ns: 1_000_000, erase_ns: 2_000_000, bus_mb_per_s: 100 };
const TRANSFER: Nanos = 84_480;

fn nand() -> Nand {
    Nand::new(GEOMETRY, TIMING, Contents::in_memory(GEOMETRY.capacity_bytes()))
}

fn piece(byte: u8) -> Piece {
    Some(Arc::new([byte; PIECE_BYTES]))
}

#[test]
fn planes_work_in_parallel_and_share_their_channel() {
    let mut nand = nand();
    let page_of_plane = |plane: u32| plane * GEOMETRY.blocks_per_plane * GEOMETRY.pages_per_block;
    let done = [0, 1, 2].map(|plane| nand.program(0, page_of_plane(plane), Spare::default(), &[None, None]));
    assert_eq!(done[0], TRANSFER + 1_000_000);
    assert_eq!(done[1], done[0], "another channel");
    assert_eq!(done[2], 2 * TRANSFER + 1_000_000, "the same channel as plane 0");
    assert_eq!(nand.read(0, page_of_plane(0), 4096), done[0] + 50_000 + 43_520, "behind the program of its plane");
}

#[test]
#[should_panic(expected = "go in order")]
fn a_page_out_of_order_is_refused() {
    nand().program(0, 1, Spare::default(), &[]);
}

#[test]
fn a_cut_program_is_torn_and_a_later_one_never_was() {
    let mut nand = nand();
    let first = nand.program(0, 0, Spare::default(), &[piece(1), piece(2)]);
    let second = nand.program(0, 1, Spare::default(), &[piece(3), piece(4)]);
    nand.program(0, 2, Spare::default(), &[piece(5), piece(6)]);
    assert_eq!(nand.power_cut(second - 1, &mut Random::with_seed(1)), 1);
    assert!(first < second);
    assert_eq!(
        [0, 1, 2].map(|page| nand.spare(page).state),
        [PageState::Programmed, PageState::Torn, PageState::Erased]
    );
    assert_eq!(nand.piece(0, 1), piece(2));
    let torn = nand.piece(1, 0).unwrap();
    assert!(torn.iter().all(|byte| byte & 3 == 3) && torn[..] != [3; PIECE_BYTES], "some bits are still one");
    assert_eq!(nand.piece(2, 0), None);
    assert_eq!(nand.block(0).next_page, 2);
}

fn frail() -> Nand {
    let wear = Wear { endurance: 10, spread: 0.0, factory_bad: 0.5, spare: 0.5, seed: 1 };
    assert_eq!(wear.check(), Ok(()));
    nand().with_wear(Some(wear), 1)
}

#[test]
fn a_block_bears_its_endurance_and_fails_for_ever() {
    let mut nand = frail();
    let mut now = 0;
    for _ in 0..10 {
        now = nand.erase(now, 0).unwrap();
    }
    let before = nand.counters().bad_blocks;
    assert_eq!(nand.erase(now, 0), Err(Worn { done: now + 2_000_000 }));
    assert_eq!((nand.block(0).is_bad, nand.counters().bad_blocks), (true, before + 1));
    assert_eq!(nand.spare(0).state, PageState::Torn, "what it holds is nothing");
    // An erase that had not begun did not fail.
    nand.power_cut(now, &mut Random::with_seed(1));
    assert_eq!((nand.block(0).is_bad, nand.counters().bad_blocks), (false, before));
    assert!(nand.erase(now, 0).is_err());
}

#[test]
#[should_panic(expected = "worn out and not erased again")]
fn a_bad_block_is_not_erased() {
    let mut nand = frail();
    let bad = (0..GEOMETRY.blocks()).find(|&block| nand.block(block).is_bad).unwrap();
    nand.erase(0, bad).unwrap();
}

#[test]
#[should_panic(expected = "worn out and not programmed")]
fn a_bad_block_is_not_programmed() {
    let mut nand = frail();
    let bad = (0..GEOMETRY.blocks()).find(|&block| nand.block(block).is_bad).unwrap();
    nand.program(0, bad * GEOMETRY.pages_per_block, Spare::default(), &[None, None]);
}

#[test]
fn factory_bad_blocks_come_by_seed_and_spare_the_first() {
    let bad = |nand: &Nand| -> Vec<u32> { (0..GEOMETRY.blocks()).filter(|&block| nand.block(block).is_bad).collect() };
    let first = bad(&frail());
    assert_eq!(first, bad(&frail()));
    assert!(!first.is_empty() && first.iter().all(|block| block % GEOMETRY.blocks_per_plane != 0), "{first:?}");
}

#[test]
fn a_cut_erase_leaves_a_block_that_must_be_erased_again() {
    let mut nand = nand();
    let programmed = nand.program(0, 0, Spare::default(), &[piece(1), piece(2)]);
    let erased = nand.erase(programmed, 0).unwrap();
    nand.power_cut(erased - 1, &mut Random::with_seed(1));
    assert!((0..4).all(|page| nand.spare(page).state == PageState::Torn));
    assert_eq!(nand.block(0), Block { next_page: 4, erase_count: 1, is_bad: false });
    nand.erase(erased, 0).unwrap();
    assert_eq!((nand.spare(0).state, nand.block(0).erase_count), (PageState::Erased, 2));
}

#[test]
fn an_erase_that_had_not_begun_is_taken_back() {
    let mut nand = nand();
    let programmed = nand.program(0, 0, Spare { sequence: 9, ..Spare::default() }, &[piece(1), piece(2)]);
    let erased = nand.erase(programmed + 500, 0).unwrap();
    nand.program(erased, 0, Spare::default(), &[piece(8), piece(9)]);
    nand.power_cut(programmed, &mut Random::with_seed(1));
    assert_eq!((nand.spare(0).sequence, nand.piece(0, 0), nand.piece(0, 1)), (9, piece(1), piece(2)));
    assert_eq!(nand.block(0), Block { next_page: 1, erase_count: 0, is_bad: false });
}

fn raw() -> RawNand {
    RawNand::new(nand(), 512)
}

#[test]
fn raw_flash_takes_partial_programs_up_to_its_limit() {
    let mut raw = raw();
    for part in 0..4u64 {
        assert_eq!(raw.write(0, part * 512, &[part as u8; 512], true).result, Ok(()));
    }
    let again = raw.write(0, 0, &[9; 512], true).result;
    assert!(matches!(again, Err(MediaError::Rule { offset: 0, .. })), "{again:?}");
    let fifth = raw.write(0, 4 * 512, &[9; 512], true).result;
    assert!(matches!(fifth, Err(MediaError::Rule { offset: 2048, .. })), "{fifth:?}");
    let mut read = [0; 1024];
    raw.read(0, 1536, &mut read).result.unwrap();
    assert_eq!((read[0], read[512]), (3, 0xff), "what is not programmed reads as ones");
    raw.discard(0, 0, 32768).result.unwrap();
    assert_eq!(raw.write(0, 0, &[9; 512], true).result, Ok(()));
}

proptest! {
    /// Whatever is done and whenever the power fails: what was done before the cut is there, what had not begun never
    /// was, and what was under way says so.
    #[test]
    fn raw_flash_after_a_cut(
        operations in prop::collection::vec((0u64..16, 0u64..3, any::<bool>()), 1..40),
        cut in 0u64..40_000_000,
        seed in any::<u64>(),
    ) {
        let mut raw = raw();
        let mut history = Vec::new();
        let mut now = 0;
        let mut next = [0u64; 4];
        for (index, &(block, wait, erases)) in operations.iter().enumerate() {
            let block = block % 4;
            let (slot, value) = (block as usize, index as u8 + 1);
            let offset = block * 4 * 32768;
            if erases || next[slot] == 4 {
                history.push((raw.discard(now, offset, 32768).done, slot, None));
                next[slot] = 0;
            } else {
                let done = raw.write(now, offset + next[slot] * 8192, &[value; 8192], true).done;
                history.push((done, slot, Some((next[slot], value))));
                next[slot] += 1;
            }
            if now >= cut { break; }
            now += wait * 700_000;
        }
        let cut = cut.max(now);
        raw.power_cut(cut, &mut Random::with_seed(seed));
        for slot in 0..4 {
            let mut expected = [0xffu8; 4];
            for &(_, _, change) in history.iter().filter(|&&(done, at, _)| at == slot && done <= cut) {
                match change {
                    None => expected = [0xff; 4],
                    Some((page, value)) => expected[page as usize] = value,
                }
            }
            let under_way = history.iter().filter(|&&(done, at, _)| at == slot && done > cut).count();
            for (page, &value) in expected.iter().enumerate() {
                let mut read = vec![0; 8192];
                match raw.read(cut, slot as u64 * 4 * 32768 + page as u64 * 8192, &mut read).result {
                    Ok(()) => prop_assert!(read.iter().all(|&byte| byte == value)),
                    Err(_) => prop_assert!(under_way > 0, "only what was under way is torn"),
                }
            }
        }
    }
}
