//! What is put on a connection.

use super::resp::{digits, write_head, write_word};
use super::{Call, Words};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    /// A script by its name; the server may not know it.
    ByName(&'a Call),
    /// A script by its text.
    ByText(&'a Call),
    /// A script by its name, of a node that takes its slot over.
    AskingByName(&'a Call),
    /// A script by its text, of a node that takes its slot over.
    AskingByText(&'a Call),
    Words(&'a Words),
    Ping(&'a str),
    Subscribe(&'a [Vec<u8>]),
    Unsubscribe(&'a [Vec<u8>]),
}

/// A way to run a script.
pub(super) type Way = fn(&Call) -> Request<'_>;

pub(super) fn by_name(call: &Call) -> Request<'_> {
    Request::ByName(call)
}

pub(super) fn by_text(call: &Call) -> Request<'_> {
    Request::ByText(call)
}

pub(super) fn asking_by_name(call: &Call) -> Request<'_> {
    Request::AskingByName(call)
}

pub(super) fn asking_by_text(call: &Call) -> Request<'_> {
    Request::AskingByText(call)
}

impl Request<'_> {
    /// Tells whether a word goes before it that has an answer of its own.
    pub(super) fn asks(&self) -> bool {
        matches!(self, Request::AskingByName(_) | Request::AskingByText(_))
    }

    /// How many messages confirm it; none where it is answered by one reply.
    pub(super) fn confirmations(&self) -> usize {
        match self {
            Request::Subscribe(channels) | Request::Unsubscribe(channels) => channels.len(),
            _ => 0,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.asks() {
            super::resp::write(out, &[b"ASKING"]);
        }
        match self {
            Request::ByName(call) | Request::AskingByName(call) => {
                write_script(out, b"EVALSHA", call.script.sha1(), call);
            }
            Request::ByText(call) | Request::AskingByText(call) => {
                write_script(out, b"EVAL", call.script.text(), call);
            }
            Request::Words(words) => {
                write_head(out, words.count());
                out.extend_from_slice(words.as_written());
            }
            Request::Ping(number) => super::resp::write(out, &[b"PING", number.as_bytes()]),
            Request::Subscribe(channels) => write_all(out, b"SUBSCRIBE", channels),
            Request::Unsubscribe(channels) => write_all(out, b"UNSUBSCRIBE", channels),
        }
    }
}

fn write_script(out: &mut Vec<u8>, verb: &[u8], script: &str, call: &Call) {
    let Call { keys, arguments, .. } = call;
    write_head(out, 3 + keys.count() + arguments.count());
    write_word(out, verb);
    write_word(out, script.as_bytes());
    write_word(out, digits(keys.count() as u64, &mut [0; 20]));
    out.extend_from_slice(keys.as_written());
    out.extend_from_slice(arguments.as_written());
}

fn write_all(out: &mut Vec<u8>, verb: &[u8], words: &[Vec<u8>]) {
    write_head(out, 1 + words.len());
    write_word(out, verb);
    words.iter().for_each(|word| write_word(out, word));
}
