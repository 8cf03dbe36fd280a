//! Signals to the wrapper, to the group and from the kernel, without a terminal.

use super::*;

/// Prints each signal that it receives; ends after SIGUSR1.
const REPORTER: &str = "
import signal, sys
signals = [getattr(signal, name) for name in sys.argv[1:]]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print('ready', flush=True)
while True:
    number = signal.sigwait(signals)
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR1:
        sys.exit(0)
";

const REPORTED: [(&str, Signal); 12] = [
    ("SIGINT", Signal::INT),
    ("SIGTERM", Signal::TERM),
    ("SIGHUP", Signal::HUP),
    ("SIGQUIT", Signal::QUIT),
    ("SIGUSR2", Signal::USR2),
    ("SIGWINCH", Signal::WINCH),
    ("SIGCONT", Signal::CONT),
    ("SIGALRM", Signal::ALARM),
    ("SIGVTALRM", Signal::VTALARM),
    ("SIGPROF", Signal::PROF),
    ("SIGIO", Signal::IO),
    ("SIGPWR", Signal::POWER),
];

#[test]
fn every_signal_to_the_wrapper_arrives_once() {
    let world = World::new();
    for way in BOTH_WAYS {
        let mut command = vec!["python3", "-c", REPORTER, "SIGUSR1"];
        command.extend(REPORTED.iter().map(|(name, _)| *name));
        let mut running = start(&world, way, &command);
        assert_eq!(running.line(), "ready");
        for (name, signal) in REPORTED {
            running.signal(signal);
            assert_eq!(running.line(), name);
        }
        // If one were passed on twice, it would be printed before this one.
        running.signal(Signal::USR1);
        assert_eq!(running.line(), "SIGUSR1");
        running.expect_silence();
        assert_eq!(running.code(), 0);
    }
}

#[test]
fn a_signal_reaches_grandchildren() {
    let world = World::new();
    for way in BOTH_WAYS {
        // The shell waits for ever, and so does its child, which has the pipe open.
        let script = "sh -c 'echo below; exec sleep 1000' & echo above; wait";
        let mut running = start(&world, way, &["sh", "-c", script]);
        let lines = BTreeSet::from([running.line(), running.line()]);
        assert_eq!(lines, BTreeSet::from(["above".to_owned(), "below".to_owned()]));
        running.signal(Signal::TERM);
        running.expect_silence();
        assert_eq!(running.code(), 143);
    }
}

#[test]
fn an_interrupted_wrapper_dies_as_its_command_did() {
    let world = World::new();
    let mut running = start(&world, LIVE, &["sh", "-c", "echo ready; exec sleep 1000"]);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::INT);
    let status = running.status();
    assert_eq!(status.signal(), Some(2));
    assert!(!status.core_dumped());
}

#[test]
fn a_signal_ends_the_wait_as_it_would_have_ended_the_command() {
    let world = World::new();
    let mut holder = world.hold(&[NAME]);
    for (signal, by_signal, code) in [
        (Signal::TERM, None, 143),
        (Signal::INT, Some(2), 130),
        (Signal::QUIT, Some(3), 131),
        (Signal::HUP, None, 129),
        (Signal::USR1, None, 138),
    ] {
        let mut running = start(&world, LIVE, &["echo", "started"]);
        world.queued(NAME, 1);
        running.signal(Signal::WINCH);
        running.signal(signal);
        running.expect_silence();
        let status = running.status();
        assert_eq!(status.signal(), by_signal, "{signal:?}");
        assert_eq!(running.code(), code, "{signal:?}");
    }
    let mut running = start(&world, LIVE, &["echo", "started"]);
    world.queued(NAME, 1);
    running.signal(Signal::WINCH);
    holder.let_go();
    assert_eq!(running.line(), "started");
    assert_eq!(running.code(), 0);
}

