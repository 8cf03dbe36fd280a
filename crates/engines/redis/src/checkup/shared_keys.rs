//! Counts the lock keys that other libraries share, and those among them that never end, by a
//! bounded `SCAN`.
//!
//! `PTTL`, `OBJECT IDLETIME` and `SCAN` are no uses of a key, so that its idle time stays what it
//! is.

use std::time::Duration;

use holdline_core::snapshot::coarse;
use holdline_core::{Finding, LockError, LockName};

use super::Probe;
use crate::keys::Layout;
use crate::link::Value;
use crate::options::{Dialect, RedisOptions};
use crate::redisson::{self, Names};
use crate::{in_flight::InFlight, plain};

const KEYS: &str = "a key without an expiry is never freed: its client crashed between SETNX and \
                    EXPIRE, or set no expiry at all";
/// How many `SCAN`s one checkup sends: it must not slow a large server down.
const MAX_STEPS: usize = 50;
const STEP: &str = "1000";
/// How many keys are inspected.
const MAX_KEYS: usize = 5_000;
/// How many keys are asked about at the same time.
const AT_ONCE: usize = 32;
const SECOND: Duration = Duration::from_secs(1);
/// How many keys without an expiry are named.
const MAX_NAMED: usize = 5;

/// The keys that were found.
#[derive(Debug, Default)]
struct SharedKeys {
    seen: usize,
    endless: Vec<EndlessKey>,
    /// There are more keys than were inspected.
    more: bool,
}

/// A key without an expiry.
#[derive(Debug)]
struct EndlessKey {
    name: LockName,
    /// For how long nobody has read or written it, where the server knows.
    idle: Option<Duration>,
}

/// How an operator ends a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndBy {
    /// By `holdline revoke --if-holder`.
    Revoke,
    /// On this server alone.
    Hand,
}

/// Inspects the keys that match the template of a dialect that other libraries share.
pub(super) async fn finding(probe: &Probe, options: &RedisOptions, end_by: EndBy) -> Finding {
    let scan = SharedScan::new(options);
    match scan.run(probe).await {
        Ok(keys) => judge(&keys, options.key_template(), scan.may_be_no_locks(), end_by),
        Err(error) => Finding::ok("keys", KEYS, format!("is not permitted: {error}"))
            .warn("allow SCAN and PTTL to this user, or use another user"),
    }
}

/// Which keys are meant.
struct SharedScan {
    layout: Layout,
    dialect: Dialect,
    /// Names whose keys are not locks but ours, of another use.
    plain: plain::Keys,
    redisson: Names,
}

impl SharedScan {
    fn new(options: &RedisOptions) -> SharedScan {
        SharedScan {
            layout: Layout::plain(options.key_template(), options.prefix()),
            dialect: options.dialect(),
            plain: plain::Keys::of(options),
            redisson: Names::of(options),
        }
    }

    fn is_of_redisson(&self) -> bool {
        self.dialect == Dialect::Redisson
    }

    /// Returns whether keys of any other use match the template, too.
    fn may_be_no_locks(&self) -> bool {
        self.layout.matches_every_key() && !self.is_of_redisson()
    }

    fn name_of(&self, key: &Value) -> Option<LockName> {
        let name = self.layout.name_of(key.as_bytes()?)?;
        let checked = match self.dialect {
            Dialect::Redisson => self.redisson.check(&name),
            Dialect::Plain | Dialect::Native => self.plain.check(&name),
        };
        checked.is_ok().then_some(name)
    }

    async fn run(&self, probe: &Probe) -> Result<SharedKeys, LockError> {
        let mut keys = SharedKeys::default();
        let mut cursor = b"0".to_vec();
        let pattern = self.layout.names_beginning("");
        let kind: &[u8] = if self.is_of_redisson() { b"hash" } else { b"string" };
        if self.is_of_redisson() {
            // Fields are read below. A server before 7.2 does not know it.
            let _ = probe.ask(&["CLIENT", "NO-TOUCH", "ON"]).await;
        }
        for _ in 0..MAX_STEPS {
            let words = [
                b"SCAN",
                &cursor[..],
                b"MATCH",
                &pattern,
                b"COUNT",
                STEP.as_bytes(),
                b"TYPE",
                kind,
            ];
            let page = probe.ask_bytes(words.iter().map(|word| word.to_vec()).collect()).await?;
            let Some([next, found]) = page.as_array() else { break };
            let found = found.as_array().unwrap_or_default();
            let names: Vec<LockName> = found.iter().filter_map(|key| self.name_of(key)).collect();
            for part in names.chunks(AT_ONCE) {
                self.look(probe, part, &mut keys).await?;
                if keys.seen >= MAX_KEYS {
                    keys.more = true;
                    return Ok(keys);
                }
            }
            cursor = next.as_bytes().unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                return Ok(keys);
            }
        }
        keys.more = true;
        Ok(keys)
    }

    /// Counts some keys.
    async fn look(
        &self,
        probe: &Probe,
        names: &[LockName],
        keys: &mut SharedKeys,
    ) -> Result<(), LockError> {
        let mut in_flight = InFlight::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let words = vec![b"PTTL".to_vec(), self.key(name)];
            in_flight.push(at, probe.ask_bytes(words));
        }
        let mut endless = Vec::new();
        while let Some((at, left)) = in_flight.next().await {
            match left?.as_integer() {
                Some(-1) => endless.push(&names[at]),
                // It is gone.
                Some(-2) => {}
                _ => keys.seen += 1,
            }
        }
        for name in endless {
            let words = [b"OBJECT", &b"IDLETIME"[..], &self.key(name)].map(<[u8]>::to_vec).to_vec();
            // Not permitted, or not tracked under this eviction policy.
            let idle = probe.ask_bytes(words).await.ok().and_then(|idle| idle.as_integer());
            let idle = idle.and_then(|idle| u64::try_from(idle).ok()).map(Duration::from_secs);
            if self.is_lock(probe, name).await? {
                keys.seen += 1;
                keys.endless.push(EndlessKey { name: name.clone(), idle });
            }
        }
        Ok(())
    }

    fn key(&self, name: &LockName) -> Vec<u8> {
        self.layout.keys_of(name).lock
    }

    /// Returns whether a key of the right type is a lock: of a hash, by some of its fields.
    async fn is_lock(&self, probe: &Probe, name: &LockName) -> Result<bool, LockError> {
        if !self.is_of_redisson() {
            return Ok(true);
        }
        let words = [b"HRANDFIELD", &self.key(name)[..], b"4"].map(<[u8]>::to_vec).to_vec();
        let fields = probe.ask_bytes(words).await?;
        let fields = fields.as_array().unwrap_or_default();
        let is_field = |field: &Value| field.as_text().is_some_and(redisson::is_field_of_lock);
        Ok(!fields.is_empty() && fields.iter().all(is_field))
    }
}

