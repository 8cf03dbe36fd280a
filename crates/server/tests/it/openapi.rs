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

/// What generators of clients need.
#[test]
fn operations_have_names_of_their_own_and_words_are_listed() {
    let document = holdline_server::document();
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|item| item.as_object().expect("an item").values());
    let mut ids = std::collections::BTreeSet::new();
    for operation in operations {
        let id = operation["operationId"].as_str().expect("a name");
        assert!(ids.insert(id), "{id} stands twice");
    }
    let schemas = &document["components"]["schemas"];
    let words = |schema: &str| schemas[schema]["enum"].as_array().map_or(0, Vec::len);
    assert_eq!((words("CertaintyWord"), words("LostWord")), (3, 5), "{schemas}");
    assert!(words("Kind") > 20, "{schemas}");
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(schemes["bearer"]["scheme"], "bearer");
    assert_eq!(schemes["certificate"]["type"], "mutualTLS");
    assert_eq!(document["security"].as_array().map(Vec::len), Some(3));
    assert_eq!(document["paths"]["/healthz"]["get"]["security"], serde_json::json!([]));
}
