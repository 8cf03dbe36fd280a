//! What the job finds in its environment.

use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline::Guard;

use crate::address;
use crate::failure::Failure;
use crate::held::{self, Held};
use crate::session::Session;
use crate::verbs::common::LEASE_ID;
use crate::view::millis;

/// Sets (`Some`) and removes (`None`) of the job's environment.
pub(super) type Changes = Vec<(OsString, Option<OsString>)>;

/// Returns what a job that runs under this guard finds beside what we found ourselves.
pub(super) fn changes(guard: &Guard, session: &Session, held: &Held) -> Result<Changes, Failure> {
    let capabilities = session.capabilities();
    let live = guard.anchor().is_some();
    let valid_until = (!live).then(|| unix_millis(guard.remaining()).to_string());
    let mut changes: Changes = [
        ("HOLDLINE_NAME", Some(guard.name().as_str().to_owned())),
        ("HOLDLINE_FENCING_TOKEN", Some(guard.fencing_token().to_string())),
        (LEASE_ID, Some(guard.lease_id().to_hex())),
        ("HOLDLINE_ENGINE", Some(capabilities.engine.to_owned())),
        ("HOLDLINE_VALID_UNTIL_MS", valid_until),
        (held::VARIABLE, Some(held.with(capabilities, guard)?)),
    ]
    .into_iter()
    .map(|(name, value)| (OsString::from(name), value.map(OsString::from)))
    .collect();
    if let Some(url) = std::env::var_os("HOLDLINE_URL") {
        let kept = url.to_str().and_then(address::without_password);
        if kept.as_deref().is_none_or(|kept| url != kept) {
            // Never unset: commands inside would lock in another store and not notice. An empty
            // one is refused by them.
            let kept = kept.unwrap_or_default();
            changes.push(("HOLDLINE_URL".into(), Some(OsString::from(kept))));
        }
    }
    Ok(changes)
}

/// Returns the time of day in `left`, for people and scripts: no rule of ours looks at it.
pub(crate) fn unix_millis(left: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(now.saturating_add(left))
}
