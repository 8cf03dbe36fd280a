//! Settings that CONFIG shows and changes.

use std::collections::BTreeMap;

use crate::options::RedisOptions;

/// Names and values, as text.
#[derive(Debug, Clone)]
pub(crate) struct Config(BTreeMap<&'static str, String>);

const DEFAULTS: &[(&str, &str)] = &[
    ("appendfsync", "everysec"),
    ("appendonly", "no"),
    ("bind", "* -::*"),
    ("busy-reply-threshold", "5000"),
    (
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    ("databases", "16"),
    ("dir", "/"),
    ("enable-debug-command", "yes"),
    ("lua-time-limit", "5000"),
    ("maxclients", "10000"),
    ("maxmemory", "0"),
    ("maxmemory-clients", "0"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-max-lag", "10"),
    ("min-replicas-to-write", "0"),
    ("notify-keyspace-events", ""),
    ("port", "6379"),
    ("proto-max-bulk-len", "536870912"),
    ("replica-serve-stale-data", "yes"),
    ("requirepass", ""),
    ("save", "3600 1 300 100 60 10000"),
    ("stop-writes-on-bgsave-error", "yes"),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
    ("tracking-table-max-keys", "1000000"),
];

/// Settings that are numbers of bytes: they may have a unit.
const BYTES: &[&str] = &["maxmemory", "proto-max-bulk-len", "maxmemory-clients"];
/// Settings that are plain numbers.
const NUMBERS: &[&str] = &[
    "busy-reply-threshold",
    "lua-time-limit",
    "maxclients",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "tcp-keepalive",
    "timeout",
    "tracking-table-max-keys",
];
/// Settings that are fixed once the server runs.
const FIXED: &[&str] = &["databases", "enable-debug-command"];
const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

impl Config {
    pub(crate) fn new(options: &RedisOptions) -> Config {
        let mut all: BTreeMap<_, _> = DEFAULTS.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        all.insert("requirepass", options.password.clone().unwrap_or_default());
        Config(all)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> usize {
        self.text(name).parse().unwrap_or(0)
    }

    pub(crate) fn max_memory(&self) -> usize {
        self.number("maxmemory")
    }

    pub(crate) fn password(&self) -> Option<&str> {
        Some(self.text("requirepass")).filter(|password| !password.is_empty())
    }

    /// Returns the settings whose names match the pattern.
    pub(crate) fn matching(&self, pattern: &[u8]) -> impl Iterator<Item = (&'static str, &String)> {
        let pattern = pattern.to_ascii_lowercase();
        let fits = move |name: &str| crate::glob::matches(&pattern, name.as_bytes());
        self.0.iter().filter(move |(name, _)| fits(name)).map(|(name, value)| (*name, value))
    }

    /// Changes a setting; the error is the server's message.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
        let Some((known, _)) = DEFAULTS.iter().find(|(known, _)| *known == lower) else {
            let shown = String::from_utf8_lossy(name);
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            ));
        };
        let failed = |why: &str| {
            Err(format!("ERR CONFIG SET failed (possibly related to argument '{lower}') - {why}"))
        };
        if FIXED.contains(known) {
            return failed("can't set immutable config");
        }
        let text = String::from_utf8_lossy(value).into_owned();
        let text = if BYTES.contains(known) {
            match bytes(&text) {
                Some(number) => number.to_string(),
                None => return failed("argument must be a memory value"),
            }
        } else if NUMBERS.contains(known) && text.parse::<u64>().is_err() {
            return failed("argument couldn't be parsed into an integer");
        } else if *known == "maxmemory-policy" && !POLICIES.contains(&text.as_str()) {
            let all = POLICIES.join(", ");
            return failed(&format!("argument(s) must be one of the following: {all}"));
        } else {
            text
        };
        self.0.insert(known, text);
        Ok(())
    }
}

/// Reads a number of bytes with its unit.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1024,
        "m" => 1_000_000,
        "mb" => 1024 * 1024,
        "g" => 1_000_000_000,
        "gb" => 1024 * 1024 * 1024,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_like_the_servers() {
        let mut config = Config::new(&RedisOptions::default());
        assert_eq!(config.set(b"MaxMemory", b"500kb"), Ok(()));
        assert_eq!(config.max_memory(), 512_000);
        assert_eq!(config.set(b"maxmemory-policy", b"volatile-ttl"), Ok(()));
        for (name, value) in [("maxmemory", "x"), ("maxmemory-policy", "y"), ("nothing", "1")] {
            assert!(config.set(name.as_bytes(), value.as_bytes()).is_err(), "{name}");
        }
        assert_eq!(config.matching(b"maxmem*").count(), 3);
    }
}
