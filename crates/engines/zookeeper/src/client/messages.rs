//! The messages of ZooKeeper that the engine uses, as in `zookeeper.jute` of its sources.

use std::borrow::Cow;

use super::jute::{Decoder, Encoder, Malformed};

/// The xid of a watch event, a ping and an authentication. Requests count from 1.
pub(super) const EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTHENTICATION: i32 = -4;

const OP_CREATE: i32 = 1;
const OP_DELETE: i32 = 2;
const OP_EXISTS: i32 = 3;
const OP_GET_DATA: i32 = 4;
const OP_SET_DATA: i32 = 5;
const OP_SYNC: i32 = 9;
const OP_PING: i32 = 11;
const OP_GET_CHILDREN2: i32 = 12;
const OP_CHECK: i32 = 13;
const OP_MULTI: i32 = 14;
const OP_CREATE2: i32 = 15;
const OP_CREATE_CONTAINER: i32 = 19;
const OP_AUTH: i32 = 100;
const OP_CLOSE_SESSION: i32 = -11;
/// The type of an operation that failed, in the result of a transaction.
const OP_ERROR: i32 = -1;
/// The result of an operation after the one that failed.
const RUNTIME_INCONSISTENCY: i32 = -2;

/// The version of a node that any version matches.
const ANY_VERSION: i32 = -1;
const ALL_RIGHTS: i32 = 31;

/// What the servers know about a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created it.
    pub(crate) czxid: i64,
    /// When it was created, in milliseconds since 1970.
    pub(crate) ctime: i64,
    /// How often its data was changed.
    pub(crate) version: i32,
    /// How often a child was created or deleted.
    pub(crate) cversion: i32,
    pub(crate) num_children: i32,
}

/// Who may use a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acl {
    Anyone,
    /// The users of the session that creates it.
    Creator,
}

/// The kind of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateMode {
    Persistent,
    EphemeralSequential,
    Container,
}

impl CreateMode {
    fn flags(self) -> i32 {
        match self {
            CreateMode::Persistent => 0,
            CreateMode::EphemeralSequential => 3,
            CreateMode::Container => 4,
        }
    }
}

/// A request, and how its reply is decoded.
pub(crate) struct Request<T> {
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
    pub(super) decode: fn(&mut Decoder<'_>) -> Result<T, Malformed>,
}

impl<T> Request<T> {
    fn new(
        op: i32,
        body: Encoder,
        decode: fn(&mut Decoder<'_>) -> Result<T, Malformed>,
    ) -> Request<T> {
        Request { op, body: body.into_bytes(), decode }
    }
}

fn path(path: &str) -> Encoder {
    Encoder::default().text(path)
}

fn nothing(_: &mut Decoder<'_>) -> Result<(), Malformed> {
    Ok(())
}

/// Creates a node; returns its path, and its stat unless it is a container.
pub(crate) fn create(
    at: &str,
    data: &[u8],
    acl: Acl,
    mode: CreateMode,
) -> Request<(String, Option<Stat>)> {
    let body = create_body(at, data, acl, mode);
    match mode {
        // Its stat is not needed.
        CreateMode::Container => {
            Request::new(OP_CREATE_CONTAINER, body, |reply| Ok((reply.text()?.into_owned(), None)))
        }
        CreateMode::Persistent | CreateMode::EphemeralSequential => {
            Request::new(OP_CREATE2, body, |reply| {
                let path = reply.text()?.into_owned();
                Ok((path, Some(stat(reply)?)))
            })
        }
    }
}

fn create_body(at: &str, data: &[u8], acl: Acl, mode: CreateMode) -> Encoder {
    let (scheme, id) = match acl {
        Acl::Anyone => ("world", "anyone"),
        Acl::Creator => ("auth", ""),
    };
    let one_entry = 1;
    let body = path(at).buffer(data).int(one_entry);
    body.int(ALL_RIGHTS).text(scheme).text(id).int(mode.flags())
}

pub(crate) fn delete(at: &str, version: Option<i32>) -> Request<()> {
    Request::new(OP_DELETE, delete_body(at, version), nothing)
}

fn delete_body(at: &str, version: Option<i32>) -> Encoder {
    path(at).int(version.unwrap_or(ANY_VERSION))
}

pub(crate) fn exists(at: &str) -> Request<Stat> {
    Request::new(OP_EXISTS, path(at).bool(false), stat)
}

/// Reads a node's data; `watch` asks for an event when it changes.
pub(crate) fn get_data(at: &str, watch: bool) -> Request<(Vec<u8>, Stat)> {
    Request::new(OP_GET_DATA, path(at).bool(watch), |reply| {
        let data = reply.buffer()?.to_vec();
        Ok((data, stat(reply)?))
    })
}

pub(crate) fn set_data(at: &str, data: &[u8], version: i32) -> Request<Stat> {
    Request::new(OP_SET_DATA, set_body(at, data, version), stat)
}

fn set_body(at: &str, data: &[u8], version: i32) -> Encoder {
    path(at).buffer(data).int(version)
}

/// Reads the names of a node's children; `watch` asks for an event when they change.
pub(crate) fn get_children(at: &str, watch: bool) -> Request<(Vec<String>, Stat)> {
    Request::new(OP_GET_CHILDREN2, path(at).bool(watch), |reply| {
        let children = reply.texts()?;
        Ok((children, stat(reply)?))
    })
}

pub(crate) fn sync(at: &str) -> Request<()> {
    Request::new(OP_SYNC, path(at), nothing)
}

/// Several operations of which all are applied or none.
#[derive(Debug, Default)]
pub(crate) struct Transaction(Encoder);

impl Transaction {
    pub(crate) fn create(self, at: &str, data: &[u8], acl: Acl) -> Transaction {
        let body = create_body(at, data, acl, CreateMode::Persistent);
        self.operation(OP_CREATE, body)
    }

