//! `holdline top`, by what stands on the screen of a pseudo-terminal.

mod actions;
mod pty;
mod several;
mod stores;

use std::process::Command;

use portable_pty::CommandBuilder;
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, eventually, is_alive};
use pty::Pty;

fn json(world: &World, arguments: &[&str]) -> Value {
    let output = world.run(arguments);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn holder_and_waiter_are_shown_and_sorted_and_filtered() {
    let world = World::new();
    let _first = world.hold(&["--reason", "nightly", "job/a"]);
    let _second = world.hold(&["job/b"]);
    let _waiter = world.start(&["run", "job/b", "--", "true"]);
    world.queued("job/b", 1);

    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.expect("both names, in the order of names", |screen| {
        let (a, b) = (screen.find("job/a")?, screen.find("job/b")?);
        (a < b && screen.contains("held 2  waiting 1")).then_some(())
    });
    top.sees("nightly");
    top.keys("n");
    top.expect("reversed", |screen| (screen.find("job/b")? < screen.find("job/a")?).then_some(()));
    top.sees("sort: name, reversed");
    top.keys("w");
    top.expect("the one with a waiter first", |screen| {
        (screen.find("job/b")? < screen.find("job/a")?).then_some(())
    });

    top.keys("/JOB/a");
    top.expect("only the match", |screen| {
        let tabs = screen.find("filter: JOB/a")?;
        (!screen[tabs..].contains("job/b")).then_some(())
    });
    top.keys("\u{1b}");
    top.sees("job/b");

    top.keys("2");
    top.expect("the waiter and who blocks it", |screen| {
        let row = screen.lines().find(|line| line.starts_with("job/b"))?;
        (row.contains("holdline") || row.contains("true")).then_some(())
    });
    top.sees("BLOCKED BY");
    top.keys("3");
    top.sees("job/b blocks 1: held ");
    top.keys("5");
    top.keys("1");
    top.sees("HOLDER");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn enter_shows_a_name_in_detail_and_space_pauses() {
    let world = World::new();
    let holder = world.hold(&["--reason", "nightly", "--label", "team=db", "job/a"]);
    let token = world.token("job/a");
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("job/a");
    top.keys("\r");
    top.sees("1 holding");
    top.sees(&format!("token {token}"));
    top.sees("label team=db");
    top.keys("\u{1b}");
    top.sees("HOLDER");

    top.keys(" ");
    top.sees("PAUSED");
    drop(holder);
    world.free("job/a");
    let other = world.hold(&["other"]);
    // Rounds would show it: keys are still handled, and nothing else changes.
    top.keys("2");
    top.sees("nobody waits");
    top.keys("1");
    top.expect("the screen of before", |screen| {
        (screen.contains("job/a") && !screen.contains("other")).then_some(())
    });
    top.keys(" ");
    top.expect("the present", |screen| {
        (screen.contains("other") && !screen.contains("job/a")).then_some(())
    });
    top.keys("5");
    top.sees("other granted to ");
    drop(other);
    assert_eq!(top.quit("\u{3}"), 0, "^C leaves too");
}

#[test]
fn hostile_text_is_escaped_and_breaks_no_line() {
    let world = World::new();
    let name = format!("a\u{202e}b<b>{}", "x".repeat(490));
    let reason = format!("r\u{1b}[31m\nfake{}", "y".repeat(300));
    let _holder = world.hold(&["--reason", &reason, "--label", "k\u{7}=\u{1b}]0;x\u{7}", &name]);
    let _crowded = world.hold(&[&format!("m{}", "e\u{301}\u{302}\u{303}".repeat(70))]);
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("a\\u{202e}b<b>x");
    top.expect("each line in its place", |screen| {
        let lines: Vec<&str> = screen.lines().collect();
        let row = lines.iter().find(|line| line.starts_with("a\\u{202e}b"))?;
        (row.contains("holdline") || row.contains("sh (")).then_some(())?;
        lines[23].contains("q quit").then_some(())
    });
    top.keys("\r");
    top.sees("r\\u{1b}[31m\\u{a}fake");
    top.sees("label k\\u{7}=\\u{1b}]0;x\\u{7}");
    assert_eq!(top.title(), "", "no text has reached the terminal as a command");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn the_screen_follows_the_size_of_its_terminal() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (50, 160));
    top.expect("the last row has the keys", |screen| {
        screen.lines().nth(49)?.contains("q quit").then_some(())
    });
    for (rows, columns) in [(24, 80), (60, 200), (6, 30), (24, 80)] {
        top.resize(rows, columns);
        top.expect("the keys are on the last row of this size", |screen| {
            let last = screen.lines().nth(usize::from(rows) - 1)?;
            (last.contains("? help") && screen.contains("job/a")).then_some(())
        });
    }
    top.resize(3, 10);
    top.sees("the");
    top.resize(24, 80);
    top.sees("job/a");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_store_that_nobody_has_used_is_awaited_and_not_made() {
    let world = World::new();
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("no store yet");
    top.sees("nobody has locked there");
    assert!(!world.path("store").exists());
    let _holder = world.hold(&["job/a"]);
    top.sees("job/a");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let top = Pty::start(&world, &["top"], (24, 80));
    top.sees("job/a");
    top.signal(Signal::TERM);
    assert_eq!(top.ended(), 128 + 15);
}

#[test]
fn a_terminal_that_is_gone_ends_it() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let plain = world.command::<&str>(&[]);
    let mut script = Command::new("script");
    let inner = concat!(
        "stty rows 24 cols 80; echo $$ > pid; exec ",
        env!("CARGO_BIN_EXE_holdline"),
        " top"
    );
    script.args(["-q", "-f", "-c", inner, "log"]).current_dir(world.path(""));
    script.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.env("TERM", "xterm-256color");
    let terminal = world.start_command(&mut script);
    eventually("the screen", || {
        std::fs::read(world.path("log"))
            .is_ok_and(|log| String::from_utf8_lossy(&log).contains("job/a"))
    });
    let pid = std::fs::read_to_string(world.path("pid")).expect("its process id");
    let pid = pid.trim().parse().expect("a number");
    assert!(is_alive(pid));
    drop(terminal);
    eventually("it has ended", || !is_alive(pid));
}

#[test]
fn it_is_suspended_and_continued_by_a_shell() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let mut shell = CommandBuilder::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]);
    shell.env_clear();
    shell.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    shell.env("TERM", "xterm-256color");
    shell.env("PS1", "ready> ");
    shell.env("HOLDLINE_URL", world.url());
    let top = Pty::spawn(shell, (24, 80));
    top.keys(&format!("{} top --interval 100ms\n", env!("CARGO_BIN_EXE_holdline")));
    top.sees("HOLDER");
    top.keys("\u{1a}");
    top.sees("Stopped");
    top.keys("echo usable $((6 * 7))\n");
    top.sees("usable 42");
    top.keys("fg\n");
    top.expect("the whole screen again", |screen| {
        (screen.contains("HOLDER") && screen.contains("job/a") && !screen.contains("usable"))
            .then_some(())
    });
    top.keys("q");
    // What is typed before it has ended is read by it.
    top.expect("the prompt of the shell", |screen| {
        (screen.contains("usable 42") && screen.trim_end().ends_with("\nready>")).then_some(())
    });
    assert_eq!(top.quit("exit 0\n"), 0);
}

