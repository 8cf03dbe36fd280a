//! Processes that are stopped and killed while they hold, wait for, or ask a Redis server for a
//! name; and a server that forgets it.

use std::time::{Duration, Instant};

use holdline_services::{Fault, FaultProxy, Frames, Loss, PrivateNetwork, steady};
use rustix::process::{Pid, Signal, kill_process};

use super::Redis;
use crate::clock::{build_shim, number};
use crate::world::{Running, eventually, is_alive};

/// A lease whose end is waited for.
const LEASE: [&str; 5] = ["run", "--lease", "4s", "--grace", "300ms"];
/// A lease that nobody is to lose, renewed every 6 s.
const LONG_LEASE: [&str; 5] = ["run", "--lease", "20s", "--grace", "300ms"];
/// A job that prints its token and its process id, and ends with 3 when its input ends.
const JOB: [&str; 5] =
    ["demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN; echo up $$; read line; exit 3"];

impl Redis {
    /// Starts a job under the name; it runs once `up` was read.
    fn begin(&self) -> Running {
        self.begin_with(&LEASE)
    }

    fn begin_with(&self, lease: &[&str]) -> Running {
        self.world.start_command(&mut self.command(&[lease, &JOB].concat()))
    }

    /// Milliseconds until the server frees the name, if it is held.
    fn left(&self) -> Option<i64> {
        let left = self.server.raw().say("PTTL holdline:{demo}").expect("an answer").integer();
        left.filter(|left| *left >= 0)
    }

    fn queued(&self, count: i64) {
        eventually("queued", || {
            let line = self.server.raw().say("ZCARD holdline:{demo}:1q").expect("an answer");
            line.integer() == Some(2 * count)
        });
    }

    /// The name is free and nobody waits.
    fn is_clean(&self) {
        eventually("nothing is left", || {
            let kept = "EXISTS holdline:{demo} holdline:{demo}:1q holdline:{demo}:1d";
            self.server.raw().say(kept).expect("an answer").integer() == Some(0)
        });
    }
}

/// Reads the token, and waits until the job runs.
fn up(running: &Running) -> u64 {
    let token = number(&running.line());
    assert!(running.line().starts_with("up "));
    token
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("it runs");
}

/// Stops a wrapper and its job.
fn stop(running: &Running) {
    running.signal(Signal::STOP);
    signal(running.job.get(), Signal::STOP);
}

fn go_on(running: &Running) {
    signal(running.job.get(), Signal::CONT);
    running.signal(Signal::CONT);
}

fn finish(mut running: Running) {
    running.let_go();
    let code = running.code();
    assert_eq!(code, 3, "{}", running.rest());
}

#[test]
fn a_holder_stopped_past_its_lease_has_lost_and_its_token_is_refused() {
    let redis = Redis::start();
    let mut first = redis.begin();
    let old = up(&first);
    let second = redis.begin();
    redis.queued(1);
    stop(&first);
    // It gets in when the lease of the first has run out.
    let new = up(&second);
    assert!(new > old);
    let seal =
        |token: u64| redis.run(&["fence", "seal", "mark", "--token", &token.to_string()]).code;
    assert_eq!(seal(new), 0);
    go_on(&first);
    assert_eq!(first.code(), 79, "{}", first.rest());
    assert_eq!(seal(old), 77, "the resource refuses a stale writer");
    assert_eq!(redis.who("demo")["holders"][0]["fencing_token"].as_u64(), Some(new));
    finish(second);
    redis.is_clean();
}

#[test]
fn a_holder_stopped_shorter_than_its_lease_keeps_it() {
    let redis = Redis::start();
    let holder = redis.begin_with(&LONG_LEASE);
    let token = up(&holder);
    stop(&holder);
    eventually("renewals are missing", || redis.left().is_some_and(|left| left < 12_000));
    go_on(&holder);
    eventually("it is renewed again", || redis.left().is_some_and(|left| left > 15_000));
    assert_eq!(redis.who("demo")["holders"][0]["fencing_token"].as_u64(), Some(token));
    finish(holder);
    redis.is_clean();
}

