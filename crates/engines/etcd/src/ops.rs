//! The operations of a transaction, and the replies to them.

use crate::error::protocol;
use crate::keys::Span;
use crate::proto::{
    Compare, CompareResult, CompareTarget, CompareWith, DeleteRangeRequest, KeyValue, PutRequest,
    RangeRequest, RangeResponse, Request, RequestOp, Response, SortOrder, SortTarget, TxnResponse,
};
use holdline_core::LockError;

/// There is no such key.
pub(crate) fn absent(key: Vec<u8>) -> Compare {
    created(CompareResult::Equal, key, 0)
}

/// The key is there.
pub(crate) fn present(key: Vec<u8>) -> Compare {
    created(CompareResult::Greater, key, 0)
}

/// The key is there, and was made at this revision.
pub(crate) fn made_at(key: Vec<u8>, revision: i64) -> Compare {
    created(CompareResult::Equal, key, revision)
}

/// The key is there, and was made before this revision.
pub(crate) fn made_before(key: Vec<u8>, revision: i64) -> [Compare; 2] {
    [present(key.clone()), created(CompareResult::Less, key, revision)]
}

/// The key was last written at this revision.
pub(crate) fn written_at(key: Vec<u8>, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        with: Some(CompareWith::ModRevision(revision)),
        range_end: Vec::new(),
    }
}

/// There is no key in the range.
pub(crate) fn empty(span: Span) -> Compare {
    Compare { range_end: span.1, ..absent(span.0) }
}

/// No key of the range is younger than this revision.
pub(crate) fn none_since(span: Span, revision: i64) -> Compare {
    let compare = created(CompareResult::Less, span.0, revision.saturating_add(1));
    Compare { range_end: span.1, ..compare }
}

fn created(result: CompareResult, key: Vec<u8>, revision: i64) -> Compare {
    Compare {
        result: result.into(),
        target: CompareTarget::Create.into(),
        key,
        with: Some(CompareWith::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

/// All keys of a range in the order of their making, without values.
pub(crate) fn keys_of(span: Span) -> RangeRequest {
    RangeRequest {
        key: span.0,
        range_end: span.1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        keys_only: true,
        ..RangeRequest::default()
    }
}

/// The newest keys of a range, newest first, without values. `up_to`: only those that were made at
/// this revision or before.
pub(crate) fn newest_of(span: Span, limit: usize, up_to: Option<i64>) -> RangeRequest {
    RangeRequest {
        limit: i64::try_from(limit).unwrap_or(i64::MAX),
        sort_order: SortOrder::Descend.into(),
        max_create_revision: up_to.unwrap_or(0),
        ..keys_of(span)
    }
}

/// The first keys of a range in the order of their making, with values.
pub(crate) fn first_of(span: Span, limit: i64) -> RangeRequest {
    RangeRequest { limit, keys_only: false, ..keys_of(span) }
}

/// All keys of a range in their own order, with values.
pub(crate) fn all_of(span: Span) -> RangeRequest {
    RangeRequest { key: span.0, range_end: span.1, ..RangeRequest::default() }
}

/// One key without its value.
pub(crate) fn key_alone(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, keys_only: true, ..RangeRequest::default() }
}

/// One key with its value.
pub(crate) fn key_value(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

pub(crate) fn get(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::Range(range)) }
}

pub(crate) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    let put = PutRequest { key, value, lease, ignore_lease: false };
    RequestOp { request: Some(Request::Put(put)) }
}

/// Writes a value and leaves the key's lease as it is.
pub(crate) fn rewrite(key: Vec<u8>, value: Vec<u8>) -> RequestOp {
    let put = PutRequest { key, value, lease: 0, ignore_lease: true };
    RequestOp { request: Some(Request::Put(put)) }
}

pub(crate) fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::Delete(DeleteRangeRequest { key })) }
}

/// The answers to a transaction's parts, in order.
pub(crate) struct Answers {
    pub(crate) succeeded: bool,
    pub(crate) revision: i64,
    parts: std::vec::IntoIter<crate::proto::ResponseOp>,
}

impl Answers {
    pub(crate) fn new(reply: TxnResponse) -> Answers {
        let revision = reply.header.map_or(0, |header| header.revision);
        Answers { succeeded: reply.succeeded, revision, parts: reply.responses.into_iter() }
    }

    /// Takes the answer to a write.
    ///
    /// # Errors
    /// `Protocol`: there is none.
    pub(crate) fn done(&mut self) -> Result<(), LockError> {
        match self.parts.next().and_then(|part| part.response) {
            Some(Response::Put(_) | Response::Delete(_)) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes the answer to a reading.
    ///
    /// # Errors
    /// `Protocol`: it is none.
    pub(crate) fn range(&mut self) -> Result<RangeResponse, LockError> {
        match self.parts.next().and_then(|part| part.response) {
            Some(Response::Range(range)) => Ok(range),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes the keys in the answer to a reading.
    ///
    /// # Errors
    /// `Protocol`: it is none.
    pub(crate) fn keys(&mut self) -> Result<Vec<KeyValue>, LockError> {
        Ok(self.range()?.kvs)
    }
}

fn unexpected(part: &Option<Response>) -> LockError {
    let what = match part {
        Some(Response::Range(_)) => "a reading",
        Some(Response::Put(_) | Response::Delete(_)) => "a write",
        None => "nothing",
    };
    protocol(format!("an operation of a transaction was answered by {what}"))
}
