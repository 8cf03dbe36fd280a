//! The terminal: raw mode and the alternate screen, and that both end whatever happens.
//!
//! - Invariant T1: the terminal is restored by the end of [`run`], by a panic of any thread and by
//!   a signal that can be caught.
//! - Invariant T2: events that wait are handled before the next frame, so that a slow terminal
//!   skips frames and no keys.

use std::io::{self, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::{Duration, SystemTime};

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self as terminal_event, Event as TerminalEvent};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpid, kill_process};

use super::app::{App, Command, Event};
use super::draw::{Theme, draw};
use super::store::{self, Requests, Task};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

/// How many events wait for the screen at most; who sends more waits.
const MAX_EVENTS: usize = 64;

/// How long the screen waits for an event before it is drawn again: ages change without one.
const TICK: Duration = Duration::from_millis(250);

/// The signals that end the screen.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// Shows the screen until it is left.
pub(super) fn run(mut app: App, task: Task, theme: Theme) -> Outcome {
    let signal = Arc::new(AtomicUsize::new(0));
    for ending in ENDING {
        let number = ending.as_raw();
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    let mut screen = Screen::enter()?;
    let (events, incoming) = mpsc::sync_channel(MAX_EVENTS);
    let requests = store::start(task, events.clone())?;
    std::thread::Builder::new().name("keys".into()).spawn(move || read_keys(&events))?;
    loop {
        screen.terminal.draw(|frame| draw(frame, &mut app, theme, SystemTime::now()))?;
        let first = match incoming.recv_timeout(TICK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Redraw,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::internal("no thread sends events to the screen"));
            }
        };
        let caught = signal.swap(0, Ordering::Relaxed);
        let caught = i32::try_from(caught).ok().and_then(Signal::from_named_raw);
        let waiting = incoming.try_iter().take(MAX_EVENTS);
        for event in caught.map(Event::Signal).into_iter().chain([first]).chain(waiting) {
            for command in app.handle(event, SystemTime::now()) {
                match command {
                    Command::Leave(outcome) => {
                        drop(screen);
                        return leave(&app, outcome);
                    }
                    Command::Suspend => screen.suspend()?,
                    command => pass_on(command, &requests, &mut app),
                }
            }
        }
    }
}

fn pass_on(command: Command, requests: &Requests, app: &mut App) {
    match command {
        // The thread ends with an event, so that nothing is lost if it has gone.
        Command::Pause(paused) => {
            let _ = requests.paused.send(paused);
        }
        Command::Refresh => requests.refresh.notify_one(),
        Command::Act(action) => {
            if requests.actions.try_send(action).is_err() {
                app.doing = None;
            }
        }
        Command::Leave(_) | Command::Suspend => {}
    }
}

/// Says what is still under way when the screen is left.
fn leave(app: &App, outcome: Result<Exit, Box<Failure>>) -> Outcome {
    if let Some(doing) = &app.doing {
        eprintln!("holdline: left while {doing}: it may take effect, `holdline who` shows it");
    }
    outcome.map_err(|failure| *failure)
}

/// Reads keys and changes of size, until the screen or the terminal is gone.
fn read_keys(events: &SyncSender<Event>) {
    loop {
        let event = match terminal_event::read() {
            Ok(TerminalEvent::Key(key)) => Event::Key(key),
            Ok(_) => Event::Redraw,
            Err(error) => {
                let failure = Failure::internal(format_args!("cannot read keys: {error}"));
                Event::Failed(Box::new(failure))
            }
        };
        let is_last = matches!(event, Event::Failed(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// The terminal, while it is ours.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn enter() -> Result<Screen, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            Failure::usage(format_args!("top: the terminal cannot be used: {error}"))
                .fix("run it on a terminal, or add --once for one table")
        })?;
        Ok(Screen { terminal })
    }

    /// Gives the terminal back, and stops until a shell continues this process.
    fn suspend(&mut self) -> io::Result<()> {
        restore()?;
        kill_process(getpid(), Signal::TSTP)?;
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen)?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing more can be done if the terminal is gone.
        let _ = restore();
    }
}

fn restore() -> io::Result<()> {
    let cooked = disable_raw_mode();
    execute!(stdout(), LeaveAlternateScreen, Show)?;
    cooked
}
