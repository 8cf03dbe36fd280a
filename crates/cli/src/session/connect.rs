//! Connects to the engine of a URL, within the time that the verb may wait.

#[cfg(feature = "redis")]
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions};
use holdline_core::{Certainty, ErrorKind, LockError};

use super::SessionOptions;
use crate::config::Address;
use crate::duration;

/// The pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Connects within the verb's wait. A verb that waits retries while a majority of the servers, or
/// the master, is missing, as a connected client does.
pub(super) async fn connect(
    address: &Address,
    client_options: impl Fn() -> ClientOptions,
    options: &SessionOptions<'_>,
) -> Result<Client, LockError> {
    let SessionOptions { wait, progress, read_only, .. } = *options;
    let mut last_error = None;
    let connecting = async {
        loop {
            let error = match client(&address.url, client_options(), read_only).await {
                Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }) => error,
                outcome => return outcome,
            };
            let Some(console) = progress else { return Err(error) };
            if last_error.replace(error.clone()).is_none() {
                console.info(&format!("waiting to connect: {}", error.kind()));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    };
    let Some(wait) = wait else { return connecting.await };
    let outcome = tokio::time::timeout(wait, connecting).await;
    outcome.unwrap_or_else(|_| Err(last_error.unwrap_or_else(|| no_answer_within(wait, address))))
}

async fn client(url: &str, options: ClientOptions, read_only: bool) -> Result<Client, LockError> {
    #[cfg(feature = "redis")]
    if read_only && (url.starts_with("redlock://") || url.starts_with("redlocks://")) {
        let engine = holdline::redlock::read_only(url).await?;
        return Client::with_options(Arc::new(engine), options);
    }
    let _ = read_only;
    Client::connect_with(url, options).await
}

fn no_answer_within(wait: Duration, address: &Address) -> LockError {
    let url = holdline::redact_url(&address.url);
    let message = format!("{url}: no answer to connecting within {}", duration::written(wait));
    LockError::new("holdline", ErrorKind::Unavailable { message }, Certainty::NotApplied)
}
