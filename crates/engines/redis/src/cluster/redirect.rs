//! What a node says instead of carrying out a command: it belongs elsewhere, or not now.

use super::Place;
use crate::error::ServerWords;

/// What is to be done with a command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another node serves the slot from now on.
    Moved(u16, Place),
    /// Another node may have the key: the slot moves.
    Ask(Place),
    /// The slot moves, and the keys lie on both sides.
    TryAgain,
    /// It may pass: the cluster or the node is not ready, or another takes over.
    Later,
}

impl Redirect {
    /// Reads the words of the node at `teller`; `None` for what is another matter.
    pub(super) fn of(words: &ServerWords, teller: &Place) -> Option<Redirect> {
        // Said from inside a script it came behind writes.
        if words.in_script() {
            return None;
        }
        match words.code.as_str() {
            "MOVED" => place(&words.rest, teller).map(|(slot, to)| Redirect::Moved(slot, to)),
            "ASK" => place(&words.rest, teller).map(|(_, to)| Redirect::Ask(to)),
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" | "BUSY" => Some(Redirect::Later),
            _ => None,
        }
    }
}

/// Reads `3999 127.0.0.1:6381`; without a host it is the teller's.
fn place(rest: &str, teller: &Place) -> Option<(u16, Place)> {
    let (slot, address) = rest.split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "?" => &teller.0,
        host => host,
    };
    Some((slot.parse().ok()?, (host.to_owned(), port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_read_and_nothing_else_is_taken_for_one() {
        let teller = ("here".to_owned(), 1);
        let of = |code: &str, rest: &str| Redirect::of(&ServerWords::new(code, rest), &teller);
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(of("MOVED", "7 10.0.0.1:6"), Some(Redirect::Moved(7, at("10.0.0.1", 6))));
        assert_eq!(of("MOVED", "7 ::1:6"), Some(Redirect::Moved(7, at("::1", 6))));
        assert_eq!(of("ASK", "7 :6"), Some(Redirect::Ask(at("here", 6))));
        assert_eq!(of("TRYAGAIN", "Multiple keys"), Some(Redirect::TryAgain));
        for code in ["CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY"] {
            assert_eq!(of(code, "no"), Some(Redirect::Later), "{code}");
        }
        for (code, rest) in [
            ("MOVED", "7"),
            ("MOVED", "x 10.0.0.1:6"),
            ("ASK", "7 10.0.0.1:70000"),
            ("NOPERM", "no"),
            ("READONLY", "no script: abc, on @user_script:1."),
        ] {
            assert_eq!(of(code, rest), None, "{code} {rest}");
        }
    }
}