/// Stopped between its request and the answer, which waits in the kernel: the job never starts.
#[test]
fn a_contender_stopped_until_its_grant_has_run_out_starts_nothing() {
    let redis = Redis::start();
    // Scripts are known by name from here on.
    assert_eq!(redis.run(&["run", "demo", "--", "true"]).code, 0);
    let proxy = FaultProxy::start(redis.server.address());
    proxy.inject(Frames::replies().containing("holdline:{demo}").nth(1), Fault::Hold);
    let url = format!("redis://{}?command_timeout_ms=60000", proxy.address());
    let mut command = redis.command(&[&LEASE[..], &JOB].concat());
    let mut late = redis.world.start_command(command.env("HOLDLINE_URL", url));
    proxy.await_event(|event| event.fault.is_some());
    assert!(redis.left().is_some(), "the server has granted it");
    late.signal(Signal::STOP);
    proxy.thaw();
    eventually("the grant has run out", || redis.left().is_none());
    late.signal(Signal::CONT);
    assert_eq!(late.code(), 69);
    let talk = late.rest();
    assert!(talk.contains("had expired when its answer arrived"), "{talk}");
    assert_eq!(late.job.get(), 0, "no job was started");
    redis.is_clean();
}

#[test]
fn a_killed_holder_frees_the_name_within_its_lease() {
    let redis = Redis::start();
    let first = redis.begin();
    let old = up(&first);
    let second = redis.begin();
    redis.queued(1);
    first.signal(Signal::KILL);
    let left = redis.left().expect("nobody has freed it");
    assert!(left <= 4_000, "{left}");
    assert!(up(&second) > old);
    assert!(!is_alive(first.job.get()), "the job dies with its wrapper");
    finish(second);
    redis.is_clean();
}

#[test]
fn a_killed_waiter_is_skipped_and_the_others_keep_their_order() {
    let redis = Redis::start();
    let holder = redis.begin_with(&LONG_LEASE);
    up(&holder);
    let mut waiters = Vec::new();
    for count in 1..=3 {
        waiters.push(redis.begin_with(&LONG_LEASE));
        redis.queued(count);
    }
    waiters[0].signal(Signal::KILL);
    finish(holder);
    let mut waiters = waiters.into_iter().skip(1);
    let (second, third) = (waiters.next().expect("one"), waiters.next().expect("one"));
    let token = up(&second);
    finish(second);
    assert!(up(&third) > token);
    finish(third);
    redis.is_clean();
}

#[test]
fn a_holder_and_the_next_waiter_killed_together_cost_a_lease() {
    let redis = Redis::start();
    let holder = redis.begin();
    let old = up(&holder);
    let next = redis.begin();
    redis.queued(1);
    let third = redis.begin();
    redis.queued(2);
    next.signal(Signal::KILL);
    holder.signal(Signal::KILL);
    // The inbox of the dead waiter is silent, so no hand-off to it is waited for.
    assert!(up(&third) > old);
    finish(third);
    redis.is_clean();
}

#[test]
fn a_flush_under_a_job_stops_it() {
    let redis = Redis::start();
    let mut holder = redis.begin();
    up(&holder);
    redis.server.raw().say("FLUSHALL").expect("an answer");
    assert_eq!(holder.code(), 79);
    let talk = holder.rest();
    assert!(talk.contains("no longer knows the lease"), "{talk}");
    assert!(!is_alive(holder.job.get()));
    redis.is_clean();
}

/// The job may end before the next renewal finds out.
#[test]
fn a_job_whose_lock_was_overwritten_before_it_ended_has_lost_it() {
    let redis = Redis::start();
    for harm in ["SET holdline:{demo} theirs", "HSET holdline:{demo} a b"] {
        let mut holder = redis.begin_with(&LONG_LEASE);
        up(&holder);
        redis.server.raw().say("DEL holdline:{demo}").expect("an answer");
        redis.server.raw().say(harm).expect("an answer");
        holder.let_go();
        assert_eq!(holder.code(), 79, "{harm}: {}", holder.rest());
        let kept = redis.server.raw().say("DEL holdline:{demo}").expect("an answer");
        assert_eq!(kept.integer(), Some(1), "{harm}: what is not ours is left");
    }
}

