//! The tree against a model, after power cuts, and on hostile bytes.

use crate::ErrorKind;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;
use tantalum_device::{MemoryDevice, MemoryProfile};
use tantalum_rt::{Random, Simulation};

use super::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const OPTIONS: Options = Options { updates_per_flush: 3, cached_nodes: 8 };

fn new_device(bytes: u64) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new("couch", bytes);
    AppendOnlyTree::create(&as_device(&device)).unwrap();
    device
}

fn as_device(device: &Arc<MemoryDevice>) -> Arc<dyn Device> {
    Arc::clone(device) as Arc<dyn Device>
}

fn open(device: &Arc<MemoryDevice>) -> AppendOnlyTree {
    AppendOnlyTree::open(as_device(device), OPTIONS).unwrap()
}

/// A key of many or few bytes, from 400 numbers.
fn key(number: u16) -> Vec<u8> {
    let number = number % 400;
    let mut key = number.to_be_bytes().to_vec();
    key.resize(if number.is_multiple_of(7) { MAX_KEY_BYTES } else { 20 }, 3);
    key
}

fn put_all(tree: &AppendOnlyTree, model: &mut Model, entries: Vec<(Vec<u8>, Vec<u8>)>) {
    let borrowed: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    tree.put_all(&borrowed).unwrap();
    model.extend(entries);
}

