//! What single connections are shown and what not, in situations that the search comes to rarely.

use std::time::Duration;

use tantalum_rt::{sleep, spawn};

use crate::{
    alone,
    session::{Session, Stop, uri},
    simulate,
};

fn number(session: &Session) -> Result<i64, Stop> {
    session.ask(|connection| connection.query_row("SELECT n FROM state", [], |row| row.get(0)))
}

/// Between its transactions too: under `locking_mode=EXCLUSIVE`, a connection keeps its lock when a commit fails.
#[test]
fn a_connection_that_keeps_its_lock_is_shown_nothing_that_may_be_lost() {
    let _alone = alone();
    simulate(1, |run| {
        let (power, _engine) = run.start(u64::MAX).expect("the power stays");
        let session = Session::open_one(&run.directory, &power, 0).unwrap();
        session.run("PRAGMA locking_mode=exclusive; UPDATE state SET n = 1; BEGIN; UPDATE state SET n = 2").unwrap();
        power.cut();
        assert_eq!(session.run("COMMIT"), Err(Stop::PowerLost));
        assert_eq!(number(&session), Err(Stop::PowerLost));
    });
}

/// SQLite ignores all but the deletion of the super-journal, and takes a transaction for committed whose super-journal is gone.
#[test]
fn a_commit_of_both_databases_that_failed_is_not_shown() {
    let _alone = alone();
    simulate(1, |run| {
        let (power, _engine) = run.start(u64::MAX).expect("the power stays");
        let session = Session::open_one(&run.directory, &power, 0).unwrap();
        session.run(&format!("ATTACH '{}' AS other", uri(&run.directory, 1))).unwrap();
        session.run("BEGIN; UPDATE state SET n = 1; UPDATE other.state SET n = 1").unwrap();
        power.cut();
        assert_eq!(session.run("COMMIT"), Err(Stop::PowerLost));
        for sql in ["SELECT n FROM state", "SELECT n FROM other.state"] {
            let n = session.ask(|connection| connection.query_row(sql, [], |row| row.get::<_, i64>(0)));
            assert_eq!(n, Err(Stop::PowerLost), "{sql}");
        }
    });
}

#[test]
fn a_commit_with_synchronous_off_does_not_wait_for_the_log() {
    let _alone = alone();
    simulate(1, |run| {
        let (power, _engine) = run.start(u64::MAX).expect("the power stays");
        let session = Session::open_one(&run.directory, &power, 0).unwrap();
        session.run("PRAGMA synchronous=off").unwrap();
        run.machine.hang_logs();
        session.run("UPDATE state SET n = 1").unwrap();
        session.run("BEGIN IMMEDIATE; UPDATE state SET n = 2; COMMIT").unwrap();
        power.cut();
    });
}

/// A connection keeps the pages that it has read, and reads them no more while it finds that the database is the same.
#[test]
fn what_a_rolled_back_writer_has_read_is_not_shown_later() {
    let _alone = alone();
    simulate(1, |run| {
        let (power, _engine) = run.start(u64::MAX).expect("the power stays");
        let [one, other] = [(); 2].map(|()| Session::open_one(&run.directory, &power, 0).unwrap());
        one.run("PRAGMA synchronous=off").unwrap();
        assert_eq!(number(&other), Ok(0));
        run.machine.hang_logs();
        one.run("UPDATE state SET n = 1").unwrap();
        other.run("BEGIN IMMEDIATE").unwrap();
        assert_eq!(number(&other), Ok(1), "not durable yet");
        power.cut();
        let _ = other.run("ROLLBACK");
        assert_eq!(number(&other), Err(Stop::PowerLost));
    });
}

/// What a transaction has read is what it writes over, whenever others commit while it begins.
#[test]
fn transactions_that_read_first_lose_no_update_of_others() {
    let _alone = alone();
    for seed in 0..40 {
        simulate(seed, move |run| {
            let (power, _engine) = run.start(u64::MAX).expect("the power stays");
            let tasks = (0..4).map(|task| {
                let session = Session::open_one(&run.directory, &power, 0).unwrap();
                let increment = move |session: &Session| {
                    session.run("BEGIN")?;
                    let n = number(session)?;
                    session.run(&format!("UPDATE state SET n = {}; COMMIT", n + 1))
                };
                spawn(format!("client-{task}"), move || {
                    let mut commits = 0;
                    for _ in 0..40 {
                        match increment(&session) {
                            Ok(()) => commits += 1,
                            Err(_) => session.roll_back().unwrap(),
                        }
                        sleep(Duration::from_micros(100 * task));
                    }
                    commits
                })
            });
            let tasks = tasks.collect::<Vec<_>>();
            let commits = tasks.into_iter().map(|task| task.join().unwrap()).sum::<i64>();
            assert!(commits > 40, "{commits} of 160");
            let session = Session::open_one(&run.directory, &power, 0).unwrap();
            assert_eq!(number(&session), Ok(commits), "seed {seed}");
        });
    }
}
