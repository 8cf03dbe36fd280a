//! Authentication and authorization, and the error of each refusal.

use holdline_core::{Certainty, Engine, ErrorKind, LockError, LockName};
use holdline_etcd::EtcdEngine;
use holdline_services::{EtcdConfig, EtcdServer};

use crate::support::{connect, contender, engine};

/// Returns the kind and the text of the error.
fn failure(outcome: Result<EtcdEngine, LockError>) -> (ErrorKind, String) {
    let error = outcome.expect_err("refused");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    (error.kind().clone(), error.to_string())
}

fn refused(outcome: Result<EtcdEngine, LockError>, says: &str) {
    let (kind, text) = failure(outcome);
    assert!(matches!(kind, ErrorKind::Refused { .. }) && text.contains(says), "{text}");
}

#[tokio::test]
async fn a_refused_connection_applies_nothing() {
    let (kind, text) = failure(connect("etcd://127.0.0.1:1,127.0.0.1:2").await);
    assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{text}");
    assert!(text.contains("127.0.0.1:1: ") && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_refused_client_gets_the_reason() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    let at = server.address();
    refused(connect(&format!("etcd://{at}")).await, "user and password");
    for url in [format!("etcd://root:wr0ng@{at}"), format!("etcd://nobody:wr0ng@{at}")] {
        let (kind, text) = failure(connect(&url).await);
        assert!(matches!(kind, ErrorKind::Refused { .. }), "{text}");
        assert!(text.contains("password is wrong") && !text.contains("wr0ng"), "{text}");
    }
    let open = EtcdServer::start(EtcdConfig::default());
    refused(connect(&format!("etcd://root:x@{}", open.address())).await, "knows no passwords");
}

#[tokio::test]
async fn a_role_on_the_prefix_is_enough_and_one_without_it_is_refused() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    for words in [
        &["user", "add", "locker:hers"][..],
        &["role", "add", "locks"],
        &["user", "grant-role", "locker", "locks"],
    ] {
        server.ctl(words);
    }
    let url = format!("etcd://locker:hers@{}", server.address());
    refused(connect(&url).await, "readwrite on the prefix");
    server.ctl(&["role", "grant-permission", "locks", "readwrite", "--prefix=true", "holdline/"]);
    let engine = engine(&url).await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    holder.keep().await.expect("renewed");
    holder.let_go().await;
    waiter.take().await;
    waiter.release(true).await.expect("given up");
    refused(connect(&format!("{url}?prefix=others/")).await, "readwrite on the prefix");
}

/// A server that restarts no longer knows the tokens that it gave.
#[tokio::test]
async fn a_token_that_is_no_longer_good_is_drawn_anew() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a").for_seconds(30);
    holder.take().await;
    server.restart();
    let name = LockName::new("a").expect("good");
    crate::support::until("it is let in again", async || engine.inspect(&name).await.is_ok()).await;
    holder.keep().await.expect("renewed");
    holder.let_go().await;
}

#[tokio::test]
async fn certificates_are_checked_both_ways() {
    let server = EtcdServer::start(EtcdConfig::default().with_client_certificates());
    let (url, files) = (server.url(), server.certificates());
    let (cert, key) = files.client();
    let ours = format!("cert={}&key={}", cert.display(), key.display());
    let good = engine(&format!("{url}?ca={}&{ours}", files.ca().display())).await;
    contender(&good, "a").take().await;
    for (parameters, says, is_refused) in [
        (format!("ca={}&{ours}", files.other_ca().display()), "not from the authority", true),
        (ours.clone(), "does not know who signed the server's certificate", true),
        // The server rejects ours only after the handshake.
        (format!("ca={}", files.ca().display()), "certificate", false),
    ] {
        let (kind, text) = failure(connect(&format!("{url}?{parameters}")).await);
        assert!(text.contains(says), "{parameters}: {kind:?} {text}");
        let refused = matches!(kind, ErrorKind::Refused { .. });
        assert!(refused || !is_refused, "{parameters}: {kind:?}");
    }
    let missing = connect(&format!("{url}?ca=/no/where")).await.expect_err("no such file");
    assert!(missing.to_string().contains("/no/where"), "{missing}");
    // In plain words to one that wants TLS.
    let plain = format!("etcd://{}", server.address());
    let (kind, text) = failure(connect(&plain).await);
    assert!(matches!(kind, ErrorKind::Refused { .. }), "{text}");
    assert!(text.contains("speaks TLS on this port: write `etcds://`"), "{text}");
}

#[tokio::test]
async fn tls_to_a_port_without_it_is_named() {
    let server = EtcdServer::start(EtcdConfig::default());
    let (kind, text) = failure(connect(&format!("etcds://{}", server.address())).await);
    assert!(matches!(kind, ErrorKind::Refused { .. }), "{text}");
    assert!(text.contains("does not speak TLS on this port: write `etcd://`"), "{text}");
}
