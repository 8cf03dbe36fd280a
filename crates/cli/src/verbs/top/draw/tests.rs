//! What stands where, on a terminal in memory.

use std::time::{Duration, Instant, UNIX_EPOCH};

use holdline_core::{FreezeView, HolderFields, Metadata, Snapshot};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::app::{App, CompleteRound, Event, StoreEvent};
use super::super::samples::{holder, round_view, snapshot, waiter};
use super::super::stores::{Flow, Now, RoundView, StoreView, Stores};
use super::{Theme, draw};

fn start() -> Now {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000);
    Now { time, instant: *START.get_or_init(Instant::now) }
}

fn later(seconds: u64) -> Now {
    let (now, pause) = (start(), Duration::from_secs(seconds));
    Now { time: now.time + pause, instant: now.instant + pause }
}

fn app(names: Vec<Snapshot>) -> App {
    let store = StoreView::new(String::new(), "redis://host".to_owned());
    let mut app = App::new(Stores(vec![store]), Duration::from_secs(1));
    app.handle(round(round_view(names)), start());
    app
}

/// Stores with these names, of which none was asked yet.
fn app_of(names: &[&str]) -> App {
    let store = |name: &&str| StoreView::new((*name).to_owned(), format!("redis://{name}"));
    App::new(Stores(names.iter().map(store).collect()), Duration::from_secs(1))
}

fn event(store: usize, event: StoreEvent) -> Event {
    Event::Store { store, event }
}

fn round_of(store: usize, view: RoundView) -> Event {
    let (changes, flow) = (Vec::new(), Flow::default());
    event(store, StoreEvent::Round(Box::new(CompleteRound { view, changes, flow })))
}

fn round(view: RoundView) -> Event {
    round_of(0, view)
}

fn down(store: usize) -> Event {
    event(store, StoreEvent::Down("no\u{1b}[31m answer".to_owned()))
}

fn press(app: &mut App, keys: &str) {
    for character in keys.chars() {
        let code = match character {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            character => KeyCode::Char(character),
        };
        app.handle(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), start());
    }
}

/// The lines of the screen.
fn screen(app: &mut App, (width, height): (u16, u16), now: Now) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
    let theme = Theme { color: false };
    terminal.draw(|frame| draw(frame, app, theme, now)).expect("in memory");
    let buffer = terminal.backend().buffer();
    let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect();
    (0..height).map(line).collect()
}

const SMALL: (u16, u16) = (80, 24);

#[test]
fn the_page_of_holders_fits_80_columns() {
    let mut long = holder(200, "a-program-with-a-long-name", 4_000);
    long.summary.token = holdline_core::FencingToken::new(9_007_199_254_740_991).ok();
    let name = "a-name-that-is-much-longer-than-any-column-of-a-small-terminal-can-be";
    let names = vec![
        snapshot("deploy", vec![holder(7, "make", 61)], vec![waiter(8, "sh", 5)]),
        snapshot(&format!("{name}-{name}"), vec![long], vec![]),
    ];
    let mut app = app(names);
    let lines = screen(&mut app, SMALL, start());
    assert!(lines[0].starts_with("redis://host  up"), "{}", lines[0]);
    assert!(lines[0].trim_end().ends_with("round 3ms, every 1s"), "{}", lines[0]);
    assert!(lines[1].starts_with("held 2  waiting 1  frozen 0"), "{}", lines[1]);
    assert!(lines[2].starts_with(" 1 held  2 waiting  3 blocking  4 nodes  5 events "));
    assert!(lines[3].starts_with("NAME "), "{}", lines[3]);
    assert!(lines[4].contains("1h06m 9007199254740991 "), "a token is never cut: {}", lines[4]);
    assert!(lines[4].starts_with("a-name") && lines[4].contains('…'), "{}", lines[4]);
    assert!(lines[5].starts_with("deploy ") && lines[5].contains(" make (7 on"), "{}", lines[5]);
    assert!(lines[23].starts_with("? help"), "{}", lines[23]);
}

