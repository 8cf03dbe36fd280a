//! Error replies that send a command to another node, or postpone it.

use crate::error::ServerError;
use crate::link::HostPort;

/// What to do with a command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another node serves the slot now: `MOVED`.
    Moved(u16, HostPort),
    /// Another node may have the key, as it imports the slot: `ASK`.
    Ask(HostPort),
    /// The slot migrates, and the keys are on both nodes: `TRYAGAIN`.
    TryAgain,
    /// Neither the node nor the cluster can serve it now; that may pass.
    Unavailable,
}

impl Redirect {
    /// Reads an error reply of the node at `source`; `None` for any other error.
    pub(super) fn parse(reply: &ServerError, source: &HostPort) -> Option<Redirect> {
        // From inside a script, it may come after writes.
        if reply.in_script() {
            return None;
        }
        match reply.code.as_str() {
            "MOVED" => host_port(&reply.rest, source).map(|(slot, to)| Redirect::Moved(slot, to)),
            "ASK" => host_port(&reply.rest, source).map(|(_, to)| Redirect::Ask(to)),
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" | "BUSY" => {
                Some(Redirect::Unavailable)
            }
            _ => None,
        }
    }
}

/// Reads `3999 127.0.0.1:6381`; without a host it is that of the source.
fn host_port(rest: &str, source: &HostPort) -> Option<(u16, HostPort)> {
    let (slot, address) = rest.split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "?" => &source.0,
        host => host,
    };
    Some((slot.parse().ok()?, (host.to_owned(), port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_parsed_and_no_other_error_is_one() {
        let source = ("here".to_owned(), 1);
        let parse =
            |code: &str, rest: &str| Redirect::parse(&ServerError::new(code, rest), &source);
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(parse("MOVED", "7 10.0.0.1:6"), Some(Redirect::Moved(7, at("10.0.0.1", 6))));
        assert_eq!(parse("MOVED", "7 ::1:6"), Some(Redirect::Moved(7, at("::1", 6))));
        assert_eq!(parse("ASK", "7 :6"), Some(Redirect::Ask(at("here", 6))));
        assert_eq!(parse("TRYAGAIN", "Multiple keys"), Some(Redirect::TryAgain));
        for code in ["CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY"] {
            assert_eq!(parse(code, "no"), Some(Redirect::Unavailable), "{code}");
        }
        for (code, rest) in [
            ("MOVED", "7"),
            ("MOVED", "x 10.0.0.1:6"),
            ("ASK", "7 10.0.0.1:70000"),
            ("NOPERM", "no"),
            ("READONLY", "no script: abc, on @user_script:1."),
        ] {
            assert_eq!(parse(code, rest), None, "{code} {rest}");
        }
    }
}
