//! The signals that this process receives. Before the command is started they end the wait; later
//! they are passed on to it.
//!
//! SIGTSTP is blocked and not caught. It takes effect when no work is half done, and the kernel
//! applies it: it reports the right signal, ignores it in an orphaned group, and discards it when a
//! SIGCONT comes first. With a handler and SIGSTOP instead, a shell that continues its job at once
//! could be too early, and this process would stop for ever.

use std::future::{Future, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{Signal, kill_current_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{self, SignalKind};

use crate::idle::Idle;

/// The signals that are passed on to the command's group, besides SIGTSTP: every signal that users
/// send to programs and that a program can catch.
const CAUGHT: [Signal; 13] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
];

/// What a signal means before the command is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlySignal {
    /// It would have ended the command.
    End(Signal),
    /// `^Z`.
    Suspend,
}

/// Something that concerns a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notification {
    /// To be passed on.
    Signal(Signal),
    /// Some child process has ended, stopped or continued.
    Child,
}

/// SIGTSTP, blocked in this thread and in all threads that it starts from now on.
///
/// Dropping it unblocks the signal in this thread, which then stops the process as usual.
#[derive(Debug)]
struct BlockedStops {
    held: bool,
    /// The signals that were ignored when we started.
    ignored: u64,
    /// A mask belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl BlockedStops {
    /// Blocks SIGTSTP, unless it is ignored or blocked already (rule S2).
    ///
    /// # Errors
    /// There is a second thread, in which a stop would take effect at any moment. Nothing was
    /// changed.
    fn here() -> io::Result<Self> {
        // Without /proc the ignored signals are unknown; then all are caught.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if field(&status, "Threads:").is_some_and(|count| count != "1") {
            return Err(io::Error::other("stops must be blocked before there is a second thread"));
        }
        let ignored = ignored_mask(&status);
        let held = ignored & mask_of(Signal::TSTP) == 0
            && !SigSet::thread_get_mask()?.contains(NixSignal::SIGTSTP);
        if held {
            stops().thread_block()?;
        }
        Ok(Self { held, ignored, _not_send: PhantomData })
    }
}

impl Drop for BlockedStops {
    fn drop(&mut self) {
        if self.held {
            let _ = stops().thread_unblock();
        }
    }
}

/// Listens to every signal that concerns a command. One per process.
///
/// After [`Signals::listen`] none of them ends or stops this process by itself.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
    children: unix::Signal,
    /// Readable while a blocked SIGTSTP is pending; `None` if SIGTSTP is ignored (rule S2).
    stops: Option<AsyncFd<SignalFd>>,
    /// The next SIGCONT ends a stop of our own.
    own_continue: bool,
    /// The signal that is for us, and not for the command.
    reserved: Option<Signal>,
    /// A mask belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Signals {
    /// Starts to listen, except to ignored signals (rule S2).
    ///
    /// Must be called before there is a second thread or a command, inside a tokio runtime with
    /// I/O.
    ///
    /// # Errors
    /// There is a second thread, the kernel refused a handler, or the runtime has no I/O. Some
    /// signals may already be caught, so this process should end.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut stops = BlockedStops::here()?;
        let mut caught = Vec::with_capacity(CAUGHT.len());
        for signal in CAUGHT {
            if stops.ignored & mask_of(signal) == 0 {
                caught.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            }
        }
        // A parent may have left SIGCHLD blocked, and then no command would ever seem to end.
        let children = unix::signal(SignalKind::child())?;
        SigSet::from(NixSignal::SIGCHLD).thread_unblock()?;
        // From here on only `suspend` unblocks SIGTSTP, and not the drop at the end.
        let stops = if std::mem::take(&mut stops.held) { Some(stop_signal_fd()?) } else { None };
        let own_continue = false;
        let reserved = None;
        Ok(Self { caught, children, stops, own_continue, reserved, _not_send: PhantomData })
    }

    /// Reserves a signal for us: while a command runs, it is an event of its job; otherwise it has
    /// no effect.
    pub(crate) fn reserve(&mut self, signal: Signal) {
        self.reserved = Some(signal);
    }

    /// Returns whether a signal is reserved for us.
    pub(super) fn is_reserved(&self, signal: Signal) -> bool {
        self.reserved == Some(signal)
    }

    /// Waits for `work`, unless a signal arrives first that would end a command. Then abandon the
    /// work, and exit by [`super::JobExit::before_start`].
    ///
    /// On a `^Z`, `suspend` is called. It must call [`Signals::suspend`] when no work is half done.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`, and loses no signal.
    pub(crate) async fn unless_ended<T>(
        &mut self,
        work: impl Future<Output = T>,
        suspend: impl Fn(&mut Signals),
    ) -> Result<T, Signal> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                received = self.next() => match received {
                    EarlySignal::End(signal) => return Err(signal),
                    EarlySignal::Suspend => suspend(self),
                },
            }
        }
    }

    /// Handles the signals that arrived while this thread was blocked, as
    /// [`Signals::unless_ended`].
    pub(crate) async fn handle_pending(
        &mut self,
        suspend: impl Fn(&mut Signals),
    ) -> Result<(), Signal> {
        // The runtime collects the pending signals meanwhile.
        tokio::task::yield_now().await;
        let received = {
            let mut next = std::pin::pin!(self.next());
            poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await
        };
        match received {
            Poll::Ready(EarlySignal::End(signal)) => return Err(signal),
            Poll::Ready(EarlySignal::Suspend) => suspend(self),
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Waits for a signal that matters before the command is started.
    async fn next(&mut self) -> EarlySignal {
        loop {
            match poll_fn(|context| self.poll_signal(context)).await {
                Signal::TSTP => return EarlySignal::Suspend,
                Signal::WINCH | Signal::CONT => {}
                signal if self.is_reserved(signal) => {}
                signal => return EarlySignal::End(signal),
            }
        }
    }

    /// Stops this process after a `^Z`, until somebody continues it. Returns at once if somebody
    /// has, or if nobody could (rule J2).
    pub(crate) fn suspend(&mut self, idle: &Idle) {
        self.own_continue = self.may_stop();
        self.with_stops_unblocked(idle, || ());
    }

    /// Whether a shell with job control would continue this process.
    pub(super) fn may_stop(&self) -> bool {
        self.stops.is_some() && !super::stop::group_is_orphaned()
    }

    /// Sends SIGTSTP to our whole group; for this process it takes effect in [`Signals::suspend`].
    pub(super) fn stop_own_group() {
        let _ = kill_current_process_group(Signal::TSTP);
    }

    /// Whether a command that inherits our thread's signal mask would have SIGTSTP blocked.
    pub(super) fn blocks_stops(&self) -> bool {
        self.stops.is_some()
    }

    /// Runs an action during which `^Z` stops this process at once.
    pub(super) fn with_stops_unblocked<T>(&self, _: &Idle, action: impl FnOnce() -> T) -> T {
        if self.stops.is_none() {
            return action();
        }
        // Neither call can fail: their arguments are valid.
        let _ = stops().thread_unblock();
        let done = action();
        let _ = stops().thread_block();
        done
    }

    /// Waits for the next event that concerns a running command.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn next_notification(&mut self) -> Notification {
        poll_fn(|context| {
            // Signals first: a SIGCONT may change whose terminal it is when the command ends.
            if let Poll::Ready(signal) = self.poll_signal(context) {
                return Poll::Ready(Notification::Signal(signal));
            }
            self.children.poll_recv(context).map(|_| Notification::Child)
        })
        .await
    }

    /// The next signal from outside.
    fn poll_signal(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.caught {
            while stream.poll_recv(context).is_ready() {
                let known = *signal == Signal::CONT && std::mem::take(&mut self.own_continue);
                if !known {
                    return Poll::Ready(*signal);
                }
            }
        }
        let Some(stops) = &self.stops else { return Poll::Pending };
        // It stays pending until `suspend` handles it, so it is not read here.
        let Poll::Ready(Ok(mut ready)) = stops.poll_read_ready(context) else {
            return Poll::Pending;
        };
        ready.clear_ready();
        Poll::Ready(Signal::TSTP)
    }
}

