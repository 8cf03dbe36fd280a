//! TLS, and each way in which it fails.

use super::*;

async fn failed(url: &str) -> LockError {
    say(&link(url), "PING").await.expect_err("no connection")
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
    let good = link(&url(&ca, &cert, &key));
    assert_eq!(say(&good, "SET k v").await.expect("an answer"), ok());
    let mut inbox = good.subscribe(b"c".to_vec());
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));

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

/// A device has no end, and a pipe without a writer yields nothing.
#[tokio::test]
async fn certificates_and_keys_without_an_end_are_refused() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let (url, certificates) = (server.tls_url(), server.certificates());
    let (ca, (cert, key)) = (certificates.ca(), certificates.client());
    let pipe = server.directory().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "a pipe");
    let (ca, cert, key) = (ca.display(), cert.display(), key.display());
    for bad in ["/dev/zero", &*pipe.to_string_lossy()] {
        for parameters in [
            format!("ca={bad}"),
            format!("ca={ca}&cert={bad}&key={key}"),
            format!("ca={ca}&cert={cert}&key={bad}"),
        ] {
            let error = failed(&format!("{url}?{parameters}")).await;
            let message = refused(&error);
            assert!(message.contains(bad) && message.contains("no regular file"), "{message}");
        }
    }
    // What is a file and only looks endless.
    let long = server.directory().join("long.pem");
    let file = std::fs::File::create(&long).and_then(|file| file.set_len(64 << 30));
    file.expect("a file with a hole");
    let error = failed(&format!("{url}?ca={}", long.display())).await;
    assert!(refused(&error).contains("longer than"), "{error}");
}

#[tokio::test]
async fn the_name_is_checked() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let ca = server.certificates().ca();
    let options = options(&format!("{}?ca={}", server.tls_url(), ca.display()));
    let connect = || tokio::net::TcpStream::connect(server.tls_address());
    let stream = connect().await.expect("a connection");
    crate::link::dial::TLS.wrap(stream, "localhost", options.tls()).await.expect("its own name");
    let stream = connect().await.expect("a connection");
    let error = crate::link::dial::TLS.wrap(stream, "example.org", options.tls()).await;
    let error = error.expect_err("another name");
    assert!(refused(&error).contains("is not for 'example.org'"), "{error}");
}

#[tokio::test]
async fn an_unknown_authority_is_reported() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let error = failed(&server.tls_url()).await;
    assert!(refused(&error).contains("by `ca`"), "{error}");
}

#[tokio::test]
async fn a_plain_and_a_tls_port_are_distinguished() {
    let server = RedisServer::start(RedisConfig::default().with_tls());
    let error = failed(&format!("redis://{}", server.tls_address())).await;
    assert!(unavailable(&error, Certainty::NotApplied).contains("rediss://"), "{error}");
    let ca = server.certificates().ca();
    let error = failed(&format!("rediss://{}?ca={}", server.address(), ca.display())).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}
