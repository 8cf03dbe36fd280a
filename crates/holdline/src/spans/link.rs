//! Traces across processes, by OpenTelemetry: a holder states the span in which it requested the
//! name, and the span of a waiter links to that one.
//!
//! Both travel as a W3C `traceparent` in the holder's metadata. Other clients write that text, so
//! what is no trace context is ignored.

use holdline_core::Metadata;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Links a span to the one that a trace context names.
pub(super) fn add(span: &Span, traceparent: &str) {
    if let Some(context) = parse(traceparent) {
        span.add_link(context);
    }
}

/// Returns the metadata with the trace of the current span; `None` if there is none, if the
/// metadata has one, or if no room is left for it.
pub(super) fn with_current_trace(metadata: &Metadata) -> Option<Metadata> {
    let of_span = Span::current().context();
    let of_task = Context::current();
    let current = [&of_span, &of_task].map(|context| context.span().span_context().clone());
    let current = current.iter().find(|context| context.is_valid())?;
    let mut fields = metadata.fields();
    if !fields.traceparent.is_empty() {
        return None;
    }
    fields.traceparent = format(current);
    Metadata::new(&fields).ok()
}

fn format(context: &SpanContext) -> String {
    let trace_id = context.trace_id();
    let span_id = context.span_id();
    let flags = context.trace_flags().to_u8();
    format!("00-{trace_id}-{span_id}-{flags:02x}")
}

/// Reads version 00; a later version may have more fields, which are ignored.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut fields = traceparent.split('-');
    let mut field = |digits: usize| {
        let field = fields.next()?;
        let fits = field.len() == digits && field.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then_some(field)
    };
    let version = field(2)?;
    let trace_id = field(32)?;
    let span_id = field(16)?;
    let flags = field(2)?;
    if version == "ff" || (version == "00" && fields.next().is_some()) {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace_id).ok()?,
        SpanId::from_hex(span_id).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::NONE,
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trace_context_is_read_and_it_comes_back() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = parse(good).expect("a trace context");
        assert!(context.is_sampled() && context.is_remote());
        assert_eq!(format(&context), good);
        let later = good.replacen("00", "01", 1) + "-more";
        assert!(parse(&later).is_some(), "a later version may have more fields");
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01",
        ] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
    }
}
