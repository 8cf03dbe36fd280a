//! What `doctor` checks of the master term of a server behind one address.

use std::time::Duration;

use holdline_core::{Finding, LockError};

use super::Probe;
use super::info::Info;
use crate::keys::Layout;
use crate::link::Value;
use crate::options::RedisOptions;

const FAILOVER: &str = "a server that was promoted or restarted may lack the newest grants, and \
                        must not grant those names again";

/// Checks whether a failover behind the address would be noticed, and whether one was.
pub(super) async fn finding(
    probe: &Probe,
    options: &RedisOptions,
    info: &Result<Info, LockError>,
) -> Finding {
    if !options.failover().quarantine() {
        let finding = Finding::ok("failover", FAILOVER, "quarantine=off");
        return finding.warn(
            "leave out `quarantine=off`, unless the server keeps every write (`appendfsync \
             always`) and no replica may take its place",
        );
    }
    let info = match info {
        Ok(info) => info,
        Err(error) => {
            let found = format!("is not permitted: {error}");
            return Finding::ok("failover", FAILOVER, found).warn(
                "allow INFO to the users of locks: without it a failover behind this address goes \
                 unnoticed, and two clients may hold a name",
            );
        }
    };
    let key = Layout::new(options.key_template(), options.prefix()).master_term();
    let words = vec![b"HMGET".to_vec(), key, b"m".to_vec(), b"r".to_vec(), b"q".to_vec()];
    match probe.ask_bytes(words).await {
        Ok(stored) => judge(info.text("run_id"), stored.as_array().unwrap_or_default(), options),
        Err(error) => Finding::ok("failover", FAILOVER, format!("cannot be read: {error}"))
            .warn("allow HMGET on the keys of the prefix to this user"),
    }
}

/// Judges the run that is recorded, its rest and the operator's end.
fn judge(run: &str, stored: &[Value], options: &RedisOptions) -> Finding {
    let field = |at: usize| stored.get(at).and_then(Value::as_text);
    let Some(known) = field(0) else {
        return Finding::ok("failover", FAILOVER, "no run of the server is recorded yet");
    };
    let is_ended = field(2) == Some("0");
    let rest = field(1).and_then(|rest| rest.rsplit_once(' ')?.1.parse().ok());
    let rest = Duration::from_millis(rest.unwrap_or(0));
    let rules = options.failover();
    let whole = rules.max_lease().saturating_add(rules.old_master());
    let fix = "wait; or, if you know that no earlier lock is held, end it as docs/keys.md says";
    if known != run {
        let found = format!("another run is recorded: nothing will be granted for {whole:?}");
        Finding::ok("failover", FAILOVER, found).warn(fix)
    } else if rest.is_zero() || is_ended {
        Finding::ok("failover", FAILOVER, "this run is recorded, and may grant")
    } else {
        let found = format!("restarted or promoted: nothing is granted for up to {rest:.0?}");
        Finding::ok("failover", FAILOVER, found).warn(fix)
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn the_recorded_run_is_judged() {
        let options = RedisOptions::default();
        let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        for (stored, expected, says) in [
            (vec![Value::Nil, Value::Nil, Value::Nil], Health::Ok, "yet"),
            (vec![text("ab"), text("ab/00 0"), Value::Nil], Health::Ok, "may grant"),
            (vec![text("ab"), text("ab/00 900"), text("0")], Health::Ok, "may grant"),
            (vec![text("ab"), text("ab/00 9000"), text("7")], Health::Warning, "up to 9s"),
            (vec![text("cd"), text("cd/00 0"), text("7")], Health::Warning, "for 72s"),
        ] {
            let found = judge("ab", &stored, &options);
            assert_eq!(found.health(), expected, "{found:?}");
            assert!(found.found().contains(says), "{found:?}");
        }
    }
}
