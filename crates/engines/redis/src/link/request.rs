//! A request, and how it is encoded.

use super::Call;
use super::pending::ShardConfirmation;
use crate::args::{Args, digits, write_arg, write_header};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    /// `EVALSHA`; the server may not know the script.
    BySha1(&'a Call),
    /// `EVAL`.
    ByText(&'a Call),
    /// The same behind `ASKING`, for a cluster node that imports the slot.
    AskingBySha1(&'a Call),
    /// The same behind `ASKING`.
    AskingByText(&'a Call),
    Command(&'a Args),
    Ping(&'a str),
    Subscribe(&'a [Vec<u8>]),
    Unsubscribe(&'a [Vec<u8>]),
    /// One sharded channel: those of one command would have to be in one slot.
    ShardSubscribe(&'a [u8]),
    ShardUnsubscribe(&'a [u8]),
}

/// Makes the request that runs a script in one of the forms.
pub(super) type MakeRequest = fn(&Call) -> Request<'_>;

pub(super) fn by_sha1(call: &Call) -> Request<'_> {
    Request::BySha1(call)
}

pub(super) fn by_text(call: &Call) -> Request<'_> {
    Request::ByText(call)
}

pub(super) fn asking_by_sha1(call: &Call) -> Request<'_> {
    Request::AskingBySha1(call)
}

pub(super) fn asking_by_text(call: &Call) -> Request<'_> {
    Request::AskingByText(call)
}

impl Request<'_> {
    /// Returns whether `ASKING` goes before it, which has a reply of its own.
    pub(super) fn has_asking_prefix(&self) -> bool {
        matches!(self, Request::AskingBySha1(_) | Request::AskingByText(_))
    }

    /// Returns how many pushed messages confirm it; 0 where one reply does.
    pub(super) fn confirmations(&self) -> usize {
        match self {
            Request::Subscribe(channels) | Request::Unsubscribe(channels) => channels.len(),
            _ => 0,
        }
    }

    /// Returns the pushed message that confirms it, if it is about a sharded channel.
    pub(super) fn shard_confirmation(&self) -> Option<ShardConfirmation> {
        match self {
            Request::ShardSubscribe(channel) => Some(("ssubscribe", channel.to_vec())),
            Request::ShardUnsubscribe(channel) => Some(("sunsubscribe", channel.to_vec())),
            _ => None,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.has_asking_prefix() {
            super::resp::write(out, &[b"ASKING"]);
        }
        match self {
            Request::BySha1(call) | Request::AskingBySha1(call) => {
                write_script(out, b"EVALSHA", call.script.sha1(), call);
            }
            Request::ByText(call) | Request::AskingByText(call) => {
                write_script(out, b"EVAL", call.script.text(), call);
            }
            Request::Command(args) => {
                write_header(out, args.count());
                out.extend_from_slice(args.as_encoded());
            }
            Request::Ping(number) => super::resp::write(out, &[b"PING", number.as_bytes()]),
            Request::Subscribe(channels) => write_command(out, b"SUBSCRIBE", channels),
            Request::Unsubscribe(channels) => write_command(out, b"UNSUBSCRIBE", channels),
            Request::ShardSubscribe(channel) => super::resp::write(out, &[b"SSUBSCRIBE", channel]),
            Request::ShardUnsubscribe(channel) => {
                super::resp::write(out, &[b"SUNSUBSCRIBE", channel]);
            }
        }
    }
}

fn write_script(out: &mut Vec<u8>, verb: &[u8], script: &str, call: &Call) {
    let Call { keys, arguments, .. } = call;
    write_header(out, 3 + keys.count() + arguments.count());
    write_arg(out, verb);
    write_arg(out, script.as_bytes());
    write_arg(out, digits(keys.count() as u64, &mut [0; 20]));
    out.extend_from_slice(keys.as_encoded());
    out.extend_from_slice(arguments.as_encoded());
}

fn write_command(out: &mut Vec<u8>, verb: &[u8], args: &[Vec<u8>]) {
    write_header(out, 1 + args.len());
    write_arg(out, verb);
    args.iter().for_each(|arg| write_arg(out, arg));
}
