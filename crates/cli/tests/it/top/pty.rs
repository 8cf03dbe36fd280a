//! `holdline` in a pseudo-terminal, whose screen is read as a person reads it.

use std::io::{Read as _, Write};
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use crate::world::{DEADLINE, World, eventually};

/// What the terminal shows, and that it has changed.
struct Shown {
    parser: Mutex<(vt100::Parser<Titles>, Vec<u8>)>,
    changed: Condvar,
}

/// The titles that a program has given to the window.
#[derive(Default)]
struct Titles(String);

impl vt100::Callbacks for Titles {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.0 = String::from_utf8_lossy(title).into_owned();
    }
}

fn size_of(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("a size")
}

/// A program in a pseudo-terminal. It is killed when this is dropped.
pub(crate) struct Pty {
    child: Mutex<Box<dyn Child + Send + Sync>>,
    master: Box<dyn MasterPty + Send>,
    /// It stays open, so that the terminal's modes can be read after the end.
    _slave: Box<dyn SlavePty + Send>,
    input: Mutex<Box<dyn Write + Send>>,
    shown: Arc<Shown>,
}

impl Pty {
    pub(crate) fn start(world: &World, arguments: &[&str], size: (u16, u16)) -> Pty {
        Pty::start_with(world, arguments, size, None)
    }

    /// The same with a value of `NO_COLOR`.
    pub(crate) fn start_with(
        world: &World,
        arguments: &[&str],
        size: (u16, u16),
        no_color: Option<&str>,
    ) -> Pty {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_holdline"));
        command.args(arguments);
        command.env_clear();
        command.env("HOLDLINE_URL", world.url());
        command.env("TERM", "xterm-256color");
        if let Some(no_color) = no_color {
            command.env("NO_COLOR", no_color);
        }
        command.cwd(world.path(""));
        Pty::spawn(command, size)
    }

    pub(crate) fn spawn(command: CommandBuilder, (rows, cols): (u16, u16)) -> Pty {
        let size = PtySize { rows, cols, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let child = pair.slave.spawn_command(command).expect("it starts");
        let mut output = pair.master.try_clone_reader().expect("a reader");
        let input = pair.master.take_writer().expect("a writer");
        let parser =
            vt100::Parser::new_with_callbacks(size_of(rows), size_of(cols), 0, Titles::default());
        let shown =
            Arc::new(Shown { parser: Mutex::new((parser, Vec::new())), changed: Condvar::new() });
        let screen = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                let Ok(mut parser) = screen.parser.lock() else { return };
                parser.0.process(&buffer[..read]);
                parser.1.extend_from_slice(&buffer[..read]);
                screen.changed.notify_all();
            }
        });
        Pty {
            child: Mutex::new(child),
            master: pair.master,
            _slave: pair.slave,
            input: Mutex::new(input),
            shown,
        }
    }

    /// Types.
    pub(crate) fn keys(&self, keys: &str) {
        let mut input = self.input.lock().expect("no panic");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("a terminal");
    }

    /// Waits until the screen is as expected.
    pub(crate) fn expect(&self, what: &str, is_so: impl Fn(&str) -> Option<()>) {
        self.wait(what, |parser| {
            let lines: Vec<String> = parser.screen().rows(0, u16::MAX).collect();
            is_so(&lines.join("\n"))
        });
    }

    fn wait(&self, what: &str, is_so: impl Fn(&vt100::Parser<Titles>) -> Option<()>) {
        let end = Instant::now() + DEADLINE;
        let mut parser = self.shown.parser.lock().expect("no panic");
        while is_so(&parser.0).is_none() {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "never: {what}\n{}", parser.0.screen().contents());
            let left = left.min(Duration::from_secs(1));
            parser = self.shown.changed.wait_timeout(parser, left).expect("no panic").0;
        }
    }

    /// Waits until a text is on the screen.
    pub(crate) fn sees(&self, text: &str) {
        self.expect(text, |screen| screen.contains(text).then_some(()));
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        self.shown
            .parser
            .lock()
            .expect("no panic")
            .0
            .screen_mut()
            .set_size(size_of(rows), size_of(cols));
        let size = PtySize { rows, cols, ..PtySize::default() };
        self.master.resize(size).expect("a terminal");
    }

    /// The title of the window.
    pub(crate) fn title(&self) -> String {
        self.shown.parser.lock().expect("no panic").0.callbacks().0.clone()
    }

    /// Whether any command for a colour was sent.
    pub(crate) fn has_colors(&self) -> bool {
        let parser = self.shown.parser.lock().expect("no panic");
        let text = String::from_utf8_lossy(&parser.1).into_owned();
        let codes = text.split("\u{1b}[").filter_map(|rest| rest.split_once('m'));
        let mut codes = codes.filter(|(code, _)| {
            code.chars().all(|character| character.is_ascii_digit() || character == ';')
        });
        codes.any(|(code, _)| code.split(';').any(|code| code == "38" || code == "48"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.lock().expect("no panic").process_id().expect("it runs");
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("it runs");
    }

    /// Types, and waits for the end; checks that the terminal is as it was. Returns the exit code.
    pub(crate) fn quit(&self, keys: &str) -> u32 {
        self.keys(keys);
        self.ended()
    }

    /// Waits for the end; checks that the terminal is as it was. Returns the code that a shell
    /// shows.
    pub(crate) fn ended(&self) -> u32 {
        let status = std::cell::OnceCell::new();
        eventually("the end", || {
            let ended = self.child.lock().expect("no panic").try_wait().expect("our child");
            ended.is_some_and(|ended| status.set(ended).is_ok())
        });
        let status = status.into_inner().expect("it has ended");
        self.wait("the alternate screen is left and the cursor is visible", |parser| {
            let screen = parser.screen();
            (!screen.alternate_screen() && !screen.hide_cursor()).then_some(())
        });
        let terminal = self.master.tty_name().expect("a name");
        let terminal = std::fs::File::options().read(true).write(true).open(terminal);
        let modes = tcgetattr(terminal.expect("the terminal")).expect("its modes").local_modes;
        let cooked = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        assert!(modes.contains(cooked), "{modes:?}");
        match status.signal() {
            Some(_) => 128 + 15,
            None => status.exit_code(),
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if let Ok(mut child) = self.child.lock() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
