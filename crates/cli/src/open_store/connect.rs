//! Waits for a store that cannot be reached, within the time that the verb may wait.

#[cfg(feature = "redis")]
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions};
use holdline_core::{Certainty, ErrorKind, LockError};

use super::{OpenStore, StoreOptions};
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::Failure;

/// The pause between two attempts to reach the store.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Connects within the verb's wait. A verb that waits retries while a majority of the servers, or
/// the master, is missing, as a connected client does. With a limit it also retries while no
/// server accepts the connection. Without one that is an error, unless the verb keeps trying.
pub(super) async fn connect(
    address: &Address,
    client_options: impl Fn() -> ClientOptions,
    options: &StoreOptions<'_>,
) -> Result<Client, LockError> {
    let StoreOptions { wait, keeps_trying, progress, read_only, .. } = *options;
    let retries = |error: &LockError| match error.kind() {
        ErrorKind::NoQuorum { .. } => progress.is_some(),
        ErrorKind::Unavailable { .. } => progress.is_some() && (wait.is_some() || keeps_trying),
        _ => false,
    };
    let mut last_error = None;
    let connecting = async {
        loop {
            let error = match client(&address.url, client_options(), read_only).await {
                Err(error) if retries(&error) => error,
                outcome => return outcome,
            };
            let message = format!("waiting to connect: {}", error.kind());
            if let (Some(console), None) = (progress, last_error.replace(error)) {
                console.info(&message);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    };
    let Some(wait) = wait else { return connecting.await };
    let outcome = tokio::time::timeout(wait, connecting).await;
    outcome.unwrap_or_else(|_| Err(last_error.unwrap_or_else(|| no_answer_within(wait, address))))
}

impl OpenStore {
    /// Repeats an attempt while the store cannot be reached, within `wait`. Each attempt has what
    /// remains of it. Without a limit the first failure is the result, as in [`connect`].
    pub(crate) async fn until_reached<T>(
        &self,
        wait: Option<Duration>,
        console: &Console,
        attempt: impl AsyncFn(Option<Duration>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut reported = false;
        loop {
            let outcome = Box::pin(attempt(wait.map(|wait| self.remaining_wait(wait)))).await;
            let Err(failure) = &outcome else { return outcome };
            let may_repeat = wait.is_some_and(|wait| self.waited() + RETRY_PAUSE < wait);
            if failure.exit != Exit::Unavailable || !may_repeat {
                return outcome;
            }
            if !std::mem::replace(&mut reported, true) {
                console.info(&format!("waiting for the store: {}", failure.message));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
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
