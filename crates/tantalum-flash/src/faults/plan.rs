//! What is to go wrong: by rate, or at a chosen moment; as TOML, and what can be wrong with that.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::FaultKind;
use crate::profile::line_of;
use crate::{Error, ErrorKind, Nanos, Result, Shape};

/// The faults of one device. The same plan and the same calls give the same faults.
///
/// ```
/// use tantalum_flash::faults::{FaultKind, Plan, Planned, When};
/// let plan = Plan::parse("plan.toml", r#"
///     seed = 7
///     [rates]
///     lose-subset = 0.5
///     [[fault]]
///     write = 3
///     range = [0, 65536]
///     kind = "lost-write"
/// "#)?;
/// let by_hand = Plan::new(7)
///     .with_rate(FaultKind::LoseSubset, 0.5)
///     .with_fault(Planned::new(When::Write(3), FaultKind::LostWrite).within(0..65536));
/// assert_eq!(plan, by_hand);
/// assert_eq!(Plan::parse("again", &plan.to_toml())?, plan);
/// # Ok::<(), tantalum_flash::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanText", into = "PlanText")]
pub struct Plan {
    /// Where the plan's own randomness begins.
    pub seed: u64,
    /// By kind, the probability that it happens on each occasion: from 0 to 1.
    pub rates: BTreeMap<FaultKind, f64>,
    /// Faults at chosen moments.
    pub faults: Vec<Planned>,
}

/// A fault at a chosen moment: armed when its time comes, it happens on the first occasions from then on.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// When it is armed.
    pub when: When,
    /// The bytes that it concerns: other operations and other writes at stake are neither counted nor harmed.
    pub range: Option<Range<u64>>,
    /// On how many occasions it happens.
    pub times: u64,
    /// What happens.
    pub kind: FaultKind,
    /// How exactly.
    pub parameters: Parameters,
}

/// When a planned fault is armed. Operations are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// With the first operation or power cut at this time or later.
    At(Nanos),
    /// With an operation of any kind.
    Operation(u64),
    /// With a write, of those that touch the range.
    Write(u64),
    /// With a read, of those that touch the range.
    Read(u64),
    /// With a flush command.
    Flush(u64),
    /// With a power cut.
    Cut(u64),
}

/// What a planned fault leaves open or not; [`FaultKind::doc`] names what a kind takes, and its default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parameters {
    /// The place, in bytes from the beginning of the device.
    pub offset: Option<u64>,
    /// How long.
    pub delay: Option<Nanos>,
    /// How far back.
    pub back: Option<Nanos>,
    /// Which share, from 0 to 1.
    pub share: Option<f64>,
    /// How many bytes.
    pub bytes: Option<u64>,
    /// How many bits.
    pub bits: Option<u32>,
}

impl Planned {
    /// A fault that happens once, anywhere.
    pub fn new(when: When, kind: FaultKind) -> Self {
        Self { when, range: None, times: 1, kind, parameters: Parameters::default() }
    }

    /// The same, within a range.
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range: Some(range), ..self }
    }

    /// The same, on so many occasions.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }
}

impl Plan {
    /// A plan without faults.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The same, with a kind of fault at this rate.
    pub fn with_rate(mut self, kind: FaultKind, rate: f64) -> Self {
        self.rates.insert(kind, rate);
        self
    }

    /// The same, with one more fault at a chosen moment.
    pub fn with_fault(mut self, fault: Planned) -> Self {
        self.faults.push(fault);
        self
    }

