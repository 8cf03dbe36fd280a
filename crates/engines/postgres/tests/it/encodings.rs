//! Databases whose encoding is not UTF-8: the server converts the text of each statement.

use holdline_core::{AcquireRequest, Engine, Health, ListRequest, Operation, OperationReply};
use holdline_postgres::PostgresEngine;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::checkup::look;
use crate::support::{connect, let_go, name, queue, request, take};

/// Neither Latin nor Thai has all of them.
const NAME: &str = "\u{e4}/\u{17b}\u{f3}\u{142}w/\u{2026}";

/// Sends each statement of the engine once.
async fn use_all_verbs(engine: &PostgresEngine) {
    let (held, waits) = (request(NAME), request(NAME));
    let token = take(engine, &held).await;
    queue(engine, &waits).await;
    let shown = engine.inspect(&held.name).await.expect("shown");
    assert_eq!((shown.holders.len(), shown.queue_length), (1, 1));
    let listed = engine.list(&ListRequest { limit: 9, ..ListRequest::default() }).await;
    assert_eq!(listed.expect("listed").names[0].name.as_str(), NAME);
    let reason = "because\u{2026}".to_owned();
    let revoke = Operation::Revoke { name: name(NAME), token, reason, now: false };
    let reply = engine.operate(&revoke).await.expect("a reply");
    assert!(matches!(reply, OperationReply::Notified { .. }), "{reply:?}");
    let_go(engine, &held).await;
    let known = AcquireRequest { known: true, ..waits.clone() };
    assert!(take(engine, &known).await > token);
    let_go(engine, &known).await;
}

#[tokio::test]
async fn a_database_of_any_encoding_keeps_locks() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    for encoding in ["LATIN1", "WIN874", "EUC_JP", "SQL_ASCII"] {
        let database = format!("of_{}", encoding.to_lowercase());
        server.sql(&format!(
            "create database {database} encoding '{encoding}' template template0 \
             lc_collate 'C' lc_ctype 'C'"
        ));
        let url = server.url_of("postgres", &database);
        let engine = connect(&url).await.unwrap_or_else(|error| panic!("{encoding}: {error}"));
        use_all_verbs(&engine).await;
        let found = look(&url).await;
        assert_eq!(found.health(), Health::Ok, "{encoding}: {found:?}");
    }
}
