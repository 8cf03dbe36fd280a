//! Repeated checks whether other processes still live.
//!
//! A request for a held name checks whether the holder's process lives. The file is kept open in
//! between: checking an open file costs a fifth of opening it again. A client's number and a token
//! are never reused, so an open file never belongs to another process; the file of a client that is
//! gone is unlocked, whether it was removed or not.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use holdline_core::{ClientId, FencingToken};

use crate::error::Fault;
use crate::liveness::{self, Liveness};

/// How many files are kept open. Beyond that all are closed, and opened again when needed.
const MAX_OPEN: usize = 64;

/// The recently checked liveness files of other processes.
#[derive(Debug)]
pub(crate) struct Probes {
    liveness: Arc<Liveness>,
    clients: HashMap<ClientId, File>,
    grants: HashMap<FencingToken, File>,
}

impl Probes {
    pub(crate) fn of(liveness: Arc<Liveness>) -> Probes {
        Probes { liveness, clients: HashMap::new(), grants: HashMap::new() }
    }

    /// Returns whether the process of a client is gone. Inside the short lock.
    pub(crate) fn is_client_dead(&mut self, client: ClientId) -> Result<bool, Fault> {
        is_dead(&mut self.clients, client, || self.liveness.files.client(client))
    }

    /// Returns whether the processes of a live grant are all gone. Inside the short lock.
    pub(crate) fn is_grant_dead(&mut self, token: FencingToken) -> Result<bool, Fault> {
        is_dead(&mut self.grants, token, || self.liveness.files.grant(token))
    }
}

fn is_dead<K: Eq + Hash, P: AsRef<Path>>(
    known: &mut HashMap<K, File>,
    key: K,
    path: impl FnOnce() -> P,
) -> Result<bool, Fault> {
    if let Some(file) = known.get(&key)
        && liveness::is_locked(file).unwrap_or(false)
    {
        return Ok(false);
    }
    // Engines of one client may have created a new file since that one was released.
    known.remove(&key);
    let Some(file) = liveness::locked(path().as_ref())? else { return Ok(true) };
    if known.len() >= MAX_OPEN {
        known.clear();
    }
    known.insert(key, file);
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Modes;
    use crate::keys::Files;
    use crate::scratch::Scratch;

    #[test]
    fn a_death_is_detected_with_and_without_the_file() {
        let scratch = Scratch::new();
        let files = Files::below(scratch.path());
        std::fs::create_dir(&files.live).expect("made");
        let modes = Modes { directory: 0o700, file: 0o600 };
        let liveness = Arc::new(Liveness { files, modes });
        let mut probes = Probes::of(liveness.clone());
        for removed in [false, true] {
            let client = ClientId::from_u64(u64::from(removed));
            let (file, _) = liveness.client(client).expect("made");
            for _ in 0..3 {
                assert_eq!(probes.is_client_dead(client).ok(), Some(false));
            }
            if removed {
                std::fs::remove_file(liveness.files.client(client)).expect("removed");
            }
            drop(file);
            assert_eq!(probes.is_client_dead(client).ok(), Some(true));
            // The same client comes again, as it does in another engine of one process.
            let (_file, _) = liveness.client(client).expect("made");
            assert_eq!(probes.is_client_dead(client).ok(), Some(false));
        }
        let anchors: Vec<_> = (1..200)
            .map(|token| FencingToken::new(token).expect("a token"))
            .map(|token| (token, liveness.anchor(token).expect("made")))
            .collect();
        for (token, _) in &anchors {
            assert_eq!(probes.is_grant_dead(*token).ok(), Some(false));
        }
        assert!(probes.grants.len() <= MAX_OPEN);
        let (token, anchor) = anchors.into_iter().next_back().expect("many");
        drop(anchor);
        assert_eq!(probes.is_grant_dead(token).ok(), Some(true));
    }
}
