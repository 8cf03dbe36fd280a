//! How a command ended, and how this process ends after it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use rustix::process::{DumpableBehavior, Signal, kill_current_process_group};

/// Shells report death by signal n as this plus n.
const BY_SIGNAL: i32 = 128;

/// How to exit after the command's own end, or after a signal that ended the wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobExit {
    code: u8,
    echo: Option<Echo>,
}

/// The signal that this process dies of too, and whether its own group still has to be signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Echo {
    signal: Signal,
    signal_group: bool,
}

impl JobExit {
    /// The exit after a signal that arrived before the command was started.
    pub(crate) fn before_start(signal: Signal) -> Self {
        let code = shell_code(signal.as_raw());
        Self { code, echo: from_keyboard(signal).then_some(Echo { signal, signal_group: false }) }
    }

    /// The exit after the command.
    ///
    /// `had_terminal`: its group was in the foreground. `passed_on`: we had sent it that signal.
    pub(super) fn after(
        status: ExitStatus,
        had_terminal: bool,
        passed_on: impl Fn(Signal) -> bool,
    ) -> Self {
        let Some(number) = status.signal() else {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Self { code: code.unwrap_or(u8::MAX), echo: None };
        };
        let echo = Signal::from_named_raw(number).filter(|signal| from_keyboard(*signal)).and_then(
            |signal| match (passed_on(signal), had_terminal) {
                (true, _) => Some(Echo { signal, signal_group: false }),
                (false, true) => Some(Echo { signal, signal_group: true }),
                (false, false) => None,
            },
        );
        Self { code: shell_code(number), echo }
    }

    /// The code a shell shows: the command's own, or 128 + n for death by signal n.
    pub(crate) fn code(self) -> u8 {
        self.code
    }

    /// The last step of the process: dies of the keyboard's signal if rule T4 requires it, and
    /// otherwise returns the code. Do not rely on anything after this call.
    pub(crate) fn leave(self) -> ExitCode {
        // The kernel discards a signal that the first process of a container sends to itself, and
        // what follows is an abort.
        let is_first = rustix::process::getpid().is_init();
        if let Some(Echo { signal, signal_group }) = self.echo.filter(|_| !is_first) {
            // Our core file would hide the command's.
            let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
            if signal_group {
                let _ = kill_current_process_group(signal);
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
        }
        ExitCode::from(self.code)
    }
}

fn shell_code(signal: i32) -> u8 {
    u8::try_from(BY_SIGNAL.saturating_add(signal)).unwrap_or(u8::MAX)
}

fn from_keyboard(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::QUIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXITED_3: i32 = 3 << 8;

    fn after(raw: i32, had_terminal: bool, passed_on: bool) -> JobExit {
        JobExit::after(ExitStatus::from_raw(raw), had_terminal, |_| passed_on)
    }

    #[test]
    fn codes_are_those_of_a_shell() {
        let dumped_core = 0x80;
        for (raw, code) in [
            (0, 0),
            (EXITED_3, 3),
            (255 << 8, 255),
            (9, 137),
            (15, 143),
            (6 | dumped_core, 134),
            (64, 192),
        ] {
            assert_eq!(after(raw, false, false).code(), code, "{raw}");
        }
    }

    #[test]
    fn only_the_keyboards_signals_are_echoed() {
        let sent_already = |signal| Some(Echo { signal, signal_group: false });
        let to_group = |signal| Some(Echo { signal, signal_group: true });
        for (raw, had_terminal, passed_on, echo) in [
            (2, true, false, to_group(Signal::INT)),
            (3, true, false, to_group(Signal::QUIT)),
            (2, true, true, sent_already(Signal::INT)),
            (2, false, true, sent_already(Signal::INT)),
            (2, false, false, None),
            (15, true, true, None),
            (EXITED_3, true, true, None),
            (130 << 8, true, true, None),
        ] {
            assert_eq!(after(raw, had_terminal, passed_on).echo, echo, "{raw}");
        }
    }

    #[test]
    fn a_wait_that_a_signal_ended_leaves_as_the_command_would_have() {
        assert_eq!(JobExit::before_start(Signal::TERM), JobExit { code: 143, echo: None });
        let interrupted = JobExit::before_start(Signal::INT);
        assert_eq!(interrupted.code(), 130);
        assert_eq!(interrupted.echo, Some(Echo { signal: Signal::INT, signal_group: false }));
    }
}
