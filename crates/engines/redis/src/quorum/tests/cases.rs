//! Each answer once, and what is left behind.

use std::time::Duration;

use holdline_core::quorum::{Barred, Gate, Told, Written};
use holdline_core::{GrantState, Hold, OperationReply, ReleaseReply};
use holdline_services::{Flavour, Reply};

use super::ground::{
    COUNTER, Ground, HOLD, LOCK, MARKER, NODE, configuration, keep, lease_id, name, node_id,
    request, token, why,
};
use crate::quorum::replies::{Renewed, Voted};
use crate::quorum::requests::{Asked, Pass};

/// Later than any clock of a test, and too far ahead of it.
const FAR: u64 = 9_000_000_000_000_000;

#[tokio::test]
async fn a_set_is_founded_and_votes() {
    for flavour in Flavour::ALL {
        let (ground, pass) = Ground::open(flavour).await;
        let seen = ground.greet(MARKER, 9).await.expect("ours");
        assert!(seen.accepted);
        assert_eq!((seen.view.id, seen.view.gate), (node_id(1), Gate::Open));
        assert_eq!(seen.view.configuration, Some(configuration()));
        let founded = seen.view.largest;
        let ahead = seen.time_us + 1_000_000;
        assert!(founded > 0 && founded <= ahead, "the clock is the first floor, and a second");
        // What is proposed is taken where it is more than all that was given.
        let wanted = ahead;
        assert_eq!(ground.take(&pass, 1, wanted).await, wanted, "{flavour:?}");
        let again = ground.acquire(&pass, &request(1), wanted + 5, Asked::Anew).await;
        let Ok(Voted::Held { last, left }) = again else { panic!("{again:?}") };
        assert_eq!(last, token(wanted), "the same again");
        assert!(Some(left) <= HOLD.duration(), "and no more than is left of it");
        assert!(matches!(
            ground.release(1, None).await.expect("released"),
            ReleaseReply::Released { .. }
        ));
        assert_eq!(ground.take(&pass, 2, 7).await, wanted + 1, "else one more");
        assert_eq!(ground.keys().await, [NODE, LOCK, COUNTER]);
    }
}

#[tokio::test]
async fn a_token_is_not_further_ahead_than_the_skew_allows() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    let before = ground.greet(MARKER, 9).await.expect("ours").time_us;
    let given = ground.take(&pass, 1, FAR).await;
    let after = ground.greet(MARKER, 9).await.expect("ours").time_us;
    assert!((before + 1_000_000..=after + 1_000_000).contains(&given), "{given}");
    // A counter that stands further ahead is counted on from.
    assert_eq!(ground.raise(FAR).await.expect("raised"), OperationReply::Done);
    ground.release(1, None).await.expect("released");
    assert_eq!(ground.take(&pass, 2, given).await, FAR + 1);
}

#[tokio::test]
async fn who_is_refused_learns_who_holds_and_may_be_woken() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    let given = ground.take(&pass, 1, 1).await;
    let asked = ground.acquire(&pass, &request(2), 1, Asked::Anew).await.expect("an answer");
    let Voted::Busy { holder: Some(holder), left: Some(left) } = asked else { panic!("{asked:?}") };
    assert_eq!((holder.lease_id, holder.token), (lease_id(1).short(), Some(token(given))));
    assert!(left > Duration::ZERO && Some(left) <= HOLD.duration());
    assert_eq!(ground.text(&["GETRANGE", LOCK, "33", "33"]).await.as_deref(), Some("w"));
    let channel = ground.asker.layout.wake(&name("a"));
    let mut ear = ground.server().raw();
    ear.send(&[b"SUBSCRIBE", &channel[..]]).expect("subscribed");
    let released = ground.release(1, None).await.expect("released");
    assert!(matches!(released, ReleaseReply::Released { held_for: Some(_) }), "{released:?}");
    let message = ear.read().expect("a message");
    let words: Vec<String> =
        message.items().expect("a message").iter().filter_map(Reply::text).collect();
    assert_eq!(words, ["message", "holdline:wake:holdline:{a}", ""]);
}

#[tokio::test]
async fn only_who_shows_the_pass_is_heard() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    let stamp = configuration().stamp();
    let (other, later) = (Pass::new("run-2", stamp), configuration().successor(&[]));
    let old = Pass::new(MARKER, later.stamp());
    ground.take(&pass, 1, 1).await;
    let record = ground.record(1).await.expect("an answer").expect("held");
    for (shown, expected) in [(&other, Barred::Marker), (&old, Barred::Configuration)] {
        let voted = ground.acquire(shown, &request(1), 1, Asked::Anew).await.expect("an answer");
        assert_eq!(voted, Voted::Barred(expected));
        assert_eq!(why(ground.write_back(shown, 1, 5).await), expected);
        assert_eq!(why(ground.renew(shown, &[keep(1, HOLD)]).await), expected);
        assert_eq!(why(ground.heal(shown, 1, &record).await), expected);
    }
    let replaced = later.successor(&[(node_id(1), node_id(7), "d:4")]);
    let adopt = Told::Adopt { from: Some(stamp), configuration: replaced.clone() };
    assert!(ground.tell(MARKER, &adopt).await.expect("told"));
    let out = Pass::new(MARKER, replaced.stamp());
    assert_eq!(why(ground.write_back(&out, 1, 5).await), Barred::Gate(Gate::Out));
    ground.raw(&["FLUSHALL"]).await;
    assert_eq!(why(ground.write_back(&pass, 1, 5).await), Barred::Marker);
    assert!(ground.keys().await.is_empty(), "nothing is written for who is not heard");
}

