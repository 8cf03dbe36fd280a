//! Bad input: what it gets, and that nothing is applied.

use crate::ground::Ground;

#[tokio::test]
async fn bad_input_gets_the_field_and_the_reason() {
    let ground = Ground::start().await;
    let long = "n".repeat(513);
    for (method, path, headers, body, status, field) in [
        ("POST", "/v1/locks/a", "", "{", 400, ""),
        ("POST", "/v1/locks/a", "", "[]", 422, "body"),
        ("POST", "/v1/locks/a", "", r#"{"mod": "shared"}"#, 422, "mod"),
        ("POST", "/v1/locks/a", "", r#"{"mode": "both"}"#, 422, "mode"),
        ("POST", "/v1/locks/a", "", r#"{"wait_ms": 0.5}"#, 422, "wait_ms"),
        ("POST", "/v1/locks/a", "", r#"{"about": {"pid": "x"}}"#, 422, "about.pid"),
        ("POST", "/v1/locks/a", "", r#"{"abuot": {}}"#, 422, "abuot"),
        ("POST", "/v1/locks/a", "", r#"{"about": {"hots": ""}}"#, 422, "about.hots"),
        ("POST", "/v1/locks/a", "", "{} {}", 400, ""),
        ("POST", "/v1/locks/a", "", r#"{"about": ["host", 1]}"#, 422, "about"),
        ("POST", "/v1/sessions", "", r#"{"leases": [["a", "b"]]}"#, 422, "leases[0]"),
        ("POST", "/v1/locks/a", "", "null", 422, "body"),
        ("POST", "/v1/sessions", "", r#"{"leases": [{"name": "a"}]}"#, 422, "leases[0].lease_id"),
        ("POST", "/v1/locks/a", "", r#"{"permits": 1}"#, 422, "permits"),
        ("POST", "/v1/locks/a", "", r#"{"mode": "permits"}"#, 422, "permits_of"),
        (
            "POST",
            "/v1/locks/a",
            "",
            r#"{"mode":"permits","permits":3,"permits_of":2}"#,
            422,
            "permits",
        ),
        ("POST", "/v1/locks/a", "", r#"{"wait_ms": -1}"#, 422, "wait_ms"),
        ("POST", "/v1/locks/a", "", r#"{"wait_ms": 99999999999}"#, 422, "wait_ms"),
        ("POST", "/v1/locks/a", "", r#"{"lease_duration_ms": 1}"#, 422, "lease_duration_ms"),
        ("POST", "/v1/locks/a", "", r#"{"session": "x"}"#, 422, "session"),
        ("POST", "/v1/locks/a", "Idempotency-Key: short\r\n", "", 422, "Idempotency-Key"),
        ("POST", "/v1/locks/%ff", "", "", 400, ""),
        ("POST", "/v1/locks/a%00b", "", "", 422, "name"),
        ("POST", &format!("/v1/locks/{long}"), "", "", 422, "name"),
        ("PUT", "/v1/locks/a/leases/xyz", "", "", 422, "lease_id"),
        ("POST", "/v1/locks/a/revoke", "", r#"{"fencing_token": 0}"#, 422, "fencing_token"),
        ("POST", "/v1/locks/a/revoke", "", r#"{"fencing_token": "1"}"#, 422, "fencing_token"),
        ("POST", "/v1/locks/a/revoke", "", r#"{"fencing_token": 1.5}"#, 422, "fencing_token"),
        (
            "POST",
            "/v1/locks/a/revoke",
            "",
            r#"{"fencing_token": 9007199254740992}"#,
            422,
            "fencing_token",
        ),
        ("POST", "/v1/fence", "", r#"{"above": "7"}"#, 422, "above"),
        ("POST", "/v1/locks/a/revoke", "", "", 422, "fencing_token"),
        ("PUT", "/v1/locks/a/freeze", "", r#"{"duration_ms": 0}"#, 422, "duration_ms"),
        ("POST", "/v1/sessions", "", r#"{"duration_ms": 1}"#, 422, "duration_ms"),
        ("GET", "/v1/locks?limit=0", "", "", 422, "limit"),
        ("GET", "/v1/locks?limits=1", "", "", 400, ""),
        ("GET", "/v1/locks?cursor=%00", "", "", 422, "cursor"),
        ("GET", "/v1/lock", "", "", 404, ""),
        ("PATCH", "/v1/locks/a", "", "", 405, ""),
        ("POST", "/v1/engine/acquire", "", "{}", 422, "name"),
    ] {
        let response = ground.ask_with(method, path, headers, body).await;
        assert_eq!(response.status, status, "{method} {path} {body}: {response:?}");
        let problem = response.json();
        assert_eq!(problem["status"], status, "{response:?}");
        assert_eq!(problem["certainty"], "not_applied", "{response:?}");
        if !field.is_empty() {
            assert_eq!(problem["field"], field, "{method} {path} {body}: {response:?}");
        }
    }
    let list = ground.ask("GET", "/v1/locks", "").await.json();
    assert_eq!(list["locks"].as_array().map(Vec::len), Some(0), "nothing was applied: {list}");
}

#[tokio::test]
async fn a_body_that_is_not_said_to_be_json_is_refused() {
    let ground = Ground::start().await;
    let mut connection = ground.open().await;
    let text = "POST /v1/locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\
                Content-Length: 2\r\n\r\n{}";
    connection.send(text).await;
    let response = connection.response().await;
    assert_eq!((response.status, response.text("kind")), (415, "not_json".to_owned()));
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_refused() {
    let ground = Ground::start().await;
    let head = |headers: &[u8], length: usize| {
        let line = b"POST /v1/locks/a HTTP/1.1\r\nHost: localhost\r\n";
        let length = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        [line, length.as_bytes(), headers, b"\r\n"].concat()
    };
    let body = b"{\"about\": {\"reason\": \"\xff\xfe\"}}";
    let in_body = [head(b"", body.len()).as_slice(), body].concat();
    let in_header = head(b"Idempotency-Key: \xff\xfe\r\n", 0);
    for (bytes, status) in [(in_body, 400), (in_header, 422)] {
        let mut connection = ground.open().await;
        connection.send(&bytes).await;
        assert_eq!(connection.response().await.status, status);
    }
    assert_eq!(ground.ask("GET", "/v1/locks/a", "").await.json()["held"], false);
}

#[tokio::test]
async fn a_name_is_exact_whatever_is_in_it() {
    let ground = Ground::start().await;
    for (path, name) in [
        ("a%2Fb", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("%2F", "/"),
        ("..", ".."),
        ("a%20b", "a b"),
        ("a+b", "a+b"),
        ("%C3%A9", "é"),
        ("%F0%9F%94%92", "🔒"),
        ("a%3Fb%23c", "a?b#c"),
    ] {
        let lease = ground.acquire(path, "").await;
        assert_eq!(lease["name"], name);
        let exact = holdline::LockName::new(name).expect("a good name");
        assert!(ground.client.admin().inspect(&exact).await.expect("memory").is_held(), "{name}");
    }
}

/// A shell has no function that encodes a name, so the slash is what users forget.
#[tokio::test]
async fn a_name_with_a_plain_slash_gets_the_form_to_write() {
    let ground = Ground::start().await;
    let lease = format!("/v1/locks/a/b/leases/{}", "0".repeat(32));
    for (method, path) in [
        ("POST", "/v1/locks/a/b"),
        ("GET", "/v1/locks/deploy/prod/eu"),
        ("POST", "/v1/locks/a/"),
        ("DELETE", &lease),
        ("PUT", "/v1/locks/a/b/freeze"),
        ("POST", "/stores/default/v1/locks/a/b"),
    ] {
        let response = ground.ask(method, path, "").await;
        assert_eq!((response.status, response.text("kind")), (404, "not_found".to_owned()));
        assert!(response.text("fix").contains("`/v1/locks/a%2Fb`"), "{path}: {response:?}");
    }
    for path in ["/v1/lock/a/b", "/v1/nothing", "/stores/none/v1/locks/a"] {
        let response = ground.ask("POST", path, "").await;
        assert_eq!(response.status, 404, "{path}");
        assert!(!response.body.contains("%2F"), "{path}: {response:?}");
    }
    let response = ground.ask("POST", "/v1/locks/", "").await;
    assert!(response.text("detail").contains("lock name"), "{response:?}");
}

#[tokio::test]
async fn every_answer_forbids_frames_caches_and_other_origins() {
    let ground = Ground::start().await;
    for path in ["/healthz", "/v1/locks", "/nowhere"] {
        let response = ground.ask("GET", path, "").await;
        for header in [
            "x-frame-options: deny",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "frame-ancestors 'none'",
        ] {
            assert!(response.headers.contains(header), "{path}: {}", response.headers);
        }
        assert!(!response.headers.contains("access-control-allow-origin"), "{}", response.headers);
    }
    let origin = "Origin: http://evil.example\r\n";
    let response = ground.ask_with("POST", "/v1/locks/a", origin, "").await;
    assert_eq!((response.status, response.text("kind")), (403, "wrong_origin".to_owned()));
    let mut connection = ground.open().await;
    connection.send("GET /v1/locks HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    let response = connection.response().await;
    assert_eq!((response.status, response.text("kind")), (421, "wrong_host".to_owned()));
}
