//! Encodes requests as the procedures of `sql/verbs.sql` take them.

use holdline_core::{AcquireRequest, LockName, Purpose, RenewRequest};
use holdline_net::sql::requests::{ModeColumns, mode};
pub(crate) use holdline_net::sql::requests::{count, hold, micros, remembered, token};

use crate::keys::{Names, Value};

/// Encodes an acquire; `most` is how many contenders may wait.
pub(crate) fn acquire(names: &Names, request: &AcquireRequest, inbox: u64, most: usize) -> String {
    let ModeColumns { letter, permits, total } = mode(request.mode);
    let (kind, lease) = hold(request.hold);
    let number = Value::Number;
    names.call(
        "acquire",
        &[
            Value::Bytes(request.name.as_str().as_bytes()),
            Value::Bytes(request.lease_id.as_bytes()),
            Value::Bytes(&request.client.as_u64().to_be_bytes()),
            Value::Bytes(&inbox.to_be_bytes()),
            Value::Bytes(letter.as_bytes()),
            number(permits.into()),
            number(total.into()),
            Value::Bytes(kind.as_bytes()),
            number(lease),
            number(micros(request.hand_off_lease)),
            Value::Bytes(request.metadata.as_encoded().as_bytes()),
            number(i64::from(request.queue)),
            number(i64::from(request.known)),
            number(count(most).into()),
        ],
    )
}

/// Encodes the renewals of a batch in the order of their names, as `renew` in `verbs.sql` needs
/// them, and returns that order.
pub(crate) fn packed_batch(batch: &[&RenewRequest]) -> (Vec<u8>, Vec<usize>) {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.sort_by_key(|at| batch[*at].name.as_str());
    let mut packed = Vec::with_capacity(batch.len() * 64);
    for at in &order {
        let renewal = batch[*at];
        let (kind, lease) = match renewal.purpose {
            Purpose::Keep(asked) => hold(asked),
            Purpose::Wait => ("w", 0),
        };
        push_name(&mut packed, &renewal.name);
        packed.extend_from_slice(renewal.lease_id.as_bytes());
        packed.extend_from_slice(&renewal.client.as_u64().to_be_bytes());
        packed.extend_from_slice(kind.as_bytes());
        packed.extend_from_slice(format!("{lease:016x}").as_bytes());
    }
    (packed, order)
}

/// Packs names, in their order.
pub(crate) fn packed(names: &[LockName]) -> Vec<u8> {
    let mut sorted: Vec<&LockName> = names.iter().collect();
    sorted.sort_by_key(|name| name.as_str());
    let mut packed = Vec::new();
    for name in sorted {
        push_name(&mut packed, name);
    }
    packed
}

fn push_name(packed: &mut Vec<u8>, name: &LockName) {
    let bytes = name.as_str().as_bytes();
    // A lock name is short enough.
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    packed.extend_from_slice(&size.to_be_bytes());
    packed.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_packed_in_order_and_with_their_length() {
        let names = ["b", "aé"].map(|name| LockName::new(name).expect("a good name"));
        assert_eq!(packed(&names), b"\x00\x03a\xc3\xa9\x00\x01b");
    }
}