/// The server stands still for good: nobody can confirm the release.
#[test]
fn a_wrapper_ends_soon_after_its_job_without_its_server() {
    steady(|| {
        let redis = Redis::start();
        let mut holder = redis.begin_with(&LONG_LEASE);
        up(&holder);
        redis.server.stop();
        holder.let_go();
        let ended = Instant::now();
        assert_eq!(holder.code(), 3);
        let (after, talk) = (ended.elapsed(), holder.rest());
        redis.server.cont();
        assert!(talk.contains("the store did not confirm the release"), "{talk}");
        assert!(after < Duration::from_secs(3), "{after:?}");
    });
}

#[test]
fn a_release_that_the_server_does_not_answer_ends_as_unavailable_within_its_bound() {
    steady(|| {
        let redis = Redis::start();
        let id = ["demo", "--lease-id", "00112233445566778899aabbccddeeff"];
        let acquired = redis.run(&[&["acquire", "--lease", "1m"], &id[..]].concat());
        assert_eq!(acquired.code, 0, "{acquired:?}");
        redis.server.stop();
        let begun = Instant::now();
        let output = redis.run(&[&["--json", "release"], &id[..]].concat());
        let took = begun.elapsed();
        redis.server.cont();
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{output:?}");
        // 5 s for the answer, and what connecting takes.
        assert!(took < Duration::from_secs(9), "{took:?}: {output:?}");
    });
}

/// The network is cut, and the job does not listen to TERM: it is dead before the next starts,
/// which reaches the server by another way.
#[test]
fn a_job_that_is_cut_off_from_its_server_is_dead_before_the_next_starts() {
    let name =
        "redis::faults::a_job_that_is_cut_off_from_its_server_is_dead_before_the_next_starts";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let redis = Redis::start();
    let by_socket = format!("redis+unix://{}", redis.server.socket().display());
    for cut in [Loss::All, Loss::From(redis.server.address())] {
        let deaf = "trap '' TERM; echo up $$; while :; do sleep 0.05; done";
        let job = [&LEASE[..], &["demo", "--", "sh", "-c", deaf]].concat();
        let mut first = redis.world.start_command(&mut redis.command(&job));
        assert!(first.line().starts_with("up "));
        let look = format!("kill -0 {} && echo beside || echo alone", first.job.get());
        let job = [&LEASE[..], &["demo", "--", "sh", "-c", &look]].concat();
        let mut second = redis.command(&job);
        let mut second = redis.world.start_command(second.env("HOLDLINE_URL", &by_socket));
        redis.queued(1);
        network.lose(cut);
        assert_eq!(second.line(), "alone", "{cut:?}");
        assert_eq!(first.code(), 79, "{cut:?}: {}", first.rest());
        assert_eq!(second.code(), 0, "{}", second.rest());
        network.heal();
        redis.is_clean();
    }
}

#[test]
fn a_wall_clock_that_is_stepped_here_changes_nothing_there() {
    let redis = Redis::start();
    let (shim, step) = (build_shim(&redis.world, "stepped_clock"), redis.world.path("step"));
    let job = "date +%s; echo up $$; read line; date +%s; read line; exit 3";
    let mut command = redis.command(&[&LONG_LEASE[..], &["demo", "--", "sh", "-c", job]].concat());
    command.env("LD_PRELOAD", &shim).env("STEP_FILE", &step);
    let mut holder = redis.world.start_command(&mut command);
    let before = up(&holder);
    std::fs::write(&step, "").expect("a file");
    for _ in 0..3 {
        eventually("a renewal is due", || redis.left().is_some_and(|left| left < 16_000));
        eventually("it is renewed", || redis.left().is_some_and(|left| left > 18_000));
    }
    let attempt = redis.run(&["run", "--try", "demo", "--", "true"]);
    assert_eq!(attempt.code, 75, "{attempt:?}");
    holder.let_go();
    assert!(number(&holder.line()) >= before + 3_600, "the job sees the stepped clock");
    assert_eq!(holder.code(), 3, "{}", holder.rest());
    redis.is_clean();
}
