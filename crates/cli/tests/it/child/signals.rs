//! Signals to the wrapper, to the group and from the kernel, without a terminal.

use super::*;

const NOTHING: [&str; 0] = [];

/// Tells each signal that it gets; ends after SIGUSR1.
const REPORTER: &str = "
import signal, sys
told = [getattr(signal, name) for name in sys.argv[1:]]
signal.pthread_sigmask(signal.SIG_BLOCK, told)
print('ready', flush=True)
while True:
    number = signal.sigwait(told)
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR1:
        sys.exit(0)
";

const REPORTED: [(&str, Signal); 7] = [
    ("SIGINT", Signal::INT),
    ("SIGTERM", Signal::TERM),
    ("SIGHUP", Signal::HUP),
    ("SIGQUIT", Signal::QUIT),
    ("SIGUSR2", Signal::USR2),
    ("SIGWINCH", Signal::WINCH),
    ("SIGCONT", Signal::CONT),
];

#[test]
fn every_signal_to_the_wrapper_arrives_once() {
    for way in BOTH_WAYS {
        let mut command = vec!["python3", "-c", REPORTER, "SIGUSR1"];
        command.extend(REPORTED.iter().map(|(name, _)| *name));
        let mut running = Running::start(&mut wrapper(way, &command));
        running.expect("ready");
        for (name, signal) in REPORTED {
            running.signal(signal);
            running.expect(name);
        }
        // Were one passed on twice, it would be told before this one.
        running.signal(Signal::USR1);
        running.expect("SIGUSR1");
        running.expect_silence();
        assert_eq!(running.wait().code(), Some(0));
    }
}

#[test]
fn a_signal_reaches_grandchildren() {
    for way in BOTH_WAYS {
        // The shell waits for ever, and so does its child, which has the pipe open.
        let script = "sh -c 'echo below; exec sleep 1000' & echo above; wait";
        let mut running = Running::start(&mut wrapper(way, &["sh", "-c", script]));
        let lines = BTreeSet::from([running.line(), running.line()]);
        assert_eq!(lines, BTreeSet::from(["above".to_owned(), "below".to_owned()]));
        running.signal(Signal::TERM);
        running.expect_silence();
        assert_eq!(running.wait().code(), Some(143));
    }
}

#[test]
fn an_interrupted_wrapper_dies_as_its_command_did() {
    let mut running =
        Running::start(&mut wrapper(&NOTHING, &["sh", "-c", "echo ready; exec sleep 1000"]));
    running.expect("ready");
    running.signal(Signal::INT);
    let status = running.wait();
    assert_eq!((status.signal(), shell_code(status)), (Some(2), 130));
    assert!(!status.core_dumped());
}

#[test]
fn a_signal_ends_the_wait_before_there_is_a_command() {
    let folder = Folder::new("wait");
    let gate = folder.fifo("gate");
    let options = [OsStr::new("--gate"), gate.as_os_str()];
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::USR1, 138)] {
        let mut running = Running::start(&mut wrapper(&options, &["echo", "started"]));
        await_listening(running.child.id());
        running.signal(signal);
        assert_eq!(shell_code(running.wait()), code);
        running.expect_silence();
    }
    let mut running = Running::start(&mut wrapper(&options, &["echo", "started"]));
    await_listening(running.child.id());
    running.signal(Signal::WINCH);
    std::fs::write(&gate, b"!").expect("the gate opens");
    running.expect("started");
    assert_eq!(running.wait().code(), Some(0));
}

/// Waits until a process catches SIGCHLD, which is the last that we begin to listen to.
fn await_listening(pid: u32) {
    let limit = Instant::now() + DEADLINE;
    while Instant::now() < limit {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if caught.is_some_and(|mask| mask & (1 << 16) != 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2)); // event: polled, the kernel tells nobody
    }
    panic!("process {pid} does not listen");
}

#[test]
fn the_death_signal_kills_the_command_with_the_wrapper() {
    for (options, survives) in [(&[][..], true), (&[DEATH_SIGNAL][..], false)] {
        let script = "trap '' TERM HUP; echo $$; while :; do read x < /dev/zero; done";
        let script = if survives { "echo $$; exec sleep 1000" } else { script };
        let mut running = Running::start(&mut wrapper(options, &["sh", "-c", script]));
        let pid: u32 = running.line().parse().expect("a pid");
        running.signal(Signal::KILL);
        assert_eq!(running.wait().signal(), Some(9));
        if survives {
            // So it is the option that kills.
            assert!(state_of(pid).is_some_and(|state| state != 'Z'));
            let pid = Pid::from_raw(pid.try_into().expect("a pid")).expect("a pid");
            kill_process(pid, Signal::KILL).expect("it runs");
        }
        running.expect_silence();
    }
}

#[test]
fn a_lost_lease_ends_the_whole_group() {
    let folder = Folder::new("lose");
    let lose = folder.fifo("lose");
    let options = [OsStr::new("--lose"), lose.as_os_str()];
    // Ends by SIGTERM; the second one has to be killed; the third one is stopped before.
    for script in [
        "echo ready; exec sleep 1000",
        "trap '' TERM; echo ready; sh -c 'while :; do sleep 1000; done' & wait; wait",
        "echo ready; kill -STOP $$; exec sleep 1000",
    ] {
        let mut running = Running::start(&mut wrapper(&options, &["sh", "-c", script]));
        running.expect("ready");
        std::fs::write(&lose, b"!").expect("somebody reads");
        running.expect_silence();
        assert_eq!(running.wait().code(), Some(79));
    }
}

#[test]
fn a_command_that_was_paused_by_hand_does_not_stop_the_wrapper() {
    let mut running =
        Running::start(&mut wrapper(&NOTHING, &["sh", "-c", "echo $$; kill -STOP $$; echo on"]));
    let pid: u32 = running.line().parse().expect("a pid");
    await_state(pid, &['T']);
    // The wrapper still runs: it passes this on, and the command goes on.
    running.signal(Signal::CONT);
    running.expect("on");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn without_a_shell_above_a_stop_from_the_keyboard_is_without_effect() {
    let mut command = wrapper(&NOTHING, &["sh", "-c", "kill -TSTP $$; echo on"]);
    // A session without a terminal, as under cron; its only group is orphaned.
    let mut outer = Command::new("setsid");
    outer.arg("--wait").arg(command.get_program()).args(command.get_args()).process_group(0);
    command.stdin(Stdio::null());
    let mut running = Running::start(&mut outer);
    running.expect("on");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn the_command_leads_a_group_of_its_own() {
    for way in BOTH_WAYS {
        let output = wrapper(way, &["sh", "-c", "echo $$; cut -d ' ' -f 5 /proc/$$/stat"]).output();
        let text = String::from_utf8(output.expect("it starts").stdout).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], lines[1]);
    }
}