#[test]
fn colours_are_used_unless_they_are_not_wanted() {
    let world = World::new();
    assert_eq!(world.run(&["freeze", "f", "--for", "1h", "--reason", "x"]).code, 0);
    for (arguments, no_color, expected) in [
        (&["top"][..], None, true),
        (&["top"], Some("1"), false),
        (&["top", "--color", "never"], None, false),
        (&["top", "--color", "always"], Some("1"), true),
    ] {
        let top = Pty::start_with(&world, arguments, (24, 80), no_color);
        top.sees("frozen");
        assert_eq!(top.has_colors(), expected, "{arguments:?} {no_color:?}");
        assert_eq!(top.quit("q"), 0);
    }
}

#[test]
fn without_a_terminal_it_names_the_fix() {
    let world = World::new();
    for (arguments, says) in [
        (&["top"][..], "add --once"),
        (&["top", "--json"], "add --once"),
        (&["top", "--once", "--interval", "1ms"], "give another --interval"),
        (&["top", "--once", "a\\"], "escapes nothing"),
        (&["top", "--once", "--url", "local:", "--url", "memory:"], "only one store"),
        (&["top", "--once", "--url", "a=local:", "--url", "a=memory:"], "two stores `a`"),
        (&["top", "--once", "--url", "default=local:", "--url", "memory:"], "two stores `default`"),
        (&["top", "--once", "--url", "a=redis://u:p@h", "--url", "memory:"], "password_file"),
    ] {
        let output = world.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{output:?}");
        assert!(output.stderr.contains(says), "{output:?}");
    }
}

#[test]
fn once_prints_a_table_or_an_object() {
    let world = World::new();
    let empty = json(&world, &["top", "--once", "--json"]);
    assert_eq!((&empty["held"], &empty["names"]), (&0.into(), &Value::Array(vec![])));
    assert!(!world.path("store").exists(), "it makes no store");

    let holder = world.hold(&["job/a"]);
    let _waiter = world.start(&["run", "job/a", "--", "true"]);
    world.queued("job/a", 1);
    let object = json(&world, &["top", "--once", "--json"]);
    assert_eq!((&object["held"], &object["waiting"]), (&1.into(), &1.into()));
    assert_eq!(object["names"][0]["name"], "job/a");
    assert_eq!(object["names"][0]["holders"][0]["pid"], holder.pid());
    assert_eq!(object["blocking"][0]["name"], "job/a");
    assert_eq!(object["blocking"][0]["deadlock"], false);
    assert_eq!(object["quorum"], Value::Null);
    let table = world.run(&["top", "--once"]);
    assert!(table.stdout.contains("held 1, waiting 1, frozen 0"), "{table:?}");
    assert!(table.stdout.lines().any(|line| line.starts_with("job/a  held")), "{table:?}");
    assert_eq!(json(&world, &["top", "--once", "--json", "x*"])["held"], 0);
}