#[test]
fn the_death_signal_kills_the_command_with_the_wrapper() {
    let stubborn = "trap '' TERM HUP; echo $$; while :; do read x < /dev/zero; done";
    for (options, script, survives) in
        [(LIVE, "echo $$; exec sleep 1000", true), (LEASED, stubborn, false)]
    {
        let world = World::new();
        let mut running = start(&world, options, &["sh", "-c", script]);
        let pid: u32 = running.line().parse().expect("a pid");
        running.signal(Signal::KILL);
        assert_eq!(running.status().signal(), Some(9));
        if survives {
            // So it is the death signal that kills the other.
            assert!(is_alive(pid));
            let pid = Pid::from_raw(pid.try_into().expect("a pid")).expect("a pid");
            kill_process(pid, Signal::KILL).expect("it runs");
        }
        running.expect_silence();
    }
}

#[test]
fn a_job_that_must_stop_ends_with_its_whole_group() {
    // The first ends by SIGTERM, the second has to be killed.
    for script in [
        "echo ready; exec sleep 1000",
        "trap '' TERM; echo ready; sh -c 'while :; do sleep 1000; done' & wait; wait",
    ] {
        let world = World::new();
        let options = ["--max-hold", "3s", "--grace", "500ms"];
        let mut running = start(&world, &options, &["sh", "-c", script]);
        assert_eq!(running.line(), "ready");
        running.expect_silence();
        assert_eq!(running.code(), 124, "{script}");
    }
}

#[test]
fn a_stopped_job_is_asked_to_stop() {
    let world = World::new();
    let options = ["--max-hold", "3s", "--grace", "1h"];
    let script = "trap 'echo received; exit' TERM; echo ready; kill -STOP $$; sleep 1000";
    let mut running = start(&world, &options, &["sh", "-c", script]);
    assert_eq!(running.line(), "ready");
    assert_eq!(running.line(), "received");
    assert_eq!(running.code(), 124);
}

#[test]
fn a_command_that_was_paused_by_hand_does_not_stop_the_wrapper() {
    let world = World::new();
    let mut running = start(&world, LIVE, &["sh", "-c", "echo $$; kill -STOP $$; echo on"]);
    let pid: u32 = running.line().parse().expect("a pid");
    eventually("stopped", || state_of(pid) == Some('T'));
    // The wrapper still runs: it passes this on, and the command goes on.
    running.signal(Signal::CONT);
    assert_eq!(running.line(), "on");
    assert_eq!(running.code(), 0);
}

#[test]
fn without_a_shell_above_a_stop_from_the_keyboard_is_without_effect() {
    let world = World::new();
    for way in BOTH_WAYS {
        let inner = wrapper(&world, way, &["sh", "-c", "kill -TSTP $$; echo on"]);
        // A session without a terminal, as under cron; its only group is orphaned.
        let mut outer = Command::new("setsid");
        outer.arg("--wait").arg(inner.get_program()).args(inner.get_args());
        outer.env("HOLDLINE_URL", world.url());
        let mut running = Running::start(&mut outer);
        assert_eq!(running.line(), "on");
        assert_eq!(running.code(), 0);
    }
}

/// The first process of a container may be in a group without a number, and then the kernel
/// answers 0 for it.
#[test]
fn a_stop_below_the_first_process_is_survived() {
    let world = World::new();
    for way in BOTH_WAYS {
        let script = "
            above() { cat /proc/$(cut -d ' ' -f 4 /proc/$PPID/stat)/comm; }
            while [ \"$(above)\" = setsid ]; do :; done
            kill -TSTP $$
            echo on";
        let inner = wrapper(&world, way, &["sh", "-c", script]);
        // Nobody waits for the wrapper, so the first process becomes its parent.
        let mut outer = Command::new("setsid");
        outer.arg("--fork").arg(inner.get_program()).args(inner.get_args());
        outer.env("HOLDLINE_URL", world.url());
        let running = Running::start(&mut outer);
        assert_eq!(running.line(), "on");
        running.expect_silence();
    }
}

#[test]
fn the_command_leads_a_group_of_its_own() {
    let world = World::new();
    for way in BOTH_WAYS {
        let command = ["sh", "-c", "echo $$; cut -d ' ' -f 5 /proc/$$/stat"];
        let running = start(&world, way, &command);
        assert_eq!(running.line(), running.line());
    }
}
