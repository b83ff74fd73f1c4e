//! A device under a plan, and the frame of a proof: the same schedule clean, by plan, and by seed.

use std::fmt::Debug;
use std::sync::Arc;

use tantalum_flash::faults::{FaultKind, FaultLog, FaultyModel, Plan, Planned, When};
use tantalum_flash::{MediaError, Model, Nanos, Outcome, Profile};
use tantalum_rt::Random;

pub const BLOCK: usize = 4096;
pub const SECOND: Nanos = 1_000_000_000;

/// A device of 4 MiB, and the host's clock.
pub struct Rig {
    pub model: Box<dyn Model>,
    pub log: Arc<FaultLog>,
    pub now: Nanos,
    random: Random,
}

/// A block full of a byte, every 512 bytes marked with their place in it.
pub fn block(byte: u8) -> Vec<u8> {
    let mut bytes = vec![byte; BLOCK];
    bytes.chunks_mut(512).enumerate().for_each(|(number, sector)| sector[0] = number as u8);
    bytes
}

impl Rig {
    pub fn new(device: &str, plan: Plan, seed: u64) -> Self {
        let profile = match device {
            // A disk as it is delivered to a host that trusts its write cache and forced unit access.
            "hdd-fua" => {
                let text = Profile::text("hdd-10k").unwrap();
                Profile::parse(device, &text.replace("write_cache = \"off\"", "write_cache = \"on\"")).unwrap()
            }
            name => Profile::named(name).unwrap(),
        };
        let inner = profile.with_capacity(4 << 20).build().unwrap();
        let (model, log) = FaultyModel::wrap("proof", inner, plan).unwrap();
        Self { model, log, now: SECOND, random: Random::with_seed(seed) }
    }

    /// Waits for the end of an operation.
    pub fn wait(&mut self, outcome: Outcome) -> Result<(), MediaError> {
        assert!(outcome.done >= self.now && outcome.done != Nanos::MAX, "{outcome:?}");
        self.now = outcome.end(&mut *self.model);
        outcome.result
    }

    /// Begins to write blocks, each full of a byte.
    pub fn submit(&mut self, number: u64, bytes: &[u8], durable: bool) -> Outcome {
        let data = bytes.iter().map(|&byte| block(byte)).collect::<Vec<_>>().concat();
        self.model.write(self.now, number * BLOCK as u64, &data, durable)
    }

    pub fn write(&mut self, number: u64, bytes: &[u8], durable: bool) {
        let outcome = self.submit(number, bytes, durable);
        self.wait(outcome).unwrap();
    }

    pub fn flush(&mut self) -> Result<(), MediaError> {
        let outcome = self.model.flush(self.now);
        self.wait(outcome)
    }

    pub fn sleep(&mut self, time: Nanos) {
        self.now += time;
    }

    /// The power goes and comes back.
    pub fn cut(&mut self) {
        self.model.power_cut(self.now, &mut self.random);
        self.now = self.model.power_on(self.now + SECOND);
    }

    pub fn read(&mut self, number: u64) -> Result<Vec<u8>, MediaError> {
        let mut bytes = vec![0xaa; BLOCK];
        let outcome = self.model.read(self.now, number * BLOCK as u64, &mut bytes);
        self.wait(outcome).map(|()| bytes)
    }

    /// Blocks `0..count`, of which none may be unreadable.
    pub fn read_all(&mut self, count: u64) -> Vec<Vec<u8>> {
        (0..count).map(|number| self.read(number).unwrap()).collect()
    }
}

/// The byte of a block that is whole.
pub fn whole(bytes: &[u8]) -> Option<u8> {
    let byte = bytes[1];
    (bytes == block(byte) || (byte == 0 && bytes.iter().all(|&byte| byte == 0))).then_some(byte)
}

/// For each sector of a block, its byte, if it is whole.
pub fn sectors(bytes: &[u8]) -> Vec<Option<u8>> {
    let sector = |number: usize| {
        let part = &bytes[number * 512..][..512];
        let byte = part[1];
        let is_zero = byte == 0 && part.iter().all(|&byte| byte == 0);
        (is_zero || (part[0] == number as u8 && part[1..].iter().all(|&found| found == byte))).then_some(byte)
    };
    (0..bytes.len() / 512).map(sector).collect()
}

/// Runs a schedule clean under a plan that never comes to it, then with the fault by plan and by rate, over many seeds.
/// The same seed must give the same result. Returns the results with the fault.
pub fn prove<T: PartialEq + Debug>(
    device: &str,
    fault: Planned,
    schedule: impl Fn(&mut Rig) -> T,
    clean: impl Fn(&T) -> bool,
    faulty: impl Fn(&T) -> bool,
) -> Vec<T> {
    let kind = fault.kind;
    let run = |plan: Plan, seed: u64| {
        let mut rig = Rig::new(device, plan, seed);
        let result = schedule(&mut rig);
        (result, rig.log)
    };
    let mut results = Vec::new();
    for seed in 0..20 {
        let never = Planned { when: When::At(u64::MAX), ..fault.clone() };
        let (result, log) = run(Plan::new(seed).with_fault(never), seed);
        assert_eq!(log.total(), 0);
        assert!(clean(&result), "{device}, seed {seed}: without {kind}: {result:?}");

        let planned = Plan::new(seed).with_fault(fault.clone());
        let (result, log) = run(planned.clone(), seed);
        assert_eq!(log.counts().collect::<Vec<_>>(), [(kind, fault.times)], "{device}, seed {seed}");
        assert!(faulty(&result), "{device}, seed {seed}: {:?}: {result:?}", log.events());
        assert_eq!(result, run(planned, seed).0, "the same seed gives the same result");
        results.push(result);

        // At rate 1 the device would hang before a schedule can wait for anything.
        if fault.parameters == Default::default() && kind != FaultKind::Stuck {
            let (result, log) = run(Plan::new(seed).with_rate(kind, 1.0), seed);
            assert!(log.count(kind) > 0 && log.total() == log.count(kind), "{device}, seed {seed}, by rate");
            assert!(faulty(&result) || log.count(kind) > 1, "{device}, seed {seed}, by rate: {result:?}");
        }
    }
    results
}

/// A plan's fault, on the first occasion after the first power cut begins, or from the beginning.
pub fn at_cut(kind: FaultKind) -> Planned {
    Planned::new(When::Cut(1), kind)
}
