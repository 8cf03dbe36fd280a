//! What the commands above this one hold, so that nobody waits for himself.
//!
//! `run` hands the list to its job in `HOLDLINE_HELD`: a JSON array of `{engine, name, mode,
//! lease}`, where `lease` is the lease id cut to what proves nothing.
//! A second request for a pair of engine and name on that list could never be granted while the
//! one above waits for us, so it is refused at once; A in B in A as well. Only two shared
//! requests go together.

use holdline::Guard;
use holdline_core::{Capabilities, LeaseId, LockName, Mode};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::session::Session;

/// The variable.
pub(crate) const VARIABLE: &str = "HOLDLINE_HELD";
/// The longest list that is read or handed on, in bytes: far deeper than anybody nests.
const LARGEST: usize = 64 * 1024;

/// One name that is held further up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    engine: String,
    name: String,
    mode: Mode,
    #[serde(default)]
    lease: String,
}

/// What is held further up, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Held(Vec<Entry>);

impl Held {
    /// Reads the list that was handed to this process.
    pub(crate) fn from_environment() -> Result<Held, Failure> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Held::default()),
            Some(text) => Held::parse(&text.to_string_lossy()),
        }
    }

    fn parse(text: &str) -> Result<Held, Failure> {
        if text.is_empty() {
            return Ok(Held::default());
        }
        if text.len() > LARGEST {
            return Err(too_deep());
        }
        serde_json::from_str(text).map_err(|_| {
            Failure::usage(format_args!("{VARIABLE}: is not a list that holdline wrote"))
                .fix(format_args!("unset {VARIABLE}, unless this runs inside `holdline run`"))
        })
    }

    /// Refuses a request that would wait for one further up.
    ///
    /// What a job leaves running keeps the list for ever, so the store is asked whether the one
    /// further up still has the name.
    pub(crate) async fn check(
        &self,
        session: &Session,
        name: &LockName,
        mode: Mode,
    ) -> Result<(), Failure> {
        let mut in_the_way = self.in_the_way(session.capabilities(), name, mode).peekable();
        if in_the_way.peek().is_none() {
            return Ok(());
        }
        let snapshot = session.inspect(name).await?;
        let all_seen = snapshot.holder_count == snapshot.holders.len();
        let holders = snapshot.holders.iter().map(|holder| holder.summary.lease_id.to_string());
        let holders: Vec<String> = holders.collect();
        let holds =
            |entry: &&Entry| entry.lease.is_empty() || !all_seen || holders.contains(&entry.lease);
        let Some(entry) = in_the_way.find(holds) else { return Ok(()) };
        Err(Failure::config(format_args!(
            "{name}: a command above this one holds it already ({}) and waits for this one: it \
             could never be granted",
            entry.mode
        ))
        .fix("drop the inner lock, use another name for it, or take both with --shared"))
    }

    /// Returns the entries that a request would wait for.
    fn in_the_way<'a>(
        &'a self,
        capabilities: &Capabilities,
        name: &'a LockName,
        mode: Mode,
    ) -> impl Iterator<Item = &'a Entry> {
        let engine = identity(capabilities);
        let goes_along = move |entry: &Entry| mode == Mode::Shared && entry.mode == Mode::Shared;
        let same = move |entry: &&Entry| entry.engine == engine && entry.name == name.as_str();
        self.0.iter().filter(same).filter(move |entry| !goes_along(entry))
    }

    /// Returns how the innermost command above holds a name, if one does.
    pub(crate) fn mode_of(&self, name: &str) -> Option<Mode> {
        self.0.iter().rev().find(|entry| entry.name == name).map(|entry| entry.mode)
    }

    /// Tells whether a lease id belongs to a `run` further up, which renews and releases it.
    pub(crate) fn has(&self, lease_id: LeaseId) -> bool {
        let short = lease_id.short().to_string();
        self.0.iter().any(|entry| entry.lease == short)
    }

    /// Returns the list for a job that runs under one more guard.
    pub(crate) fn with(
        &self,
        capabilities: &Capabilities,
        guard: &Guard,
    ) -> Result<String, Failure> {
        self.and(capabilities, guard.name(), guard.mode(), guard.lease_id())
    }

    fn and(
        &self,
        capabilities: &Capabilities,
        name: &LockName,
        mode: Mode,
        lease_id: LeaseId,
    ) -> Result<String, Failure> {
        let mut held = self.clone();
        held.0.push(Entry {
            engine: identity(capabilities),
            name: name.as_str().to_owned(),
            mode,
            lease: lease_id.short().to_string(),
        });
        let text = serde_json::to_string(&held).map_err(Failure::internal)?;
        if text.len() > LARGEST { Err(too_deep()) } else { Ok(text) }
    }
}

fn too_deep() -> Failure {
    Failure::usage(format_args!("{VARIABLE}: too many locks inside each other"))
}

/// Returns a short stand-in for the engine's identity (FNV-1a, 64 bits), the same in every
/// version of this program.
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
    fn refuses_what_could_never_be_granted() {
        let (here, there) = (engine("here"), engine("there"));
        let id = LeaseId::from_bytes([7; 16]);
        let one = Held::default().and(&here, &name("a"), Mode::Exclusive, id).expect("short");
        let two = Held::parse(&one).expect("ours").and(&here, &name("b"), Mode::Shared, id);
        let held = Held::parse(&two.expect("short")).expect("ours");
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
            let found = held.in_the_way(engine, &name(lock), mode).count();
            assert_eq!(found == 0, free, "{lock} {mode}");
        }
    }

    #[test]
    fn a_list_that_is_not_ours_is_refused() {
        for text in ["x", "{}", "[1]", "[{\"engine\":1}]", &"[".repeat(70_000)] {
            assert_eq!(Held::parse(text).expect_err(text).exit.code(), 64);
        }
        assert_eq!(Held::parse(""), Ok(Held::default()));
    }

    #[test]
    fn the_stand_in_never_changes() {
        assert_eq!(identity(&engine("")), "local:cbf29ce484222325");
        assert_eq!(identity(&engine("a")), "local:af63dc4c8601ec8c");
    }
}
