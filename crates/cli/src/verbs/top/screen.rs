//! The terminal: raw mode and the alternate screen, and that both end whatever happens.
//!
//! - Invariant T1: the terminal is restored by the end of [`run`], by a panic of any thread and by
//!   a signal that can be caught.
//! - Invariant T2: events that wait are handled before the next frame, so that a slow terminal
//!   skips frames and no keys.

use std::io::{self, stdout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Once};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self as terminal_event, Event as TerminalEvent};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, style};
use ratatui::{DefaultTerminal, Terminal};
use rustix::process::Signal;

use super::app::{App, Command, Event};
use super::draw::draw;
use super::store::{self, Requests, Task};
use super::stores::Now;
use super::theme::Theme;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

/// How many events wait for the screen at most; who sends more waits.
const MAX_EVENTS: usize = 64;

/// How long the screen waits for an event before it is drawn again: ages change without one.
const TICK: Duration = Duration::from_millis(250);

/// The signals that end the screen.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// Shows the screen until it is left.
pub(super) fn run(mut app: App, tasks: Vec<Task>, theme: Theme) -> Outcome {
    let signal = Arc::new(AtomicUsize::new(0));
    for ending in ENDING {
        let number = ending.as_raw();
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    // The library would decide by NO_COLOR alone; the theme has decided already.
    style::force_color_output(theme.color);
    let mut screen = Screen::enter()?;
    let (events, incoming) = mpsc::sync_channel(MAX_EVENTS);
    let start = |(store, task)| store::start(store, task, events.clone());
    let requests = tasks.into_iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
    std::thread::Builder::new().name("keys".into()).spawn(move || read_keys(&events))?;
    loop {
        if !IS_ENTERED.load(Ordering::Relaxed) {
            return Err(Failure::internal("a thread has panicked"));
        }
        screen.terminal.draw(|frame| draw(frame, &mut app, theme, Now::read()))?;
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
            for command in app.handle(event, Now::read()) {
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

fn pass_on(command: Command, requests: &[Requests], app: &mut App) {
    match command {
        // A thread ends with an event, so that nothing is lost if it has gone.
        Command::Pause(paused) => {
            for store in requests {
                let _ = store.paused.send(paused);
            }
        }
        Command::Refresh(store) => requests[store].refresh.notify_one(),
        Command::Act(store, action) => {
            if requests[store].actions.try_send(action).is_err() {
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

/// Whether the terminal is in raw mode and shows the alternate screen.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The terminal, while it is ours.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn enter() -> Result<Screen, Failure> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print = std::panic::take_hook();
            // The message must not stand on a screen that is about to go.
            std::panic::set_hook(Box::new(move |panic| {
                let _ = restore();
                print(panic);
            }));
        });
        let entered = enter().and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        entered.map(|terminal| Screen { terminal }).map_err(|error| {
            let _ = restore();
            Failure::usage(format_args!("top: the terminal cannot be used: {error}"))
                .fix("run it on a terminal, or add --once for one table")
        })
    }

    /// Gives the terminal back, and stops until a shell continues this process.
    fn suspend(&mut self) -> io::Result<()> {
        restore()?;
        // To this thread: another one could take a signal to the process, and this one go on.
        signal_hook::low_level::raise(Signal::TSTP.as_raw())?;
        enter()?;
        // `clear` would ask the terminal where the cursor is, and the thread that reads keys could
        // receive the answer. A new one knows nothing of the screen, so it draws everything.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing more can be done if the terminal is gone.
        let _ = restore();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::Relaxed);
    execute!(stdout(), EnterAlternateScreen)
}

/// Gives the terminal back, once: a second time would put the cursor back to where it was, and what
/// is printed next over what was printed since.
fn restore() -> io::Result<()> {
    if !IS_ENTERED.swap(false, Ordering::Relaxed) {
        return Ok(());
    }
    let cooked = disable_raw_mode();
    execute!(stdout(), LeaveAlternateScreen, Show)?;
    cooked
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Makes the test below the child of itself.
    const VARIABLE: &str = "HOLDLINE_TEST_OF_PANICS";

    /// This program runs again in a pseudo-terminal, and panics there while it has the screen: in
    /// this thread, or in another one, as that of the store.
    #[test]
    fn a_panic_gives_the_terminal_back_and_can_be_read() {
        match std::env::var(VARIABLE).as_deref() {
            Ok("this") => {
                let _screen = Screen::enter().expect("a terminal");
                panic!("on purpose");
            }
            Ok("other") => {
                let _screen = Screen::enter().expect("a terminal");
                let other = std::thread::spawn(|| panic!("on purpose"));
                return assert!(other.join().is_err());
            }
            _ => {}
        }
        for thread in ["this", "other"] {
            let size = PtySize { rows: 24, cols: 80, ..PtySize::default() };
            let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
            let program = std::env::current_exe().expect("this program");
            let mut command = CommandBuilder::new(program);
            let name = "verbs::top::screen::tests::a_panic_gives_the_terminal_back_and_can_be_read";
            command.args(["--exact", name, "--nocapture"]);
            command.env(VARIABLE, thread);
            command.env("RUST_BACKTRACE", "0");
            let mut child = pair.slave.spawn_command(command).expect("it starts");
            let mut reader = pair.master.try_clone_reader().expect("a reader");
            let terminal = pair.master.tty_name().expect("a name");
            let terminal = std::fs::File::open(terminal).expect("the terminal");
            child.wait().expect("our child");
            let modes = tcgetattr(&terminal).expect("its modes").local_modes;
            assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
            drop((pair.slave, terminal));
            let mut parser = vt100::Parser::default();
            let mut buffer = [0; 4096];
            // The kernel reports an error once nobody has the terminal open any more.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                parser.process(&buffer[..read]);
            }
            let screen = parser.screen();
            assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{thread}");
            assert!(screen.contents().contains("on purpose"), "{thread}: {}", screen.contents());
        }
    }
}
