//! The driver in virtual time, where counts are exact.

use tantalum_rt::{Scheduling, Simulation, sleep};

use super::*;
use crate::error::{Error, ErrorKind};

/// Each step takes 10 ms; the step with number `fails_at` of client 1 fails for good.
struct Sleeper {
    fails_at: Option<u64>,
}

impl Workload for Sleeper {
    type Client<'a> = (usize, u64);

    fn kinds(&self) -> &'static [&'static str] {
        &["even", "odd"]
    }

    fn client(&self, number: usize, _seed: u64) -> Result<(usize, u64)> {
        Ok((number, 0))
    }

    fn step(&self, (number, steps): &mut (usize, u64), recorder: &mut Recorder) -> Result<()> {
        *steps += 1;
        if *number == 1 && self.fails_at == Some(*steps) {
            return Err(Error::new(ErrorKind::NotFound, "there is no such row"));
        }
        let kind = (*steps % 2) as usize;
        let completed = if *steps % 10 == 0 { Completed::RolledBack } else { Completed::Committed };
        recorder.run(kind, || {
            sleep(Duration::from_millis(10));
            Ok(completed)
        })?;
        Ok(())
    }
}

fn run_simulated(fails_at: Option<u64>, options: Options) -> (Result<RunReport>, Vec<Progress>) {
    let root = move || {
        let mut seen = Vec::new();
        let report = run(&Arc::new(Sleeper { fails_at }), options, &mut |progress| seen.push(progress.clone()));
        (report, seen)
    };
    Simulation::new(1).scheduling(Scheduling::InOrder).run(root).expect_finished()
}

#[test]
fn only_the_measured_time_counts() {
    let options = Options::timed(3, Duration::from_secs(1), Duration::from_secs(2));
    let (report, seen) = run_simulated(None, options);
    let report = report.unwrap();
    assert_eq!(report.seconds, 2.0);
    let all = report.total.committed + report.total.rolled_back;
    assert!((3 * 199..=3 * 201).contains(&all), "{all} in 2 s");
    assert!(report.total.rolled_back.abs_diff(60) <= 3);
    assert!((9_900.0..10_200.0).contains(&report.total.latency.p50_us), "{:?}", report.total.latency);
    assert_eq!(seen[0].elapsed, Duration::ZERO);
    assert!(seen.len() >= 6, "the progress is told twice a second");
}

#[test]
fn a_run_that_is_ended_early_reports_what_was_measured() {
    struct Ends;
    impl Monitor for Ends {
        fn is_over(&mut self) -> bool {
            now().as_nanos() >= 4_200_000_000
        }
    }
    // Also before anything is counted.
    for (warm_up_s, measured_s) in [(1, 3.5), (60, 0.0)] {
        let options = Options::timed(3, Duration::from_secs(warm_up_s), Duration::from_secs(3600));
        let root = move || run_monitored(&Arc::new(Sleeper { fails_at: None }), options, &mut Ends).unwrap();
        let report = Simulation::new(1).scheduling(Scheduling::InOrder).run(root).expect_finished();
        assert!((report.seconds - measured_s).abs() <= 0.5, "{} s", report.seconds);
        let all = report.total.committed + report.total.rolled_back;
        assert!(all.abs_diff((300.0 * report.seconds) as u64) <= 3, "{all} in {} s", report.seconds);
    }
}

#[test]
fn a_run_over_steps_counts_them_all() {
    let report = run_simulated(None, Options::transactions(4, 20)).0.unwrap();
    let counts: Vec<_> = report.kinds.iter().map(|kind| (kind.name, kind.committed, kind.rolled_back)).collect();
    assert_eq!(counts, [("even", 32, 8), ("odd", 40, 0)]);
}

#[test]
fn an_error_stops_all_clients() {
    let options = Options::timed(3, Duration::ZERO, Duration::from_secs(3600));
    let error = run_simulated(Some(5), options).0.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound, "{error}");
}