#[tokio::test]
async fn a_token_is_written_back_to_whoever_still_holds() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    let given = ground.take(&pass, 1, 1).await;
    let higher = given + 100;
    let stands = |number| Ok(Ok(Written::Stands(token(number))));
    assert_eq!(ground.write_back(&pass, 1, higher).await, stands(higher));
    assert_eq!(ground.write_back(&pass, 1, given).await, stands(higher), "it never falls");
    assert_eq!(ground.write_back(&pass, 2, higher + 9).await, Ok(Ok(Written::NotYours)));
    let shown = ground.inspect().await.expect("shown").expect("held");
    assert_eq!(shown.summary.token, Some(token(higher)));
    ground.release(1, None).await.expect("released");
    assert_eq!(ground.write_back(&pass, 1, higher + 9).await, Ok(Ok(Written::NotYours)));
    assert_eq!(ground.take(&pass, 3, 1).await, higher + 1);
    // Where the counter of the name is gone, the largest of all is what counts.
    ground.release(3, None).await.expect("released");
    ground.raw(&["DEL", COUNTER]).await;
    assert_eq!(ground.take(&pass, 4, 1).await, higher + 2);
}

#[tokio::test]
async fn what_was_given_up_never_comes_back() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    let minute = Some(Duration::from_secs(60));
    let nothing = ReleaseReply::NotHeld { revoked: None };
    assert_eq!(ground.release(1, minute).await.expect("an answer"), nothing);
    let voted = ground.acquire(&pass, &request(1), 1, Asked::Anew).await.expect("an answer");
    assert_eq!(voted, Voted::Cancelled { revoked: None });
    ground.take(&pass, 2, 1).await;
    let record = ground.record(2).await.expect("an answer").expect("held");
    assert!(record.heals() && !format!("{record:?}").contains("0202"));
    ground.release(2, minute).await.expect("released");
    assert_eq!(ground.heal(&pass, 2, &record).await, Ok(Ok(false)));
    assert_eq!(ground.number(&["EXISTS", LOCK]).await, Some(0));
    let left = ground.number(&["PTTL", "holdline:{a}:1t:02020202020202020202020202020202"]).await;
    assert!(left.is_some_and(|left| left > 30_000), "{left:?}");
}

#[tokio::test]
async fn a_lease_is_renewed_and_never_shortened() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    ground.take(&pass, 1, 1).await;
    let minute = Duration::from_secs(60);
    let kept = ground.renew_one(&pass, 1, Hold::Leased(minute)).await;
    assert_eq!(kept, Renewed::Kept { left: minute });
    let kept = ground.renew_one(&pass, 1, Hold::Detached(Duration::from_secs(1))).await;
    let Renewed::Kept { left } = kept else { panic!("{kept:?}") };
    assert!(left > Duration::from_secs(30));
    assert!(ground.inspect().await.expect("shown").expect("held").detached);
    ground.renew_one(&pass, 1, HOLD).await;
    assert!(!ground.inspect().await.expect("shown").expect("held").detached);
    assert_eq!(ground.renew_one(&pass, 2, HOLD).await, Renewed::Gone { free: false });
    ground.release(1, None).await.expect("released");
    assert_eq!(ground.renew_one(&pass, 1, HOLD).await, Renewed::Gone { free: true });
}

#[tokio::test]
async fn a_lost_lease_is_healed_where_the_name_is_free() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    let given = ground.take(&pass, 1, 1).await;
    let record = ground.record(1).await.expect("an answer").expect("held");
    assert_eq!(ground.heal(&pass, 1, &record).await, Ok(Ok(false)), "it is held");
    assert_eq!(ground.record(2).await.expect("an answer"), None);
    ground.raw(&["DEL", LOCK, COUNTER]).await;
    assert_eq!(ground.heal(&pass, 1, &record).await, Ok(Ok(true)));
    let kept = ground.renew_one(&pass, 1, HOLD).await;
    assert!(matches!(kept, Renewed::Kept { .. }), "{kept:?}");
    assert_eq!(ground.text(&["GET", COUNTER]).await, Some(format!("{given:016}")));
    for asked in [Asked::Anew, Asked::Again] {
        let voted = ground.acquire(&pass, &request(1), given + 9, asked).await;
        assert!(matches!(voted, Ok(Voted::Healed { .. })), "{asked:?}: {voted:?}");
    }
    let written = ground.write_back(&pass, 1, given + 9).await;
    assert_eq!(written, Ok(Ok(Written::NotYours)), "it proves no token");
    ground.release(1, None).await.expect("released");
    assert_eq!(ground.take(&pass, 2, 1).await, given + 1);
}

