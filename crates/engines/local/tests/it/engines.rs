//! Several engines on one directory, as several processes would have them.

use std::time::Duration;

use holdline_core::{
    AcquireReply, Engine, ErrorKind, Hint, Hold, ListRequest, Mode, Operation, OperationReply,
    Purpose, ReleaseReply, RenewReply, RenewRequest,
};
use holdline_services::steady;
use rusqlite::Connection;

use crate::support::{LEASE, Scratch, Verbs, ask, hint, id, name, until, wait};

#[test]
fn engines_of_one_directory_share_their_names() {
    let scratch = Scratch::new();
    let (here, there) = (scratch.open(), scratch.open());
    assert_eq!(here.capabilities().identity, there.capabilities().identity);
    let (first, _) = here.granted(&ask("a", 1));
    let mut busy = ask("a", 2);
    busy.queue = false;
    assert!(matches!(there.acquire(&busy), Ok(AcquireReply::Busy { .. })));
    let (other, _) = there.granted(&ask("b", 3));
    assert!(other > first);
    assert!(matches!(there.end("a", 2), ReleaseReply::NotHeld { revoked: None }));
    assert!(matches!(here.end("a", 1), ReleaseReply::Released { .. }));
    let (second, _) = there.granted(&ask("a", 4));
    assert!(second > other);
}

#[test]
fn a_release_wakes_the_next_in_another_engine() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        here.granted(&ask("a", 1));
        assert_eq!(there.queued(&ask("a", 2)), 0);
        assert_eq!(here.queued(&ask("a", 3)), 1);
        let mut hints = there.watch(&name("a"), id(2));
        here.end("a", 1);
        assert!(matches!(hint(&mut hints), Hint::Granted { .. }));
        let claim = holdline_core::AcquireRequest { known: true, ..ask("a", 2) };
        there.granted(&claim);
        there.end("a", 2);
        let mut late = here.watch(&name("a"), id(3));
        assert!(matches!(hint(&mut late), Hint::Granted { .. }));
    });
}

#[test]
fn a_hint_that_comes_before_its_watch_is_not_lost() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        here.granted(&ask("a", 1));
        there.queued(&ask("a", 2));
        here.end("a", 1);
        let mut hints = there.watch(&name("a"), id(2));
        assert!(matches!(hint(&mut hints), Hint::Granted { .. }));
    });
}

#[test]
fn without_any_hint_the_heartbeat_finds_the_hand_off() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        here.granted(&ask("a", 1));
        there.queued(&ask("a", 2));
        assert!(matches!(there.line("a", 2, Purpose::Wait), Ok(RenewReply::Queued { .. })));
        // Nobody can be woken any more: the sockets are gone.
        for socket in std::fs::read_dir(scratch.path().join("wake")).expect("listed") {
            std::fs::remove_file(socket.expect("listed").path()).expect("removed");
        }
        here.end("a", 1);
        let reply = there.line("a", 2, Purpose::Wait);
        assert!(matches!(reply, Ok(RenewReply::Held { left: Some(_) })), "{reply:?}");
        there.granted(&ask("a", 2));
    });
}

#[test]
fn readers_and_permits_share_across_engines() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        for (engine, number) in [(&here, 1), (&there, 2)] {
            engine
                .granted(&holdline_core::AcquireRequest { mode: Mode::Shared, ..ask("r", number) });
            let mode = Mode::permits(2, 4).expect("good numbers");
            engine.granted(&holdline_core::AcquireRequest { mode, ..ask("s", number) });
        }
        assert_eq!(there.look("r").holder_count, 2);
        let one = Mode::permits(1, 4).expect("good numbers");
        let request = holdline_core::AcquireRequest { mode: one, ..ask("s", 3) };
        assert_eq!(here.queued(&request), 0);
        let other_total = Mode::permits(1, 5).expect("good numbers");
        let request = holdline_core::AcquireRequest { mode: other_total, ..ask("s", 4) };
        let refused = here.acquire(&request).expect_err("another total");
        assert!(matches!(refused.kind(), ErrorKind::Invalid { field: "mode", .. }), "{refused}");
    });
}