fn judge(keys: &SharedKeys, template: &str, may_be_no_locks: bool, end_by: EndBy) -> Finding {
    let SharedKeys { seen, endless, more } = keys;
    let more = if *more { ", and more that were not looked at" } else { "" };
    let mut found =
        format!("{seen} keys match {template}{more}: {} without an expiry", endless.len());
    let mut named: Vec<&EndlessKey> = endless.iter().collect();
    named.sort_by_key(|key| std::cmp::Reverse(key.idle));
    for (at, key) in named.iter().take(MAX_NAMED).enumerate() {
        found += if at == 0 { ": " } else { ", " };
        found += &key.to_string();
    }
    if endless.len() > MAX_NAMED {
        found += " …";
    }
    let Some(first) = named.first() else { return Finding::ok("keys", KEYS, found) };
    if may_be_no_locks {
        found += ". Every string of the database matches this template, so they may be no locks";
        return Finding::ok("keys", KEYS, found);
    }
    let name = quoted(&first.name);
    let end = match end_by {
        EndBy::Revoke => format!(
            "`holdline who {name}` shows its id, and `holdline revoke {name} --if-holder ID --now \
             --reason TEXT` ends it, unless its value has changed"
        ),
        EndBy::Hand => "DEL it on this server while none of its clients is at work".to_owned(),
    };
    Finding::ok("keys", KEYS, found).warn(format!(
        "find the client that holds it, and let it set the expiry in the same command (SET key \
         value NX PX ms). If no client holds it, {end}"
    ))
}

impl std::fmt::Display for EndlessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", quoted(&self.name))?;
        match self.idle {
            // The server counts whole seconds.
            Some(idle) => write!(f, " (not used for {})", coarse(idle.max(SECOND))),
            None => f.write_str(" (age unknown)"),
        }
    }
}

/// Writes a name as an argument of a shell.
fn quoted(name: &LockName) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:._-".contains(c);
    if !name.as_str().starts_with('-') && name.as_str().chars().all(plain) {
        return name.to_string();
    }
    format!("'{}'", name.as_str().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    fn endless(text: &str, idle: Option<u64>) -> EndlessKey {
        let name = LockName::new(text).expect("a good name");
        EndlessKey { name, idle: idle.map(Duration::from_secs) }
    }

    #[test]
    fn keys_without_an_expiry_are_named_the_oldest_first() {
        let none = SharedKeys { seen: 3, more: true, ..SharedKeys::default() };
        let finding = judge(&none, "lock:{name}", false, EndBy::Revoke);
        assert_eq!(finding.health(), Health::Ok);
        let expected =
            "3 keys match lock:{name}, and more that were not looked at: 0 without an expiry";
        assert_eq!(finding.found(), expected);
        let some = SharedKeys {
            seen: 3,
            endless: vec![endless("a", None), endless("b c", Some(7_200)), endless("d", Some(60))],
            more: false,
        };
        let finding = judge(&some, "lock:{name}", false, EndBy::Revoke);
        assert_eq!(finding.health(), Health::Warning);
        let expected = "3 keys match lock:{name}: 3 without an expiry: 'b c' (not used for \
                        2h00m), d (not used for 1m00s), a (age unknown)";
        assert_eq!(finding.found(), expected);
        let fix = finding.fix().expect("a fix");
        assert!(fix.contains("holdline revoke 'b c' --if-holder ID --now"), "{fix}");
        let finding = judge(&some, "{name}", true, EndBy::Revoke);
        assert_eq!(finding.health(), Health::Ok);
        assert!(finding.found().ends_with("may be no locks"), "{}", finding.found());
    }
}
