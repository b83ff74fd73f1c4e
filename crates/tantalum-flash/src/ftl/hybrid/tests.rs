use super::*;

fn stick(parameters: HybridParameters) -> Hybrid {
    Hybrid::new(parameters, 16 << 20, Contents::in_memory)
}

fn any_order() -> HybridParameters {
    HybridParameters { update_order: UpdateOrder::Any, ..HybridParameters::example() }
}

/// Switch, partial and full merges.
fn merges(stick: &Hybrid) -> (u64, u64, u64) {
    let counters = stick.counters();
    (counters.switch_merges, counters.partial_merges, counters.full_merges)
}

const UNIT: u64 = 128 << 10;

#[test]
fn appends_cost_switch_merges_only() {
    for parameters in [HybridParameters::example(), any_order()] {
        for size in [512, 2048, 4096, 65_536] {
            let mut stick = stick(parameters.clone());
            let mut now = 0;
            for _ in 0..2 {
                for offset in (0..4 * UNIT).step_by(size) {
                    now = stick.write(now, offset, &vec![1; size]);
                }
            }
            assert_eq!(merges(&stick), (8, 0, 0), "{size} bytes at a time");
        }
    }
}

#[test]
fn in_strict_order_a_rewrite_costs_a_unit() {
    let mut stick = stick(HybridParameters::example());
    let mut now = stick.write(0, 0, &[1; UNIT as usize]);
    now = stick.write(now, 0, &[2; 8192]);
    let before = stick.counters();
    now = stick.write(now, 4096, &[3; 4096]);
    let after = stick.counters();
    assert_eq!(merges(&stick), (1, 1, 0));
    assert_eq!(after.programs - before.programs, 30 + 1 + 1, "30 pages behind, one before, and itself");
    let mut read = vec![0; UNIT as usize];
    stick.read(now, 0, &mut read);
    assert!(read[..4096].iter().all(|&byte| byte == 2) && read[4096..8192].iter().all(|&byte| byte == 3));
    assert!(read[8192..].iter().all(|&byte| byte == 1));
}

#[test]
fn in_any_order_rewrites_cost_a_merge_per_log() {
    let mut stick = stick(any_order());
    let mut now = stick.write(0, 0, &[1; UNIT as usize]);
    for _ in 0..32 {
        now = stick.write(now, 8192, &[2; 4096]);
    }
    assert_eq!(merges(&stick), (1, 0, 0), "the log is full of copies of one page");
    stick.write(now, 0, &[3; 4096]);
    assert_eq!(merges(&stick), (1, 0, 1));
}

#[test]
fn one_stream_more_than_logs_are_open_costs_a_merge_each_time() {
    let run = |streams: u64| {
        let mut stick = stick(HybridParameters::example());
        let mut now = 0;
        for unit in 0..streams {
            now = stick.write(now, unit * UNIT, &[1; UNIT as usize]);
        }
        for page in 0..16 {
            for unit in 0..streams {
                now = stick.write(now, unit * UNIT + page * 4096, &[2; 4096]);
            }
        }
        merges(&stick)
    };
    assert_eq!(run(2), (2, 0, 0));
    let (_, partial, _) = run(3);
    assert_eq!(partial, 3 * 16 - 2, "each write closes the log that comes next");
}

#[test]
fn levelling_moves_units_at_random() {
    let mut stick = stick(HybridParameters { level_every_pages: 20, ..HybridParameters::example() });
    let mut now = stick.write(0, 0, &[1; 8 << 20]);
    for offset in (0..8 << 20).step_by(4096) {
        now = stick.write(now, offset, &[2; 4096]);
    }
    let moves = stick.counters().wear_moves;
    // Half of the units hold something, so that half of the draws find nothing to move; the first pass has fewer.
    assert!((50..160).contains(&moves), "{moves} moves");
    assert_eq!(stick.counters().partial_merges, 0);
}

#[test]
fn the_map_is_rebuilt_from_the_flash() {
    let mut stick = stick(any_order());
    let mut random = Random::with_seed(3);
    let mut now = stick.write(0, UNIT, &[1; UNIT as usize]);
    now = stick.write(now, UNIT + 700, &[2; 5000]);
    now = stick.write(now, 5 * UNIT, &[3; 512]);
    stick.power_cut(now, &mut random);
    now = stick.power_on(now + 1);
    assert_eq!(merges(&stick).2, 2, "the units with a log and with a part of a page");
    let mut read = vec![0; UNIT as usize];
    stick.read(now, UNIT, &mut read);
    assert!(read[700..5700].iter().all(|&byte| byte == 2));
    assert!(read[..700].iter().chain(&read[5700..]).all(|&byte| byte == 1));
    stick.read(now, 5 * UNIT, &mut read);
    assert!(read[..512].iter().all(|&byte| byte == 3) && read[512..].iter().all(|&byte| byte == 0));
    stick.power_cut(now, &mut random);
    stick.power_on(now + 1);
    assert_eq!(merges(&stick).2, 2, "everything is whole already");
}

#[test]
fn a_steady_drive_behaves_as_one_that_was_written_once() {
    let steady = HybridParameters { initial_state: InitialState::Steady, ..any_order() };
    let (mut steady, mut written) = (stick(steady), stick(any_order()));
    let begin = written.write(0, 0, &vec![0; 16 << 20]) + 1_000_000_000;
    assert_eq!((steady.counters().programs, steady.counters().erases), (0, 0), "its past does not count");
    let before = written.counters();
    let (mut now, mut random) = (begin, Random::with_seed(9));
    for _ in 0..500 {
        let offset = random.u64(..4096) * 4096;
        let done = written.write(now, offset, &[1; 4096]);
        assert_eq!(steady.write(now, offset, &[1; 4096]), done);
        now = done;
    }
    let (steady, written) = (steady.counters(), written.counters());
    assert_eq!(steady.full_merges, written.full_merges - before.full_merges);
    assert_eq!(steady.erases, written.erases - before.erases);
}

#[test]
fn planes_that_take_turns_erase_while_others_are_programmed() {
    let mut parameters = HybridParameters { interleave_pages: 8, initial_state: InitialState::Steady, ..any_order() };
    parameters.geometry.channels = 2;
    let longest = |parameters: &HybridParameters| {
        let (mut stick, mut now, mut longest) = (stick(parameters.clone()), 0, 0);
        for offset in (0..16 << 20).step_by(4096) {
            let done = stick.write(now, offset, &[1; 4096]);
            longest = longest.max(done - now);
            now = done;
        }
        assert_eq!(stick.counters().switch_merges, 64, "each of 64 units takes another block");
        assert!(stick.counters().erases > 2 * 60);
        longest
    };
    let erase = parameters.timing.erase_ns;
    assert!(longest(&parameters) < erase, "no write waits for an erase");
    parameters.interleave_pages = 1;
    assert!(longest(&parameters) >= erase);
}

#[test]
fn commands_are_followed_by_moves_whatever_their_size() {
    let parameters = HybridParameters { level_every_writes: 20, initial_state: InitialState::Steady, ..any_order() };
    let mut stick = stick(parameters);
    let moves = (0..1000).filter(|_| stick.begin_command(0) > 0).count();
    assert!((25..80).contains(&moves), "{moves} of 1000");
    assert_eq!(stick.counters().wear_moves, moves as u64);
}
