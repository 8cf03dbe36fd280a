//! What is typed: names of every kind, and durations out of range.

use holdline_services::{EtcdConfig, EtcdServer};

use crate::contenders::{all_are_locks_of_their_own, durations_out_of_range_are_invalid, invalid};
use crate::support::client;

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
    all_are_locks_of_their_own(&client, &good).await;
    assert_eq!(server.ctl(&["get", "", "--prefix", "--keys-only"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durations_out_of_range_are_refused_before_anything_is_asked() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = client(&server.url()).await;
    durations_out_of_range_are_invalid(&client).await;
    assert_eq!(server.ctl(&["get", "", "--prefix", "--keys-only"]), "");
}
