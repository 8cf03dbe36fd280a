//! A wrapper and its job stand still past their lease, as with their machine, and go on.

use rustix::process::Signal;

use crate::stores::{Kind, Store, on_stores};

on_stores! {
    a_job_that_was_paused_past_its_lease_runs_no_further_step: redis, etcd;
}

/// Several at once: one that goes on for a moment may not get as far as to write it down.
const JOBS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Writes down each signal that it gets to handle.
const JOB: &str = "trap 'echo late >>late' TERM CONT; echo up $$; while :; do :; done";

/// Somebody else may hold the name when the wrapper goes on. So the job is killed as it stands.
fn a_job_that_was_paused_past_its_lease_runs_no_further_step(kind: Kind) {
    let store = Store::start(kind);
    let start = |name: &&str| {
        let flags = ["run", "--lease", "4s", "--grace", "300ms", name, "--", "sh", "-c", JOB];
        let running = store.begin(&flags);
        assert!(running.line().starts_with("up "));
        running.pause();
        running
    };
    let mut running: Vec<_> = JOBS.iter().map(start).collect();
    JOBS.iter().for_each(|name| store.free(name));
    running.iter().for_each(|running| running.signal(Signal::CONT));
    for running in &mut running {
        assert_eq!(running.code(), 79, "{}", running.rest());
    }
    let late = std::fs::read_to_string(store.world.path("late")).unwrap_or_default();
    assert_eq!(late, "", "jobs have run beside the next holder");
}
