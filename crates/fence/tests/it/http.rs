//! The layer for tower, by itself and behind a real HTTP server.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use ::http::request::Parts;
use ::http::{Method, Request, Response, StatusCode};
use holdline_fence::http::{
    CheckedToken, FenceStore, FencingLayer, HEADER, MemoryMarks, PostgresMarks, Required,
};
use holdline_fence::{Access, FenceError, PostgresFence, Proof, Rules};
use hyper::body::Bytes;
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{client, database, proof, soon, token};
use crate::web_server::{WebServer, by_path, plain};

/// What came back: the status, and the problem if it is one.
async fn ask<S: FenceStore>(
    layer: &FencingLayer<S, fn(&Parts) -> Option<String>>,
    method: Method,
    path: &str,
    headers: &[&str],
) -> (u16, Value) {
    let echo = service_fn(async |request: Request<String>| {
        let checked = request.extensions().get::<CheckedToken>();
        let checked = checked.map(|c| format!("{} {:?}", c.resource(), c.proof().is_some()));
        Ok::<_, Infallible>(Response::new(format!("\"{}\"", checked.unwrap_or_default())))
    });
    let mut request = Request::builder().method(method).uri(path);
    for value in headers {
        request = request.header(HEADER, *value);
    }
    let request = request.body("a body".to_owned()).expect("a request");
    let response = layer.layer(echo).oneshot(request).await.expect("infallible");
    let problem = response.headers().get("content-type").map(|kind| kind.as_bytes().to_vec());
    let status = response.status();
    assert_eq!(problem.is_some(), !status.is_success());
    assert!(problem.is_none_or(|kind| kind == b"application/problem+json"));
    (status.as_u16(), serde_json::from_str(response.body()).expect("JSON"))
}

fn layer_of<S: FenceStore>(store: S) -> FencingLayer<S, fn(&Parts) -> Option<String>> {
    FencingLayer::new(store, by_path as fn(&Parts) -> Option<String>)
}

#[tokio::test]
async fn late_requests_get_the_token_that_was_seen() {
    let layer = layer_of(MemoryMarks::new(10));
    let (status, body) = ask(&layer, Method::PUT, "/stock/17", &["34"]).await;
    assert_eq!((status, body.as_str()), (200, Some("/stock/17 true")));
    let (status, problem) = ask(&layer, Method::PUT, "/stock/17", &["33"]).await;
    assert_eq!(status, 412);
    assert_eq!(problem["type"], "urn:holdline:problem:stale-fencing-token");
    assert_eq!(problem["title"], "The fencing token is stale");
    assert_eq!(problem["status"], 412);
    assert_eq!((&problem["mine"], &problem["seen"]), (&Value::from(33), &Value::from(34)));
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("fencing token 33 is stale: the resource has accepted 34"), "{detail}");

    // Another resource has a mark of its own, and what is not guarded is let through.
    assert_eq!(ask(&layer, Method::PUT, "/stock/18", &["33"]).await.0, 200);
    let (status, body) = ask(&layer, Method::PUT, "/other", &["rubbish"]).await;
    assert_eq!((status, body.as_str()), (200, Some("")));
    let largest = "9007199254740991";
    assert_eq!(ask(&layer, Method::PUT, "/stock/17", &[largest]).await.0, 200);
    let (_, problem) = ask(&layer, Method::PUT, "/stock/17", &["9007199254740990"]).await;
    assert_eq!(problem["seen"].as_u64(), Some(9_007_199_254_740_991), "with all its digits");
}

#[tokio::test]
async fn readers_that_send_their_token_seal_and_shared_ones_do_not() {
    let store = Arc::new(MemoryMarks::new(10));
    let layer = layer_of(store.clone());
    assert_eq!(ask(&layer, Method::GET, "/stock/17", &["34"]).await.0, 200);
    assert_eq!(store.mark("/stock/17"), Some(token(34)), "its first read is its seal");
    let (status, body) = ask(&layer, Method::GET, "/stock/17", &["40;shared"]).await;
    assert_eq!((status, body.as_str()), (200, Some("/stock/17 false")));
    assert_eq!(store.mark("/stock/17"), Some(token(34)), "a shared holder raises nothing");
    assert_eq!(ask(&layer, Method::GET, "/stock/17", &["33;shared"]).await.0, 412);
    let (status, problem) = ask(&layer, Method::PUT, "/stock/17", &["40;shared"]).await;
    assert_eq!((status, &problem["mine"]), (403, &Value::from(40)));
    assert_eq!(problem["type"], "urn:holdline:problem:fencing-token-refused");
    assert_eq!(ask(&layer, Method::PUT, "/stock/17", &["34"]).await.0, 200);
}

