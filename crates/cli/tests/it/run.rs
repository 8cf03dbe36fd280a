//! `run`: exit codes, waiting, losing the lease, and what is left when the wrapper is killed.

use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::{World, eventually, is_alive};

fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("it runs");
}

fn report(world: &World, name: &str) -> Value {
    let text = std::fs::read_to_string(world.path(name)).expect("a report");
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_jobs_code_is_ours() {
    let world = World::new();
    for (job, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 42"], 42),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["no-such-program"], 127),
        (&["/etc/passwd"], 126),
        (&["."], 126),
    ] {
        for lease in [&[][..], &["--lease", "30s"]] {
            let output = world.run(&[&["run"], lease, &["a", "--"], job].concat());
            assert_eq!(output.code, code, "{job:?} {lease:?}: {output:?}");
            assert_eq!(output.stdout, "");
        }
    }
}

#[test]
fn the_job_finds_what_it_holds() {
    let world = World::new();
    let script = "echo $HOLDLINE_NAME $HOLDLINE_ENGINE ${#HOLDLINE_LEASE_ID} \
                  $HOLDLINE_FENCING_TOKEN ${HOLDLINE_VALID_UNTIL_MS:-live}";
    let output = world.run(&["run", "a b", "--", "sh", "-c", script]);
    let words: Vec<&str> = output.stdout.split_whitespace().collect();
    assert_eq!((&words[..4], words[5]), (&["a", "b", "local", "32"][..], "live"), "{output:?}");
    let output = world.run(&["run", "--lease", "2m", "a b", "--", "sh", "-c", script]);
    let later: Vec<&str> = output.stdout.split_whitespace().collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert!(number(later[4]) > number(words[4]), "tokens grow");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let left = number(later[5])
        .saturating_sub(u64::try_from(now.expect("after 1970").as_millis()).expect("in range"));
    assert!((60_000..=120_000).contains(&left), "the job starts with the whole lease: {left}");
}

#[test]
fn input_and_output_pass_straight_through() {
    let output = World::new().shell("printf 'b\\na\\n' | holdline run x -- sort | head -1");
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "a\n", ""));
}

#[test]
fn arguments_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let mut command = world.command(&["run", "a", "--", "printf", "%s"]);
    let output = command.arg(odd).output().expect("it starts");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"\xff\xfe"[..]));
    let mut command = world.command(&["run"]);
    let output = command.arg(odd).arg("true").output().expect("it starts");
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn contenders_never_run_beside_each_other() {
    let world = World::new();
    std::fs::write(world.path("count"), "0\n").expect("written");
    let add = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count";
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do holdline run -q a -- sh -c '{add}' & \
         holdline run -q --lease 30s a -- sh -c '{add}' & done; wait; cat count"
    );
    let output = world.shell(&script);
    assert_eq!((output.code, output.stdout.as_str()), (0, "20\n"), "{output:?}");
}