fn assert_holds(tree: &AppendOnlyTree, model: &Model) {
    assert_eq!(tree.check().unwrap(), model.len() as u64);
    for number in 0..400 {
        let key = key(number);
        assert_eq!(tree.get(&key).unwrap().as_ref(), model.get(&key), "{number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_map_that_can_be_closed_and_opened(
        updates in prop::collection::vec((prop::collection::vec((any::<u16>(), 0usize..9000), 0..40), any::<bool>()), 1..25),
    ) {
        let (device, mut model) = (new_device(256 << 20), Model::new());
        let mut tree = open(&device);
        for (number, (entries, reopens)) in updates.into_iter().enumerate() {
            let entry = |(at, bytes): (u16, usize)| (key(at), vec![number as u8; bytes]);
            put_all(&tree, &mut model, entries.into_iter().map(entry).collect());
            if reopens {
                drop(tree);
                tree = open(&device);
            }
        }
        assert_holds(&tree, &model);
    }

    #[test]
    fn hostile_bytes_never_panic(
        places in prop::collection::vec((0usize..200_000, any::<u8>()), 1..30),
        repairs: bool,
    ) {
        let (device, mut model) = (new_device(1 << 20), Model::new());
        let tree = open(&device);
        for number in 0..4 {
            put_all(&tree, &mut model, (0..40).map(|at| (key(at), vec![number; 100])).collect());
        }
        let used = tree.stats().used_bytes as usize;
        drop(tree);
        let mut image = device.image();
        for (at, byte) in places {
            image[at % used] = byte;
        }
        if repairs {
            // Of nodes and anchors the checksums are of a block; units are repaired as far as their own lengths say.
            let mut at = 0;
            while at < used {
                let blocks = node::u32_at(&image[at..], 16) as usize;
                let is_unit = node::u32_at(&image[at..], 4) == u32::from_le_bytes(*b"AOCU");
                let bytes = if is_unit { (blocks * BLOCK_BYTES).clamp(BLOCK_BYTES, image.len() - at) } else { BLOCK_BYTES };
                for block in image[at..at + bytes].chunks_exact_mut(BLOCK_BYTES).skip(usize::from(is_unit)) {
                    node::seal(block);
                }
                node::seal(&mut image[at..at + bytes]);
                at += bytes;
            }
        }
        device.load(&image);
        if let Ok(tree) = AppendOnlyTree::open(as_device(&device), OPTIONS) {
            let _ = tree.check();
            for number in 0..40 {
                let _ = tree.get(&key(number));
                let _ = tree.put(&key(number), b"new");
            }
            let _ = tree.check();
        }
    }
}

/// The states that a tree was in, and since which of them all is durable.
#[derive(Clone, Default)]
struct History {
    states: Vec<Model>,
    flushed: usize,
}

/// A device whose flushes do nothing.
#[derive(Debug)]
struct WithoutBarriers(Arc<MemoryDevice>);

impl Device for WithoutBarriers {
    tantalum_device::forward!(0: name, capacity_bytes, capabilities, hardware, read, submit, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> tantalum_device::Result<()> {
        self.0.write(offset, buffers, durability)
    }

    fn flush(&self) -> tantalum_device::Result<()> {
        Ok(())
    }
}

/// Opens a tree, which must be in one of the states that may have survived, and updates it until it is told to stop.
fn live(
    device: Arc<dyn Device>,
    history: &Mutex<History>,
    is_over: &AtomicBool,
    mut random: Random,
) -> Result<(), &'static str> {
    let tree = AppendOnlyTree::open(device, OPTIONS).map_err(|_| "it does not open")?;
    let possible = history.lock().clone();
    let survived = possible.states[possible.flushed..].iter().find(|state| is_in(&tree, state));
    let mut state = survived.ok_or("it is in no state that may have survived")?.clone();
    *history.lock() = History { states: vec![state.clone()], flushed: 0 };
    while !is_over.load(Ordering::Relaxed) {
        let count = random.usize(1..4);
        let entries: Vec<_> = (0..count).map(|_| (key(random.u16(..)), vec![random.u8(..); 99])).collect();
        state.extend(entries.iter().cloned());
        history.lock().states.push(state.clone());
        let flushes = tree.stats().flushes;
        put_all(&tree, &mut Model::new(), entries);
        let mut history = history.lock();
        if tree.stats().flushes > flushes {
            history.flushed = history.states.len() - 1;
        }
    }
    Ok(())
}

fn is_in(tree: &AppendOnlyTree, state: &Model) -> bool {
    let is_same = |number: u16| tree.get(&key(number)).is_ok_and(|value| value.as_ref() == state.get(&key(number)));
    tree.check().is_ok_and(|count| count == state.len() as u64) && (0..400).all(is_same)
}

/// Lives of a tree, each ended by a power cut at any time, also while it is opened.
fn lives(seed: u64, has_barriers: bool) -> Result<(), &'static str> {
    let run = move || {
        let us = Duration::from_micros(1);
        let latency = us..50 * us;
        let profile = MemoryProfile {
            write_latency: latency.clone(),
            read_latency: latency.clone(),
            flush_latency: us..300 * us,
            seed,
            ..MemoryProfile::default()
        };
        let mut device = MemoryDevice::with_profile("couch", 64 << 20, profile);
        AppendOnlyTree::create(&as_device(&device)).expect("nothing fails yet");
        let mut random = Random::with_seed(seed);
        let mut history = History { states: vec![Model::new()], flushed: 0 };
        for _ in 0..6 {
            let (shared, is_over) = (Arc::new(Mutex::new(history)), Arc::new(AtomicBool::new(false)));
            let task = tantalum_rt::spawn("life", {
                let tree_device: Arc<dyn Device> =
                    if has_barriers { as_device(&device) } else { Arc::new(WithoutBarriers(Arc::clone(&device))) };
                let (shared, is_over, random) = (Arc::clone(&shared), Arc::clone(&is_over), random.fork());
                move || live(tree_device, &shared, &is_over, random)
            });
            tantalum_rt::sleep(random.u32(0..15_000) * us);
            let after = device.fork();
            after.power_cut(&mut random);
            history = shared.lock().clone();
            // The life that was cut off goes on elsewhere, to its end.
            is_over.store(true, Ordering::Relaxed);
            task.join().expect("a panic ends the simulation")?;
            device = after;
        }
        Ok(())
    };
    Simulation::new(seed).run(run).expect_finished()
}

#[test]
fn a_power_cut_at_any_time_leaves_a_complete_root_not_older_than_the_last_flushed_one() {
    for seed in 0..150 {
        assert_eq!(lives(seed, true), Ok(()), "seed {seed}");
    }
}

