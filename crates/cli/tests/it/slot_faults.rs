//! `run --once-per` on real stores: machines that die, stand still or are cut off while they run
//! the job, stores that go away, and clocks that differ.
//!
//! Each job writes down its name, its token and the time again and again. Two jobs of one slot at
//! once would have written times that overlap.

use std::collections::BTreeMap;

use holdline_services::steady;
use rustix::process::Signal;

use crate::clock::build_shim;
use crate::stores::{Kind, Store, on_stores};
use crate::world::{CommandOutput, Running, eventually, is_alive, output};

on_stores! {
    one_machine_at_a_time_runs_the_job_whatever_happens_to_it:
        redis, redlock, postgres, mysql, etcd;
    a_slot_that_is_done_stays_done_when_its_store_goes_away:
        redis, redlock, sentinel, postgres, mysql, etcd;
    a_start_waits_for_its_store_within_its_limit:
        redis, postgres, mysql, etcd;
    clocks_that_differ_too_much_are_reported_and_no_job_runs_twice:
        redis, postgres, mysql;
}

/// A job that lasts until there is a file `finish`.
const JOB: &str = "echo up $$; while [ ! -e finish ]; do read now rest </proc/uptime
    echo $HOLDLINE_NAME $HOLDLINE_FENCING_TOKEN $now >>ran; sleep 0.05; done";
/// The same job in no time.
const SHORT: &str = "read now rest </proc/uptime
    echo $HOLDLINE_NAME $HOLDLINE_FENCING_TOKEN $now >>ran; echo mine";

/// Machines that share a store, and the slot in which they all are.
struct Fleet {
    store: Store,
    slot: String,
    /// The time of day of all machines, if it stands still.
    still: Option<String>,
}

impl Fleet {
    fn start(kind: Kind) -> Fleet {
        let store = Store::start(kind);
        let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        if kind == Kind::etcd {
            // It keeps no slot for longer. The end of this one must not come by itself, so the
            // clocks of the machines stand still at its beginning.
            let still = (now - now % 30 + 1) * 1_000;
            return Fleet { store, slot: "30s".to_owned(), still: Some(still.to_string()) };
        }
        // It began half an hour ago.
        let minute = (now / 60 + 30) % 60;
        Fleet { store, slot: format!("{minute} * * * *"), still: None }
    }

    fn command(&self, ahead: i64, flags: &[&str], name: &str, job: &str) -> std::process::Command {
        let line = [&["run", "--once-per", &self.slot, "--grace", "300ms"], flags].concat();
        let line = [&line[..], &[name, "--", "sh", "-c", job]].concat();
        let mut command = self.store.command(&line);
        let clock = match &self.still {
            Some(still) => ("WALL_CLOCK_MS", still.clone()),
            None if ahead == 0 => return command,
            None => ("STEP_SECONDS", ahead.to_string()),
        };
        let shim = self.store.world.path("stepped_clock.so");
        if !shim.exists() {
            build_shim(&self.store.world, "stepped_clock");
        }
        command.env("LD_PRELOAD", shim).env(clock.0, clock.1);
        command
    }

    /// Starts the long job on a machine.
    fn start_job(&self, flags: &[&str], name: &str) -> Running {
        let running = self.store.world.start_command(&mut self.command(0, flags, name, JOB));
        assert!(running.line().starts_with("up "), "{name}");
        running
    }

    /// The same on a machine that can be cut off.
    fn start_behind(&self, flags: &[&str], name: &str) -> Running {
        let mut command = self.command(0, flags, name, JOB);
        let running = self.store.world.start_command(self.store.through_proxies(&mut command));
        assert!(running.line().starts_with("up "), "{name}");
        running
    }

    /// Starts the short job on another machine.
    fn another(&self, flags: &[&str], name: &str) -> CommandOutput {
        output(&mut self.command(0, flags, name, SHORT))
    }

    fn is_done(&self, flags: &[&str], name: &str) {
        let output = self.another(flags, name);
        assert_eq!((output.code, &*output.stdout), (0, ""), "{name}: {output:?}");
        assert!(output.stderr.contains("the job has run in this slot"), "{name}: {output:?}");
    }

    fn finish(&self) {
        std::fs::write(self.store.world.path("finish"), "").expect("a file");
    }

