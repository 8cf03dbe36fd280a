//! Two servers of one store behind a load balancer, which sends unanswered requests again.

use std::process::{Command, Stdio};

use holdline_services::{Balance, LoadBalancer};
use rustix::process::Signal;
use serde_json::Value;

use super::Served;
use crate::world::{World, eventually};

const KEY: &str = "0123456789abcdef0123456789abcdef";

struct Balanced {
    world: World,
    servers: [Served; 2],
    balancer: LoadBalancer,
}

impl Balanced {
    fn start(balance: Balance) -> Balanced {
        let world = World::new();
        let servers = [Served::fresh(&world), Served::fresh(&world)];
        let addresses = servers.each_ref().map(|server| {
            server.1.strip_prefix("http://").expect("a URL").parse().expect("an address")
        });
        Balanced { world, servers, balancer: LoadBalancer::start(balance, &addresses) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.balancer.address())
    }

    /// The number of the server whose metrics have this line.
    fn server_with(&self, line: &str) -> usize {
        let has = |server: &Served| {
            let (_, text) = curl(&[&format!("{}/metrics", server.1)]);
            text.lines().any(|found| found == line)
        };
        eventually(line, || self.servers.iter().any(has));
        self.servers.iter().position(has).expect("as before")
    }

    /// Kills a server, and waits until the balancer has noticed.
    fn kill(&mut self, number: usize) {
        self.servers[number].0.signal(Signal::KILL);
        self.servers[number].0.status();
        eventually("the other one serves", || self.ask("GET", "/healthz", &[]).0 == 200);
    }

    /// Sends a request through the balancer.
    fn ask(&self, method: &str, path: &str, more: &[&str]) -> (u16, Value) {
        let url = format!("{}{path}", self.url());
        let (status, text) = curl(&[&["-X", method, &url], more].concat());
        (status, serde_json::from_str(&text).unwrap_or_default())
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-s", "-H", "Content-Type: application/json", "-w", "\n%{http_code}"]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// The status, which is 0 without an answer, and the body.
fn read(output: std::process::Output) -> (u16, String) {
    let text = String::from_utf8(output.stdout).expect("text");
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

fn curl(arguments: &[&str]) -> (u16, String) {
    read(command(arguments).output().expect("curl starts"))
}

#[test]
fn a_wait_with_a_key_goes_on_at_the_other_server() {
    let mut balanced = Balanced::start(Balance::RoundRobin);
    let mut holder = balanced.world.hold(&["a"]);
    let (url, key) = (format!("{}/v1/locks/a", balanced.url()), format!("Idempotency-Key: {KEY}"));
    let waiting = command(&["-H", &key, "-d", r#"{"wait_ms": 60000}"#, &url]).spawn();
    let waiting = waiting.expect("curl starts");
    balanced.world.queued("a", 1);
    let first = balanced.server_with("holdline_waiting 1");
    balanced.kill(first);
    // The client does not notice: the balancer repeats its request.
    assert_eq!(balanced.server_with("holdline_waiting 1"), 1 - first);
    balanced.world.queued("a", 1);
    holder.let_go();
    let (status, body) = read(waiting.wait_with_output().expect("it ends"));
    let lease: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} {body}"));
    assert_eq!((status, lease["lease_id"].as_str()), (200, Some(KEY)), "{body}");
    let who = balanced.world.who("a");
    assert_eq!((&who["holder_count"], &who["queue_length"]), (&1.into(), &0.into()), "{who}");
}

#[test]
fn a_job_and_a_waiter_go_on_when_one_server_is_killed() {
    let mut balanced = Balanced::start(Balance::RoundRobin);
    let url = balanced.url();
    let mut holder = balanced.world.hold(&["--url", &url, "--lease", "30s", "a"]);
    let waiter = balanced.world.start(&["--url", &url, "run", "a", "--", "echo", "mine"]);
    balanced.world.queued("a", 1);
    let token = balanced.world.token("a");
    balanced.kill(0);
    let left = || balanced.world.who("a")["holders"][0]["left_ms"].as_u64().expect("a number");
    let before = left();
    eventually("renewed through the other server", || left() > before);
    assert_eq!(balanced.world.token("a"), token, "the grant of before");
    holder.let_go();
    assert_eq!((holder.code(), waiter.line().as_str()), (3, "mine"));
}

#[test]
fn a_client_takes_the_leases_of_its_session_to_the_other_server() {
    let mut balanced = Balanced::start(Balance::Source);
    let (status, session) = balanced.ask("POST", "/v1/sessions", &["-d", "{}"]);
    assert_eq!(status, 201, "{session}");
    let body = format!(r#"{{"session": {}}}"#, session["session"]);
    let (status, lease) = balanced.ask("POST", "/v1/locks/a", &["-d", &body]);
    assert_eq!(status, 200, "{lease}");
    let heartbeat = format!("/v1/sessions/{}/heartbeat", session["session"].as_str().expect("id"));
    assert_eq!(balanced.ask("POST", &heartbeat, &[]).0, 200, "the same server");
    let first = balanced.server_with("holdline_sessions 1");
    balanced.kill(first);
    let (status, gone) = balanced.ask("POST", &heartbeat, &[]);
    assert_eq!((status, &gone["kind"]), (421, &"other_server".into()), "{gone}");
    let body = format!(r#"{{"leases": [{{"name": "a", "lease_id": {}}}]}}"#, lease["lease_id"]);
    let (status, taken) = balanced.ask("POST", "/v1/sessions", &["-d", &body]);
    assert_eq!((status, &taken["leases"][0]["state"]), (201, &"renewed".into()), "{taken}");
    let (_, shown) = balanced.ask("GET", "/v1/locks/a", &[]);
    assert_eq!(shown["holders"][0]["fencing_token"], lease["fencing_token"]);
}

#[test]
fn a_key_means_the_same_grant_at_both_servers() {
    let balanced = Balanced::start(Balance::RoundRobin);
    let key = format!("Idempotency-Key: {KEY}");
    let ask = || balanced.ask("POST", "/v1/locks/a", &["-H", &key, "-d", "{}"]);
    let mut tokens: Vec<Value> = Vec::new();
    for _ in 0..4 {
        let (status, lease) = ask();
        assert_eq!(status, 200, "{lease}");
        tokens.push(lease["fencing_token"].clone());
    }
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    for server in &balanced.servers {
        let (_, metrics) = curl(&[&format!("{}/metrics", server.1)]);
        assert!(metrics.contains("/v1/locks/{name}"), "it was asked too: {metrics}");
    }
    assert_eq!(balanced.ask("DELETE", &format!("/v1/locks/a/leases/{KEY}"), &[]).0, 200);
    for _ in 0..2 {
        assert_eq!(ask().0, 409, "given up, at both");
    }
}
