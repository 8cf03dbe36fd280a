//! What is typed: names of every kind, and durations out of range.

use std::collections::BTreeSet;
use std::time::Duration;

use holdline::{Client, ErrorKind, ListRequest, LockError, LockOptions};
use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::support::{client, let_go, patient, soon, take};

fn invalid(outcome: Result<impl Sized, LockError>, what: &str) {
    let Err(error) = outcome else { panic!("accepted: {what}") };
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{what}: {error:?}");
}

/// Names that try to be a path, a contender or a mark, names that ZooKeeper refuses in a path, and
/// names that only look alike.
const NAMES: [&str; 38] = [
    "a",
    "a/",
    "a//",
    "/a",
    "/",
    "//",
    ".",
    "..",
    "../a",
    "a/../b",
    "./a",
    ".marks",
    ".doctor",
    "a%2F",
    "%2Fa",
    "%2E",
    "%",
    "%25",
    "%2",
    "holdline/a",
    "zookeeper",
    "_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-0000000001",
    "a/_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-0000000001",
    "lock-0000000001",
    "__lock__",
    "__READ__",
    "*",
    "\\",
    "a b",
    " ",
    "'\"",
    "é",
    "e\u{301}",
    "🔒",
    "\u{202e}abc",
    "\u{fff0}",
    "\u{e000}",
    "A",
];

async fn all_are_locks_of_their_own(client: &Client) {
    let mut guards = Vec::new();
    for name in NAMES {
        guards.push(take(client, name, &patient()).await);
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert_eq!(tokens.len(), NAMES.len(), "no two of them are one lock");
    let request = ListRequest { limit: 1_000, ..ListRequest::default() };
    let listed = soon("a list", client.list(&request)).await.expect("an answer").names;
    let listed: BTreeSet<String> =
        listed.iter().map(|shown| shown.name.as_str().to_owned()).collect();
    assert_eq!(listed, NAMES.iter().map(|name| (*name).to_owned()).collect(), "byte for byte");
    for guard in guards {
        let_go(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_refused_or_its_own_lock_and_so_is_every_duration() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let client = client(&server.url()).await;
    let long = "x".repeat(1_000_000);
    for bad in ["", "a\0b", "a\r\nb", "a\x1b[31m", "\u{85}", &long] {
        invalid(client.mutex(bad), bad);
    }
    for lease in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(31), Duration::MAX]
    {
        let options = LockOptions::default().with_lease_duration(lease);
        let outcome = match client.mutex_with("a", &options) {
            Ok(mutex) => soon("an answer", mutex.try_lock()).await.map(drop),
            Err(error) => Err(error),
        };
        invalid(outcome, &format!("{lease:?}"));
    }
    assert!(server.sessions_below("/").is_empty(), "nothing was written");
    all_are_locks_of_their_own(&client).await;
    // The same in a root of somebody else's.
    let elsewhere = crate::support::client(&format!("{}/apps/ours", server.url())).await;
    all_are_locks_of_their_own(&elsewhere).await;
    assert!(server.sessions_below("/").is_empty());
}