    /// How many machines ran the job of each name; they did it one after the other.
    fn runs(&self) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(self.store.world.path("ran")).expect("written");
        let mut spans: BTreeMap<(String, u64), (u64, u64)> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [name, token, now] = fields[..] else { panic!("{line}") };
            let token: u64 = token.parse().expect("a token");
            let now: u64 = now.replace('.', "").parse().expect("hundredths of a second");
            let span = spans.entry((name.to_owned(), token)).or_insert((now, now));
            span.1 = span.1.max(now);
        }
        let spans: Vec<_> = spans.into_iter().collect();
        for pair in spans.windows(2) {
            let [((one, _), (_, last)), ((next, _), (first, _))] = pair else { unreachable!() };
            assert!(one != next || last <= first, "the job ran twice at once: {pair:?}");
        }
        let mut runs = BTreeMap::new();
        for ((name, _), _) in spans {
            *runs.entry(name).or_default() += 1;
        }
        runs
    }
}

const LEASE: [&str; 2] = ["--lease", "4s"];
const MOST: [&str; 1] = ["--at-most-once"];

fn one_machine_at_a_time_runs_the_job_whatever_happens_to_it(kind: Kind) {
    steady(|| {
        let fleet = Fleet::start(kind);
        let mut least = [
            fleet.start_job(&LEASE, "killed"),
            fleet.start_job(&LEASE, "stopped"),
            fleet.start_behind(&LEASE, "cut"),
        ];
        let mut most = [
            fleet.start_job(&MOST, "most-killed"),
            fleet.start_job(&MOST, "most-stopped"),
            fleet.start_behind(&MOST, "most-cut"),
        ];
        let elsewhere = fleet.another(&["--try"], "killed");
        assert_eq!(elsewhere.code, 75, "{elsewhere:?}");
        assert!(elsewhere.stderr.contains("the job runs elsewhere"), "{elsewhere:?}");
        let mut waiting = ["killed", "stopped", "cut"].map(|name| {
            let waiting =
                fleet.store.world.start_command(&mut fleet.command(0, &LEASE, name, SHORT));
            waiting.says("the job runs elsewhere");
            waiting
        });

        for machine in [&mut least, &mut most] {
            machine[0].signal(Signal::KILL);
            machine[1].pause();
        }
        fleet.store.cut();
        // Another machine takes over where it may, when the job of the first is dead.
        for (waiting, before) in waiting.iter_mut().zip(&least) {
            assert_eq!(waiting.line(), "mine");
            assert!(before.job.get() == least[1].job.get() || !is_alive(before.job.get()));
            assert_eq!(waiting.code(), 0, "{}", waiting.rest());
        }
        for name in ["most-killed", "most-stopped", "most-cut"] {
            fleet.is_done(&MOST, name);
        }

        fleet.store.heal();
        least[1].signal(Signal::CONT);
        for machine in &mut least[1..] {
            assert_eq!(machine.code(), 79, "{}", machine.rest());
            assert!(!is_alive(machine.job.get()));
        }
        // The slot is theirs until it is over.
        most[1].signal(Signal::CONT);
        fleet.finish();
        for machine in &mut most[1..] {
            assert_eq!(machine.code(), 0, "{}", machine.rest());
        }
        for name in ["killed", "stopped", "cut"] {
            fleet.is_done(&[], name);
            assert_eq!(fleet.runs()[name], 2, "the machine that died, and another");
            fleet.is_done(&MOST, &format!("most-{name}"));
            assert_eq!(fleet.runs()[&format!("most-{name}")], 1);
        }
    });
}

fn a_slot_that_is_done_stays_done_when_its_store_goes_away(kind: Kind) {
    steady(|| {
        let fleet = Fleet::start(kind);
        for flags in [&[][..], &MOST] {
            let output = fleet.another(flags, if flags.is_empty() { "done" } else { "most" });
            assert_eq!((output.code, &*output.stdout), (0, "mine\n"), "{output:?}");
        }
        // Longer than the store is away; the longest of the master that is promoted.
        let lease = ["--lease", if kind == Kind::sentinel { "6s" } else { "14s" }];
        let mut running = fleet.start_job(&lease, "running");
        let mut most = fleet.start_job(&MOST, "most-running");
        fleet.store.interrupt();
        for (flags, name) in [(&[][..], "done"), (&MOST, "most"), (&MOST, "most-running")] {
            let mut output = fleet.another(flags, name);
            while output.code == 69 {
                output = fleet.another(flags, name);
            }
            assert_eq!((output.code, &*output.stdout), (0, ""), "{name}: {output:?}");
        }
        fleet.finish();
        assert_eq!(running.code(), 0, "{}", running.rest());
        assert_eq!(most.code(), 0, "{}", most.rest());
        fleet.is_done(&[], "running");
        let runs = fleet.runs();
        assert!(runs.len() == 4 && runs.values().all(|runs| *runs == 1), "{runs:?}");
    });
}