    pub(crate) fn delete(self, at: &str, version: Option<i32>) -> Transaction {
        self.operation(OP_DELETE, delete_body(at, version))
    }

    pub(crate) fn set_data(self, at: &str, data: &[u8], version: i32) -> Transaction {
        self.operation(OP_SET_DATA, set_body(at, data, version))
    }

    pub(crate) fn check(self, at: &str, version: i32) -> Transaction {
        self.operation(OP_CHECK, path(at).int(version))
    }

    fn operation(self, op: i32, body: Encoder) -> Transaction {
        let header = self.0.int(op).bool(false).int(-1);
        Transaction(header.append(&body.into_bytes()))
    }

    /// Returns the request. Its reply is the code of the operation that failed, if one did.
    pub(crate) fn into_request(self) -> Request<Option<i32>> {
        Request::new(OP_MULTI, self.0.int(-1).bool(true).int(-1), failed_operation)
    }
}

fn failed_operation(reply: &mut Decoder<'_>) -> Result<Option<i32>, Malformed> {
    let mut failed = None;
    loop {
        let op = reply.int()?;
        let is_end = reply.bool()?;
        reply.int()?;
        if is_end {
            return Ok(failed);
        }
        match op {
            OP_CREATE => drop(reply.text()?),
            OP_SET_DATA => drop(stat(reply)?),
            OP_DELETE | OP_CHECK => {}
            OP_ERROR => {
                let code = reply.int()?;
                // The operations before the one that failed have 0, those after it the other.
                if code != 0 && code != RUNTIME_INCONSISTENCY {
                    failed.get_or_insert(code);
                }
            }
            _ => return Err(Malformed("a transaction has a result of an unknown type")),
        }
    }
}

fn stat(reply: &mut Decoder<'_>) -> Result<Stat, Malformed> {
    let czxid = reply.long()?;
    let _mzxid = reply.long()?;
    let ctime = reply.long()?;
    let _mtime = reply.long()?;
    let version = reply.int()?;
    let cversion = reply.int()?;
    let _aversion = reply.int()?;
    let _ephemeral_owner = reply.long()?;
    let _data_length = reply.int()?;
    let num_children = reply.int()?;
    let _pzxid = reply.long()?;
    Ok(Stat { czxid, ctime, version, cversion, num_children })
}

/// Returns the frame of a request.
pub(super) fn request_frame(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    Encoder::default().int(xid).int(op).append(body).into_frame()
}

pub(super) fn ping_frame() -> Vec<u8> {
    request_frame(PING, OP_PING, &[])
}

pub(crate) fn close_frame(xid: i32) -> Vec<u8> {
    request_frame(xid, OP_CLOSE_SESSION, &[])
}

/// Returns the frame that authenticates `user:password` by the scheme `digest`.
pub(super) fn digest_frame(credentials: &str) -> Vec<u8> {
    let body = Encoder::default().int(0).text("digest").text(credentials);
    request_frame(AUTHENTICATION, OP_AUTH, &body.into_bytes())
}

/// The first fields of each reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    pub(super) xid: i32,
    /// The last transaction that the server has applied; none in an event.
    pub(super) zxid: i64,
    /// 0, or the code of an error.
    pub(super) code: i32,
}

impl ReplyHeader {
    pub(super) fn decode(reply: &mut Decoder<'_>) -> Result<ReplyHeader, Malformed> {
        Ok(ReplyHeader { xid: reply.int()?, zxid: reply.long()?, code: reply.int()? })
    }
}

/// Why a watch fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// The connection broke, or the session ended: what has changed since is not known.
    Disconnected,
}

