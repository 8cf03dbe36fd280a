//! Who is logged in with a browser.
//!
//! - L1: the browser has an id of 128 random bits in a cookie that scripts cannot read and other
//!   sites cannot send. The server keeps a digest of the id, and a digest of the token.
//! - L2: a session ends after [`LASTS`], at a logout, and with its token.
//! - L3: at most [`MOST`] sessions are kept, and [`MOST_OF_TOKEN`] of one token; one more ends the
//!   oldest, of the same token if that has too many.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use holdline_server::TokenDigest;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// How long a session lasts.
pub(crate) const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// How many sessions are kept.
const MOST: usize = 1_000;
/// How many sessions of one token are kept, so that no token ends the sessions of all others.
const MOST_OF_TOKEN: usize = 50;

type IdDigest = [u8; 32];

/// The sessions of this server.
#[derive(Default)]
pub(crate) struct BrowserSessions(Mutex<HashMap<IdDigest, BrowserSession>>);

struct BrowserSession {
    token: TokenDigest,
    began: Instant,
}

fn digest_of(id: &str) -> IdDigest {
    Sha256::digest(id.as_bytes()).into()
}

impl BrowserSessions {
    /// Begins the session of an id that nobody can guess.
    pub(crate) fn begin(&self, id: &str, token: TokenDigest, now: Instant) {
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| now.duration_since(session.began) < LASTS);
        let of_token = sessions.values().filter(|session| session.token == token).count();
        let is_full = |session: &BrowserSession| {
            if of_token >= MOST_OF_TOKEN { session.token == token } else { sessions.len() >= MOST }
        };
        let ends = sessions.iter().filter(|(_, session)| is_full(session));
        let oldest = ends.min_by_key(|(_, session)| session.began).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            sessions.remove(&oldest);
        }
        sessions.insert(digest_of(id), BrowserSession { token, began: now });
    }

    /// Returns the token of a session.
    pub(crate) fn token(&self, id: &str, now: Instant) -> Option<TokenDigest> {
        let sessions = self.0.lock();
        let session = sessions.get(&digest_of(id))?;
        (now.duration_since(session.began) < LASTS).then_some(session.token)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.0.lock().remove(&digest_of(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_logins_of_one_token_end_no_session_of_another() {
        let sessions = BrowserSessions::default();
        let now = Instant::now();
        let [ours, theirs] = ["a", "b"].map(TokenDigest::of);
        let after = |ms| now + Duration::from_millis(ms);
        sessions.begin("ours", ours, now);
        for number in 0..2 * MOST as u64 {
            sessions.begin(&format!("theirs-{number}"), theirs, after(number));
        }
        assert!(sessions.token("ours", after(5_000)).is_some(), "it goes on");
        assert_eq!(sessions.0.lock().len(), 1 + MOST_OF_TOKEN);
        assert!(sessions.token("theirs-0", after(5_000)).is_none(), "the oldest one has ended");
        assert!(sessions.token("theirs-1999", after(5_000)).is_some());
    }
}
