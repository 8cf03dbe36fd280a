//! A Lua script and its SHA-1.

use std::sync::OnceLock;

use holdline_core::ContractTimes;

/// A Lua script, which the server knows by the SHA-1 of its text.
#[derive(Debug)]
pub(crate) struct Script {
    name: &'static str,
    body: &'static str,
    constants: Option<fn(&ContractTimes) -> String>,
    text: OnceLock<String>,
    sha1: OnceLock<String>,
}

impl Script {
    /// Wraps the text; `name` is for messages.
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Script {
        let body = text;
        let constants = None;
        Script { name, body, constants, text: OnceLock::new(), sha1: OnceLock::new() }
    }

    /// Wraps a body that begins with constants, which `constants` writes.
    pub(crate) const fn with_constants(
        name: &'static str,
        constants: fn(&ContractTimes) -> String,
        body: &'static str,
    ) -> Script {
        let constants = Some(constants);
        Script { name, body, constants, text: OnceLock::new(), sha1: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text, built once.
    pub(crate) fn text(&self) -> &str {
        self.text.get_or_init(|| self.text_with(&ContractTimes::DEFAULT))
    }

    /// Builds the text with these times.
    pub(crate) fn text_with(&self, times: &ContractTimes) -> String {
        self.constants.map_or_else(String::new, |constants| constants(times)) + self.body
    }

    /// The SHA-1 of the text in hex, computed once.
    pub(crate) fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| sha1_smol::Sha1::from(self.text()).digest().to_string())
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
        let constants = |_: &ContractTimes| "return ".to_owned();
        let built = Script::with_constants("one", constants, "1");
        assert_eq!((built.text(), built.sha1()), (script.text(), script.sha1()));
    }
}
