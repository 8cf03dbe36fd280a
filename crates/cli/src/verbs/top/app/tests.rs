//! What keys and rounds lead to.

use std::time::UNIX_EPOCH;

use super::super::samples::{holder, seen, snapshot, waiter};
use super::*;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn round(names: Vec<Snapshot>) -> Event {
    Event::Round(Box::new(RoundSeen {
        seen: seen(names),
        changes: Vec::new(),
        flow: Flow::default(),
    }))
}

fn app(names: Vec<Snapshot>) -> App {
    let mut app = App::new("local:".to_owned(), Duration::from_secs(1));
    app.handle(round(names), at(0));
    app
}

/// Presses keys; returns what they have led to.
fn press(app: &mut App, keys: &str) -> Vec<Command> {
    let press = |character| {
        let (code, modifiers) = match character {
            '\n' => (KeyCode::Enter, KeyModifiers::NONE),
            '\u{1b}' => (KeyCode::Esc, KeyModifiers::NONE),
            '\u{3}' => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            character => (KeyCode::Char(character), KeyModifiers::NONE),
        };
        app.handle(Event::Key(KeyEvent::new(code, modifiers)), at(0))
    };
    keys.chars().flat_map(press).collect()
}

fn revoked(commands: Vec<Command>) -> (String, u64, String) {
    match <[Command; 1]>::try_from(commands) {
        Ok([Command::Act(Action::Revoke { name, token, reason })]) => {
            (name.as_str().to_owned(), token.get(), reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_token_that_was_shown_is_revoked_whatever_rounds_show_meanwhile() {
    let mut app = app(vec![snapshot("a", vec![holder(7, "make", 1)], vec![])]);
    assert!(press(&mut app, "Broll").is_empty());
    app.handle(round(vec![snapshot("a", vec![holder(8, "other", 1)], vec![])]), at(1));
    let command = press(&mut app, "back\n");
    assert_eq!(revoked(command), ("a".to_owned(), 7, "rollback".to_owned()));
    // One command at a time.
    assert!(press(&mut app, "B").is_empty() && app.form.is_none());
    assert!(app.notice.as_ref().is_some_and(|notice| notice.text.starts_with("wait: revoking a")));
    app.handle(Event::Done(Err("no answer".to_owned())), at(2));
    assert!(app.notice.as_ref().is_some_and(|notice| notice.is_error));
    assert!(press(&mut app, "B").is_empty() && app.form.is_some());
}

#[test]
fn one_of_many_holders_is_revoked_only_if_it_is_selected() {
    let holders = vec![holder(7, "make", 1), holder(8, "tar", 1)];
    let mut app = app(vec![snapshot("a", holders, vec![waiter(9, "x", 1)])]);
    press(&mut app, "2B");
    assert!(app.form.is_none(), "a waiter's row names no holder");
    assert!(app.notice.as_ref().is_some_and(|notice| notice.text.contains("2 holders")));
    press(&mut app, "1j");
    assert_eq!(revoked(press(&mut app, "Bx\n")).1, 8);
}

#[test]
fn a_holder_without_a_token_cannot_be_named() {
    let mut foreign = holder(7, "make", 1);
    foreign.summary.token = None;
    let mut app = app(vec![snapshot("a", vec![foreign], vec![])]);
    press(&mut app, "B");
    assert!(app.form.is_none() && app.notice.is_some());
}

#[test]
fn a_selected_row_stays_selected_when_rows_move() {
    let one = |name: &str, number| snapshot(name, vec![holder(number, "x", 1)], vec![]);
    let mut app = app(vec![one("b", 1), one("d", 2)]);
    press(&mut app, "j");
    app.handle(round(vec![one("a", 3), one("b", 1), one("c", 4), one("d", 2)]), at(1));
    assert_eq!(app.selected, 3);
    // It is gone: the selection stays within the rows.
    app.handle(round(vec![one("a", 3)]), at(2));
    assert_eq!(app.selected, 0);
    app.handle(round(vec![]), at(3));
    assert!(press(&mut app, "jkB\n").is_empty());
}

#[test]
fn a_pause_changes_nothing_until_it_ends() {
    let mut app = app(vec![snapshot("a", vec![], vec![])]);
    assert!(matches!(press(&mut app, " ")[..], [Command::Pause(true)]));
    app.handle(round(vec![]), at(1));
    assert_eq!(app.seen.as_ref().map(|seen| seen.names.len()), Some(1));
    assert!(matches!(press(&mut app, " ")[..], [Command::Pause(false)]));
    app.handle(round(vec![]), at(2));
    assert_eq!(app.seen.as_ref().map(|seen| seen.names.len()), Some(0));
}

#[test]
fn rates_count_what_was_seen_in_the_window() {
    let mut app = App::new("local:".to_owned(), Duration::from_secs(1));
    for second in 0..200 {
        let mut seen = seen(vec![]);
        seen.at = at(second);
        let flow = Flow { granted: 2, ended: 1, queued: 0 };
        app.handle(Event::Round(Box::new(RoundSeen { seen, changes: vec![], flow })), at(second));
    }
    let (flow, span) = app.rates().expect("two rounds");
    assert_eq!((flow, span), (Flow { granted: 120, ended: 60, queued: 0 }, RATE_WINDOW));
}

#[test]
fn keys_leave_wherever_they_are_pressed() {
    for keys in ["q", "\u{3}", "B\u{3}", "/x\u{3}", "\n\u{3}", "\nq", "?xq"] {
        let mut app = app(vec![snapshot("a", vec![holder(7, "make", 1)], vec![])]);
        let commands = press(&mut app, keys);
        assert!(matches!(commands[..], [Command::Leave(Ok(Exit::Success))]), "{keys:?}");
    }
    let mut app = app(vec![]);
    assert!(press(&mut app, "/q").is_empty(), "it is a letter of the filter");
}