#[test]
fn operators_revoke_and_freeze_across_engines() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        let (token, _) = here.granted(&ask("a", 1));
        let mut hints = here.watch(&name("a"), id(1));
        assert_eq!(hint(&mut hints), Hint::Granted { token });
        let revoke = |now| Operation::Revoke { name: name("a"), token, reason: "move".into(), now };
        let result = wait(there.operate(&revoke(false))).expect("revoked");
        assert!(matches!(result, OperationReply::Notified { left: Some(_) }));
        assert_eq!(hint(&mut hints), Hint::CheckLease);
        let renewed = here.line("a", 1, Purpose::Keep(LEASE));
        assert!(matches!(renewed, Ok(RenewReply::Revoked { .. })), "{renewed:?}");
        assert_eq!(wait(there.operate(&revoke(true))).ok(), Some(OperationReply::Done));
        let duration = Duration::from_secs(60);
        let freeze = Operation::Freeze { name: name("a"), duration, reason: "upgrade".into() };
        assert_eq!(wait(there.operate(&freeze)).ok(), Some(OperationReply::Done));
        assert_eq!(here.queued(&ask("a", 2)), 0);
        let mut hints = here.watch(&name("a"), id(2));
        let unfreeze = Operation::Unfreeze { name: name("a") };
        assert_eq!(wait(there.operate(&unfreeze)).ok(), Some(OperationReply::Done));
        assert!(matches!(hint(&mut hints), Hint::Granted { .. }));
    });
}

#[test]
fn a_removed_store_shows_nothing_and_refuses_operators() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let (token, _) = engine.granted(&ask("a", 1));
    std::fs::remove_file(scratch.database()).expect("removed");
    let name = name("a");
    let revoke = Operation::Revoke { name: name.clone(), token, reason: "x".into(), now: true };
    let duration = Duration::from_secs(60);
    let freeze = Operation::Freeze { name: name.clone(), duration, reason: "x".into() };
    let unfreeze = Operation::Unfreeze { name: name.clone() };
    let raise = Operation::RaiseFence { to: token };
    let mut result = Vec::new();
    for operation in [revoke, freeze, unfreeze, raise] {
        result.push(wait(engine.operate(&operation)).expect_err("it would mean nothing"));
    }
    result.push(wait(engine.inspect(&name)).expect_err("nobody else sees that"));
    result.push(wait(engine.list(&ListRequest::default())).expect_err("nobody else sees that"));
    result.push(engine.acquire(&ask("b", 2)).expect_err("it would exclude nobody"));
    for error in result {
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("connect anew"), "{error}");
        assert_eq!(error.certainty(), holdline_core::Certainty::NotApplied);
    }
}

#[test]
fn new_grants_soon_end_in_a_store_that_was_removed() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    engine.granted(&ask("a", 1));
    std::fs::remove_file(scratch.database()).expect("removed");
    // It was seen a moment ago, and that is good enough for a moment only.
    let mut number = 1;
    let error = until(|| {
        number += 1;
        engine.acquire(&ask("a", number)).err()
    });
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
}

/// Writes a row that we never wrote.
pub(crate) fn plant(scratch: &Scratch, key: &str, value: &[u8]) {
    let database = Connection::open(scratch.database()).expect("opened");
    let sql = "INSERT INTO slot (key, value) VALUES (?1, ?2)";
    database.execute(sql, rusqlite::params![key.as_bytes(), value]).expect("planted");
}

