//! The environment variables of the job.

use std::ffi::{OsStr, OsString};

use holdline::Guard;

use crate::address;
use crate::config::{Address, Source};
use crate::failure::Failure;
use crate::open_store::OpenStore;
use crate::outer_locks::{self, OuterLocks};
use crate::verbs::common::LEASE_ID;
use crate::view::unix_millis;

/// Variables of the job's environment: set (`Some`) or removed (`None`).
pub(super) type Changes = Vec<(OsString, Option<OsString>)>;

/// Returns how the environment of a job under this guard differs from ours.
pub(super) fn changes(
    guard: &Guard,
    store: &OpenStore,
    outer: &OuterLocks,
) -> Result<Changes, Failure> {
    let capabilities = store.capabilities();
    let live = guard.anchor().is_some();
    let valid_until = (!live).then(|| unix_millis(guard.remaining()).to_string());
    // An engine without fencing tokens has numbers in their place that order nothing.
    let token = capabilities.fencing.then(|| guard.fencing_token().to_string());
    let held = outer.with(capabilities, guard.name(), guard.mode(), guard.lease_id())?;
    let mut changes: Changes = [
        ("HOLDLINE_NAME", Some(guard.name().as_str().to_owned())),
        ("HOLDLINE_FENCING_TOKEN", token),
        (LEASE_ID, Some(guard.lease_id().to_hex())),
        ("HOLDLINE_ENGINE", Some(capabilities.engine.to_owned())),
        ("HOLDLINE_VALID_UNTIL_MS", valid_until),
        (outer_locks::VARIABLE, Some(held)),
    ]
    .into_iter()
    .map(|(name, value)| (OsString::from(name), value.map(OsString::from)))
    .collect();
    let inherited = std::env::var_os("HOLDLINE_URL");
    changes.extend(passwords(store.address(), inherited.as_deref()));
    changes.extend(engine(store.address(), inherited));
    Ok(changes)
}

/// Removes the variables that hold the engine's password.
fn passwords(address: &Address, inherited: Option<&OsStr>) -> Changes {
    let urls = [Some(address.url.as_str()), inherited.and_then(OsStr::to_str)];
    let named = urls.into_iter().flatten().filter_map(address::password_variable);
    named.map(|variable| (variable.into(), None)).collect()
}

/// Makes commands inside the job use the engine of its lock.
fn engine(address: &Address, url: Option<OsString>) -> Changes {
    let set = |name: &str, value: OsString| (OsString::from(name), Some(value));
    let cleaned = url.and_then(|url| {
        let kept = url.to_str().and_then(address::without_password);
        if kept.as_deref().is_some_and(|kept| url == kept) {
            return None;
        }
        // Never unset: commands inside would silently lock in another store. They refuse an
        // empty URL.
        Some(set("HOLDLINE_URL", kept.unwrap_or_default().into()))
    });
    match &address.source {
        // A flag is visible to this process only. It holds no password.
        Source::Flag => vec![set("HOLDLINE_URL", address.url.clone().into())],
        // The file may hold a password, so the job gets its path and not its content.
        Source::Named(file) | Source::File(file) => match std::path::absolute(file) {
            Ok(file) => vec![("HOLDLINE_URL".into(), None), set("HOLDLINE_CONFIG", file.into())],
            Err(_) => cleaned.into_iter().collect(),
        },
        Source::Environment | Source::Default => cleaned.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_finds_the_engine_and_no_password() {
        let file = || std::path::PathBuf::from("/etc/x.toml");
        for (source, inherited, expected) in [
            (Source::Environment, Some("local:"), vec![]),
            (Source::Environment, Some("redis://u:pw@h/0"), vec!["HOLDLINE_URL=redis://u@h/0"]),
            (
                Source::Environment,
                Some("redis://h?password=pw&db=1"),
                vec!["HOLDLINE_URL=redis://h?db=1"],
            ),
            (Source::Environment, Some("redis://h?auth=pw"), vec!["HOLDLINE_URL="]),
            (Source::Flag, Some("redis://u:pw@h/0"), vec!["HOLDLINE_URL=used:"]),
            (Source::Flag, None, vec!["HOLDLINE_URL=used:"]),
            (
                Source::Named(file()),
                Some("redis://u:pw@h/0"),
                vec!["HOLDLINE_URL", "HOLDLINE_CONFIG=/etc/x.toml"],
            ),
            (Source::File(file()), None, vec!["HOLDLINE_URL", "HOLDLINE_CONFIG=/etc/x.toml"]),
            (Source::Default, None, vec![]),
        ] {
            let address = Address { url: "used:".into(), source };
            let changes = engine(&address, inherited.map(OsString::from));
            let found: Vec<String> = changes
                .into_iter()
                .map(|(name, value)| match value {
                    Some(value) => format!("{}={}", name.display(), value.display()),
                    None => name.display().to_string(),
                })
                .collect();
            assert_eq!(found, expected, "{address:?} {inherited:?}");
        }
    }
}