#[tokio::test]
async fn a_grant_is_revoked_politely_or_now() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    ground.take(&pass, 1, 1).await;
    let none = lease_id(2).short();
    assert_eq!(ground.revoke(none, "", false).await, Ok(OperationReply::NothingThere));
    let told = ground.revoke(lease_id(1).short(), "enough", false).await;
    assert!(matches!(told, Ok(OperationReply::Told { left: Some(_) })), "{told:?}");
    let kept = ground.renew_one(&pass, 1, HOLD).await;
    let Renewed::Revoked { reason, left } = kept else { panic!("{kept:?}") };
    assert!(reason == "enough" && left > Duration::ZERO);
    let shown = ground.inspect().await.expect("shown").expect("held");
    assert_eq!(shown.state, GrantState::Revoked("enough".to_owned()));
    let record = ground.record(1).await.expect("an answer").expect("held");
    assert!(!record.heals());
    let now = ground.revoke(lease_id(1).short(), "now", true).await;
    assert_eq!(now, Ok(OperationReply::Done));
    let (reason, left) = ("now".to_owned(), Duration::ZERO);
    assert_eq!(ground.renew_one(&pass, 1, HOLD).await, Renewed::Revoked { reason, left });
    let voted = ground.acquire(&pass, &request(1), 1, Asked::Anew).await.expect("an answer");
    assert_eq!(voted, Voted::Cancelled { revoked: Some("now".to_owned()) });
    let revoked = Some("now".to_owned());
    assert_eq!(ground.release(1, None).await, Ok(ReleaseReply::NotHeld { revoked }));
    ground.take(&pass, 2, 1).await;
}

#[tokio::test]
async fn a_node_that_forgot_waits_and_comes_back_above_its_floor() {
    let (ground, pass) = Ground::open(Flavour::Debian).await;
    ground.take(&pass, 1, 1).await;
    let seen = ground.greet("run-2", 4).await.expect("ours");
    assert!(seen.accepted);
    assert_eq!((seen.view.id, seen.view.was), (node_id(4), Some(node_id(1))));
    assert_eq!(seen.view.gate, Gate::Forgot);
    assert_eq!(why(ground.write_back(&pass, 1, 5).await), Barred::Marker);
    let next = configuration().successor(&[(node_id(1), node_id(4), "a:1")]);
    let (from, stamp) = (Some(configuration().stamp()), next.stamp());
    let adopt = Told::Adopt { from, configuration: next };
    assert!(!ground.tell(MARKER, &adopt).await.expect("told"), "under the old marker");
    assert!(ground.tell("run-2", &adopt).await.expect("told"));
    let begin =
        |quarantine, by_time| Told::Begin { episode: node_id(4), stamp, quarantine, by_time };
    let recover = Told::Recover { episode: node_id(4), stamp, floor: FAR };
    assert!(!ground.tell("run-2", &recover).await.expect("told"), "it has not waited");
    assert!(ground.tell("run-2", &begin(Duration::from_secs(600), false)).await.expect("told"));
    let seen = ground.greet(MARKER, 5).await.expect("ours");
    assert!(!seen.accepted, "two servers behind one address");
    let whole = Duration::from_secs(600);
    assert_eq!(seen.view.quarantine, Some((whole, false)));
    // What a client measured counts once, and nothing else ends the wait.
    let waited = |left, by_time| {
        let passed = Duration::from_secs(599);
        Told::Waited { episode: node_id(4), stamp, by_time, left, passed }
    };
    assert!(!ground.tell("run-2", &waited(whole, true)).await.expect("told"));
    assert!(ground.tell("run-2", &waited(whole, false)).await.expect("told"));
    assert!(!ground.tell("run-2", &waited(whole, false)).await.expect("told"), "again");
    let seen = ground.greet("run-2", 5).await.expect("ours");
    assert_eq!(seen.view.quarantine, Some((Duration::from_secs(1), false)));
    assert!(!ground.tell("run-2", &recover).await.expect("told"), "it has not waited enough");
    assert!(!ground.tell("run-2", &begin(Duration::ZERO, false)).await.expect("told"));
    assert!(ground.tell("run-2", &begin(Duration::ZERO, true)).await.expect("told"), "by time");
    assert!(ground.tell("run-2", &recover).await.expect("told"));
    let seen = ground.greet("run-2", 6).await.expect("ours");
    assert_eq!((seen.view.gate, seen.view.was, seen.view.largest), (Gate::Open, None, FAR));
    ground.release(1, None).await.expect("released");
    // The counter of the name is still there, and old.
    assert_eq!(ground.take(&Pass::new("run-2", stamp), 7, 1).await, FAR + 1);
}
