//! Servers for a person: started, announced, and gone at the end.

use holdline_services::{Raw, Reply};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

fn start(arguments: &[&str]) -> (Child, Vec<SocketAddr>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdline-services"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let urls = out.lines().map_while(Result::ok).take(2);
    let addresses = urls.filter_map(|url| url.strip_prefix("redis://")?.parse().ok()).collect();
    (child, addresses)
}

fn answers(address: SocketAddr) -> bool {
    let reply = Raw::connect(address).and_then(|mut raw| raw.say("PING"));
    reply.is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
}

#[test]
fn servers_run_until_the_end_of_the_input() {
    let (mut child, addresses) = start(&["redis", "--count", "2"]);
    assert_eq!(addresses.iter().filter(|a| answers(**a)).count(), 2);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!addresses.into_iter().any(answers));
}

#[test]
fn servers_run_until_a_polite_signal_and_leave_nothing() {
    let (mut child, addresses) = start(&["redis", "--count", "2", "--flavour", "valkey"]);
    assert_eq!(addresses.iter().filter(|a| answers(**a)).count(), 2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!addresses.into_iter().any(answers));
    let ours = format!("holdline-redis-{}-", child.id());
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
    let left: Vec<_> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.starts_with(&ours)), "{left:?}");
}