#[test]
fn a_busy_name_ends_as_asked() {
    let world = World::new();
    let mut holder = world.hold(&["--reason", "month end", "a"]);
    for (options, code) in [
        (&["--try"][..], 75),
        (&["--wait", "50ms"], 75),
        (&["--try", "-E", "3"], 3),
        (&["--wait", "50ms", "-E", "0"], 0),
        (&["--try", "--skip"], 0),
        (&["--skip"], 0),
        (&["--wait", "50ms", "--skip"], 0),
        (&["--try", "--shared"], 75),
        (&["--try", "--shared", "--skip"], 0),
    ] {
        let output = world.run(&[&["run"], options, &["a", "--", "echo", "ran"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{options:?} {output:?}");
        assert!(output.stderr.contains("held by sh (pid"), "{output:?}");
        assert!(output.stderr.contains("month end"), "{output:?}");
    }
    holder.let_go();
    assert_eq!(holder.code(), 3);
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 0);
}

#[test]
fn shared_holders_and_permits_go_together() {
    let world = World::new();
    let _reader = world.hold(&["--shared", "a"]);
    assert_eq!(world.run(&["run", "--try", "--shared", "a", "true"]).code, 0);
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 75);
    let _two = world.hold(&["--permits", "2/3", "gpu"]);
    assert_eq!(world.run(&["run", "--try", "--permits", "2/3", "gpu", "true"]).code, 75);
    assert_eq!(world.run(&["run", "--try", "--permits", "3", "gpu", "true"]).code, 0);
    assert_eq!(world.run(&["run", "--try", "--permits", "1/4", "gpu", "true"]).code, 78);
}

#[test]
fn a_waiter_names_the_holder_and_holds_after_it() {
    let world = World::new();
    let mut holder = world.hold(&["--reason", "first", "a"]);
    let mut waiter = world.start(&["run", "a", "--", "echo", "mine"]);
    let said = waiter.said();
    assert!(said.starts_with("holdline: waiting for a, held by sh (pid"), "{said}");
    assert!(said.contains(": first"), "{said}");
    world.queued("a", 1);
    holder.let_go();
    assert_eq!(waiter.line(), "mine");
    assert_eq!((holder.code(), waiter.code()), (3, 0));
}

#[test]
fn a_signal_ends_the_wait_and_leaves_nothing() {
    let world = World::new();
    let _holder = world.hold(&["a"]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let options = ["run", "--report", "report", "a", "--", "echo", "ran"];
        let mut waiter = world.start(&options);
        world.queued("a", 1);
        waiter.signal(signal);
        assert_eq!(waiter.code(), code);
        world.queued("a", 0);
        assert_eq!(report(&world, "report")["outcome"], "interrupted");
    }
}

/// A store that takes the connection and says nothing.
#[test]
fn a_signal_ends_the_wait_for_a_connection_and_is_reported() {
    let world = World::new();
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    silent.set_nonblocking(true).expect("a setting");
    let port = silent.local_addr().expect("bound").port();
    let url = format!("redis://127.0.0.1:{port}/?connect_timeout_ms=60000");
    let begin = |arguments: &[&str]| {
        let running = world.start(&[&["--url", &url], arguments].concat());
        let connection = std::cell::OnceCell::new();
        eventually("it connects", || {
            silent.accept().is_ok_and(|(stream, _)| connection.set(stream).is_ok())
        });
        (running, connection)
    };
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let run = ["run", "--report", "report", "a", "--", "echo", "ran"];
        for arguments in [&run[..], &["acquire", "a"]] {
            let (mut waiter, _connection) = begin(arguments);
            waiter.signal(signal);
            assert_eq!(waiter.code(), code, "{arguments:?}");
        }
        let report = report(&world, "report");
        assert_eq!(report["outcome"], "interrupted");
        assert_eq!(report["exit"], code);
        assert_eq!((&report["engine"], &report["error"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn a_job_that_runs_too_long_is_stopped() {
    let world = World::new();
    let stubborn = "trap '' TERM; echo up $$; while :; do sleep 1; done";
    for job in [&["sleep", "1000"][..], &["sh", "-c", stubborn]] {
        let options = ["run", "--max-hold", "200ms", "--grace", "200ms", "a", "--"];
        let output = world.run(&[&options, job].concat());
        assert_eq!(output.code, 124, "{output:?}");
        assert!(output.stderr.contains("--max-hold"), "{output:?}");
        world.free("a");
    }
}

#[test]
fn a_short_job_may_hold_longer() {
    let world = World::new();
    let mut holder = world.start(&["run", "--min-hold", "1h", "a", "--", "echo", "up"]);
    assert_eq!(holder.line(), "up");
    eventually("the job is over", || {
        world.who("a")["holders"][0]["pids"].as_array().is_some_and(|pids| pids.len() == 1)
    });
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 75);
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), 0, "the job's own code");
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 0);
}

#[test]
fn a_live_grant_stays_with_the_job_when_the_wrapper_is_killed() {
    let world = World::new();
    let mut holder = world.hold(&["a"]);
    let job = holder.job.get();
    kill(holder.pid(), Signal::KILL);
    assert_eq!(holder.code(), 137);
    assert!(is_alive(job), "the job goes on");
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 75);
    let pids = world.who("a")["holders"][0]["pids"].clone();
    assert_eq!(pids, serde_json::json!([job]));
    kill(job, Signal::KILL);
    world.free("a");
    assert_eq!(world.run(&["run", "--wait", "10s", "a", "true"]).code, 0);
}

#[test]
fn processes_that_a_job_leaves_behind_hold_no_name() {
    let world = World::new();
    let output =
        world.shell("holdline run a -- sh -c 'sleep 1000 2>/dev/null & echo $!' > pid; cat pid");
    let left: u32 = output.stdout.trim().parse().expect("a process id");
    assert!(is_alive(left), "it is left behind");
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 0);
    kill(left, Signal::KILL);
}