#[test]
fn without_barriers_a_volatile_cache_loses_what_was_flushed() {
    let lost = (0..20).filter(|&seed| lives(seed, false) == Err("it is in no state that may have survived")).count();
    assert!(lost > 10, "{lost} of 20");
}

#[test]
fn what_lay_beyond_the_end_after_a_crash_never_comes_back() {
    let device = new_device(1 << 20);
    let patient = Options { updates_per_flush: 100, ..OPTIONS };
    let open = || AppendOnlyTree::open(as_device(&device), patient).unwrap();
    let tree = open();
    let end = tree.stats().used_bytes;
    // Two blocks each. The first is lost, the others are kept.
    for name in [b"a", b"b", b"c"] {
        tree.put(name, b"before").unwrap();
    }
    drop(tree);
    device.corrupt(end, BLOCK_BYTES, |bytes| bytes.fill(0));
    // The unit of opening, and one that ends where the third began, with the number before its own.
    let tree = open();
    tree.put(b"d", &[4; 5000]).unwrap();
    assert_eq!(tree.stats().used_bytes, end + 4 * BLOCK_BYTES as u64);
    drop(tree);
    let tree = open();
    assert_eq!((tree.get(b"c").unwrap(), tree.get(b"d").unwrap()), (None, Some(vec![4; 5000])));
    assert_eq!(tree.check().unwrap(), 1);
}

#[test]
fn opening_begins_at_the_anchor() {
    let device = new_device(64 << 20);
    let tree = open(&device);
    let mut model = Model::new();
    for number in 0..2 * UNITS_PER_ANCHOR {
        put_all(&tree, &mut model, vec![(key(number as u16), vec![number as u8; 10])]);
    }
    let stats = tree.stats();
    drop(tree);
    // The tree does not read the first unit any more.
    device.corrupt(anchor::FIRST_UNIT, BLOCK_BYTES, |bytes| bytes.fill(0));
    let tree = open(&device);
    assert_holds(&tree, &model);
    assert_eq!(tree.stats().sequence, stats.sequence + 1);
    assert!(stats.flushes > 600 && tree.stats().used_bytes > stats.used_bytes);
}

#[test]
fn an_update_of_a_small_document_appends_one_block_and_the_nodes_above_it() {
    let device = new_device(64 << 20);
    let tree = open(&device);
    let mut model = Model::new();
    put_all(&tree, &mut model, (0..400).map(|number| (key(number), vec![1; 10])).collect());
    let before = tree.stats();
    assert_eq!(before.levels, 2);
    assert_eq!(tree.warm_up().unwrap(), 400);
    tree.put(&key(5), &[2; 1000]).unwrap();
    assert_eq!(tree.stats().appended_bytes - before.appended_bytes, 3 * BLOCK_BYTES as u64);
}

#[test]
fn what_is_not_possible_is_said() {
    let device = new_device(40 << 10);
    let tree = open(&device);
    assert!(matches!(tree.put(&[0; MAX_KEY_BYTES + 1], b""), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(
        matches!(tree.put(b"", &vec![0; MAX_VALUE_BYTES + 1]), Err(error) if error.kind() == ErrorKind::InvalidInput)
    );
    let full = (0..20).find_map(|_| tree.put(b"key", &[1; 4000]).err()).expect("it is small");
    assert!(full.kind() == ErrorKind::NoSpace, "{full}");
    assert_eq!(tree.get(b"key").unwrap(), Some(vec![1; 4000]));
    drop(tree);
    let nothing: Arc<dyn Device> = MemoryDevice::new("nothing", 1 << 20);
    let error = AppendOnlyTree::open(nothing, OPTIONS).err().expect("there is no tree");
    assert!(error.to_string().contains("holds no append-only tree"), "{error}");
    let no_cache = Options { cached_nodes: 1, ..OPTIONS };
    assert!(AppendOnlyTree::open(as_device(&device), no_cache).is_err());
}
