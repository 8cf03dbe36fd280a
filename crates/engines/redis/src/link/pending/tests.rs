//! Replies, deadlines and dropped callers, in every order.

use super::*;

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

fn deadline_at(nanos: u64) -> Deadline {
    Deadline { at: at(nanos), inconclusive: false }
}

fn with(deadlines: &[u64]) -> (Pending, Vec<Ticket>) {
    let mut pending = Pending::default();
    let add = |nanos: &u64| pending.add(deadline_at(*nanos), Some([*nanos as u8; 16]), 0);
    let tickets = deadlines.iter().map(add).collect();
    (pending, tickets)
}

fn index(index: i64) -> Reply {
    Ok(Value::Integer(index))
}

fn answer(pending: &mut Pending, reply: i64) -> usize {
    let mut wake = Vec::new();
    assert!(pending.complete_next(index(reply), &mut wake));
    wake.len()
}

fn poll_reply(pending: &mut Pending, ticket: Ticket) -> ReplyPoll {
    pending.poll_reply(ticket, Waker::noop())
}

#[test]
fn replies_go_to_the_requests_in_their_order() {
    let (mut pending, tickets) = with(&[1, 2, 3]);
    assert_eq!(poll_reply(&mut pending, tickets[1]), ReplyPoll::Pending);
    assert_eq!(answer(&mut pending, 10), 0, "it has not polled yet");
    assert_eq!(answer(&mut pending, 20), 1);
    assert!(!pending.has_unanswered(&[2; 16]) && pending.has_unanswered(&[3; 16]));
    assert_eq!(poll_reply(&mut pending, tickets[1]), ReplyPoll::Ready(index(20)));
    assert_eq!(poll_reply(&mut pending, tickets[0]), ReplyPoll::Ready(index(10)));
    assert_eq!(poll_reply(&mut pending, tickets[2]), ReplyPoll::Pending);
    assert_eq!(pending.len(), 1);
}

#[test]
fn the_reply_to_a_dropped_request_goes_to_no_other() {
    let (mut pending, tickets) = with(&[1, 2]);
    pending.abandon(tickets[0]);
    assert!(pending.has_unanswered(&[1; 16]), "it may be carried out yet");
    answer(&mut pending, 10);
    assert!(!pending.has_unanswered(&[1; 16]));
    answer(&mut pending, 20);
    assert_eq!(poll_reply(&mut pending, tickets[1]), ReplyPoll::Ready(index(20)));
    assert!(!pending.complete_next(index(30), &mut Vec::new()), "nobody asked");
}

#[test]
fn entries_are_reused_and_never_while_they_are_needed() {
    let (mut pending, tickets) = with(&[1, 2, 3]);
    pending.abandon(tickets[0]);
    assert_ne!(pending.add(deadline_at(4), None, 0), tickets[0], "it is unanswered");
    answer(&mut pending, 10);
    answer(&mut pending, 20);
    assert_eq!(pending.add(deadline_at(5), None, 0), tickets[0]);
    assert_ne!(pending.add(deadline_at(6), None, 0), tickets[1], "its reply was not taken");
    pending.abandon(tickets[1]);
    assert_eq!(pending.add(deadline_at(7), None, 0), tickets[1]);
    assert_eq!(pending.entries.len(), 5);
}

#[test]
fn a_subscription_is_confirmed_channel_by_channel_or_refused_at_once() {
    let mut pending = Pending::default();
    let (two, refused) =
        (pending.add(deadline_at(1), None, 2), pending.add(deadline_at(1), None, 2));
    let mut wake = Vec::new();
    pending.confirm_next(&mut wake);
    assert_eq!(poll_reply(&mut pending, two), ReplyPoll::Pending);
    pending.confirm_next(&mut wake);
    assert_eq!(poll_reply(&mut pending, two), ReplyPoll::Ready(Ok(Value::Nil)));
    answer(&mut pending, 1);
    assert_eq!(poll_reply(&mut pending, refused), ReplyPoll::Ready(index(1)));
    let plain = pending.add(deadline_at(1), None, 0);
    pending.confirm_next(&mut wake);
    assert_eq!(poll_reply(&mut pending, plain), ReplyPoll::Pending, "it is answered by a reply");
}

#[test]
fn each_deadline_is_reported_once_and_only_to_its_caller() {
    let (mut pending, tickets) = with(&[30, 10, 20]);
    assert_eq!(pending.soonest(), Some(at(10)));
    pending.abandon(tickets[2]);
    tickets[..2].iter().for_each(|ticket| drop(poll_reply(&mut pending, *ticket)));
    let mut wake = Vec::new();
    assert_eq!(pending.expire(at(9), &mut wake), Overdue::default());
    let silent = Overdue { silent: true, uncertain: false };
    assert_eq!(pending.expire(at(20), &mut wake), silent);
    assert_eq!(wake.len(), 1);
    assert_eq!(pending.expire(at(20), &mut wake), Overdue::default(), "reported once");
    assert_eq!(pending.soonest(), Some(at(30)));
    assert_eq!(poll_reply(&mut pending, tickets[0]), ReplyPoll::Pending);
    assert_eq!(poll_reply(&mut pending, tickets[1]), ReplyPoll::Expired);
    assert_eq!(pending.len(), 3, "an expired request is unanswered all the same");
}

#[test]
fn a_late_reply_is_received_by_a_caller_that_has_not_polled_yet() {
    let (mut pending, tickets) = with(&[1]);
    pending.expire(at(1), &mut Vec::new());
    answer(&mut pending, 10);
    assert_eq!(poll_reply(&mut pending, tickets[0]), ReplyPoll::Ready(index(10)));
    assert_eq!(pending.add(deadline_at(2), None, 0), tickets[0]);
}

#[test]
fn a_very_short_deadline_is_reported_and_proves_nothing() {
    let mut pending = Pending::default();
    let ticket = pending.add(Deadline { at: at(1), inconclusive: true }, None, 0);
    assert_eq!(poll_reply(&mut pending, ticket), ReplyPoll::Pending);
    let mut wake = Vec::new();
    let uncertain = Overdue { silent: false, uncertain: true };
    assert_eq!(pending.expire(at(1), &mut wake), uncertain);
    assert!(poll_reply(&mut pending, ticket) == ReplyPoll::Expired && wake.len() == 1);
}
