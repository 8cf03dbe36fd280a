//! The reports of a server about itself: `INFO` and `CONFIG GET`.

use std::collections::BTreeMap;

use holdline_core::LockError;

use super::Probe;

/// The fields of `INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info(BTreeMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Info {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Info(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// A field's text; empty where the server does not have it.
    pub(super) fn text(&self, field: &str) -> &str {
        self.0.get(field).map_or("", String::as_str)
    }

    /// A field's number; 0 where the server does not have it.
    pub(super) fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap_or(0)
    }
}

/// The settings that matter; `None` where the user may not ask, or the server has none of that
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config(BTreeMap<&'static str, String>);

impl Config {
    const ASKED: [&'static str; 9] = [
        "appendfsync",
        "appendonly",
        "client-output-buffer-limit",
        "maxmemory-clients",
        "min-replicas-max-lag",
        "min-replicas-to-write",
        "no-appendfsync-on-rewrite",
        "stop-writes-on-bgsave-error",
        "timeout",
    ];

    /// Asks for each setting alone: older servers know one pattern at a time.
    pub(super) async fn ask(probe: &Probe) -> Result<Config, LockError> {
        let mut config = Config::default();
        for name in Config::ASKED {
            let value = probe.ask(&["CONFIG", "GET", name]).await?;
            if let Some([_, value]) = value.as_array()
                && let Some(text) = value.as_text()
            {
                config.0.insert(name, text.to_owned());
            }
        }
        Ok(config)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    #[cfg(test)]
    pub(super) fn of(pairs: &[(&'static str, &str)]) -> Config {
        Config(pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_missing_ones_are_empty() {
        let info =
            Info::parse("# Server\r\nredis_version:7.0.15\r\nodd\r\nuptime_in_seconds:12\r\n");
        assert_eq!(info.text("redis_version"), "7.0.15");
        assert_eq!(info.number("uptime_in_seconds"), 12);
        assert_eq!((info.text("role"), info.number("redis_version")), ("", 0));
    }
}
