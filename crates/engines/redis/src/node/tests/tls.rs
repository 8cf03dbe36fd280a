//! TLS, and each way in which it fails.

use super::*;

async fn failed(url: &str) -> LockError {
    say(&node(url), "PING").await.expect_err("no connection")
}

#[tokio::test]
async fn certificates_are_checked_and_shown() {
    let server = RedisServer::start(RedisConfig::default().with_client_certificates());
    let certificates = server.certificates();
    let (ca, other) = (certificates.ca(), certificates.other_ca());
    let (cert, key) = certificates.client();
    let (stranger, strangers_key) = certificates.stranger();
    let url = |ca: &std::path::Path, cert: &std::path::Path, key: &std::path::Path| {
        let (ca, cert, key) = (ca.display(), cert.display(), key.display());
        format!("{}?ca={ca}&cert={cert}&key={key}", server.tls_url())
    };
    let good = node(&url(&ca, &cert, &key));
    assert_eq!(say(&good, "SET k v").await.expect("an answer"), ok());
    let mut inbox = good.subscribe(b"c".to_vec());
    assert_eq!(heard(&mut inbox).await, Some(Heard::Resubscribed));

    let error = failed(&url(&other, &cert, &key)).await;
    assert!(refused(&error).contains("not from the authority in `ca`"), "{error}");
    let error = failed(&url(&ca, &stranger, &strangers_key)).await;
    assert!(error.to_string().contains("not accept"), "{error}");
    let error = failed(&format!("{}?ca={}", server.tls_url(), ca.display())).await;
    assert!(error.to_string().contains("client certificate"), "{error}");
    let error = failed(&url(&ca, &cert, &strangers_key)).await;
    assert!(refused(&error).contains("do not go together"), "{error}");
    let error = failed(&url(&key, &cert, &key)).await;
    assert!(refused(&error).contains("holds no certificate"), "{error}");
    let error = failed(&url(&ca, &cert, &ca)).await;
    assert!(refused(&error).contains("no private key"), "{error}");
    let error = failed(&url(std::path::Path::new("/no/such.crt"), &cert, &key)).await;
    assert!(refused(&error).contains("/no/such.crt"), "{error}");
}

#[tokio::test]
async fn the_name_is_checked() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let ca = server.certificates().ca();
    let options = options(&format!("{}?ca={}", server.tls_url(), ca.display()));
    let connect = || tokio::net::TcpStream::connect(server.tls_address());
    let stream = connect().await.expect("a connection");
    crate::node::tls::wrap(stream, "localhost", &options).await.expect("its own name");
    let stream = connect().await.expect("a connection");
    let error = crate::node::tls::wrap(stream, "example.org", &options).await;
    let error = error.expect_err("another name");
    assert!(refused(&error).contains("is not for 'example.org'"), "{error}");
}

#[tokio::test]
async fn an_authority_that_the_machine_does_not_know_is_told() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let error = failed(&server.tls_url()).await;
    assert!(refused(&error).contains("by `ca`"), "{error}");
}

#[tokio::test]
async fn a_plain_and_a_tls_port_are_told_apart() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let error = failed(&format!("redis://{}", server.tls_address())).await;
    assert!(unavailable(&error, Certainty::NotApplied).contains("rediss://"), "{error}");
    let ca = server.certificates().ca();
    let error = failed(&format!("rediss://{}?ca={}", server.address(), ca.display())).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}
