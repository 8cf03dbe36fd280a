//! Replies of every shape.

use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{ClientId, Hold, LeaseId, LockKind, Metadata, Mode};

use super::*;

fn request() -> AcquireRequest {
    AcquireRequest {
        name: LockName::new("a").expect("a good name"),
        lease_id: LeaseId::from_bytes([1; 16]),
        client: ClientId::from_u64(1),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: Hold::Leased(Duration::from_secs(1)),
        queue: false,
        known: false,
        hand_off_lease: MIN_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

#[test]
fn a_token_only_is_a_grant_with_its_full_lease() {
    let reply = acquired(&text("0000000000000042"), &request(), 1).expect("a grant");
    let AcquireReply::Granted { token, left, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((token.get(), left), (42, Some(Duration::from_secs(1))));
}

#[test]
fn a_number_only_is_a_renewal_and_the_ms_left() {
    let left = Some(Duration::from_secs(30));
    assert_eq!(renewal(&Value::Integer(30_000)).expect("renewed"), RenewReply::Renewed { left });
}

fn text(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

#[test]
fn a_reply_of_another_shape_is_a_protocol_error_and_never_a_grant() {
    for invalid in [
        Value::Nil,
        Value::Integer(-1),
        Value::Array(Vec::new()),
        Value::Array(vec![Value::Nil]),
        text("granted"),
        text("hello"),
        text("000000000000000x"),
        text("0000000000000000"),
        Value::Array(vec![text("granted"), text("0"), text("30000")]),
        Value::Array(vec![text("granted"), text("1"), text("-2")]),
        Value::Array(vec![text("queued"), Value::Integer(-1), Value::Integer(1)]),
        Value::Bytes(vec![0xff]),
    ] {
        let error = acquired(&invalid, &request(), 1).expect_err("no grant");
        assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{invalid:?}: {error}");
        assert_eq!(error.certainty(), Certainty::Unknown);
        assert!(
            released(&invalid).is_err()
                && operated(&invalid).is_err()
                && renewal(&invalid).is_err()
        );
        assert!(renewed(&invalid, 2).is_err() && listed(&invalid).is_err());
    }
}

#[test]
fn foreign_data_is_reported_and_nothing_was_applied() {
    let reply = Value::Array(vec![text("foreign"), text("a hash")]);
    let error = released(&reply).expect_err("foreign");
    assert_eq!(*error.kind(), ErrorKind::Foreign { found: "a hash".into() });
    assert_eq!(error.certainty(), Certainty::NotApplied);
}