    /// Whether nothing can go wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.rates.values().all(|&rate| rate == 0.0)
    }

    /// Reads a plan from TOML. `name` is used in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: a key that is unknown or missing, or a value that makes no sense.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            let what = format!("fault plan {name}{}: {}", line_of(&error, text), error.message());
            Error::new(ErrorKind::InvalidInput, what)
        })
    }

    /// The plan as TOML, which [`Plan::parse`] reads.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a plan has string keys, numbers, and tables after them")
    }

    /// Whether a device of this shape can have these faults. `name` is used in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the first key that is wrong, and what is allowed.
    pub fn check(&self, name: &str, shape: &Shape) -> Result<()> {
        let problem = PlanText::from(self.clone()).problem(Some(shape));
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::new(ErrorKind::InvalidInput, format!("fault plan {name}: {problem}"))),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    /// TOML has no unsigned numbers: the same bits.
    #[serde(default)]
    seed: i64,
    #[serde(default)]
    rates: BTreeMap<FaultKind, f64>,
    #[serde(default, rename = "fault")]
    faults: Vec<PlannedText>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedText {
    at: Option<String>,
    operation: Option<u64>,
    write: Option<u64>,
    read: Option<u64>,
    flush: Option<u64>,
    cut: Option<u64>,
    range: Option<[u64; 2]>,
    times: Option<u64>,
    kind: Option<FaultKind>,
    offset: Option<u64>,
    delay: Option<String>,
    back: Option<String>,
    share: Option<f64>,
    bytes: Option<u64>,
    bits: Option<u32>,
}

const UNITS: [(&str, Nanos); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// `5 ms` and the like.
fn nanos(text: &str) -> Option<Nanos> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let unit = text[digits..].trim_start();
    let factor = UNITS.iter().find(|&&(name, _)| name == unit)?.1;
    text[..digits].parse::<Nanos>().ok()?.checked_mul(factor)
}

fn duration(nanos: Nanos) -> String {
    let whole = UNITS.into_iter().find(|&(_, factor)| nanos.is_multiple_of(factor));
    let (unit, factor) = whole.expect("every time is a whole number of nanoseconds");
    format!("{} {unit}", nanos / factor)
}

impl PlannedText {
    fn triggers(&self) -> Vec<(&'static str, When)> {
        let at = self.at.as_deref().map(|text| ("at", When::At(nanos(text).unwrap_or(Nanos::MAX))));
        let counted = [
            self.operation.map(|n| ("operation", When::Operation(n))),
            self.write.map(|n| ("write", When::Write(n))),
            self.read.map(|n| ("read", When::Read(n))),
            self.flush.map(|n| ("flush", When::Flush(n))),
            self.cut.map(|n| ("cut", When::Cut(n))),
        ];
        at.into_iter().chain(counted.into_iter().flatten()).collect()
    }

    /// The first thing that is wrong, and what is allowed.
    fn problem(&self, shape: Option<&Shape>) -> Option<String> {
        let Some(kind) = self.kind else {
            return Some("`kind` is missing".to_owned());
        };
        let triggers = self.triggers();
        let [(name, when)] = triggers[..] else {
            let given = triggers.len();
            return Some(format!("expected one of at, operation, write, read, flush and cut, found {given} of them"));
        };
        for (key, text) in [("at", &self.at), ("delay", &self.delay), ("back", &self.back)] {
            if let Some(text) = text
                && nanos(text).is_none()
            {
                return Some(format!("{key} = {text:?}: expected a whole number of ns, us, ms or s, as \"5 ms\""));
            }
        }
        if let When::Operation(0) | When::Write(0) | When::Read(0) | When::Flush(0) | When::Cut(0) = when {
            return Some(format!("{name} = 0: they are counted from 1"));
        }
        if self.times == Some(0) {
            return Some("times = 0: expected at least 1".to_owned());
        }
        let given = [
            ("offset", self.offset.is_some()),
            ("delay", self.delay.is_some()),
            ("back", self.back.is_some()),
            ("share", self.share.is_some()),
            ("bytes", self.bytes.is_some()),
            ("bits", self.bits.is_some()),
        ];
        let taken = kind.traits().parameters;
        if let Some((key, _)) = given.into_iter().find(|(key, given)| *given && !taken.contains(key)) {
            let taken = if taken.is_empty() { "none".to_owned() } else { taken.join(", ") };
            return Some(format!("{key}: {kind} does not take it; parameters of this kind: {taken}"));
        }
        if let Some(share) = self.share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Some(format!("share = {share}: expected a number from 0 to 1"));
        }
        if let Some(bits) = self.bits.filter(|bits| !(1..=4096).contains(bits)) {
            return Some(format!("bits = {bits}: expected 1 to 4096"));
        }
        self.place_problem(shape)
    }

    fn place_problem(&self, shape: Option<&Shape>) -> Option<String> {
        let capacity = shape.map_or(u64::MAX, |shape| shape.capacity_bytes);
        if let Some([from, to]) = self.range
            && (from >= to || to > capacity)
        {
            return Some(match shape {
                Some(_) => format!("range = [{from}, {to}]: expected [first, end] with first < end <= {capacity}"),
                None => format!("range = [{from}, {to}]: expected [first, end] with first < end"),
            });
        }
        let block = shape.map_or(1, |shape| u64::from(shape.logical_block));
        let wrong = |offset: &u64| *offset >= capacity || !offset.is_multiple_of(block);
        self.offset
            .filter(wrong)
            .map(|offset| format!("offset = {offset}: expected a multiple of {block} below {capacity}"))
    }
}

