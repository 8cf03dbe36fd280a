//! Who is logged in with a browser.
//!
//! - L1: the browser has an id of 128 random bits in a cookie that scripts cannot read and other
//!   sites cannot send. The server keeps a digest of the id, and a digest of the token.
//! - L2: a session ends after [`LASTS`], at a logout, and with its token.
//! - L3: at most [`MOST`] sessions are kept; one more ends the oldest.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use holdline_server::TokenDigest;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// How long a session lasts.
pub(crate) const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// How many sessions are kept.
const MOST: usize = 1_000;

type Key = [u8; 32];

/// The sessions of this server.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Key, Session>>);

struct Session {
    token: TokenDigest,
    began: Instant,
}

fn key(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

impl Sessions {
    /// Begins the session of an id that nobody can guess.
    pub(crate) fn begin(&self, id: &str, token: TokenDigest, now: Instant) {
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| now.duration_since(session.began) < LASTS);
        if sessions.len() >= MOST {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.began);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                sessions.remove(&oldest);
            }
        }
        sessions.insert(key(id), Session { token, began: now });
    }

    /// Returns the token of a session.
    pub(crate) fn token(&self, id: &str, now: Instant) -> Option<TokenDigest> {
        let sessions = self.0.lock();
        let session = sessions.get(&key(id))?;
        (now.duration_since(session.began) < LASTS).then_some(session.token)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.0.lock().remove(&key(id));
    }
}
