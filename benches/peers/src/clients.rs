//! Clients of an engine, as the driver of Tantalum's benchmarks runs them, and what a run costs beside time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tantalum_rt::{Instant, now};
use tantalum_workloads::{
    self as workloads,
    driver::{self, Completed, Latency, Monitor, Options, Recorder, Workload, client_random},
};

use crate::{
    engine::{Engine, Pipeline, Session},
    error::{Error, Result},
    meter::{Meter, Reading, Used},
    workload::{Client, Work},
};

/// How long and by how many.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Threads; with `is_pipelined` one thread with so many commits under way.
    pub clients: usize,
    /// Whether one thread does it all.
    pub is_pipelined: bool,
    /// Not counted, ...
    pub warm_up: Duration,
    /// ... and longer, until the process has fetched so many bytes from the device, but at most [`LONGEST_WARM_UP`].
    pub warm_up_bytes: u64,
    /// Counted.
    pub measured: Duration,
    /// Of the clients' choices.
    pub seed: u64,
}

/// How long a warm-up may take that waits for a cache to be full: it may be larger than what there is to fetch.
pub const LONGEST_WARM_UP: Duration = Duration::from_secs(60);

/// What was counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Of the counted phase.
    pub seconds: f64,
    /// That ended in it: transactions, reads or scans.
    pub operations: u64,
    /// Attempts that lost a conflict and were made again.
    pub conflicts: u64,
    /// From the first attempt to the end.
    pub latency: Latency,
    /// By the process and the device.
    pub used: Used,
}

/// Runs the work on an open engine, and gives the engine back. The first error of a client ends the run.
///
/// # Errors
/// Of the engine, or of a meter.
pub fn run(engine: Box<dyn Engine>, work: Work, run: Run, meter: &Meter) -> Result<(Box<dyn Engine>, Counted)> {
    let (threads, depth) = if run.is_pipelined { (1, Some(run.clients)) } else { (run.clients, None) };
    let clients = Arc::new(Clients { engine, work, depth });
    let options = Options::timed(threads, run.warm_up, run.measured).with_seed(run.seed);
    let mut metered = Metered {
        meter,
        first: meter.read()?,
        warm_up_bytes: run.warm_up_bytes,
        warm_up_end: now() + LONGEST_WARM_UP,
        begun: None,
        used: None,
    };
    let report = driver::run_monitored(&clients, options, &mut metered)?;
    let counted = Counted {
        seconds: report.seconds,
        operations: report.total.committed,
        conflicts: report.total.aborted,
        latency: report.total.latency,
        used: metered.used.expect("a run over time has an end")?,
    };
    let clients = Arc::into_inner(clients).expect("the clients' threads have ended");
    Ok((clients.engine, counted))
}

/// The meters, read at both ends of the counted phase.
struct Metered<'a> {
    meter: &'a Meter,
    first: Reading,
    warm_up_bytes: u64,
    warm_up_end: Instant,
    begun: Option<Result<Reading>>,
    used: Option<Result<Used>>,
}

impl Monitor for Metered<'_> {
    fn is_warm(&mut self) -> bool {
        let has_fetched = |reading: Reading| reading.since(&self.first).process_read_bytes >= self.warm_up_bytes;
        self.warm_up_bytes == 0 || now() >= self.warm_up_end || self.meter.read().map_or(true, has_fetched)
    }

    fn begin(&mut self) {
        self.begun = Some(self.meter.read());
    }

    fn end(&mut self) {
        let used = |begun: Result<Reading>| Ok(self.meter.read()?.since(&begun?));
        self.used = self.begun.take().map(used);
    }
}

struct Clients {
    engine: Box<dyn Engine>,
    work: Work,
    /// Commits that the one client keeps under way; `None`: each client waits for its operations.
    depth: Option<usize>,
}

enum Way<'a> {
    OneByOne(Box<dyn Session + 'a>),
    /// With the times at which the commits under way began.
    Pipelined(Box<dyn Pipeline + 'a>, VecDeque<Instant>),
}

impl Workload for Clients {
    type Client<'a> = (Client<'a>, Way<'a>);

    fn kinds(&self) -> &'static [&'static str] {
        &["operation"]
    }

    fn client(&self, number: usize, seed: u64) -> workloads::Result<Self::Client<'_>> {
        let client = Client::new(&self.work, client_random(seed, number));
        let way = match self.depth {
            None => Way::OneByOne(self.engine.session()?),
            Some(_) => {
                let cannot =
                    || Error::Other("the engine cannot keep several commits of one thread under way".to_owned());
                Way::Pipelined(self.engine.pipeline().ok_or_else(cannot)?, VecDeque::new())
            }
        };
        Ok((client, way))
    }

    fn step(&self, (client, way): &mut Self::Client<'_>, recorder: &mut Recorder) -> workloads::Result<()> {
        client.choose();
        match way {
            Way::OneByOne(session) => {
                let act = || client.act(&mut **session).map(|()| Completed::Committed).map_err(Into::into);
                recorder.run(0, act).map(drop)
            }
            Way::Pipelined(pipeline, under_way) => {
                let started = now();
                client.start(&mut **pipeline)?;
                under_way.push_back(started);
                if Some(under_way.len()) >= self.depth {
                    finish_oldest(&mut **pipeline, under_way, recorder)
                } else {
                    Ok(())
                }
            }
        }
    }

    fn finish(&self, (_, way): &mut Self::Client<'_>, recorder: &mut Recorder) -> workloads::Result<()> {
        if let Way::Pipelined(pipeline, under_way) = way {
            while !under_way.is_empty() {
                finish_oldest(&mut **pipeline, under_way, recorder)?;
            }
        }
        Ok(())
    }
}

fn finish_oldest(
    pipeline: &mut dyn Pipeline,
    under_way: &mut VecDeque<Instant>,
    recorder: &mut Recorder,
) -> workloads::Result<()> {
    if let Some(started) = under_way.pop_front() {
        pipeline.finish_oldest()?;
        recorder.completed(0, started, Completed::Committed);
    }
    Ok(())
}
