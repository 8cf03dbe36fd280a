//! The description of the API that is checked in.

use crate::ground::Ground;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

/// `HOLDLINE_WRITE_OPENAPI=1` writes the file anew.
#[tokio::test]
async fn the_description_that_is_checked_in_is_that_of_the_code() {
    let made = holdline_server::document();
    if std::env::var_os("HOLDLINE_WRITE_OPENAPI").is_some() {
        std::fs::write(FILE, &made).expect("written");
    }
    let kept = std::fs::read_to_string(FILE).expect("docs/openapi.json");
    assert!(kept == made, "docs/openapi.json differs: run this test with HOLDLINE_WRITE_OPENAPI=1");
    assert!(made.contains(r#""openapi": "3.1.0""#));
    let ground = Ground::start().await;
    let served = ground.ask("GET", "/api/openapi.json", "").await.json();
    assert_eq!(served, serde_json::from_str::<serde_json::Value>(&kept).expect("JSON"));
}
