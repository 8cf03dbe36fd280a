//! Names that look equal to the server and are not: case, accents, trailing spaces, bytes.

use holdline_core::{Engine, ListRequest};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{engine, let_go, request, take};

#[tokio::test]
async fn names_are_compared_byte_by_byte() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let long = "n".repeat(512);
    let names = [
        "a",
        "A",
        "a ",
        "ä",
        "a\u{308}",
        "Ä",
        "ss",
        "ß",
        "%",
        "_",
        "a%",
        "'",
        "\\",
        "`;--",
        "😀",
        "\u{1f601}",
        &long,
    ];
    let held: Vec<_> = names.iter().map(|name| request(name)).collect();
    for asked in &held {
        take(&engine, asked).await;
    }
    let all = ListRequest { limit: 100, ..ListRequest::default() };
    assert_eq!(engine.list(&all).await.expect("listed").names.len(), names.len());
    let some = ListRequest { prefix: "a".to_owned(), ..all };
    let listed = engine.list(&some).await.expect("listed").names;
    let listed: Vec<&str> = listed.iter().map(|shown| shown.name.as_str()).collect();
    assert_eq!(listed, ["a", "a ", "a%", "a\u{308}"]);
    for asked in &held {
        let_go(&engine, asked).await;
    }
    assert!(engine.list(&some).await.expect("listed").names.is_empty());
}

/// Rows of names that are long over go, and what their names have counted stays.
#[tokio::test]
async fn a_name_whose_row_was_removed_counts_on() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let mut last = None;
    for _ in 0..5 {
        let asked = request("counted");
        last = Some(take(&engine, &asked).await);
        let_go(&engine, &asked).await;
    }
    server.sql("update holdline_heads set used = 1");
    let left = "select count(*) from holdline_heads where name = 'counted'";
    // One of 128 acquires sweeps, drawn at random.
    let mut tries = 0;
    while server.sql(left) != ["0"] {
        assert!(tries < 500, "the row is not removed");
        tries += 1;
        for _ in 0..16 {
            let asked = request("other");
            take(&engine, &asked).await;
            let_go(&engine, &asked).await;
        }
    }
    assert_eq!(server.sql("select count(*) from holdline_holders where name = 'counted'"), ["0"]);
    assert!(Some(take(&engine, &request("counted")).await) > last);
}

#[tokio::test]
async fn the_last_token_there_is_is_refused_and_not_begun_anew() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let asked = request("a");
    take(&engine, &asked).await;
    let_go(&engine, &asked).await;
    server.sql("update holdline_about set floor = 9007199254740991");
    for name in ["a", "new"] {
        let error = engine.try_acquire(&request(name)).await.expect_err("refused");
        assert!(error.to_string().contains("no fencing token is left"), "{error}");
        assert_eq!(error.certainty(), holdline_core::Certainty::NotApplied);
    }
    server.sql("update holdline_about set floor = 0");
    take(&engine, &request("a")).await;
}
