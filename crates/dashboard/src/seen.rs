//! What this server has seen of a store: its names as of the last round, and the rounds' number.

use std::sync::Arc;

use holdline::Client;
use tokio::sync::watch;

/// What was seen. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Seen(Arc<Inner>);

struct Inner {
    rounds: watch::Sender<u64>,
}

impl Seen {
    /// Makes it, and the work that keeps it up to date.
    pub(crate) fn new(client: Client) -> (Seen, impl Future<Output = ()> + Send + 'static) {
        let seen = Seen(Arc::new(Inner { rounds: watch::Sender::new(0) }));
        let work = async move {
            drop(client);
        };
        (seen, work)
    }

    /// Returns the number of the last round, and its changes.
    pub(crate) fn rounds(&self) -> watch::Receiver<u64> {
        self.0.rounds.subscribe()
    }

    /// Notes that somebody looks.
    pub(crate) fn looked_at(&self) {}
}
