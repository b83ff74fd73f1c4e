//! Terminals: the clients of TPC-C, which transactions they ask for with which input (clauses 2.4.1 to 2.8.1), and the
//! workload they make.

use tantalum::{Db, Table};
use tantalum_rt::Random;

use super::delivery::Delivery;
use super::mix::{Deck, Kind, Mix};
use super::new_order::NewOrder;
use super::payment::Payment;
use super::population::{self, Parameters};
use super::random::{Constants, last_name};
use super::read_only::{OrderStatus, StockLevel};
use super::schema::{Key, TABLE_NAMES, Tables, number_at};
use super::session::Source;
use crate::driver::{Completed, Recorder, Workload, client_random};
use crate::error::{self, Result};
use crate::load::{LoadProgress, PARAMETERS_KEY};

/// Where order-status and stock-level read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Reads {
    /// On a snapshot, which waits for no lock.
    #[default]
    Snapshot,
    /// In a serializable transaction with locks.
    Transaction,
}

/// What all transactions use.
pub(super) struct Context {
    pub(super) db: Db,
    pub(super) tables: Tables,
    pub(super) parameters: Parameters,
    pub(super) constants: Constants,
    pub(super) before_call: Option<BeforeCall>,
    /// Whether rows that are known to be wanted are prefetched.
    pub(super) prefetches: bool,
}

impl Context {
    /// A warehouse other than `home`, or `home` if it is the only one.
    pub(super) fn other_warehouse(&self, random: &mut Random, home: u32) -> u32 {
        if self.parameters.warehouses == 1 {
            return home;
        }
        let other = random.u32(1..self.parameters.warehouses);
        if other < home { other } else { other + 1 }
    }
}

/// A loaded TPC-C database and how to run on it.
pub struct Tpcc {
    context: Context,
    mix: Mix,
    reads: Reads,
    observer: Option<Observer>,
}

/// A call to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read by key, also for a later write, or the begin of a scan.
    Read,
    /// A put, an insert or a delete.
    Write,
    /// The commit of a transaction that may have written.
    Commit,
}

/// Is told of each call to the engine before it is made.
pub type BeforeCall = Box<dyn Fn(Call) + Send + Sync>;

/// Hears of every transaction that was acknowledged, from the client's own task.
pub type Observer = Box<dyn Fn(&Output) + Send + Sync>;

/// What a terminal would show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// A new order's number, and its total amount in cents.
    NewOrder {
        /// O_W_ID.
        warehouse: u32,
        /// O_D_ID.
        district: u8,
        /// O_ID.
        order: u32,
        /// After discount and taxes.
        total: i64,
    },
    /// "Item number is not valid": rolled back, as one new-order in a hundred is meant to be.
    NewOrderRolledBack,
    /// A payment was taken.
    Payment {
        /// C_ID, also when the customer was chosen by name.
        customer: u32,
    },
    /// A customer's last order.
    OrderStatus {
        /// C_ID.
        customer: u32,
        /// C_BALANCE in cents.
        balance: i64,
        /// O_ID, if the customer has ever ordered.
        order: Option<u32>,
        /// Its lines.
        lines: u8,
        /// Their amount in cents.
        amount: i64,
    },
    /// Orders went out.
    Delivery {
        /// Districts of which an order was delivered.
        delivered: u8,
        /// Districts without one.
        skipped: u8,
    },
    /// Items were counted.
    StockLevel {
        /// Items below the threshold.
        low_stock: u32,
    },
}

enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl Tpcc {
    /// Uses the database that is loaded, or loads it by `loaders` tasks. An unfinished load is dropped and made anew; a
    /// finished one of other parameters (the seed does not count) is an error.
    pub fn load_or_reuse(
        db: &Db,
        parameters: Parameters,
        loaders: usize,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Self> {
        parameters.validate()?;
        match population::loaded(db)? {
            Some(loaded) => {
                let found = loaded.parameters();
                if (found.warehouses, found.scale) != (parameters.warehouses, parameters.scale) {
                    return Err(error::parameters(found, parameters));
                }
            }
            None => population::load(db, parameters, loaders, progress)?,
        }
        Self::open(db)?.ok_or_else(|| error::missing(TABLE_NAMES[0], PARAMETERS_KEY))
    }

    /// Uses the database that is loaded; `None` if none is, or not to its end.
    pub fn open(db: &Db) -> Result<Option<Self>> {
        let Some(loaded) = population::loaded(db)? else { return Ok(None) };
        let mut random = Random::with_seed(loaded.seed);
        let context = Context {
            db: db.clone(),
            tables: Tables::open(db)?,
            parameters: loaded.parameters(),
            constants: Constants::for_run(&mut random, loaded.last_name_constant),
            before_call: None,
            prefetches: false,
        };
        Ok(Some(Self { context, mix: Mix::default(), reads: Reads::default(), observer: None }))
    }

    /// With this mix of transactions.
    pub fn with_mix(self, mix: Mix) -> Self {
        Self { mix, ..self }
    }

    /// With read-only transactions done this way.
    pub fn with_reads(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }

    /// With rows prefetched that a transaction knows from the beginning or from other rows: the items and the stock of an order, and the
    /// stock of which the level is asked. Without it each is read when it comes to it, as the systems of the published experiments do.
    pub fn with_prefetching(mut self, prefetches: bool) -> Self {
        self.context.prefetches = prefetches;
        self
    }

    /// With a function that runs before each call to the engine, in the client's own task: to charge the call with
    /// time of a virtual core, to count it, or to hold it up. The locks that the transaction has by then stay held meanwhile.
    pub fn with_before_call(mut self, before_call: BeforeCall) -> Self {
        self.context.before_call = Some(before_call);
        self
    }

    /// With a function that runs for every transaction when it is acknowledged.
    pub fn with_observer(self, observer: Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Whether the database holds this order.
    pub fn has_order(&self, warehouse: u32, district: u8, order: u32) -> Result<bool> {
        let row =
            self.context.db.snapshot()?.get(&self.context.tables.order, Key::order(warehouse, district, order))?;
        Ok(row.is_some())
    }

    /// What the database was loaded with.
    pub fn parameters(&self) -> Parameters {
        self.context.parameters
    }

    /// The terminal with this number, from 0: its warehouse is fixed, and its district for stock-level.
    pub fn terminal(&self, number: usize, seed: u64) -> Terminal {
        let Parameters { warehouses, scale, .. } = self.context.parameters;
        let place = number as u32;
        Terminal {
            warehouse: place % warehouses + 1,
            district: (place / warehouses % u32::from(scale.districts)) as u8 + 1,
            random: client_random(seed, number),
            deck: Deck::new(self.mix),
        }
    }

    /// One attempt at a transaction of this kind with a random input.
    pub fn execute(&self, terminal: &mut Terminal, kind: Kind) -> Result<Output> {
        self.attempt(&self.input(terminal, kind))
    }

    fn input(&self, terminal: &mut Terminal, kind: Kind) -> Input {
        let Terminal { warehouse, district, ref mut random, .. } = *terminal;
        match kind {
            Kind::NewOrder => Input::NewOrder(NewOrder::random(&self.context, random, warehouse)),
            Kind::Payment => Input::Payment(Payment::random(&self.context, random, warehouse)),
            Kind::OrderStatus => Input::OrderStatus(OrderStatus::random(&self.context, random, warehouse)),
            Kind::Delivery => Input::Delivery(Delivery::random(random, warehouse)),
            Kind::StockLevel => Input::StockLevel(StockLevel::random(random, warehouse, district)),
        }
    }

    fn attempt(&self, input: &Input) -> Result<Output> {
        let context = &self.context;
        match (input, self.reads) {
            (Input::NewOrder(input), _) => input.execute(context),
            (Input::Payment(input), _) => input.execute(context),
            (Input::Delivery(input), _) => input.execute(context),
            (Input::OrderStatus(input), Reads::Snapshot) => input.execute(context, &mut context.snapshot()?),
            (Input::StockLevel(input), Reads::Snapshot) => input.execute(context, &mut context.snapshot()?),
            (Input::OrderStatus(input), Reads::Transaction) => {
                let mut tx = context.begin()?;
                let output = input.execute(context, &mut tx)?;
                tx.commit()?;
                Ok(output)
            }
            (Input::StockLevel(input), Reads::Transaction) => {
                let mut tx = context.begin()?;
                let output = input.execute(context, &mut tx)?;
                tx.commit()?;
                Ok(output)
            }
        }
    }
}

/// One client: bound to a warehouse, with its own random numbers and deck of cards.
pub struct Terminal {
    warehouse: u32,
    district: u8,
    random: Random,
    deck: Deck,
}

impl Workload for Tpcc {
    type Client<'a> = Terminal;

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn client(&self, number: usize, seed: u64) -> Result<Terminal> {
        Ok(self.terminal(number, seed))
    }

    fn step(&self, terminal: &mut Terminal, recorder: &mut Recorder) -> Result<()> {
        let kind = terminal.deck.draw(&mut terminal.random);
        let input = self.input(terminal, kind);
        recorder.run(kind as usize, || {
            let output = self.attempt(&input)?;
            if let Some(observer) = &self.observer {
                observer(&output);
            }
            Ok(if output == Output::NewOrderRolledBack { Completed::RolledBack } else { Completed::Committed })
        })?;
        Ok(())
    }
}

/// A customer by number (40 of 100) or by last name (60 of 100).
#[derive(Clone, Debug)]
pub(super) enum CustomerChoice {
    Number(u32),
    LastName(Vec<u8>),
}

impl CustomerChoice {
    pub(super) fn random(context: &Context, random: &mut Random) -> Self {
        let (constants, scale) = (&context.constants, &context.parameters.scale);
        match random.u8(1..=100) {
            1..=60 => Self::LastName(last_name(constants.last_name_number(random, scale))),
            _ => Self::Number(constants.customer(random, scale)),
        }
    }

    /// The customer's number. Of those with the name, the one in the middle (rounded up) in order of first names.
    pub(super) fn find(&self, tables: &Tables, source: &mut impl Source, w: u32, d: u8) -> Result<u32> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::LastName(name) => name,
        };
        let prefix = Key::last_name(w, d, name);
        let numbers = with_prefix(source, &tables.customer_by_name, &prefix)?;
        let middle = numbers.len().div_ceil(2).checked_sub(1).and_then(|middle| numbers.get(middle));
        middle.copied().ok_or_else(|| error::missing("customer_by_name", &prefix))
    }
}

/// The numbers at the end of all keys with a prefix.
fn with_prefix(source: &mut impl Source, index: &Table, prefix: &Key) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for row in source.rows(index, prefix, &prefix.after_prefix())? {
        let (key, _) = row?;
        numbers.push(number_at(&key, key.len().saturating_sub(4)));
    }
    Ok(numbers)
}