impl PlanText {
    /// The first thing that is wrong, and what is allowed.
    fn problem(&self, shape: Option<&Shape>) -> Option<String> {
        if let Some((kind, rate)) = self.rates.iter().find(|(_, rate)| !(0.0..=1.0).contains(*rate)) {
            return Some(format!("rates.{kind} = {rate}: expected a probability from 0 to 1"));
        }
        let mut faults = self.faults.iter().enumerate();
        faults.find_map(|(number, fault)| Some(format!("[[fault]] {}: {}", number + 1, fault.problem(shape)?)))
    }
}

impl TryFrom<PlanText> for Plan {
    type Error = String;

    fn try_from(text: PlanText) -> std::result::Result<Self, String> {
        match text.problem(None) {
            Some(problem) => Err(problem),
            None => Ok(Self {
                seed: text.seed as u64,
                rates: text.rates,
                faults: text.faults.into_iter().filter_map(PlannedText::planned).collect(),
            }),
        }
    }
}

impl PlannedText {
    /// The fault, if nothing is wrong with it.
    fn planned(self) -> Option<Planned> {
        let (_, when) = self.triggers().pop()?;
        Some(Planned {
            when,
            range: self.range.map(|[from, to]| from..to),
            times: self.times.unwrap_or(1),
            kind: self.kind?,
            parameters: Parameters {
                offset: self.offset,
                delay: self.delay.as_deref().and_then(nanos),
                back: self.back.as_deref().and_then(nanos),
                share: self.share,
                bytes: self.bytes,
                bits: self.bits,
            },
        })
    }
}

impl From<Plan> for PlanText {
    fn from(plan: Plan) -> Self {
        let faults = plan.faults.into_iter().map(PlannedText::from).collect();
        Self { seed: plan.seed as i64, rates: plan.rates, faults }
    }
}

impl From<Planned> for PlannedText {
    fn from(fault: Planned) -> Self {
        let Parameters { offset, delay, back, share, bytes, bits } = fault.parameters;
        let mut text = Self {
            range: fault.range.map(|range| [range.start, range.end]),
            times: (fault.times != 1).then_some(fault.times),
            kind: Some(fault.kind),
            offset,
            delay: delay.map(duration),
            back: back.map(duration),
            share,
            bytes,
            bits,
            ..Self::default()
        };
        match fault.when {
            When::At(at) => text.at = Some(duration(at)),
            When::Operation(n) => text.operation = Some(n),
            When::Write(n) => text.write = Some(n),
            When::Read(n) => text.read = Some(n),
            When::Flush(n) => text.flush = Some(n),
            When::Cut(n) => text.cut = Some(n),
        }
        text
    }
}
