//! What is put on a connection.

use super::Call;
use super::resp::{digits, write_head, write_word};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    /// A script by its name; the server may not know it.
    ByName(&'a Call),
    /// A script by its text.
    ByText(&'a Call),
    Words(&'a [Vec<u8>]),
    Ping(&'a str),
    Subscribe(&'a [Vec<u8>]),
    Unsubscribe(&'a [Vec<u8>]),
}

impl Request<'_> {
    /// How many messages confirm it; none where it is answered by one reply.
    pub(super) fn confirmations(&self) -> usize {
        match self {
            Request::Subscribe(channels) | Request::Unsubscribe(channels) => channels.len(),
            _ => 0,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Request::ByName(call) => write_script(out, b"EVALSHA", call.script.sha1(), call),
            Request::ByText(call) => write_script(out, b"EVAL", call.script.text(), call),
            Request::Words(words) => write_all(out, None, words),
            Request::Ping(number) => super::resp::write(out, &[b"PING", number.as_bytes()]),
            Request::Subscribe(channels) => write_all(out, Some(b"SUBSCRIBE"), channels),
            Request::Unsubscribe(channels) => write_all(out, Some(b"UNSUBSCRIBE"), channels),
        }
    }
}

fn write_script(out: &mut Vec<u8>, verb: &[u8], script: &str, call: &Call) {
    let Call { keys, arguments, .. } = call;
    write_head(out, 3 + keys.len() + arguments.len());
    write_word(out, verb);
    write_word(out, script.as_bytes());
    write_word(out, digits(keys.len(), &mut [0; 20]));
    keys.iter().chain(arguments).for_each(|word| write_word(out, word));
}

fn write_all(out: &mut Vec<u8>, verb: Option<&[u8]>, words: &[Vec<u8>]) {
    write_head(out, usize::from(verb.is_some()) + words.len());
    verb.into_iter().chain(words.iter().map(Vec::as_slice)).for_each(|word| write_word(out, word));
}