#[tokio::test]
async fn a_token_is_asked_for_where_it_is_required() {
    for (required, get, put) in
        [(Required::ForWrites, 200, 428), (Required::Always, 428, 428), (Required::Never, 200, 200)]
    {
        let layer = layer_of(MemoryMarks::new(10)).with_required(required);
        assert_eq!(ask(&layer, Method::GET, "/stock/17", &[]).await.0, get, "{required:?}");
        for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            let (status, problem) = ask(&layer, method, "/stock/17", &[]).await;
            assert_eq!(status, put, "{required:?}");
            if status == 428 {
                let kind = "urn:holdline:problem:fencing-token-required";
                assert_eq!((problem["type"].as_str(), problem.get("mine")), (Some(kind), None));
            }
        }
    }
}

#[tokio::test]
async fn malformed_tokens_are_bad_requests_also_where_none_is_required() {
    let store = Arc::new(MemoryMarks::new(10));
    let layer = layer_of(store.clone()).with_required(Required::Never);
    for headers in
        [&["0"] as &[&str], &["-3"], &["many"], &["34, 35"], &["34", "34"], &["9007199254740992"]]
    {
        let (status, problem) = ask(&layer, Method::PUT, "/stock/17", headers).await;
        assert_eq!(status, 400, "{headers:?}");
        assert_eq!(problem["type"], "urn:holdline:problem:malformed-fencing-token");
    }
    assert_eq!(store.mark("/stock/17"), None);
}

/// A store that returns this error.
struct Broken(fn() -> FenceError);

impl FenceStore for Broken {
    async fn check<A: Access + Send + Sync>(
        &self,
        _: &str,
        _: &Proof<A>,
    ) -> Result<(), FenceError> {
        Err((self.0)())
    }

    async fn seal(&self, _: &str, _: &Proof) -> Result<(), FenceError> {
        Err((self.0)())
    }
}

#[tokio::test]
async fn when_the_store_fails_nothing_passes_and_no_detail_is_shown() {
    let makes: [(fn() -> FenceError, u16); 4] = [
        (|| FenceError::failed("asking db.internal:5432", "secret"), 503),
        (|| FenceError::unsure("asking db.internal:5432", "secret"), 503),
        (|| FenceError::Busy { what: "secret".to_owned() }, 503),
        (|| FenceError::Foreign { found: "secret".to_owned() }, 500),
    ];
    for (make, expected) in makes {
        for method in [Method::GET, Method::PUT] {
            let (status, problem) =
                ask(&layer_of(Broken(make)), method, "/stock/17", &["34"]).await;
            assert_eq!(status, expected);
            let text = problem.to_string();
            assert!(!text.contains("secret") && !text.contains("internal"), "{text}");
        }
    }
    // No mark is dropped to make room for another.
    let layer = layer_of(MemoryMarks::new(1));
    assert_eq!(ask(&layer, Method::PUT, "/stock/17", &["34"]).await.0, 200);
    assert_eq!(ask(&layer, Method::PUT, "/stock/18", &["34"]).await.0, 503);
    assert_eq!(ask(&layer, Method::PUT, "/stock/17", &["33"]).await.0, 412);
    // The rules of a store hold at the door too.
    let limit = std::num::NonZeroU64::new(10).expect("not zero");
    let rules = Rules::default().max_jump(limit);
    let layer = layer_of(MemoryMarks::new(1).with_rules(rules));
    assert_eq!(ask(&layer, Method::PUT, "/stock/17", &["34"]).await.0, 200);
    let (status, problem) = ask(&layer, Method::PUT, "/stock/17", &["99"]).await;
    assert_eq!((status, &problem["seen"]), (403, &Value::from(34)));
}

/// A body that fails the test when anybody reads it.
struct Unread;

impl hyper::body::Body for Unread {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        panic!("the layer has read the body")
    }
}