#[test]
fn a_store_that_is_down_is_said_with_the_age_of_what_is_shown() {
    let mut app = app(vec![snapshot("deploy", vec![holder(7, "make", 61)], vec![])]);
    app.handle(down(0), later(2));
    let lines = screen(&mut app, SMALL, later(12));
    assert!(lines[0].contains("DOWN for 10s: no\\u{1b}"), "{}", lines[0]);
    assert!(lines[0].trim_end().ends_with("as of 13:46:40Z, 12s ago"), "{}", lines[0]);
    assert!(lines[4].starts_with("deploy "), "what was seen stays: {}", lines[4]);
    // It is an event once, however many rounds fail.
    app.handle(down(0), later(13));
    press(&mut app, "5");
    let lines = screen(&mut app, SMALL, start());
    assert_eq!(lines.iter().filter(|line| line.contains("store down")).count(), 1);
}

/// Names, programs and reasons that a hostile client can choose, within their limits.
fn hostile() -> Vec<Snapshot> {
    let texts = [
        "<b>&amp;[31m".to_owned(),
        "\u{202e}\u{2066}x\u{200b}\u{feff}".to_owned(),
        "e\u{301}\u{302}\u{303}".repeat(60),
        "\u{1f468}\u{1f469}\u{754c}".repeat(40),
        "x".repeat(400),
    ];
    let names = texts.iter().enumerate().map(|(at, text)| {
        let mut name = snapshot(&format!("{at}{text}"), vec![], vec![]);
        let mut hold = holder(1, "x", 1);
        let fields = HolderFields {
            program: text.chars().take(60).collect(),
            host: text.chars().take(60).collect(),
            reason: "\u{1b}]0;x\u{7}\r\n\t".to_owned(),
            pid: Some(u32::MAX),
            ..HolderFields::default()
        };
        hold.summary.metadata = Metadata::new(&fields).expect("short");
        let mut wait = waiter(2, "x", 1);
        wait.metadata = hold.summary.metadata.clone();
        (name.holders, name.holder_count) = (vec![hold], 1);
        (name.queue, name.queue_length) = (vec![wait], usize::MAX / 8);
        name.freeze = Some(FreezeView {
            reason: text.clone(),
            left: Duration::MAX,
            active: at % 2 == 0,
            token: None,
        });
        name
    });
    names.collect()
}

#[test]
fn no_text_and_no_size_breaks_a_page() {
    for keys in ["", "2", "3", "4", "5", "\n", "?", "/x", "f", "B", "u"] {
        for size in [(1, 1), (2, 30), (30, 6), (31, 7), SMALL, (300, 80)] {
            let mut app = app(hostile());
            press(&mut app, keys);
            let shown = screen(&mut app, size, start()).concat();
            assert!(!shown.contains(|c: char| c.is_control()), "{keys:?} {size:?}");
            for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}'] {
                assert!(!shown.contains(hidden), "{keys:?} {size:?}");
            }
        }
    }
}

#[test]
fn the_selected_row_is_always_on_the_screen() {
    let names = (0..200).map(|at| {
        let name = format!("name-{at:04}");
        snapshot(&name, vec![holder(1, "x", 1)], vec![])
    });
    let mut app = app(names.collect());
    let is_shown = |app: &mut App, name: &str| {
        let lines = screen(app, SMALL, start());
        lines.iter().any(|line| line.starts_with(name))
    };
    for (code, name) in [
        (KeyCode::End, "name-0199"),
        (KeyCode::PageUp, "name-0180"),
        (KeyCode::Home, "name-0000"),
        (KeyCode::PageDown, "name-0019"),
    ] {
        app.handle(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), start());
        assert!(is_shown(&mut app, name), "{code:?}");
    }
}

/// It draws each frame with other rows, as a busy store would have them, and prints how long one
/// takes: `cargo test -p holdline-cli --bin holdline frames -- --nocapture`. It
/// asserts no time, but that a frame has the rows of its place.
#[test]
fn ten_thousand_names_are_drawn_in_frames() {
    let names: Vec<Snapshot> = (0..10_000)
        .map(|at| snapshot(&format!("name-{at:05}"), vec![holder(1, "make", at)], vec![]))
        .collect();
    let mut app = app(names);
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).expect("in memory");
    let (begin, frames) = (Instant::now(), 100);
    for frame in 0..frames {
        app.selected = frame * 99;
        let theme = Theme { color: true };
        terminal.draw(|frame| draw(frame, &mut app, theme, start())).expect("in memory");
    }
    println!("a frame of 10,000 names: {:?}", begin.elapsed() / u32::try_from(frames).unwrap_or(1));
    let begin = Instant::now();
    app.handle(round(round_view(app.stores.0[0].names().to_vec())), start());
    println!("a round of 10,000 names: {:?}", begin.elapsed());
    let last = format!("name-{:05}", (frames - 1) * 99);
    let buffer = terminal.backend().buffer();
    let shown: String = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert!(shown.contains(&last), "{shown}");
}

