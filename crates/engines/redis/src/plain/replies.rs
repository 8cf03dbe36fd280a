//! Replies of the scripts become typed values. Those that both dialects share are parsed by
//! `native`.

use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{AcquireReply, AcquireRequest, HolderSummary, LockError, LockName, Snapshot};

use crate::error::protocol;
use crate::link::Value;
use crate::native;
use crate::plain_record::Record;

/// The holder of a lock, as the server reports it.
#[derive(Debug)]
pub(crate) struct PlainHolder {
    pub(super) record: Record,
    pub(super) now_us: u64,
    /// `None` if it has no expiry.
    pub(crate) left: Option<Duration>,
    /// The whole value; of one that is too long for a lock, the beginning.
    pub(crate) bare: Vec<u8>,
}

/// How values are parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueReader {
    pub(crate) fencing: bool,
}

impl ValueReader {
    /// Reads a holder from the server's time, the time left, and the value.
    fn held(self, parts: &[Value]) -> Result<PlainHolder, LockError> {
        let [now_us, left, value] = parts else {
            return Err(protocol("a holder does not have three parts"));
        };
        let number = |value: &Value| {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| protocol("a holder has no valid times"))
        };
        let left = match left {
            Value::Nil => None,
            left => Some(Duration::from_millis(number(left)?)),
        };
        let value = value.as_bytes().ok_or_else(|| protocol("a holder has no value"))?;
        let record = Record::read(value, self.fencing);
        Ok(PlainHolder { record, now_us: number(now_us)?, left, bare: value.to_vec() })
    }

    /// Reads the reply to an acquire.
    pub(super) fn acquired(
        self,
        value: &Value,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        match value.as_array() {
            Some([word, parts @ ..]) if word.as_text() == Some("busy") => {
                Ok(self.held(parts)?.busy())
            }
            // The other replies are those of an exclusive lock without a queue.
            _ => native::acquired(value, request, 0),
        }
    }

    /// Reads the holder; `None` if the lock is free.
    pub(crate) fn parse_state(self, value: &Value) -> Result<Option<PlainHolder>, LockError> {
        match value.as_array() {
            Some([word, parts @ ..]) if word.as_text() == Some("held") => {
                self.held(parts).map(Some)
            }
            None if value.as_text() == Some("free") => Ok(None),
            // Reports foreign data, or an invalid reply.
            _ => Err(native::released(value)
                .err()
                .unwrap_or_else(|| protocol("an inspection has the reply of a release"))),
        }
    }

    pub(crate) fn inspected(self, value: &Value, name: &LockName) -> Result<Snapshot, LockError> {
        let mut snapshot = Snapshot::free(name.clone());
        if let Some(held) = self.parse_state(value)? {
            snapshot.holders.push(held.record.view(held.now_us, held.left));
            snapshot.holder_count = 1;
        }
        Ok(snapshot)
    }
}

impl PlainHolder {
    /// Returns whether the value is this lease and nothing else.
    pub(crate) fn is(&self, lease: &str) -> bool {
        self.bare == lease.as_bytes()
    }

    /// Returns whether an operator means this holder: by the id that is shown of it, or by its
    /// whole value.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        !id.is_empty() && (self.bare == id.as_bytes() || self.record.short_id().to_string() == id)
    }

    /// Returns the holder.
    pub(crate) fn summary(&self) -> HolderSummary {
        self.record.summary(self.now_us, self.left)
    }

    /// There is no notification of the release, so the caller looks again at its end and at
    /// intervals.
    pub(super) fn busy(&self) -> AcquireReply {
        AcquireReply::Busy {
            holder: Some(Box::new(self.summary())),
            at_most: self.left,
            next_look: self.left.unwrap_or(QUEUE_HEARTBEAT).min(QUEUE_HEARTBEAT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdline_core::ErrorKind;

    const READER: ValueReader = ValueReader { fencing: true };

    fn list(words: &[Value]) -> Value {
        Value::Array(words.to_vec())
    }

    fn text(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    #[test]
    fn a_holder_without_an_expiry_is_polled_at_intervals() {
        let value = list(&[text("busy"), text("7"), Value::Nil, text("x")]);
        let held = READER.held(&value.as_array().expect("a list")[1..]).expect("a holder");
        let AcquireReply::Busy { at_most: None, next_look, holder: Some(holder) } = held.busy()
        else {
            panic!("busy without an end")
        };
        assert_eq!((next_look, holder.left), (QUEUE_HEARTBEAT, None));
    }

    #[test]
    fn a_state_is_free_held_or_foreign() {
        assert!(READER.parse_state(&text("free")).expect("free").is_none());
        let held = list(&[text("held"), text("7"), Value::Integer(5), text("x")]);
        assert!(READER.parse_state(&held).expect("held").is_some_and(|held| held.is("x")));
        let foreign = list(&[text("foreign"), text("a hash")]);
        let kind = READER.parse_state(&foreign).expect_err("foreign").kind().clone();
        assert_eq!(kind, ErrorKind::Foreign { found: "a hash".to_owned() });
    }

    #[test]
    fn a_reply_that_no_script_returns_is_a_protocol_error() {
        let odd = [
            Value::Nil,
            list(&[]),
            text("released"),
            list(&[text("held")]),
            list(&[text("held"), text("x"), Value::Nil, text("x")]),
            list(&[text("held"), text("7"), Value::Nil, Value::Nil]),
        ];
        for value in odd {
            let error = READER.parse_state(&value).expect_err("odd");
            assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{value:?}: {error}");
        }
    }
}
