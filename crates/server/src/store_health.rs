//! What the server knows of a store since it looked last.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::sync::Mutex;

/// What is known of a store.
pub(crate) struct StoreHealth {
    pub(crate) is_up: AtomicBool,
    /// Whether it has answered since the server started.
    pub(crate) has_answered: AtomicBool,
    pub(crate) last_look: Mutex<Option<Instant>>,
}

impl Default for StoreHealth {
    /// The server has connected to the store, so it is taken to answer until somebody looks.
    fn default() -> StoreHealth {
        let is_up = AtomicBool::new(true);
        let has_answered = AtomicBool::new(false);
        StoreHealth { is_up, has_answered, last_look: Mutex::default() }
    }
}