#[test]
fn several_stores_have_a_line_each_and_a_column() {
    let mut app = app_of(&["eu", "billing", "us"]);
    let names = |name, number| vec![snapshot(name, vec![holder(number, "make", 61)], vec![])];
    app.handle(round_of(0, round_view(names("deploy", 7))), start());
    app.handle(round_of(1, round_view(names("invoice", 8))), start());
    app.handle(round_of(1, round_view(names("invoice", 8))), later(2));
    app.handle(down(0), later(2));
    let lines = screen(&mut app, SMALL, later(5));
    assert!(lines[0].starts_with("3 stores, 1 up  held 2  waiting 0  frozen 0 "), "{}", lines[0]);
    assert!(lines[0].trim_end().ends_with("every 1s"), "{}", lines[0]);
    assert!(lines[1].starts_with("eu       DOWN for 3s: no\\u{1b}[31m answer"), "{}", lines[1]);
    assert!(lines[1].trim_end().ends_with("as of 13:46:40Z, 5s ago"), "{}", lines[1]);
    let up = "billing  up  held 1  waiting 0  frozen 0  grants 0.0/s ends 0.0/s queued 0.0/";
    assert!(lines[2].starts_with(up), "{}", lines[2]);
    assert!(lines[3].starts_with("us       connecting"), "{}", lines[3]);
    assert!(lines[4].starts_with(" 1 held "), "{}", lines[4]);
    assert!(lines[5].starts_with("STORE   NAME "), "{}", lines[5]);
    assert!(lines[6].starts_with("eu      deploy "), "{}", lines[6]);
    assert!(lines[7].starts_with("billing invoice "), "{}", lines[7]);
    // A form says which store it is about.
    press(&mut app, "jB");
    assert!(
        screen(&mut app, SMALL, later(5)).iter().any(|line| line.contains("│billing: invoice"))
    );
    press(&mut app, "\u{1b}/BILL\n");
    let lines = screen(&mut app, SMALL, later(5));
    assert!(lines[6].starts_with("billing invoice ") && lines[7].trim().is_empty(), "{lines:?}");
    // A pause stops no clock: how old each row is stays on the screen.
    press(&mut app, "\u{1b} ");
    assert!(screen(&mut app, SMALL, later(5))[0].trim_end().ends_with("PAUSED"));
}

#[test]
fn a_store_without_a_round_in_time_is_late() {
    let mut app = app_of(&["eu", "us"]);
    app.handle(round_of(0, round_view(vec![])), start());
    app.handle(round_of(1, round_view(vec![])), later(60));
    let lines = screen(&mut app, SMALL, later(60));
    assert!(lines[1].starts_with("eu  LATE: no round for 1m00s"), "{}", lines[1]);
    assert!(lines[2].starts_with("us  up "), "{}", lines[2]);
}

#[test]
fn more_stores_than_rows_show_those_that_need_attention() {
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut app = app_of(&names);
    for store in 0..20 {
        app.handle(round_of(store, round_view(vec![])), start());
    }
    app.handle(down(17), start());
    let lines = screen(&mut app, SMALL, start());
    assert!(lines[0].starts_with("20 stores, 19 up"), "{}", lines[0]);
    assert!(lines[1].starts_with("s17  DOWN "), "{}", lines[1]);
    assert!(lines[6].starts_with("and 15 more: see page 4"), "{}", lines[6]);
    press(&mut app, "4");
    assert!(screen(&mut app, SMALL, start())[8].starts_with("s0:"));
    for _ in 0..200 {
        press(&mut app, "j");
    }
    let lines = screen(&mut app, SMALL, start());
    assert!(lines[22].starts_with("`holdline doctor`"), "{lines:?}");
    assert!(lines[23].starts_with("? help"), "{lines:?}");
    for size in [(1, 1), (30, 6), (31, 7), (300, 80)] {
        screen(&mut app, size, start());
    }
}
