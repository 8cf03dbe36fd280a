//! What is typed: names of every kind, and durations out of range.

use std::collections::BTreeSet;
use std::time::Duration;

use holdline::{ErrorKind, ListRequest, LockError, LockOptions};
use holdline_services::{EtcdConfig, EtcdServer};

use crate::support::{client, let_go, patient, soon, take};

fn invalid(outcome: Result<impl Sized, LockError>, what: &str) {
    let Err(error) = outcome else { panic!("accepted: {what}") };
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{what}: {error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_refused_or_its_own_lock() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = client(&server.url()).await;
    let long = "x".repeat(1_000_000);
    for bad in ["", "a\0b", "a\r\nb", "a\x1b[31m", "\u{85}", &long] {
        invalid(client.mutex(bad), bad);
    }
    // Names that try to be another's key, range or mark, and names that only look alike.
    let good = [
        "a",
        "a/",
        "a//",
        "/a",
        "/",
        "//",
        "a/1f",
        "a/r-",
        "a/p4-2",
        "a/1f/gone",
        "a0",
        "a.",
        "a%2F",
        "a%2F1f",
        "%2Fa",
        "%",
        "%25",
        "%2",
        "holdline/a",
        "r-",
        "p4-2-",
        "gone",
        "revoked",
        "*",
        "?",
        "\\",
        "a b",
        " ",
        "'\"",
        "-1",
        "--prefix",
        "é",
        "e\u{301}",
        "ключ",
        "🔒",
        "\u{202e}abc",
        "\u{200b}",
        "A",
    ];
    let mut guards = Vec::new();
    for name in good {
        guards.push(take(&client, name, &patient()).await);
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert_eq!(tokens.len(), good.len(), "no two of them are one lock");
    let request = ListRequest { limit: 1_000, ..ListRequest::default() };
    let listed = soon("a list", client.list(&request)).await.expect("an answer").names;
    let listed: BTreeSet<String> =
        listed.iter().map(|shown| shown.name.as_str().to_owned()).collect();
    assert_eq!(listed, good.iter().map(|name| (*name).to_owned()).collect(), "byte for byte");
    for guard in guards {
        let_go(guard).await;
    }
    assert_eq!(server.ctl(&["get", "", "--prefix", "--keys-only"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durations_out_of_range_are_refused_before_anything_is_asked() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = client(&server.url()).await;
    let asked = |options: &LockOptions| client.mutex_with("a", options);
    for lease in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(31), Duration::MAX]
    {
        let options = LockOptions::default().with_lease_duration(lease);
        let outcome = match asked(&options) {
            Ok(mutex) => soon("an answer", mutex.try_lock()).await.map(drop),
            Err(error) => Err(error),
        };
        invalid(outcome, &format!("{lease:?}"));
    }
    assert_eq!(server.ctl(&["get", "", "--prefix", "--keys-only"]), "");
}