#[test]
fn a_leased_job_dies_with_the_wrapper() {
    let world = World::new();
    for options in [&["--lease", "30s", "a"][..], &["--close", "a"]] {
        let mut holder = world.hold(options);
        let job = holder.job.get();
        kill(holder.pid(), Signal::KILL);
        assert_eq!(holder.code(), 137);
        eventually("the job is gone", || !is_alive(job));
        world.free("a");
    }
}

#[test]
fn a_wrapper_that_was_paused_past_its_lease_kills_its_job() {
    let world = World::new();
    let options = ["--lease", "3s", "--grace", "100ms", "--report", "report", "a"];
    let mut holder = world.hold(&options);
    let job = holder.job.get();
    kill(holder.pid(), Signal::STOP);
    let output = world.run(&["run", "--wait", "1m", "a", "--", "echo", "mine"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "mine\n"));
    kill(holder.pid(), Signal::CONT);
    assert_eq!(holder.code(), 79);
    assert!(!is_alive(job));
    let report = report(&world, "report");
    assert_eq!(report["outcome"], "lost");
    assert_eq!(report["lost"]["kind"], "expired");
    assert_eq!(report["exit"], 79);
}

#[test]
fn a_lease_that_the_store_lost_stops_the_job() {
    for options in [&["a"][..], &["--lease", "30s", "a"]] {
        let world = World::new();
        let mut holder = world.hold(options);
        let token = world.token("a");
        let revoked =
            world.run(&["revoke", "a", "--if-fencing-token", &token, "--reason", "x", "--now"]);
        assert_eq!(revoked.code, 0, "{revoked:?}");
        assert!(revoked.stderr.contains("may still run and write"), "{revoked:?}");
        assert_eq!(holder.code(), 79);
        assert!(holder.rest().contains("lost"));
        assert!(!is_alive(holder.job.get()));
    }
}

#[test]
fn on_lost_warn_lets_the_job_run_on() {
    let world = World::new();
    let mut holder = world.hold(&["--on-lost", "warn", "a"]);
    let token = world.token("a");
    let revoke = ["revoke", "a", "--if-fencing-token", &token, "--reason", "x", "--now"];
    assert_eq!(world.run(&revoke).code, 0);
    let said = holder.said();
    assert!(said.contains("the job runs on without the lock"), "{said}");
    holder.let_go();
    assert_eq!(holder.code(), 3, "the job's own code");
}

#[test]
fn reports_say_what_happened() {
    let world = World::new();
    let holder = world.hold(&["--reason", "first", "a"]);
    let token: u64 = world.token("a").parse().expect("a number");
    let output = world.run(&["run", "--report", "busy", "--wait", "50ms", "a", "true"]);
    assert_eq!(output.code, 75);
    let busy = report(&world, "busy");
    for (field, value) in [
        ("name", "a".into()),
        ("engine", "local".into()),
        ("mode", "exclusive".into()),
        ("outcome", "busy".into()),
        ("exit", 75.into()),
        ("fencing_token", Value::Null),
        ("held_ms", Value::Null),
    ] {
        assert_eq!(busy[field], value, "{busy}");
    }
    assert!(busy["waited_ms"].as_u64().is_some_and(|waited| waited >= 50), "{busy}");
    let ended_at = busy["ended_at_ms"].as_u64().expect("a time");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_millis();
    assert!((now - 60_000..=now).contains(&ended_at.into()), "{ended_at} at {now}");
    let written = busy["ended_at"].as_str().expect("a text");
    let read: jiff::Timestamp = written.parse().expect("a time");
    assert_eq!(read.as_second().unsigned_abs(), ended_at / 1_000, "{written}");
    assert_eq!(busy["in_the_way"]["fencing_token"], token);
    assert_eq!(busy["in_the_way"]["reason"], "first");
    drop(holder);
    world.free("a");
    let output = world.run(&["run", "--report", "fine", "a", "--", "sh", "-c", "exit 5"]);
    assert_eq!(output.code, 5);
    let fine = report(&world, "fine");
    assert_eq!((&fine["outcome"], &fine["exit"]), (&"finished".into(), &5.into()));
    assert!(fine["fencing_token"].as_u64().is_some_and(|later| later > token), "{fine}");
    assert_eq!(fine["release_confirmed"], true);
    let output = world.run(&["run", "--report", "none", "a", "no-such-program"]);
    assert_eq!((output.code, &report(&world, "none")["outcome"]), (127, &"failed".into()));
}

