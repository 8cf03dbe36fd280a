//! What is typed: names of every kind, and durations out of range.

use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::contenders::{all_are_locks_of_their_own, durations_out_of_range_are_invalid, invalid};
use crate::support::client;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_refused_or_its_own_lock_and_so_is_every_duration() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let client = client(&server.url()).await;
    let long = "x".repeat(1_000_000);
    for bad in ["", "a\0b", "a\r\nb", "a\x1b[31m", "\u{85}", &long] {
        invalid(client.mutex(bad), bad);
    }
    durations_out_of_range_are_invalid(&client).await;
    assert!(server.sessions_below("/").is_empty(), "nothing was written");
    all_are_locks_of_their_own(&client, &NAMES).await;
    // The same in a root of somebody else's.
    let elsewhere = crate::support::client(&format!("{}/apps/ours", server.url())).await;
    all_are_locks_of_their_own(&elsewhere, &NAMES).await;
    assert!(server.sessions_below("/").is_empty());
}
