//! Traces that show who blocked whom: each wait for a lock and each hold is a span, and the wait
//! links to the span of the holder, in whatever process that is.
//!
//! ```sh
//! # A collector, or a Jaeger, receives OTLP over HTTP on port 4318. Start this twice.
//! HOLDLINE_URL=redis://localhost \
//!     cargo run -p holdline --example otlp --features opentelemetry,redis
//! ```
//!
//! `docs/traces.md` has the fields of the spans.

use std::error::Error;
use std::time::Duration;

use holdline::{Client, LockError};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Instrument, Level, Subscriber, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};

/// Exports the spans of locks, and all others from INFO on.
pub(crate) fn export_to(
    endpoint: &str,
) -> Result<(SdkTracerProvider, impl Subscriber + Send + Sync), ExporterBuildError> {
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("reports").build())
        .build();
    // The spans of locks have the level DEBUG.
    let wanted =
        Targets::new().with_default(Level::INFO).with_target("holdline::spans", Level::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("reports"));
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(wanted));
    Ok((provider, subscriber))
}

/// Writes the report, in one process at a time. Waiters of other processes link to this span.
pub(crate) async fn report(
    client: &Client,
    write: impl Future<Output = ()>,
) -> Result<(), LockError> {
    let report = async {
        let guard = client.mutex("nightly-report")?.lock().await?;
        guard.run(write).await?;
        guard.release().await.into_result()?;
        Ok(())
    };
    report.instrument(info_span!("report")).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (provider, subscriber) = export_to("http://localhost:4318/v1/traces")?;
    tracing::subscriber::set_global_default(subscriber)?;
    let client = Client::from_env().await?;
    report(&client, tokio::time::sleep(Duration::from_secs(10))).await?;
    client.shutdown(Duration::from_secs(5)).await;
    // It blocks while it sends what has not left yet.
    tokio::task::spawn_blocking(move || provider.shutdown()).await??;
    Ok(())
}
