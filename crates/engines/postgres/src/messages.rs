//! What stands in a notification: one letter, and the first eight digits of a lease id.
//!
//! The whole id is a proof, and whoever may subscribe could read it. The few ids that begin alike
//! are all told: a hint too many costs one question.

use std::ops::RangeInclusive;

use holdline_core::hints::Watches;
use holdline_core::{Hint, LeaseId};

const DIGITS: usize = 8;

/// Tells whom a message concerns. What is no such message is nobody's.
pub(crate) fn deliver(watches: &Watches, message: &[u8]) {
    let Some((letter, digits)) = message.split_first() else { return };
    let hint = match letter {
        b'l' => Hint::LookAgain,
        b'c' => Hint::CheckLease,
        _ => return,
    };
    let Some(range) = ids_that_begin(digits) else { return };
    for id in watches.ids_in(range) {
        watches.tell(id, hint);
    }
}

/// Tells everybody to look: messages may have been missed.
pub(crate) fn tell_all(watches: &Watches) {
    let all = LeaseId::from_bytes([0; 16])..=LeaseId::from_bytes([0xff; 16]);
    for id in watches.ids_in(all) {
        watches.tell(id, Hint::LookAgain);
        watches.tell(id, Hint::CheckLease);
    }
}

fn ids_that_begin(digits: &[u8]) -> Option<RangeInclusive<LeaseId>> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == DIGITS)?;
    let filled = |filler: &str| format!("{digits}{}", filler.repeat(32 - DIGITS)).parse().ok();
    Some(filled("0")?..=filled("f")?)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use futures_core::Stream;
    use holdline_core::hints::WatchStream;

    use super::*;

    const ID: LeaseId = LeaseId::from_bytes([1; 16]);
    const NEAR: LeaseId = LeaseId::from_bytes([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    const OTHER: LeaseId = LeaseId::from_bytes([2; 16]);

    fn poll(stream: &mut WatchStream) -> Poll<Option<Hint>> {
        Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_message_reaches_those_whose_ids_begin_so() {
        let watches = Arc::new(Watches::default());
        let open = |id| Watches::open(&watches, id);
        let (mut one, mut near, mut other) = (open(ID), open(NEAR), open(OTHER));
        deliver(&watches, b"l01010101");
        assert_eq!(poll(&mut one), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut near), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut other), Poll::Pending);
        deliver(&watches, b"c02020202");
        assert_eq!(poll(&mut other), Poll::Ready(Some(Hint::CheckLease)));
        for odd in [&b""[..], b"l", b"x02020202", b"l0202020", b"l020202021", b"l\xff2020202"] {
            deliver(&watches, odd);
        }
        assert_eq!(poll(&mut other), Poll::Pending);
    }

    #[test]
    fn all_are_told_when_messages_may_have_been_missed() {
        let watches = Arc::new(Watches::default());
        let mut stream = Watches::open(&watches, ID);
        tell_all(&watches);
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::CheckLease)));
        assert_eq!(poll(&mut stream), Poll::Pending);
    }
}
