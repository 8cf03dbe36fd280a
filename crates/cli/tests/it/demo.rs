//! The demonstration shows what it says, and leaves nothing behind.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use holdline_services::Demo;

use crate::world::output;

/// Reached only by a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// Lets the demonstration go on until a page shows all of this.
fn shows(demo: &mut Demo, path: &str, all: &[&str]) {
    let server = demo.url().strip_suffix("/dashboard").expect("a page").to_owned();
    let began = Instant::now();
    loop {
        demo.keep_going().expect("it goes on");
        let page = output(Command::new("curl").args(["-sS", &format!("{server}{path}")])).stdout;
        if all.iter().all(|text| page.contains(text)) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{path} does not show {all:?}: {page}");
    }
}

#[test]
fn the_demo_shows_a_queue_a_killed_server_and_a_lost_lease_and_then_ends() {
    let mut demo = Demo::start(Path::new(env!("CARGO_BIN_EXE_holdline"))).expect("it starts");
    shows(&mut demo, "/dashboard/lock?name=deploy%2Fproduction", &["3 waiters", "3 of 3"]);
    shows(&mut demo, "/dashboard", &["is frozen for", "the audit has not signed"]);
    shows(&mut demo, "/stores/quorum/dashboard/quorum", &[">down<", "1 more may fail"]);
    shows(&mut demo, "/stores/quorum/dashboard/lock?name=cache%2Frebuild", &["cold cache"]);
    shows(&mut demo, "/dashboard/lock?name=backup%2Forders", &["perhaps expired"]);
    shows(&mut demo, "/dashboard/timeline?lost=yes", &["backup/orders", "perhaps expired"]);
    for page in demo.script().lines().filter_map(|line| line.trim().strip_prefix("http")) {
        let url = format!("http{page}");
        let status = ["-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
        assert_eq!(output(Command::new("curl").args(status)).stdout, "200", "{url}");
    }
    let pids = demo.pids();
    assert!(pids.len() > 15, "{pids:?}");
    drop(demo);
    let left: Vec<_> =
        pids.iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).collect();
    assert!(left.is_empty(), "still running: {left:?}");
}

#[test]
fn the_demo_names_a_program_that_is_missing() {
    let why = Demo::start(Path::new("no-such-program")).expect_err("it is not there");
    assert!(why.to_string().contains("cargo xtask demo"), "{why}");
}
