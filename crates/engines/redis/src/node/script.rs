//! A script and its name on the server.

use std::borrow::Cow;
use std::sync::OnceLock;

/// A Lua script, known to the server by the SHA-1 of its text.
#[derive(Debug)]
pub(crate) struct Script {
    name: &'static str,
    text: Cow<'static, str>,
    sha1: OnceLock<String>,
}

impl Script {
    /// Wraps the text; `name` is for messages.
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Script {
        Script { name, text: Cow::Borrowed(text), sha1: OnceLock::new() }
    }

    /// The same with some phrases replaced, each as often as it is there.
    pub(crate) fn with(&self, phrases: &[(&str, &str)]) -> Script {
        let mut text = self.text.to_string();
        for (phrase, other) in phrases {
            text = text.replace(phrase, other);
        }
        Script { name: self.name, text: Cow::Owned(text), sha1: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The SHA-1 of the text in hex, computed once.
    pub(crate) fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| sha1_smol::Sha1::from(&*self.text).digest().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_one_that_the_server_computes() {
        // As `SCRIPT LOAD 'return 1'` answers.
        let script = Script::new("one", "return 1");
        assert_eq!(script.sha1(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!((script.name(), script.text()), ("one", "return 1"));
    }
}
