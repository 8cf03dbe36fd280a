//! The spans of a lock: `lock.wait` from the request until the attempt ends, `lock.hold` from the
//! grant until the hold ends. `docs/traces.md` has their fields.
//!
//! Invariant T1: a span begins and ends where an observer is notified, and has an outcome; also if
//! the future of the attempt or the guard is dropped.
//! Invariant T2: both are children of the span in which the name was requested. A hold outlives the
//! wait, so it is no part of it.
//! Invariant T3: without a subscriber that wants them, nothing is formatted and nothing allocated.
//! Read next: `link`, which connects a waiter to the trace of the holder.

#[cfg(feature = "opentelemetry")]
mod link;

use holdline_core::{FencingToken, HolderSummary, LeaseId, LockError, Metadata};
use tracing::Span;
use tracing::field::{Empty, display};

use crate::engines::known::db_system;
use crate::observer::{HoldEnd, failure_outcome};
use crate::plan::Plan;

/// Starts the span of an attempt.
pub(crate) fn wait(plan: &Plan, lease_id: LeaseId) -> Span {
    tracing::debug_span!(
        "lock.wait",
        otel.kind = "internal",
        lock.name = %plan.name,
        lock.class = plan.class.name(),
        lock.mode = %plan.mode,
        lock.engine = plan.engine,
        lock.lease_id = %lease_id.short(),
        db.system.name = db_system(plan.engine),
        lock.blocked_by.holder = Empty,
        lock.blocked_by.traceparent = Empty,
        lock.fencing_token = Empty,
        lock.outcome = Empty,
        "error.type" = Empty,
        otel.status_code = Empty,
    )
}

/// Records who holds the name, and links the span of the attempt to the trace of that holder.
pub(crate) fn blocked_by(span: &Span, holder: &HolderSummary) {
    if span.is_disabled() {
        return;
    }
    span.record("lock.blocked_by.holder", display(holder));
    let traceparent = holder.metadata.fields().traceparent;
    if !traceparent.is_empty() {
        span.record("lock.blocked_by.traceparent", &*traceparent);
        #[cfg(feature = "opentelemetry")]
        link::add(span, &traceparent);
    }
}

/// Records that the attempt was granted the name.
pub(crate) fn granted(span: &Span, token: FencingToken) {
    span.record("lock.fencing_token", token.get());
    span.record("lock.outcome", "acquired");
}

/// Records that the attempt ended without the name. A busy name is an answer, and no error.
pub(crate) fn failed(span: &Span, error: &LockError) {
    if span.is_disabled() {
        return;
    }
    let outcome = failure_outcome(error);
    span.record("lock.outcome", outcome);
    if outcome != "busy" {
        record_error(span, error.kind().word());
    }
}

/// Records that the future of the attempt was dropped.
pub(crate) fn cancelled(span: &Span) {
    span.record("lock.outcome", "cancelled");
}

/// Starts the span of a hold.
pub(crate) fn hold(plan: &Plan, lease_id: LeaseId, token: FencingToken) -> Span {
    tracing::debug_span!(
        "lock.hold",
        otel.kind = "internal",
        lock.name = %plan.name,
        lock.class = plan.class.name(),
        lock.mode = %plan.mode,
        lock.engine = plan.engine,
        lock.lease_id = %lease_id.short(),
        db.system.name = db_system(plan.engine),
        lock.fencing_token = token.get(),
        lock.outcome = Empty,
        "error.type" = Empty,
        otel.status_code = Empty,
    )
}

/// Records how the hold ended, and ends its span.
pub(crate) fn ended(span: Span, end: &HoldEnd) {
    span.record("lock.outcome", end.word());
    if let HoldEnd::Lost(reason) = end {
        record_error(&span, reason.word());
    }
    drop(span);
}

/// Returns the metadata of a request, with the trace in which the name is requested. The caller's
/// own `traceparent` is kept.
pub(crate) fn metadata(plan: &Plan) -> Metadata {
    #[cfg(feature = "opentelemetry")]
    if let Some(metadata) = link::with_current_trace(&plan.metadata) {
        return metadata;
    }
    plan.metadata.clone()
}

fn record_error(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "error");
}
