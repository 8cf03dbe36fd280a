//! `fence seal` and `fence check`: a resource refuses a stale writer.

use rustix::process::{Pid, Signal, kill_process};

use crate::world::World;

#[test]
fn a_mark_refuses_older_tokens() {
    let world = World::new();
    for (arguments, code) in [
        (&["check", "mark", "--token", "4"][..], 0),
        (&["seal", "mark", "--token", "5"], 0),
        (&["seal", "mark", "--token", "5"], 0),
        (&["seal", "mark", "--token", "4"], 77),
        (&["check", "mark", "--token", "4"], 77),
        (&["check", "mark", "--token", "9"], 0),
        (&["check", "mark", "--token", "5", "--", "sh", "-c", "exit 9"], 9),
        (&["check", "mark", "--token", "6", "--", "no-such-program"], 127),
        (&["check", "mark", "--token", "7", "--", "true"], 0),
        (&["seal", "mark", "--token", "6"], 77),
        (&["check", "mark"], 64),
        (&["seal", "no/such/folder/mark", "--token", "1"], 64),
    ] {
        let output = world.run(&[&["fence"], arguments].concat());
        assert_eq!(output.code, code, "{arguments:?}: {output:?}");
        assert_eq!(output.stdout, "");
    }
    std::fs::write(world.path("other"), "not a mark\n").expect("written");
    assert_eq!(world.run(&["fence", "seal", "other", "--token", "1"]).code, 65);
    let kept = std::fs::read_to_string(world.path("other")).expect("left as it is");
    assert_eq!(kept, "not a mark\n");
}

#[test]
fn a_refused_token_starts_nothing() {
    let world = World::new();
    assert_eq!(world.run(&["fence", "seal", "mark", "--token", "5"]).code, 0);
    let output = world.run(&["fence", "check", "mark", "--token", "4", "--", "echo", "ran"]);
    assert_eq!((output.code, output.stdout.as_str()), (77, ""));
    assert!(output.stderr.contains("fencing token 4 is stale"), "{output:?}");
}

#[test]
fn work_under_a_mark_excludes_others() {
    let world = World::new();
    let mut worker = world.start(&[
        "fence",
        "check",
        "mark",
        "--token",
        "5",
        "--",
        "sh",
        "-c",
        "echo up; read x",
    ]);
    assert_eq!(worker.line(), "up");
    let output = world.run(&["fence", "seal", "mark", "--token", "6", "--wait", "50ms"]);
    assert_eq!(output.code, 75, "{output:?}");
    assert!(output.stderr.contains("another process has its lock, waited 50ms"), "{output:?}");
    let output = world.run(&["fence", "seal", "mark", "--token", "6", "--wait", "0s"]);
    assert_eq!(output.code, 75, "{output:?}");
    assert!(output.stderr.contains("waited 0ms"), "{output:?}");
    worker.let_go();
    assert_eq!(worker.code(), 0);
    assert_eq!(world.run(&["fence", "seal", "mark", "--token", "6"]).code, 0);
}

#[test]
fn a_holder_that_was_paused_past_its_lease_is_refused() {
    let world = World::new();
    let binary = env!("CARGO_BIN_EXE_holdline");
    let late = format!(
        "echo up $$; read line; {binary} fence check mark -- sh -c 'echo late > data'; echo $?"
    );
    let options = ["run", "--lease", "3s", "--grace", "100ms", "--on-lost", "warn", "a", "--"];
    let mut paused = world.start(&[&options[..], &["sh", "-c", &late]].concat());
    assert!(paused.line().starts_with("up "));
    let job = i32::try_from(paused.job.get()).ok().and_then(Pid::from_raw).expect("a process id");
    paused.signal(Signal::STOP);
    kill_process(job, Signal::STOP).expect("it runs");
    let new = format!("{binary} fence check mark -- sh -c 'echo new > data'");
    let output = world.run(&["run", "--wait", "1m", "a", "--", "sh", "-c", &new]);
    assert_eq!(output.code, 0, "{output:?}");
    kill_process(job, Signal::CONT).expect("it is there");
    paused.signal(Signal::CONT);
    paused.let_go();
    assert_eq!(paused.line(), "77");
    let data = std::fs::read_to_string(world.path("data")).expect("written");
    assert_eq!(data, "new\n");
}

#[test]
fn a_path_that_leads_to_no_file_is_a_wrong_command_line() {
    let world = World::new();
    std::fs::write(world.path("file"), "x").expect("written");
    for path in [".", "absent/mark", "file/below"] {
        let output = world.run(&["fence", "seal", path, "--token", "1"]);
        assert_eq!(output.code, 64, "{output:?}");
        assert!(output.stderr.contains("name a file in a directory that exists"), "{output:?}");
    }
}