#[test]
fn foreign_data_is_an_error_and_left_unchanged() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    engine.granted(&ask("good", 1));
    plant(&scratch, "bad", b"hello");
    let foreign = |result: Option<&holdline_core::LockError>| {
        matches!(result.map(|error| error.kind()), Some(ErrorKind::Foreign { .. }))
    };
    assert!(foreign(engine.acquire(&ask("bad", 2)).err().as_ref()));
    assert!(foreign(wait(engine.inspect(&name("bad"))).err().as_ref()));
    let line = |text: &str, number| RenewRequest {
        name: name(text),
        lease_id: id(number),
        client: holdline_core::ClientId::from_u64(number),
        purpose: Purpose::Keep(LEASE),
    };
    let replies = wait(engine.renew(&[line("bad", 2), line("good", 1), line("bad", 3)]));
    assert!(foreign(replies[0].as_ref().err()) && foreign(replies[2].as_ref().err()));
    assert!(matches!(replies[1], Ok(RenewReply::Renewed { .. })), "{replies:?}");
    let page = wait(engine.list(&ListRequest { limit: 10, ..ListRequest::default() }));
    let names: Vec<_> = page.expect("a page").names.into_iter().map(|s| s.name).collect();
    assert_eq!(names, [name("good")]);
    assert_eq!(engine.report().expect("a report").foreign, 1);
    let database = Connection::open(scratch.database()).expect("opened");
    let sql = "SELECT value FROM slot WHERE key = CAST('bad' AS BLOB)";
    let value: Vec<u8> = database.query_row(sql, [], |row| row.get(0)).expect("there");
    assert_eq!(value, b"hello");
}

#[test]
fn pages_are_in_order_and_end() {
    steady(|| {
        let scratch = Scratch::new();
        let engine = scratch.open();
        for number in 0..75 {
            engine.granted(&ask(&format!("p/{number:02}"), number));
            engine.queued(&ask(&format!("p/{number:02}"), 1_000 + number));
        }
        for other in ["o", "q", "p"] {
            engine.granted(&ask(other, 5_000));
        }
        let mut request = ListRequest { prefix: "p/".into(), after: None, limit: 40 };
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = wait(engine.list(&request)).expect("a page");
            pages += 1;
            seen.extend(page.names.iter().map(|snapshot| snapshot.name.to_string()));
            assert!(page.names.iter().all(|snapshot| snapshot.queue_length == 1));
            match page.after {
                Some(after) => request.after = Some(after),
                None => break,
            }
        }
        assert_eq!(pages, 2);
        assert_eq!(seen, (0..75).map(|number| format!("p/{number:02}")).collect::<Vec<_>>());
    });
}

#[test]
fn an_idle_name_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    for number in 1..200 {
        engine.granted(&ask("a", number));
        engine.end("a", number);
    }
    let report = engine.report().expect("a report");
    assert_eq!((report.names, report.holders, report.waiters), (0, 0, 0));
    assert!(report.next_token > 199 && report.reserved_to > report.next_token);
}

#[test]
fn a_detached_lease_needs_no_process() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let hold = Hold::Detached(Duration::from_secs(5));
    engine.granted(&holdline_core::AcquireRequest { hold, ..ask("a", 1) });
    drop(engine);
    let engine = scratch.open();
    assert!(engine.look("a").holders[0].detached);
    let renewed = engine.line("a", 1, Purpose::Keep(hold));
    assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })), "{renewed:?}");
    // It ends by its duration alone.
    until(|| (!engine.look("a").is_held()).then_some(()));
}

#[test]
fn a_lease_attached_by_another_process_lives_with_it() {
    let scratch = Scratch::new();
    let (here, there) = (scratch.open(), scratch.open());
    here.granted(&ask("a", 1));
    let detach = Purpose::Keep(Hold::Detached(Duration::from_secs(30)));
    here.line("a", 1, detach).expect("detached");
    let client = holdline_core::ClientId::from_u64(77);
    let attach =
        RenewRequest { name: name("a"), lease_id: id(1), client, purpose: Purpose::Keep(LEASE) };
    let reply = wait(there.renew(&[attach])).remove(0);
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    drop(here);
    let third = scratch.open();
    assert!(third.look("a").is_held());
    drop(there);
    assert!(!third.look("a").is_held());
}