/// Unblocks SIGTSTP in this process, which inherited a mask that blocks it.
pub(super) fn unblock_stops() -> nix::Result<()> {
    stops().thread_unblock()
}

fn stops() -> SigSet {
    SigSet::from(NixSignal::SIGTSTP)
}

fn stop_signal_fd() -> io::Result<AsyncFd<SignalFd>> {
    let descriptor =
        SignalFd::with_flags(&stops(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    #[expect(deprecated, reason = "its replacement is unsafe; a SignalFd keeps its descriptor")]
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Keeps the limit of file sizes (`ulimit -f`) from killing this process: a write that exceeds it
/// fails with an error instead. The command is executed anew, so the limit kills it as usual.
pub(crate) fn survive_file_size_limit() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // If SIGXFSZ was ignored at the start, the command must inherit that; a handler would undo it.
    if ignored_mask(&status) & mask_of(Signal::XFSZ) == 0 {
        // A handler, unlike an ignored signal, ends with the next `exec`. If it cannot be set, the
        // limit kills this process as any other.
        let caught = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), caught);
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The `SigIgn` line of `/proc/self/status`: bit n - 1 is set if signal n is ignored.
fn ignored_mask(status: &str) -> u64 {
    field(status, "SigIgn:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
}

fn mask_of(signal: Signal) -> u64 {
    u32::try_from(signal.as_raw() - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_cannot_be_blocked_in_one_thread_of_many() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || ended.recv());
        let refused = BlockedStops::here().expect_err("a second thread");
        drop(end);
        second.join().expect("no panic").expect_err("nothing is sent");
        assert!(refused.to_string().contains("second thread"), "{refused}");
        assert!(!SigSet::thread_get_mask().expect("a mask").contains(NixSignal::SIGTSTP));
    }

    #[test]
    fn reads_which_signals_are_ignored() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001003\n";
        let mask = ignored_mask(status);
        for (signal, ignored) in [
            (Signal::HUP, true),
            (Signal::INT, true),
            (Signal::PIPE, true),
            (Signal::QUIT, false),
            (Signal::TERM, false),
        ] {
            assert_eq!(mask & mask_of(signal) != 0, ignored, "{signal:?}");
        }
        for unreadable in ["", "SigIgn:\tnot hex", "SigCgt:\t0000000000001003"] {
            assert_eq!(ignored_mask(unreadable), 0);
        }
    }
}
