//! Servers with TLS, asked by Redis's own client.

use holdline_services::{FaultProxy, RedisConfig, RedisServer};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `redis-cli` gets for a PING, on either stream.
fn ping(server: &RedisServer, ca: &Path, pair: Option<(PathBuf, PathBuf)>) -> String {
    ask(server.tls_address(), ca, pair, &["PING"])
}

fn ask(address: SocketAddr, ca: &Path, pair: Option<(PathBuf, PathBuf)>, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    let port = address.port().to_string();
    command.args(["-h", "localhost", "-p", &port, "--tls", "--cacert"]).arg(ca);
    if let Some((certificate, key)) = pair {
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
    }
    let done = command.args(words).output().expect("redis-cli comes with redis-server");
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).trim().to_owned()
}

#[test]
fn a_server_with_tls_is_known_by_its_authority_alone() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    assert_eq!(ping(&server, &server.certificates().ca(), None), "PONG");
    let reply = ping(&server, &server.certificates().other_ca(), None);
    assert!(reply.contains("certificate verify failed"), "{reply}");
    assert_eq!(server.tls_url(), format!("rediss://localhost:{}", server.tls_address().port()));
    server.kill();
    server.restart();
    assert_eq!(ping(&server, &server.certificates().ca(), None), "PONG");
}

#[test]
fn a_server_asks_its_clients_for_a_certificate_of_its_authority() {
    let config = RedisConfig::default().with_client_certificates().with_line("loglevel verbose");
    let server = RedisServer::start(config);
    let certificates = server.certificates();
    let ca = certificates.ca();
    assert_eq!(ping(&server, &ca, Some(certificates.client())), "PONG");
    // What a refused client sees depends on how far it got; the server's log does not.
    let refused = [
        (None, "peer did not return a certificate"),
        (Some(certificates.stranger()), "certificate verify failed"),
    ];
    for (pair, says) in refused {
        assert_ne!(ping(&server, &ca, pair), "PONG");
        server.await_log(says);
    }
}

#[test]
fn the_proxy_passes_what_it_cannot_read() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let proxy = FaultProxy::start(server.tls_address());
    let ca = server.certificates().ca();
    let big = "x".repeat(100_000);
    assert_eq!(ask(proxy.address(), &ca, None, &["SET", "a", &big]), "OK");
    assert_eq!(ask(proxy.address(), &ca, None, &["GET", "a"]), big);
    assert_eq!(ask(proxy.address(), &ca, None, &["STRLEN", "a"]), "100000");
}
