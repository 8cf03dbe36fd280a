//! Many waiters, many names, many commands.

use std::sync::Arc;

use holdline_core::{AcquireRequest, Engine, Hint, ListRequest};
use holdline_local::LocalEngine;
use holdline_services::steady;

use crate::crash::Still;
use crate::support::{Scratch, Verbs, ask, hint, id, name, wait};

#[test]
fn a_thousand_waiters_are_served_in_order() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        const MANY: u64 = 1_000;
        let client = |number| holdline_core::ClientId::from_u64(number % 2);
        let request = |number| AcquireRequest { client: client(number), ..ask("a", number) };
        let engine = |number: u64| if number.is_multiple_of(2) { &here } else { &there };
        let (mut last, _) = here.granted(&request(0));
        for number in 1..=MANY {
            assert_eq!(engine(number).queued(&request(number)), number as usize - 1);
        }
        for number in 1..=MANY {
            let mut hints = engine(number).watch(&name("a"), id(number));
            engine(number - 1).end("a", number - 1);
            assert!(matches!(hint(&mut hints), Hint::Granted { .. }));
            let claim = AcquireRequest { known: true, ..request(number) };
            let (token, _) = engine(number).granted(&claim);
            assert!(token > last);
            last = token;
        }
        here.end("a", MANY);
        assert_eq!(here.report().expect("a report").names, 0);
    });
}

#[test]
fn a_hundred_thousand_names_are_held_and_listed() {
    let scratch = Scratch::new();
    // However long it takes to take them all, no lease ends meanwhile.
    let options = scratch.options().with_clock(Arc::new(Still));
    let engine = LocalEngine::open(&options).expect("opened");
    const MANY: u64 = 100_000;
    let client = holdline_core::ClientId::from_u64(1);
    for number in 0..MANY {
        engine.granted(&AcquireRequest { client, ..ask(&format!("n/{number:06}"), number) });
    }
    let report = engine.report().expect("a report");
    assert_eq!((report.names, report.holders, report.clients), (100_000, 100_000, 1));
    let after = Some(name("n/099499"));
    let request = ListRequest { prefix: "n/".into(), after, limit: 1_000 };
    let page = wait(engine.list(&request)).expect("a page");
    assert_eq!((page.names.len(), page.after), (500, None));
    assert_eq!(page.names[0].name, name("n/099500"));
    let again = engine.acquire(&ask("n/050000", MANY + 1));
    assert!(matches!(again, Ok(holdline_core::AcquireReply::Queued { .. })));
}

#[test]
fn the_log_stays_bounded_and_dead_files_are_swept() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    // What processes have left that were killed and that nobody has asked for since.
    let dead = |number: u64| scratch.path().join(format!("live/client-{number:016x}"));
    for number in 500..600 {
        std::fs::write(dead(number), "").expect("written");
    }
    let log = scratch.path().join("locks.db-wal");
    let mut number = 0;
    let mut commands = |many: u64| {
        for _ in 0..many {
            number += 1;
            let client = holdline_core::ClientId::from_u64(1);
            engine.granted(&AcquireRequest { client, ..ask("a", number) });
            engine.end("a", number);
        }
    };
    commands(2_000);
    // The log is moved by a thread of its own, while commands go on.
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while (500..600).any(|number| dead(number).exists()) {
        assert!(std::time::Instant::now() < deadline, "nothing was swept");
        commands(100);
    }
    assert!(std::fs::metadata(log).expect("there").len() < 80 << 20);
    assert!(engine.report().expect("a report").log_pages < 20_000);
}
