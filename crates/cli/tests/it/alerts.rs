//! The alerts and the dashboard in `ops`, with a real Prometheus that scrapes a server, a program
//! and the file of a job.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use holdline::admin::Operation;
use holdline::fence::{Fenced as _, FencedCell, Proof, Rules};
use holdline::{Client, ClientOptions, FencingToken, LockOptions};
use holdline_services::{Prometheus, promtool};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::Value;

use crate::redlock::Redlock;
use crate::serve::Served;
use crate::world::{eventually, output};

/// The buckets of docs/metrics.md.
const BUCKETS: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];

fn ops(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(file)
}

fn text(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

#[test]
fn each_alert_fires_for_what_it_is_about_and_has_a_section_in_the_runbook() {
    let tested =
        output(Command::new(promtool()).args(["test", "rules"]).arg(ops("alerts_test.yml")));
    assert_eq!(tested.code, 0, "{tested:?}");
    let (rules, tests, runbook) =
        (text("ops/alerts.yml"), text("ops/alerts_test.yml"), text("docs/runbook.md"));
    let names: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in &names {
        let fires = format!("- alertname: {name}\n");
        assert!(tests.contains(&fires), "no test in which {name} fires");
        assert!(runbook.contains(&format!("## {name}\n")), "{name} is not in the runbook");
        let link = format!("runbook_url: docs/runbook.md#{}\n", name.to_lowercase());
        assert!(rules.contains(&link), "{name} does not link to its section");
    }
    let sections = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    for section in sections {
        assert!(names.contains(&section), "the runbook has {section}, which is no alert");
    }
}

/// Serves a text to each client that asks, for as long as the process lives.
fn serve(text: impl Fn() -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(&stream).lines().map_while(Result::ok);
            if request.any(|line| line.is_empty()) {
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain";
                // A client that goes away asks again.
                let _ = write!(stream, "{head}; version=0.0.4\r\n\r\n{}", text());
            }
        }
    });
    address
}

/// A program that acquires, waits, loses a lock, and writes behind a fence with an old token.
async fn work(client: &Client) {
    let options =
        LockOptions::default().with_class("order").with_lease_duration(Duration::from_millis(500));
    let mutex = client.mutex_with("order/1", &options).expect("fits");
    let first = mutex.lock().await.expect("free");
    let waiting = mutex.clone();
    let waiter = tokio::spawn(async move { waiting.lock().await });
    tokio::time::sleep(Duration::from_secs(1)).await; // event: renewals, and somebody waits
    let _ = first.release().await;
    let second = waiter.await.expect("no panic").expect("handed over");
    let revoke = Operation::Revoke {
        name: second.name().clone(),
        token: second.fencing_token(),
        reason: "a test".to_owned(),
        now: true,
    };
    client.admin().operate(&revoke).await.expect("revoked");
    second.lost().await;
    let rules = Rules::default().with_observer(holdline::metrics::fence_observer());
    let cell = FencedCell::new(0).with_rules(rules);
    let proof = |token| Proof::exclusive(FencingToken::new(token).expect("a token"));
    cell.seal(&proof(2)).expect("newer");
    cell.seal(&proof(1)).expect_err("older");
}

/// Starts the work again and again until the end of the test, so that rates are above zero.
fn program(url: &str) -> PrometheusHandle {
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("buckets");
    let handle = recorder.install_recorder().expect("the only recorder of this process");
    let url = url.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let options = ClientOptions::default().with_metrics();
            let client = Client::connect_with(&url, options).await.expect("a client");
            loop {
                work(&client).await;
            }
        });
    });
    handle
}

/// Each query of the dashboard, with what Grafana puts in place of its variables.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("ops/grafana.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expression = |target: &Value| target["expr"].as_str().expect("a query").to_owned();
    targets
        .map(expression)
        .map(|query| query.replace("$__rate_interval", "1m").replace("$class", ".*"))
        .collect()
}

#[test]
fn a_real_prometheus_finds_what_each_panel_and_each_alert_asks_for() {
    let redlock = Redlock::set(3);
    let world = &redlock.world;
    let settings = world.path("server.toml");
    let limit = "[[server.long_holds]]\nafter_ms = 86400000\n";
    std::fs::write(&settings, limit).expect("written");
    let config = ["--config", settings.to_str().expect("text")];
    let served = Served::start(world, "127.0.0.1:0", &config);
    let url = redlock.url();
    let handle = program(&url);
    let run = ["run", "--metrics-file", "x.prom", "--class", "nightly", "x", "true"];
    let ran = redlock.run(&run);
    assert_eq!(ran.code, 0, "{ran:?}");
    let file = world.path("x.prom");
    let job = serve(move || std::fs::read_to_string(&file).unwrap_or_default());
    let server = format!("127.0.0.1:{}", served.port()).parse().expect("an address");
    let targets = [server, serve(move || handle.render()), job];
    // Something happens at the server, too.
    assert_eq!(world.run(&["--url", &served.1, "run", "a", "true"]).code, 0);
    let prometheus = Prometheus::start(&ops("alerts.yml"), &targets);
    for query in queries() {
        eventually(&query, || {
            let answer: Value = serde_json::from_str(&prometheus.query(&query)).expect("JSON");
            assert_eq!(answer["status"], "success", "{query}: {answer}");
            answer["data"]["result"].as_array().is_some_and(|found| !found.is_empty())
        });
    }
    eventually("all rules are evaluated", || {
        let answer: Value = serde_json::from_str(&prometheus.rules()).expect("JSON");
        let groups = answer["data"]["groups"].as_array().expect("groups");
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let healths: Vec<&Value> = rules.map(|rule| &rule["health"]).collect();
        assert!(healths.iter().all(|health| **health != "err"), "{answer}");
        !healths.is_empty() && healths.iter().all(|health| **health == "ok")
    });
}
