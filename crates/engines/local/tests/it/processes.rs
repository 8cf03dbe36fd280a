//! Other processes that die, stop, or come all at once.

use std::time::Duration;

use holdline_core::{
    AcquireRequest, Certainty, Engine, ErrorKind, FencingToken, Health, Hint, Operation, Purpose,
    RenewReply,
};
use holdline_local::{LocalEngine, LocalOptions, checkup};
use holdline_services::steady;

use crate::role::Player;
use crate::support::{Scratch, Verbs, ask, hint, id, name, until, wait};

fn player(scratch: &Scratch) -> Player {
    let mut player = Player::start("player", scratch.path());
    assert_eq!(player.answer(), "ready");
    player
}

#[test]
fn a_killed_holder_frees_the_name_at_once() {
    steady(|| {
        let scratch = Scratch::new();
        let engine = scratch.open();
        let mut holder = player(&scratch);
        let first = holder.ask("acquire a 1 leased");
        assert_eq!(engine.queued(&ask("a", 2)), 0);
        holder.kill();
        let reply = engine.line("a", 2, Purpose::Wait);
        assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
        let (token, _) = engine.granted(&AcquireRequest { known: true, ..ask("a", 2) });
        let first: u64 = first.strip_prefix("granted ").expect("granted").parse().expect("a token");
        assert!(token.get() > first);
        // What it has left in the directory is gone as well.
        let left = std::fs::read_dir(scratch.path().join("live")).expect("listed").count();
        assert_eq!(left, 1);
    });
}

/// The file of a live grant has its token for a name, and is no part of the copy.
#[test]
fn a_restored_old_copy_is_detected_by_a_live_grant() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    engine.granted(&ask("a", 1));
    engine.end("a", 1);
    drop(engine);
    let files = ["locks.db", "locks.db-wal", "locks.db-shm"];
    let copy = scratch.path().join("copy");
    std::fs::create_dir(&copy).expect("made");
    for file in files {
        std::fs::copy(scratch.path().join(file), copy.join(file)).expect("copied");
    }
    let mut job = player(&scratch);
    let token = job.ask("acquire a 2 live");
    let token: u64 = token.strip_prefix("granted ").expect("granted").parse().expect("a token");
    let tokens = || {
        let result = checkup(&LocalOptions::default().with_dir(scratch.path()));
        let finding = result.findings().iter().find(|finding| finding.check() == "tokens");
        finding.unwrap_or_else(|| panic!("not looked at: {result:?}")).clone()
    };
    assert_eq!(tokens().health(), Health::Ok);
    for file in files {
        std::fs::rename(copy.join(file), scratch.path().join(file)).expect("put back");
    }
    let result = tokens();
    assert_eq!(result.health(), Health::Error, "{result:?}");
    assert!(result.found().contains(&format!("a process has {token} already")), "{result:?}");
    assert!(result.fix().is_some_and(|fix| fix.contains("fence bump")), "{result:?}");
    let engine = scratch.open();
    let to = FencingToken::new(token).expect("a token");
    wait(engine.operate(&Operation::RaiseFence { to })).expect("raised");
    assert_eq!(tokens().health(), Health::Ok);
    assert!(engine.granted(&ask("a", 3)).0 > to);
}

#[test]
fn a_killed_waiter_is_skipped_at_once() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    engine.granted(&ask("a", 1));
    let mut dead: Vec<Player> = (2..7).map(|_| player(&scratch)).collect();
    for (waiter, number) in dead.iter_mut().zip(2..) {
        assert_eq!(
            waiter.ask(&format!("acquire a {number} leased")),
            format!("queued {}", number - 2)
        );
    }
    let mut next = player(&scratch);
    assert_eq!(next.ask("acquire a 9 leased"), "queued 5");
    for waiter in &mut dead {
        waiter.kill();
    }
    next.say("hint a 9");
    engine.end("a", 1);
    // Nobody asks for the name meanwhile, so no hand-off to the dead is ever seen to end.
    assert_eq!(next.answer(), "hint");
    assert!(next.ask("acquire a 9 leased").starts_with("granted"));
}

