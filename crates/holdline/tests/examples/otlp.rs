//! The example `otlp`, with a collector that receives what its exporter sends.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as Ended;
use prost::Message;
use tokio::sync::oneshot;

use super::callsites::decided;
use super::examples::otlp;
use super::{LockName, redis};

/// The spans that the collector has received, with the name of their service.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<(String, Span)>>>);

impl Received {
    /// The one span of a name that has an attribute.
    fn span(&self, name: &str, key: &str, value: &str) -> Span {
        let received = self.0.lock().expect("no panic");
        let all = || received.iter().map(|(_, span)| span);
        let fits = |span: &&Span| span.name == name && attribute(span, key) == value;
        assert_eq!(all().filter(fits).count(), 1, "{name} {key}={value}: {received:?}");
        all().find(fits).expect("it was counted").clone()
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Receives `POST /v1/traces` as a collector does.
async fn receive(State(received): State<Received>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut all = received.0.lock().expect("no panic");
    for spans in request.resource_spans {
        let attributes = spans.resource.unwrap_or_default().attributes;
        let service = attributes.into_iter().find(|one| one.key == "service.name");
        let service = format!("{:?}", service.and_then(|service| service.value?.value));
        let scopes = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        all.extend(scopes.map(|span| (service.clone(), span)));
    }
    StatusCode::OK
}

async fn collector() -> (String, Received) {
    let received = Received::default();
    let service = Router::new().route("/v1/traces", post(receive)).with_state(received.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, service).await });
    (format!("http://{address}/v1/traces"), received)
}

#[tokio::test]
async fn otlp_exports_a_wait_that_links_to_the_span_of_the_holder() {
    let (_server, [first, second]) = redis().await;
    decided(&["report", "lock.wait", "lock.hold"], async || {
        otlp::report(&first, async {}).await.expect("free");
    })
    .await;
    let (endpoint, received) = collector().await;
    let (provider, subscriber) = otlp::export_to(&endpoint).expect("an exporter");
    let here = tracing::subscriber::set_default(subscriber);
    let (begun, has_begun) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let holds = otlp::report(&first, async {
        begun.send(()).expect("it is awaited");
        ended.await.expect("the sender lives");
    });
    let waits = async {
        has_begun.await.expect("the first holds");
        otlp::report(&second, async {}).await
    };
    let queued = async {
        let name = LockName::new("nightly-report").expect("a name");
        while first.admin().inspect(&name).await.expect("an answer").queue_length == 0 {}
        end.send(()).expect("the holder waits for it");
    };
    let (held, waited, ()) = tokio::join!(holds, waits, queued);
    held.and(waited).expect("both had their turn");
    drop(here);
    // Blocking, so on another thread: the collector runs on this one.
    let sent = tokio::task::spawn_blocking(move || provider.shutdown()).await;
    sent.expect("no panic").expect("the collector has answered");

    // The first span of a lock has the smaller token.
    let tokens = |name: &str| {
        let received = received.0.lock().expect("no panic");
        let spans = received.iter().filter(|(_, span)| span.name == name);
        let mut tokens: Vec<u64> = spans
            .map(|(_, span)| attribute(span, "lock.fencing_token").parse().expect("a token"))
            .collect();
        tokens.sort_unstable();
        tokens
    };
    let holds = tokens("lock.hold");
    assert_eq!((holds.len(), tokens("lock.wait")), (2, holds.clone()));
    let of = |name: &str, token: u64| received.span(name, "lock.fencing_token", &token.to_string());
    let (hold, wait) = (of("lock.hold", holds[0]), of("lock.wait", holds[1]));
    let outcomes = [(&hold, "released"), (&wait, "acquired")];
    for (span, outcome) in outcomes {
        for (key, value) in [
            ("lock.name", "nightly-report"),
            ("lock.class", "default"),
            ("lock.mode", "exclusive"),
            ("lock.engine", "redis"),
            ("db.system.name", "redis"),
            ("lock.outcome", outcome),
        ] {
            assert_eq!(attribute(span, key), value, "{key}: {span:?}");
        }
        assert_eq!(span.kind, SpanKind::Internal as i32, "{span:?}");
        let status = span.status.as_ref().map_or(0, |status| status.code);
        assert_eq!(status, Ended::Unset as i32, "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    }
    // The hold is a child of the span that the wait links to, in another trace than the wait's.
    assert_eq!(wait.links.len(), 1, "{wait:?}");
    let link = &wait.links[0];
    assert_eq!((&link.trace_id, &link.span_id), (&hold.trace_id, &hold.parent_span_id));
    assert_ne!(wait.trace_id, hold.trace_id);
    let all = received.0.lock().expect("no panic").clone();
    let linked = all.iter().find(|(_, span)| span.span_id == link.span_id);
    assert_eq!(linked.map(|(_, span)| &*span.name), Some("report"), "{all:?}");
    assert!(of("lock.wait", holds[0]).links.is_empty(), "nobody blocked the first");
    assert!(all.iter().all(|(service, _)| service.contains("reports")), "{all:?}");
}