/// Decodes a watch event and its path; `None` for a type that no watch of ours is for.
pub(super) fn event<'a>(
    message: &mut Decoder<'a>,
) -> Result<Option<(Event, Cow<'a, str>)>, Malformed> {
    let kind = message.int()?;
    let _session_state = message.int()?;
    let path = message.text()?;
    let event = match kind {
        1 => Event::Created,
        2 => Event::Deleted,
        3 => Event::DataChanged,
        4 => Event::ChildrenChanged,
        _ => return Ok(None),
    };
    Ok(Some((event, path)))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_have_the_format_of_the_protocol() {
        assert_eq!(close_frame(1), [0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5]);
        assert_eq!(ping_frame(), [0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11]);
        let create = create("/a", b"d", Acl::Anyone, CreateMode::EphemeralSequential);
        let body = [
            &[0, 0, 0, 2][..],
            b"/a",
            &[0, 0, 0, 1],
            b"d",
            &[0, 0, 0, 1, 0, 0, 0, 31, 0, 0, 0, 5],
            b"world",
            &[0, 0, 0, 6],
            b"anyone",
            &[0, 0, 0, 3],
        ];
        assert_eq!((create.op, create.body), (15, body.concat()));
        let check = Transaction::default().check("/", -1).into_request();
        let body = [
            &[0, 0, 0, 13, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1][..],
            b"/",
            &[0xff, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff],
        ];
        assert_eq!((check.op, check.body), (14, body.concat()));
    }

    #[test]
    fn the_operation_that_failed_is_found_among_the_results() {
        let result = |codes: &[i32]| {
            let mut reply = Encoder::default();
            for code in codes {
                reply = reply.int(OP_ERROR).bool(false).int(*code).int(*code);
            }
            reply.int(-1).bool(true).int(-1).into_bytes()
        };
        let decode = |bytes: &[u8]| failed_operation(&mut Decoder::new(bytes));
        assert_eq!(decode(&result(&[0, -103, -2])), Ok(Some(-103)));
        assert_eq!(decode(&result(&[])), Ok(None));
        let odd = Encoder::default().int(99).bool(false).int(0).into_bytes();
        assert!(decode(&odd).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let decoder = Decoder::new(&bytes);
            let _ = ReplyHeader::decode(&mut decoder.clone());
            let _ = event(&mut decoder.clone());
            let _ = failed_operation(&mut decoder.clone());
            let _ = (get_data("/", true).decode)(&mut decoder.clone());
            let _ = (get_children("/", true).decode)(&mut decoder.clone());
            let made = create("/", b"", Acl::Creator, CreateMode::Persistent);
            let _ = (made.decode)(&mut decoder.clone());
        }
    }
}
