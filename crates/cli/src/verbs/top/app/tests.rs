//! What keys and rounds lead to.

use super::super::samples::{holder, round_view, snapshot, stores, waiter};
use super::*;

fn at(seconds: u64) -> Now {
    let (now, pause) = (Now::read(), Duration::from_secs(seconds));
    Now { time: now.time + pause, instant: now.instant + pause }
}

fn event(store: usize, event: StoreEvent) -> Event {
    Event::Store { store, event }
}

fn round_of(store: usize, names: Vec<Snapshot>) -> Event {
    let (view, changes, flow) = (round_view(names), Vec::new(), Flow::default());
    event(store, StoreEvent::Round(Box::new(CompleteRound { view, changes, flow })))
}

fn round(names: Vec<Snapshot>) -> Event {
    round_of(0, names)
}

fn app(names: Vec<Snapshot>) -> App {
    App::new(stores(vec![names]), Duration::from_secs(1)).shown()
}

impl App {
    /// Lays out what its stores have shown.
    fn shown(mut self) -> App {
        self.lay_out(None);
        self
    }

    fn names(&self) -> usize {
        self.stores.names().count()
    }
}

/// Presses keys; returns what they have led to.
fn press(app: &mut App, keys: &str) -> Vec<Command> {
    let press = |character| {
        let (code, modifiers) = match character {
            '\n' => (KeyCode::Enter, KeyModifiers::NONE),
            '\u{1b}' => (KeyCode::Esc, KeyModifiers::NONE),
            '\u{3}' => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            '\u{15}' => (KeyCode::Char('u'), KeyModifiers::CONTROL),
            '\t' => (KeyCode::Tab, KeyModifiers::NONE),
            character => (KeyCode::Char(character), KeyModifiers::NONE),
        };
        app.handle(Event::Key(KeyEvent::new(code, modifiers)), at(0))
    };
    keys.chars().flat_map(press).collect()
}

fn revoked(commands: Vec<Command>) -> (String, u64, String) {
    match <[Command; 1]>::try_from(commands) {
        Ok([Command::Act(_, Action::Revoke { name, token, reason, now: false })]) => {
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
    app.handle(event(0, StoreEvent::Done(Err("no answer".to_owned()))), at(2));
    assert!(app.notice.as_ref().is_some_and(|notice| notice.is_error));
    assert!(press(&mut app, "B").is_empty() && app.form.is_some());
}

#[test]
fn a_grant_is_revoked_now_only_if_that_is_typed_in_full() {
    let mut app = app(one("a", 7));
    press(&mut app, "Bback\t");
    // The field has `polite` already.
    assert!(press(&mut app, "now\n").is_empty());
    let error = app.form.as_ref().and_then(|form| form.error.clone());
    assert_eq!(error.as_deref(), Some("how: must be polite or now"));
    let commands = press(&mut app, "\u{15}now\n");
    let [Command::Act(0, action @ Action::Revoke { token, reason, now: true, .. })] = &commands[..]
    else {
        panic!("{commands:?}");
    };
    assert_eq!((token.get(), reason.as_str()), (7, "back"));
    assert_eq!(action.doing(), "revoking a, token 7 now");
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
    assert_eq!(app.names(), 1);
    assert!(matches!(press(&mut app, " ")[..], [Command::Pause(false)]));
    app.handle(round(vec![]), at(2));
    assert_eq!(app.names(), 0);
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

fn one(name: &str, number: u8) -> Vec<Snapshot> {
    vec![snapshot(name, vec![holder(number, "make", 1)], vec![])]
}

fn two_stores() -> App {
    App::new(stores(vec![one("a", 7), one("a", 8)]), Duration::from_secs(1)).shown()
}

#[test]
fn a_command_goes_to_the_store_of_its_row() {
    let mut app = two_stores();
    let commands = press(&mut app, "jBx\n");
    assert!(
        matches!(commands[..], [Command::Act(1, Action::Revoke { token, .. })] if token.get() == 8)
    );
    assert_eq!(app.doing.as_deref(), Some("1: revoking a, token 8"));
    let commands = app.handle(event(1, StoreEvent::Done(Ok("a: revoked".to_owned()))), at(1));
    assert!(matches!(commands[..], [Command::Refresh(1)]));
    assert_eq!(app.notice.as_ref().map(|notice| notice.text.as_str()), Some("1: a: revoked"));
    // The same name of the other store is another name.
    press(&mut app, "k\n");
    assert_eq!(app.detail.as_ref().map(|detail| detail.store), Some(0));
    assert!(matches!(press(&mut app, "fx\n")[..], [Command::Act(0, Action::Freeze { .. })]));
    assert!(matches!(press(&mut app, " ")[..], [Command::Pause(true)]), "all of them");
}

#[test]
fn a_store_that_fails_changes_nothing_about_another() {
    let mut app = two_stores();
    app.handle(event(0, StoreEvent::Down("no answer".to_owned())), at(1));
    let refused = Failure::config("wrong password");
    assert!(
        app.handle(event(0, StoreEvent::Unusable(Box::new(refused.clone()))), at(2)).is_empty()
    );
    assert_eq!((app.names(), app.rows.len()), (2, 2), "what was seen stays");
    assert_eq!(app.stores.0[1].state, StoreState::Up);
    app.handle(round_of(1, [one("a", 8), one("b", 9)].concat()), at(3));
    assert_eq!(app.rows.len(), 3);
    assert!(
        app.shown_events().next().is_some_and(|event| event.text.ends_with("Z 0: wrong password"))
    );
    // There is nothing to show beside the only store.
    let mut only = self::app(vec![]);
    let commands = only.handle(event(0, StoreEvent::Unusable(Box::new(refused))), at(1));
    assert!(matches!(&commands[..], [Command::Leave(Err(_))]));
}

#[test]
fn a_row_is_found_again_by_its_store_and_sorts_go_over_all() {
    let mut app = two_stores();
    press(&mut app, "j");
    app.handle(round_of(0, [one("a", 7), one("aa", 5)].concat()), at(1));
    assert_eq!(app.target().map(|(store, ..)| store), Some(1));
    press(&mut app, "s");
    assert_eq!(app.rows.iter().map(|row| row.name.store).collect::<Vec<_>>(), [0, 0, 1]);
    press(&mut app, "s");
    assert_eq!(app.rows.iter().map(|row| row.name.store).collect::<Vec<_>>(), [1, 0, 0]);
    let mut only = self::app(one("a", 1));
    press(&mut only, "s");
    assert_eq!(only.sort.key, SortKey::Name, "there is no such column");
}
