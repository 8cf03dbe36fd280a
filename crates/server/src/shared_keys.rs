//! Counts the locks of other libraries in a store that they share, and the keys that never end.
//!
//! A listing reads all keys of the store, so the server counts rarely, and not without a bound.

use std::time::Duration;

use holdline_core::{Capabilities, HolderView, ListRequest, LockError};

use crate::app::App;
use crate::metrics::SharedKeys;

/// How often the server counts.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many pages of names are counted.
const MAX_PAGES: usize = 10;

/// Returns whether other libraries may hold names of the store: their holders have no tokens, so
/// only there are holders revoked by their id.
fn is_shared(capabilities: &Capabilities) -> bool {
    capabilities.list && capabilities.revoke_holder
}

/// Counts again, as long as the server runs. A store that does not answer keeps its last numbers.
pub(crate) async fn watch(app: &App) {
    if !is_shared(app.client.capabilities()) {
        return;
    }
    loop {
        match count(app).await {
            Ok(keys) => app.metrics.shared_keys(&app.store, &keys),
            Err(error) => tracing::debug!(store = %app.store, %error, "keys are not counted"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn count(app: &App) -> Result<SharedKeys, LockError> {
    let mut keys = SharedKeys::default();
    let mut request = ListRequest::default();
    for _ in 0..MAX_PAGES {
        let page = app.client.admin().list(&request).await?;
        for holder in page.names.iter().flat_map(|snapshot| &snapshot.holders) {
            keys.foreign += usize::from(is_foreign(holder));
            keys.without_expiry += usize::from(holder.summary.no_expiry);
        }
        request.after = page.after;
        if request.after.is_none() {
            break;
        }
    }
    Ok(keys)
}

/// A holder of ours has the time of its grant in its key.
fn is_foreign(holder: &HolderView) -> bool {
    holder.summary.held_for.is_none()
}