fn clocks_that_differ_too_much_are_reported_and_no_job_runs_twice(kind: Kind) {
    let fleet = Fleet::start(kind);
    let ahead = |seconds: i64, flags: &[&str], name: &str| {
        output(&mut fleet.command(seconds, flags, name, SHORT))
    };
    let refused = |output: &CommandOutput| {
        assert_eq!((output.code, &*output.stdout), (77, ""), "{output:?}");
        assert!(output.stderr.contains("the clocks of this machine and of"), "{output:?}");
    };
    assert_eq!(ahead(0, &[], "done").stdout, "mine\n");
    // In the same slot by both clocks: the job is not run, and the difference is reported.
    for seconds in [120, -120] {
        let same = ahead(seconds, &["--report", "report"], "done");
        assert_eq!((same.code, &*same.stdout), (0, ""), "{same:?}");
        assert!(same.stderr.contains("seem to differ by"), "{same:?}");
        let report = std::fs::read_to_string(fleet.store.world.path("report")).expect("written");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let skew = report["ran_by"]["clock_skew_ms"].as_u64().expect("a number");
        assert!((60_000..180_000).contains(&skew), "{report}");
    }
    // In another slot by this clock.
    for seconds in [3_600, -3_600] {
        refused(&ahead(seconds, &[], "done"));
    }
    // While the job runs, and when it has ended.
    let mut running = fleet.start_job(&[], "running");
    let mut most = fleet.start_job(&MOST, "most");
    refused(&ahead(3_600, &MOST, "most"));
    let elsewhere = ahead(3_600, &["--try"], "running");
    assert_eq!(elsewhere.code, 75, "{elsewhere:?}");
    let mut waiting =
        fleet.store.world.start_command(&mut fleet.command(3_600, &[], "running", SHORT));
    waiting.says("the job runs elsewhere");
    fleet.finish();
    assert_eq!((running.code(), most.code()), (0, 0));
    assert_eq!(waiting.code(), 77, "{}", waiting.rest());
    waiting.expect_silence();
    assert!(fleet.runs().values().all(|runs| *runs == 1), "{:?}", fleet.runs());
}

/// The store is away when the commands start, and again while one of them waits.
fn a_start_waits_for_its_store_within_its_limit(kind: Kind) {
    let store = Store::start(kind);
    let command = |line: &[&[&str]]| store.command(&line.concat());
    let begin = |line: &[&[&str]]| store.world.start_command(&mut command(line));
    let job = ["--", "sh", "-c", "echo ran"];
    let starts: [&[&[&str]]; 4] = [
        &[&["run", "a", "--wait", "90s"], &job],
        &[&["run", "--any-of", "b,c", "--wait", "90s"], &job],
        &[&["run", "d", "--once-per", "30s", "--wait", "90s"], &job],
        &[&["acquire", "e", "--wait", "90s"]],
    ];
    store.kill();
    let mut waiting: Vec<Running> = starts.iter().map(|line| begin(line)).collect();
    for waiter in &waiting {
        let line = waiter.said();
        assert!(line.contains("waiting to connect: "), "{line}");
    }
    let none = output(&mut command(&[&["run", "f", "--wait", "1s"], &job]));
    assert_eq!((none.code, none.stdout.as_str()), (69, ""), "{none:?}");
    let none = output(&mut command(&[&["run", "f"], &job]));
    assert_eq!((none.code, none.stdout.as_str()), (69, ""), "{none:?}");
    assert!(!none.stderr.contains("waiting"), "{none:?}");
    store.restart();
    for waiter in &mut waiting {
        assert_eq!(waiter.code(), 0, "{}", waiter.rest());
    }

    let mut holder = begin(&[&["run", "a", "--lease", "30s", "--on-lost", "warn"], &["--", "cat"]]);
    eventually("held", || store.who("a")["held"] == true);
    let mut waiter = begin(starts[0]);
    waiter.says("waiting for a");
    store.kill();
    waiter.says("waiting for the store: ");
    std::thread::sleep(std::time::Duration::from_secs(3)); // event: several attempts
    store.restart();
    holder.let_go();
    assert_eq!(holder.code(), 0, "{}", holder.rest());
    assert_eq!(waiter.line(), "ran");
    assert_eq!(waiter.code(), 0, "{}", waiter.rest());
    let said: Vec<String> = std::iter::from_fn(|| waiter.next_said()).collect();
    assert!(said.len() <= 2, "at most after the restart: {said:?}");
}
