//! The locks that the commands above this one hold, so that no command waits for itself.
//!
//! `run` passes the list to its job in `HOLDLINE_HELD`: a JSON array of `{engine, name, mode,
//! lease}`. `lease` is the short form of the lease id, which proves nothing. The outer command
//! waits for this one. A second request for the same engine and name could therefore never be
//! granted, and is refused at once. Only two shared requests are compatible.

use holdline_core::{Capabilities, LeaseId, LockName, Mode, Snapshot};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The environment variable that holds the list.
pub(crate) const VARIABLE: &str = "HOLDLINE_HELD";
/// The longest list that is read or passed on, in bytes: far deeper than anybody nests.
const MAX_LENGTH: usize = 64 * 1024;

/// One lock of a command above this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OuterLock {
    engine: String,
    name: String,
    mode: Mode,
    #[serde(default)]
    lease: String,
}

/// The locks of the commands above this one, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct OuterLocks(Vec<OuterLock>);

impl OuterLocks {
    /// Reads the list that this process was started with.
    pub(crate) fn from_environment() -> Result<OuterLocks, Failure> {
        match std::env::var_os(VARIABLE) {
            None => Ok(OuterLocks::default()),
            Some(text) => OuterLocks::parse(&text.to_string_lossy()),
        }
    }

    fn parse(text: &str) -> Result<OuterLocks, Failure> {
        if text.is_empty() {
            return Ok(OuterLocks::default());
        }
        if text.len() > MAX_LENGTH {
            return Err(too_deep());
        }
        serde_json::from_str(text).map_err(|_| {
            Failure::usage(format_args!("{VARIABLE}: is not a list that holdline wrote"))
                .fix(format_args!("unset {VARIABLE}, unless this runs inside `holdline run`"))
        })
    }

    /// Returns whether a request might wait for a lock of a command above.
    pub(crate) fn may_block(&self, engine: &Capabilities, name: &LockName, mode: Mode) -> bool {
        self.blocking(engine, name, mode).next().is_some()
    }

    /// Refuses a request that would wait for a lock of a command above.
    ///
    /// A process that a job leaves behind keeps the list for ever. So only locks that are still
    /// held, as the snapshot of the name shows, count.
    pub(crate) fn check(
        &self,
        engine: &Capabilities,
        snapshot: &Snapshot,
        mode: Mode,
    ) -> Result<(), Failure> {
        let name = &snapshot.name;
        let all_listed = snapshot.holder_count == snapshot.holders.len();
        let holders = snapshot.holders.iter().map(|holder| holder.summary.lease_id.to_string());
        let holders: Vec<String> = holders.collect();
        let holds = |entry: &&OuterLock| {
            entry.lease.is_empty() || !all_listed || holders.contains(&entry.lease)
        };
        let Some(entry) = self.blocking(engine, name, mode).find(holds) else { return Ok(()) };
        Err(Failure::config(format_args!(
            "{name}: a command above this one holds it already ({}) and waits for this one: it \
             could never be granted",
            entry.mode
        ))
        .fix("drop the inner lock, use another name for it, or take both with --shared"))
    }

    /// Returns the outer locks that a request would wait for.
    fn blocking<'a>(
        &'a self,
        capabilities: &Capabilities,
        name: &'a LockName,
        mode: Mode,
    ) -> impl Iterator<Item = &'a OuterLock> {
        let engine = identity(capabilities);
        let both_shared =
            move |entry: &OuterLock| mode == Mode::Shared && entry.mode == Mode::Shared;
        let same = move |entry: &&OuterLock| entry.engine == engine && entry.name == name.as_str();
        self.0.iter().filter(same).filter(move |entry| !both_shared(entry))
    }

    /// Returns how the innermost command above holds a name, if one does.
    pub(crate) fn mode_of(&self, name: &str) -> Option<Mode> {
        self.0.iter().rev().find(|entry| entry.name == name).map(|entry| entry.mode)
    }

    /// Returns whether a lease id belongs to a `run` above, which renews and releases it.
    pub(crate) fn has(&self, lease_id: LeaseId) -> bool {
        let short = lease_id.short().to_string();
        self.0.iter().any(|entry| entry.lease == short)
    }

    /// Returns the list for a job that runs under one more lock.
    pub(crate) fn with(
        &self,
        capabilities: &Capabilities,
        name: &LockName,
        mode: Mode,
        lease_id: LeaseId,
    ) -> Result<String, Failure> {
        let mut held = self.clone();
        held.0.push(OuterLock {
            engine: identity(capabilities),
            name: name.as_str().to_owned(),
            mode,
            lease: lease_id.short().to_string(),
        });
        let text = serde_json::to_string(&held).map_err(Failure::internal)?;
        if text.len() > MAX_LENGTH { Err(too_deep()) } else { Ok(text) }
    }
}

fn too_deep() -> Failure {
    Failure::usage(format_args!("{VARIABLE}: too many locks inside each other"))
}

/// Returns a short hash of the engine's identity (FNV-1a, 64 bits), the same in every version of
/// this program.
fn identity(capabilities: &Capabilities) -> String {
    let hash = capabilities.identity.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{}:{hash:016x}", capabilities.engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(identity: &str) -> Capabilities {
        Capabilities::reference("local", identity)
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    #[test]
    fn a_request_that_could_never_be_granted_is_refused() {
        let here = engine("here");
        let there = engine("there");
        let id = LeaseId::from_bytes([7; 16]);
        let one =
            OuterLocks::default().with(&here, &name("a"), Mode::Exclusive, id).expect("short");
        let two = OuterLocks::parse(&one).expect("ours").with(&here, &name("b"), Mode::Shared, id);
        let held = OuterLocks::parse(&two.expect("short")).expect("ours");
        assert_eq!(held.mode_of("b"), Some(Mode::Shared));
        assert_eq!((held.mode_of("a"), held.mode_of("c")), (Some(Mode::Exclusive), None));
        assert!(held.has(id) && !held.has(LeaseId::from_bytes([8; 16])));
        let permits = Mode::permits(1, 3).expect("good");
        for (engine, lock, mode, free) in [
            (&here, "a", Mode::Exclusive, false),
            (&here, "a", Mode::Shared, false),
            (&here, "b", Mode::Exclusive, false),
            (&here, "b", Mode::Shared, true),
            (&here, "b", permits, false),
            (&here, "c", Mode::Exclusive, true),
            (&there, "a", Mode::Exclusive, true),
        ] {
            let found = held.blocking(engine, &name(lock), mode).count();
            assert_eq!(found == 0, free, "{lock} {mode}");
        }
    }

    #[test]
    fn a_list_that_is_not_ours_is_refused() {
        for text in ["x", "{}", "[1]", "[{\"engine\":1}]", &"[".repeat(70_000)] {
            assert_eq!(OuterLocks::parse(text).expect_err(text).exit.code(), 64);
        }
        assert_eq!(OuterLocks::parse(""), Ok(OuterLocks::default()));
    }

    #[test]
    fn the_identity_hash_never_changes() {
        assert_eq!(identity(&engine("")), "local:cbf29ce484222325");
        assert_eq!(identity(&engine("a")), "local:af63dc4c8601ec8c");
    }
}
