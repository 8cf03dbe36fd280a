//! What a subscription yields, and when.

use super::*;
use futures_core::Stream;

fn next(subscription: &mut Subscription) -> Poll<Option<SubscriptionEvent>> {
    Pin::new(subscription).poll_next(&mut Context::from_waker(Waker::noop()))
}

fn ready(event: SubscriptionEvent) -> Poll<Option<SubscriptionEvent>> {
    Poll::Ready(Some(event))
}

#[test]
fn a_subscription_yields_its_confirmation_first_and_then_the_messages() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let mut subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    assert_eq!(next(&mut subscription), Poll::Pending);
    assert_eq!(subscriptions.changes(Form::Plain, 1).subscribe, [b"c".to_vec()]);
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 1);
    assert!(subscriptions.changes(Form::Plain, 1).is_empty());
    subscriptions.deliver(Form::Plain, b"c", b"one", None);
    subscriptions.deliver(Form::Plain, b"other", b"two", None);
    assert_eq!(
        next(&mut subscription),
        ready(SubscriptionEvent::Resubscribed),
        "it missed what came between"
    );
    assert_eq!(next(&mut subscription), Poll::Pending);
    subscriptions.deliver(Form::Plain, b"c", b"three", None);
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Message(b"three".to_vec())));
}

#[test]
fn a_handler_receives_the_messages_and_the_subscription_all_other_events() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let received: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let keep = received.clone();
    let handler: MessageHandler = Box::new(move |message, _| keep.lock().push(message.to_vec()));
    let mut subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), Some(handler));
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 1);
    subscriptions.deliver(Form::Plain, b"c", b"one", None);
    subscriptions.deliver(Form::Plain, b"other", b"two", None);
    assert_eq!(*received.lock(), [b"one".to_vec()]);
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Resubscribed));
    assert_eq!(next(&mut subscription), Poll::Pending);
}

#[test]
fn a_second_subscriber_of_a_channel_is_notified_although_nothing_is_sent() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let _first = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 1);
    let mut second = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    assert_eq!(next(&mut second), ready(SubscriptionEvent::Resubscribed));
}

#[test]
fn an_overflow_is_reported_as_missed() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let mut subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    for _ in 0..=CAPACITY {
        subscriptions.deliver(Form::Plain, b"c", b"x", None);
    }
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Resubscribed));
    assert_eq!(next(&mut subscription), Poll::Pending);
}

#[test]
fn a_lost_subscription_is_reported_and_so_is_its_return() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let mut subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 1);
    subscriptions.lost(2);
    subscriptions.lost(1);
    subscriptions.lost(1);
    assert_eq!(
        next(&mut subscription),
        ready(SubscriptionEvent::Lost),
        "older events no longer matter"
    );
    assert_eq!(next(&mut subscription), Poll::Pending);
    assert_eq!(subscriptions.changes(Form::Plain, 1).subscribe, [b"c".to_vec()]);
    subscriptions.lost(1);
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 3);
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Resubscribed));
}

#[test]
fn a_new_connection_subscribes_again_and_a_dropped_subscription_is_unsubscribed() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 1);
    assert_eq!(subscriptions.changes(Form::Plain, 2).subscribe, [b"c".to_vec()]);
    drop(subscription);
    assert_eq!(subscriptions.changes(Form::Plain, 1).unsubscribe, [b"c".to_vec()]);
    assert!(subscriptions.changes(Form::Plain, 1).is_empty(), "reported once");
}

#[test]
fn a_subscriber_on_an_older_connection_is_notified_when_the_new_one_refuses() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let mut subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    subscriptions.confirmed(Form::Plain, &[b"c".to_vec()], 1);
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Resubscribed));
    subscriptions.refused(Form::Plain, &[b"c".to_vec()], 2);
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Lost));
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Refused));
    subscriptions.lost(1);
    assert_eq!(next(&mut subscription), Poll::Pending, "it was reported");
    assert!(subscriptions.changes(Form::Plain, 2).is_empty(), "it is not requested there again");
    let mut late = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    assert_eq!(next(&mut late), ready(SubscriptionEvent::Refused));
    assert_eq!(next(&mut late), Poll::Pending, "nothing is received there");
    subscriptions.lost(2);
    assert_eq!(subscriptions.changes(Form::Plain, 3).subscribe, [b"c".to_vec()]);
}

#[test]
fn closing_ends_the_subscriptions() {
    let subscriptions: Arc<Subscriptions> = Arc::default();
    let mut subscription = subscriptions.subscribe(Form::Plain, b"c".to_vec(), None);
    subscriptions.deliver(Form::Plain, b"c", b"last", None);
    subscriptions.close();
    assert_eq!(next(&mut subscription), ready(SubscriptionEvent::Message(b"last".to_vec())));
    assert_eq!(next(&mut subscription), Poll::Ready(None));
}
