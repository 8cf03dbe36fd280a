//! Sessions of two servers behind haproxy: pinned to one server they work, in turn they are
//! refused.

use std::net::SocketAddr;

use holdline_services::{Balance, LoadBalancer};

use crate::ground::{Ground, Response, request, store};

/// Sends a request through the load balancer.
async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Response {
    let mut connection = Ground::connect(address).await;
    connection.send(&request(method, path, "Connection: close\r\n", body)).await;
    connection.response().await
}

/// Uses a session in every way, and returns the kinds of the answers; `ok` for a good one.
async fn use_session(balance: Balance) -> Vec<String> {
    let client = store().await;
    let servers = [Ground::on(client.clone(), "").await, Ground::on(client, "").await];
    let balancer = LoadBalancer::start(balance, &servers.each_ref().map(|server| server.address));
    let ask = async |method: &str, path: &str, body: &str| {
        let response = ask(balancer.address(), method, path, body).await;
        if response.status < 300 { "ok".to_owned() } else { response.text("kind") }
    };
    let opened = self::ask(balancer.address(), "POST", "/v1/sessions", "").await;
    assert_eq!(opened.status, 201, "{opened:?}");
    let session = opened.text("session");
    let path = format!("/v1/sessions/{session}");
    let mut kinds = Vec::new();
    for name in 0..4 {
        let body = format!(r#"{{"session": "{session}"}}"#);
        kinds.push(ask("POST", &format!("/v1/locks/n{name}"), &body).await);
        kinds.push(ask("POST", &format!("{path}/heartbeat"), "").await);
        // One more, so that each kind of request reaches both servers.
        kinds.push(ask("GET", "/healthz", "").await);
    }
    kinds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_behind_a_round_robin_is_refused_by_the_other_server() {
    let kinds = use_session(Balance::RoundRobin).await;
    let refused = kinds.iter().filter(|kind| *kind == "other_server").count();
    let good = kinds.iter().filter(|kind| *kind == "ok").count();
    assert!(refused > 0 && good > 0 && refused + good == kinds.len(), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_pinned_by_the_address_works() {
    let kinds = use_session(Balance::Source).await;
    assert!(kinds.iter().all(|kind| kind == "ok"), "{kinds:?}");
}