/// A service of systemd has a socket for its output, and no socket can be opened by a path.
#[test]
fn a_report_goes_to_our_own_output_also_if_that_is_a_socket() {
    let world = World::new();
    for (path, written) in [("/dev/stderr", true), ("/dev/fd/2", true), ("socket", false)] {
        let (mut reader, writer) = UnixStream::pair().expect("a socket");
        let _other = UnixListener::bind(world.path("socket"));
        let mut command = world.command(&["run", "--report", path, "a", "--", "true"]);
        let status = command.stderr(OwnedFd::from(writer)).status().expect("it runs");
        drop(command);
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("text");
        if written {
            let report: Value = serde_json::from_str(&said).expect("a report alone");
            assert_eq!((status.code(), &report["outcome"]), (Some(0), &"finished".into()));
        } else {
            assert_eq!(status.code(), Some(64), "{said}");
            assert!(said.contains("it is a socket, and not our own output"), "{said}");
        }
    }
}

/// The limit has run since the engine began to be opened, and that takes long here.
#[test]
fn a_wait_that_timed_out_is_reported_no_shorter_than_its_limit() {
    let world = World::new();
    let _holder = world.hold(&["a"]);
    let directory = std::fs::File::open(world.path("store")).expect("a directory");
    for (verb, rest) in
        [("run", &["--report", "report", "a", "true"][..]), ("acquire", &["a"]), ("wait", &["a"])]
    {
        directory.lock().expect("the lock is short");
        let mut waiter = world.start(&[&[verb, "--wait", "8s"], rest].concat());
        let since = Instant::now();
        eventually("the wait is under way", || since.elapsed() >= Duration::from_secs(1));
        directory.unlock().expect("ours");
        let said = waiter.rest();
        assert_eq!(waiter.code(), 75, "{said}");
        let (_, waited) = said.split_once("not free after ").expect("how long");
        let seconds = waited.split_once("s,").expect("seconds").0;
        assert!(seconds.parse::<f64>().is_ok_and(|seconds| seconds >= 8.0), "{verb:?}: {said}");
    }
    let report = report(&world, "report");
    assert!(report["waited_ms"].as_u64().is_some_and(|waited| waited >= 8_000), "{report}");
}

#[test]
fn two_of_one_user_meet_without_any_environment() {
    // The user's own directory: the one place that the environment must not decide.
    let name = format!("holdline-test-{}", std::process::id());
    let shell = World::new();
    let mut holder = shell.command(&["run", &name, "--", "sh", "-c", "echo up; read line"]);
    holder.env_remove("HOLDLINE_URL").env("HOME", "/nowhere").env("XDG_STATE_HOME", "/nowhere");
    holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut holder = holder.spawn().expect("it starts");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(holder.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    assert_eq!(line, "up\n");
    let cron = World::new();
    let mut contender = cron.command(&["run", "--try", &name, "--", "true"]);
    let busy = contender.env_clear().status().expect("it starts").code();
    drop(holder.stdin.take());
    assert!(holder.wait().is_ok());
    assert_eq!(busy, Some(75));
}

#[test]
fn a_terminal_shows_one_line_that_is_redrawn_and_removed() {
    let world = World::new();
    let _holder = world.hold(&["--reason", "month end", "a"]);
    let binary = env!("CARGO_BIN_EXE_holdline");
    let line = format!("script -qec '{binary} run --wait 5s -E 9 a -- true' /dev/null");
    let output = world.shell(&line);
    assert_eq!(output.code, 9, "{output:?}");
    let drawn: Vec<&str> = output.stdout.split("\r\u{1b}[K").collect();
    assert!(drawn.len() >= 3, "drawn and removed: {output:?}");
    assert!(drawn[1].starts_with("holdline: waiting for a, held by sh (pid"), "{output:?}");
    let last = drawn.last().expect("something");
    assert!(last.contains("error:") && last.contains("not free after"), "{output:?}");
    assert!(drawn[..drawn.len() - 1].iter().all(|line| !line.contains('\n')), "{output:?}");
}
