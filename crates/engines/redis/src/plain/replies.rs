//! What comes back: each reply of a script becomes a typed value. The words that both dialects
//! use are read by `native`.

use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{AcquireReply, AcquireRequest, HolderSummary, LockError, LockName, Snapshot};

use super::LeaseFormat;
use super::record::Record;
use crate::error::protocol;
use crate::native;
use crate::node::Value;

/// Who holds a lock, as the server shows it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) record: Record,
    pub(super) now_us: u64,
    /// `None` when nothing ends it.
    pub(crate) left: Option<Duration>,
    /// The value is this lease, and nothing else.
    bare: Vec<u8>,
}

/// How values are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) format: LeaseFormat,
    pub(crate) fencing: bool,
}

impl Reading {
    /// Reads who holds, from the server's time, what is left, and the value.
    fn held(self, parts: &[Value]) -> Result<Held, LockError> {
        let [now_us, left, value] = parts else {
            return Err(protocol("a holder is not shown in three parts"));
        };
        let number = |value: &Value| {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| protocol("a holder is shown without its times"))
        };
        let left = match left {
            Value::Nil => None,
            left => Some(Duration::from_millis(number(left)?)),
        };
        let value =
            value.as_bytes().ok_or_else(|| protocol("a holder is shown without a value"))?;
        let record = Record::read(value, self.format, self.fencing);
        Ok(Held { record, now_us: number(now_us)?, left, bare: value.to_vec() })
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
            // The other words of an exclusive lock without a queue.
            _ => native::acquired(value, request, 0),
        }
    }

    /// Reads who holds; `None` when nobody does.
    pub(crate) fn looked(self, value: &Value) -> Result<Option<Held>, LockError> {
        match value.as_array() {
            Some([word, parts @ ..]) if word.as_text() == Some("held") => {
                self.held(parts).map(Some)
            }
            None if value.as_text() == Some("free") => Ok(None),
            // Tells that what stands there is foreign, or that the answer makes no sense.
            _ => Err(native::released(value).err().unwrap_or_else(|| {
                protocol("a look was answered as if something had been released")
            })),
        }
    }

    pub(crate) fn inspected(self, value: &Value, name: &LockName) -> Result<Snapshot, LockError> {
        let mut snapshot = Snapshot::free(name.clone());
        if let Some(held) = self.looked(value)? {
            snapshot.holders.push(held.record.view(held.now_us, held.left));
            snapshot.holder_count = 1;
        }
        Ok(snapshot)
    }
}

impl Held {
    /// Whether the value is this lease and nothing else.
    pub(crate) fn is(&self, lease: &str) -> bool {
        self.bare == lease.as_bytes()
    }

    /// Tells who holds.
    pub(crate) fn summary(&self) -> HolderSummary {
        self.record.summary(self.now_us, self.left)
    }

    /// Nobody tells when it is free, so it is looked at again at its end, and now and then before.
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

    const READING: Reading = Reading { format: LeaseFormat::Hex, fencing: true };

    fn list(words: &[Value]) -> Value {
        Value::Array(words.to_vec())
    }

    fn text(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    #[test]
    fn a_holder_without_an_end_is_looked_at_now_and_then() {
        let value = list(&[text("busy"), text("7"), Value::Nil, text("x")]);
        let held = READING.held(&value.as_array().expect("a list")[1..]).expect("a holder");
        let AcquireReply::Busy { at_most: None, next_look, holder: Some(holder) } = held.busy()
        else {
            panic!("busy without an end")
        };
        assert_eq!((next_look, holder.left), (QUEUE_HEARTBEAT, None));
    }

    #[test]
    fn a_look_finds_nobody_somebody_or_what_is_foreign() {
        assert!(READING.looked(&text("free")).expect("free").is_none());
        let held = list(&[text("held"), text("7"), Value::Integer(5), text("x")]);
        assert!(READING.looked(&held).expect("held").is_some_and(|held| held.is("x")));
        let foreign = list(&[text("foreign"), text("a hash")]);
        let kind = READING.looked(&foreign).expect_err("foreign").kind().clone();
        assert_eq!(kind, ErrorKind::Foreign { found: "a hash".to_owned() });
    }

    #[test]
    fn what_no_script_answers_is_a_protocol_error() {
        let odd = [
            Value::Nil,
            list(&[]),
            text("released"),
            list(&[text("held")]),
            list(&[text("held"), text("x"), Value::Nil, text("x")]),
            list(&[text("held"), text("7"), Value::Nil, Value::Nil]),
        ];
        for value in odd {
            let error = READING.looked(&value).expect_err("odd");
            assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{value:?}: {error}");
        }
    }
}