#[test]
fn a_hand_off_wakes_another_process() {
    steady(|| {
        let scratch = Scratch::new();
        let engine = scratch.open();
        let mut holder = player(&scratch);
        assert!(holder.ask("acquire a 1 leased").starts_with("granted"));
        engine.queued(&ask("a", 2));
        let mut hints = engine.watch(&name("a"), id(2));
        holder.say("release a 1");
        assert!(matches!(hint(&mut hints), Hint::Granted { .. }));
        assert!(holder.answer().starts_with("Released"));
    });
}

#[test]
fn processes_that_create_the_directory_at_once_share_it() {
    let scratch = Scratch::new();
    for round in 0..4 {
        let directory = scratch.path().join(format!("deep/below/{round}"));
        let mut players: Vec<Player> =
            (0..6).map(|_| Player::start("player", &directory)).collect();
        let mut tokens = Vec::new();
        for (player, number) in players.iter_mut().zip(1..) {
            assert_eq!(player.answer(), "ready");
            let answer = player.ask(&format!("acquire own-{number} {number} leased"));
            let token = answer.strip_prefix("granted ").expect("granted");
            tokens.push(token.parse::<u64>().expect("a token"));
            let position = format!("queued {}", number - 2);
            let expected = if number == 1 { "granted" } else { position.as_str() };
            let answer = player.ask(&format!("acquire all {} leased", 100 + number));
            assert!(answer.starts_with(expected), "{answer}");
        }
        tokens.dedup();
        assert!(tokens.is_sorted() && tokens.len() == 6, "{tokens:?}");
        assert!(!directory.join("locks.db.new").exists());
    }
}

#[test]
fn a_process_that_is_stopped_inside_is_named() {
    let scratch = Scratch::new();
    let limit = Duration::from_millis(50);
    let options = scratch.options().with_transaction_limit(limit);
    let engine = LocalEngine::open(&options).expect("opened");
    let mut sitter = Player::start("sitter", scratch.path());
    assert_eq!(sitter.answer(), "inside");
    let stopped = format!("process {} ", sitter.pid());
    // Its state is stopped a moment after it has said that it is inside.
    let error = until(|| {
        let error = engine.acquire(&ask("a", 1)).expect_err("nobody gets in");
        error.to_string().contains("is stopped").then_some(error)
    });
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(error.to_string().contains(&stopped), "{error}");
    let result = LocalEngine::open(&options).expect("opening needs no transaction");
    assert!(result.report().expect_err("nobody gets in").to_string().contains(&stopped));
    sitter.kill();
    engine.granted(&ask("a", 1));
}

#[test]
fn many_commands_wait_while_one_is_inside_and_all_run() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let inside = std::fs::File::open(scratch.path()).expect("opened");
    inside.lock().expect("locked");
    let requests: Vec<_> = (0..200).map(|n| ask(&format!("n{n}"), n)).collect();
    let mut answers: Vec<_> = requests.iter().map(|request| engine.try_acquire(request)).collect();
    // The last one gives up before it was inside, and nothing of it is done.
    drop(answers.pop());
    inside.unlock().expect("unlocked");
    for answer in answers {
        wait(answer).expect("granted");
    }
    assert_eq!(engine.report().expect("a report").holders, 199);
}

#[test]
fn a_process_that_is_about_to_stop_stays_outside_of_transactions() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let other = engine.clone();
    engine.between_transactions(|| {
        let request = ask("a", 1);
        let answer = other.try_acquire(&request);
        assert!(matches!(answer, holdline_core::Answer::Later(_)));
    });
    engine.granted(&ask("b", 2));
}

/// Each killed process may have been anywhere in a command.
#[test]
fn processes_that_are_killed_in_the_middle_harm_nobody() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let mut largest = 0;
    for round in 0..40 {
        let mut players = [player(&scratch), player(&scratch)];
        for player in &mut players {
            player.say("hammer a");
        }
        for turn in 0..(5 + round % 7) {
            let token: u64 = players[turn % 2].answer().parse().expect("a token");
            assert!(token > 0);
        }
        for player in &mut players {
            player.kill();
        }
        let (token, _) = engine.granted(&ask("a", round as u64));
        assert!(token.get() > largest, "round {round}");
        largest = token.get();
        engine.end("a", round as u64);
    }
    assert_eq!(engine.report().expect("a report").names, 0);
}
