//! TLS: to a real server, with and without certificates of clients, and the error of each mistake.

use holdline_core::{Certainty, ErrorKind, Hint};
use holdline_services::{Certificates, ZooKeeper, ZooKeeperConfig};

use crate::support::{connect, contender, engine, hint, until};

/// The parameters of a client with a certificate.
fn with_certificate(certificates: &Certificates) -> String {
    let (cert, key) = certificates.client();
    let ca = certificates.ca();
    format!("?ca={}&cert={}&key={}", ca.display(), cert.display(), key.display())
}

async fn refused(url: &str, says: &str) {
    let error = connect(url).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(error.to_string().contains(says), "{says}: {error}");
}

#[tokio::test]
async fn a_lock_is_held_and_handed_on_by_tls() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_client_certificates());
    let url = server.secure_url() + &with_certificate(server.certificates());
    let (here, there) = (engine(&url).await, engine(&url).await);
    let (mut holder, mut waiter) = (contender(&here, "a"), contender(&there, "a"));
    let first = holder.take().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    holder.let_go().await;
    hint(&mut hints, Hint::LookAgain).await;
    assert!(waiter.take().await > first);
    // The session continues on another connection.
    server.restart();
    until("the lease is renewed", async || waiter.keep().await.is_ok()).await;
    until("it is released", async || waiter.release(false).await.is_ok()).await;
}

#[tokio::test]
async fn each_mistake_with_tls_has_its_message() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_tls());
    let (secure, certificates) = (server.secure_url(), server.certificates());
    let ca = certificates.ca().display().to_string();
    engine(&format!("{secure}?ca={ca}")).await;
    refused(&secure, "name the authority by `ca`").await;
    let other = certificates.other_ca();
    let other = format!("{secure}?ca={}", other.display());
    refused(&other, "not from the authority in `ca`").await;
    let port = secure.rsplit_once(':').expect("a port").1;
    let mapped = format!("zks://[::ffff:127.0.0.1]:{port}?ca={ca}");
    refused(&mapped, "is not for '::ffff:127.0.0.1'").await;
    refused(&format!("zk://localhost:{port}"), "write `zks://`").await;
    let plain = server.address(0);
    refused(&format!("zks://{plain}?ca={ca}"), "write `zk://`").await;
}

#[tokio::test]
async fn a_client_without_the_right_certificate_is_refused() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_client_certificates());
    let (secure, certificates) = (server.secure_url(), server.certificates());
    let ca = certificates.ca().display().to_string();
    for (pair, says) in [
        (String::new(), "client certificate"),
        (
            {
                let (cert, key) = certificates.stranger();
                format!("&cert={}&key={}", cert.display(), key.display())
            },
            "certificate in `cert`",
        ),
    ] {
        let error = connect(&format!("{secure}?ca={ca}{pair}")).await.expect_err("refused");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        assert!(error.to_string().contains(says), "{says}: {error}");
    }
}
