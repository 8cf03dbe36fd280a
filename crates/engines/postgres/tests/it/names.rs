//! Names of every kind.

use std::collections::BTreeSet;

use holdline::ErrorKind;
use holdline::admin::ListRequest;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::people::{clean, client, release, soon, take, waiting_renewals};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_refused_or_its_own_lock() {
    let server = PostgresServer::start(PostgresConfig::default());
    let client = client(&server).await;
    let long = "x".repeat(1_000_000);
    for bad in ["", "a\0b", "a\r\nb", "a\x1b[31m", "\u{85}", &long] {
        let error = client.mutex(bad).map(drop).expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{error}");
    }
    // Names that try to be more than a value, and names that only look alike.
    let longest = "é".repeat(256);
    let good = [
        "a",
        "A",
        "a ",
        " ",
        "'",
        "''",
        "a'; drop schema holdline cascade; --",
        "\"",
        "\\",
        "\\x61",
        "\\000",
        "$1",
        "$$",
        "%",
        "_",
        "%s",
        "null",
        "{a}",
        "{",
        "}",
        "holdline",
        "holdline.names",
        "fence",
        "-1",
        "é",
        "e\u{301}",
        "ключ",
        "🔒",
        "\u{202e}abc",
        "\u{200b}",
        "\u{feff}",
        &longest,
    ];
    let mut guards = Vec::new();
    for name in good {
        guards.push(take(&client, name, &waiting_renewals()).await);
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert_eq!(tokens.len(), good.len(), "no two of them are one lock");
    let request = ListRequest { limit: 1_000, ..ListRequest::default() };
    let listed = soon("a list", client.admin().list(&request)).await.expect("an answer").names;
    let listed: BTreeSet<&str> = listed.iter().map(|shown| shown.name.as_str()).collect();
    assert_eq!(listed, good.into_iter().collect(), "byte for byte");
    let rows = server.sql("select count(*) from holdline.names where (holder).token is not null");
    assert_eq!(rows, [good.len().to_string()]);
    for guard in guards {
        release(guard).await;
    }
    clean(&server, &[&client]).await;
}
