//! A Lua script and its SHA-1.

use std::sync::OnceLock;

/// A Lua script, which the server knows by the SHA-1 of its text.
#[derive(Debug)]
pub(crate) struct Script {
    name: &'static str,
    text: &'static str,
    sha1: OnceLock<String>,
}

impl Script {
    /// Wraps the text; `name` is for messages.
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Script {
        Script { name, text, sha1: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    /// The SHA-1 of the text in hex, computed once.
    pub(crate) fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sha1_is_the_one_that_the_server_computes() {
        // The reply to `SCRIPT LOAD 'return 1'`.
        let script = Script::new("one", "return 1");
        assert_eq!(script.sha1(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!((script.name(), script.text()), ("one", "return 1"));
    }
}