#[tokio::test]
async fn bodies_are_never_read_and_forged_extensions_are_removed() {
    let seen = Arc::new(AtomicUsize::new(0));
    let inner = service_fn({
        let seen = seen.clone();
        move |request: Request<Unread>| {
            seen.fetch_add(1, Ordering::Relaxed);
            let forged = request.extensions().get::<CheckedToken>().is_some();
            async move { Ok::<_, Infallible>(Response::new(forged.to_string())) }
        }
    });
    let service = layer_of(MemoryMarks::new(10)).layer(inner);
    for (token, expected) in [("34", StatusCode::OK), ("33", StatusCode::PRECONDITION_FAILED)] {
        let request = Request::put("/stock/17").header(HEADER, token).body(Unread);
        let response = service.clone().oneshot(request.expect("a request")).await;
        assert_eq!(response.expect("infallible").status(), expected);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 1);

    // A request that comes with somebody's extension, for what is not guarded.
    let taken = Arc::new(parking_lot::Mutex::new(None));
    let spy = service_fn({
        let taken = taken.clone();
        move |request: Request<Unread>| {
            *taken.lock() = request.extensions().get::<CheckedToken>().cloned();
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        }
    });
    let spied = layer_of(MemoryMarks::new(10)).layer(spy);
    let request = Request::put("/stock/17").header(HEADER, "34").body(Unread);
    spied.oneshot(request.expect("a request")).await.expect("infallible");
    let forged = taken.lock().clone().expect("checked");
    let request = Request::put("/other").extension(forged).body(Unread).expect("a request");
    let response = service.oneshot(request).await.expect("infallible");
    assert_eq!(response.body(), "false");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_refuses_late_requests_on_the_wire() {
    let server = WebServer::start().await;
    let address = server.address;
    let asked = tokio::task::spawn_blocking(move || {
        [
            plain(address, "PUT /stock/17 token=34", "9"),
            plain(address, "PUT /stock/17 token=33", "8"),
            plain(address, "PUT /stock/17", "7"),
            plain(address, "PUT /stock/17 token=many", "6"),
            plain(address, "PUT /stock/17 token=34", "5"),
        ]
    });
    let [first, late, missing, malformed, again] = soon("answers", asked).await.expect("no panic");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(late.starts_with("HTTP/1.1 412 Precondition Failed\r\n"), "{late}");
    assert!(late.contains("content-type: application/problem+json\r\n"), "{late}");
    assert!(late.contains("\"mine\":33") && late.contains("\"seen\":34"), "{late}");
    assert!(missing.starts_with("HTTP/1.1 428 Precondition Required\r\n"), "{missing}");
    assert!(malformed.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{malformed}");
    assert!(again.starts_with("HTTP/1.1 200 OK\r\n"), "{again}");
    assert_eq!(server.stock.read(&proof(34), String::clone).expect("the newest"), "5");
}

/// The door and the handler's transaction look at one table: what overtakes a request between the
/// two is refused where it writes.
#[tokio::test]
async fn a_request_that_becomes_stale_after_the_layer_is_refused_in_the_transaction() {
    let server = database();
    let db = Arc::new(client(&server.url()).await);
    let marks = PostgresMarks::new(db.clone());
    let (newer, url) = (marks.fence("/stock/17"), server.url());
    let handler = service_fn(move |request: Request<String>| {
        let (newer, url) = (newer.clone(), url.clone());
        async move {
            let mut db = client(&url).await;
            // The handler is paused here, and somebody newer comes.
            newer.seal(&db, &proof(35)).await.expect("newer");
            let checked: &CheckedToken = request.extensions().get().expect("checked");
            let wrote = PostgresFence::new(checked.resource())
                .check_and_write(&mut db, checked.proof().expect("exclusive"), async |step| {
                    step.execute("UPDATE stock SET apples = 8", &[]).await
                })
                .await;
            let text = wrote.map_or_else(|error| error.to_string(), |_| "written".to_owned());
            Ok::<_, Infallible>(Response::new(text))
        }
    });
    let service = FencingLayer::new(marks, by_path).layer(handler);
    let request = |token: &str| {
        let request = Request::put("/stock/17").header(HEADER, token);
        request.body(String::new()).expect("a request")
    };
    let response = service.clone().oneshot(request("34")).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::OK, "it was the newest at the door");
    assert_eq!(response.body(), "fencing token 34 is stale: the resource has accepted 35");
    assert_eq!(server.sql("SELECT apples FROM stock"), ["10"]);
    let response = service.oneshot(request("34")).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::PRECONDITION_FAILED, "and is late at the door now");
}
