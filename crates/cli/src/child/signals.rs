//! The signals that reach us: before there is a command they end the wait, later they are its.
//!
//! SIGTSTP is not caught but held back, so that it is acted upon when nothing is half done, and
//! still by the kernel: it stops us with the signal's own name, does nothing in an orphaned
//! group, and forgets about it when a SIGCONT comes first. With a handler and SIGSTOP instead, a
//! shell that continues its job at once could be too early, and we would stop for ever.

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

use crate::session::Idle;

/// What goes on to the command's group, besides SIGTSTP: all that somebody may send to a program by
/// name, and that a program may listen to.
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

/// What a signal means while there is no command yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    /// It would have ended the command.
    End(Signal),
    /// `^Z`.
    Suspend,
}

/// What there is to know about a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// To be passed on.
    Signal(Signal),
    /// Some child process has ended, stopped or continued.
    Child,
}

/// SIGTSTP, held back in this thread and in all that it starts from now on.
///
/// Dropping it lets a stop through to this thread, which is as usual for the process.
#[derive(Debug)]
struct HeldStops {
    held: bool,
    /// The signals that were ignored when we started.
    ignored: u64,
    /// A mask belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl HeldStops {
    /// Holds SIGTSTP back, unless it is ignored or blocked already (rule S2).
    ///
    /// # Errors
    /// There is a second thread, in which a stop would take effect at any moment. Nothing has
    /// changed.
    fn here() -> io::Result<Self> {
        // Without /proc nothing is known to be ignored; then all is listened to.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if field(&status, "Threads:").is_some_and(|count| count != "1") {
            return Err(io::Error::other(
                "stops must be held back before there is a second thread",
            ));
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

impl Drop for HeldStops {
    fn drop(&mut self) {
        if self.held {
            let _ = stops().thread_unblock();
        }
    }
}

/// Listens to every signal that concerns a command. One per process.
///
/// From [`Signals::listen`] on none of them ends or stops this process by itself.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
    children: unix::Signal,
    /// Readable while SIGTSTP is held back; `None` where it does not concern us (rule S2).
    stops: Option<AsyncFd<SignalFd>>,
    /// The next SIGCONT ends a stop that is known.
    own_continue: bool,
    /// The signal that is for us, and not for the command.
    reserved: Option<Signal>,
    /// A mask belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Signals {
    /// Starts to listen, except to what is ignored (rule S2).
    ///
    /// Must be called before there is a second thread or a command, inside a tokio runtime with
    /// I/O.
    ///
    /// # Errors
    /// There is a second thread, the kernel refused a handler, or the runtime has no I/O. Some
    /// signals may already be caught, so this process should end.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut stops = HeldStops::here()?;
        let mut caught = Vec::with_capacity(CAUGHT.len());
        for signal in CAUGHT {
            if stops.ignored & mask_of(signal) == 0 {
                caught.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            }
        }
        // A parent may have left it blocked, and then no command would ever seem to end.
        let children = unix::signal(SignalKind::child())?;
        SigSet::from(NixSignal::SIGCHLD).thread_unblock()?;
        // From here on a stop is let through only by `suspend`, and not by a drop at the end.
        let stops = if std::mem::take(&mut stops.held) { Some(told_of_stops()?) } else { None };
        let (own_continue, reserved) = (false, None);
        Ok(Self { caught, children, stops, own_continue, reserved, _not_send: PhantomData })
    }

    /// Keeps a signal for us: while a command runs, it is an event of its job; otherwise it has no
    /// effect.
    pub(crate) fn reserve(&mut self, signal: Signal) {
        self.reserved = Some(signal);
    }

    /// Whether a signal is for us.
    pub(super) fn is_reserved(&self, signal: Signal) -> bool {
        self.reserved == Some(signal)
    }

    /// Waits for what `work` comes to, unless a signal comes first that would end a command: then
    /// give up what it was for, and leave by [`super::Exit::before_start`].
    ///
    /// Meanwhile a `^Z` has `suspend` called, which is to call [`Signals::suspend`] when nothing
    /// is half done.
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
                arrived = self.next() => match arrived {
                    Arrived::End(signal) => return Err(signal),
                    Arrived::Suspend => suspend(self),
                },
            }
        }
    }

    /// Hears what came while something blocked this thread; else as [`Signals::unless_ended`].
    pub(crate) async fn catch_up(&mut self, suspend: impl Fn(&mut Signals)) -> Result<(), Signal> {
        // Meanwhile the runtime looks who has come.
        tokio::task::yield_now().await;
        let arrived = {
            let mut next = std::pin::pin!(self.next());
            poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await
        };
        match arrived {
            Poll::Ready(Arrived::End(signal)) => return Err(signal),
            Poll::Ready(Arrived::Suspend) => suspend(self),
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Waits for a signal that matters while there is no command.
    async fn next(&mut self) -> Arrived {
        loop {
            match poll_fn(|context| self.poll_signal(context)).await {
                Signal::TSTP => return Arrived::Suspend,
                Signal::WINCH | Signal::CONT => {}
                signal if self.is_reserved(signal) => {}
                signal => return Arrived::End(signal),
            }
        }
    }

    /// Stops this process, as a `^Z` asked, until somebody continues it; returns at once if
    /// somebody has, or if nobody could (rule J2).
    pub(crate) fn suspend(&mut self, idle: &Idle) {
        self.own_continue = self.may_stop();
        self.let_stops_through(idle, || ());
    }

    /// Whether there is a job control that would continue us.
    pub(super) fn may_stop(&self) -> bool {
        self.stops.is_some() && !super::stop::group_is_orphaned()
    }

    /// Tells our whole group to stop, which for us takes effect in [`Signals::suspend`].
    pub(super) fn tell_group_to_stop() {
        let _ = kill_current_process_group(Signal::TSTP);
    }

    /// Whether a command that inherits our thread's mask would have SIGTSTP held back.
    pub(super) fn holds_stops(&self) -> bool {
        self.stops.is_some()
    }

    /// Does something during which `^Z` stops us as if we did not listen.
    pub(super) fn let_stops_through<T>(&self, _: &Idle, action: impl FnOnce() -> T) -> T {
        if self.stops.is_none() {
            return action();
        }
        // Neither call can fail: the set and the way to change the mask are valid.
        let _ = stops().thread_unblock();
        let done = action();
        let _ = stops().thread_block();
        done
    }

    /// Waits for whatever concerns a running command.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn news(&mut self) -> News {
        poll_fn(|context| {
            // Signals first: a SIGCONT may change whose terminal it is when the command ends.
            if let Poll::Ready(signal) = self.poll_signal(context) {
                return Poll::Ready(News::Signal(signal));
            }
            self.children.poll_recv(context).map(|_| News::Child)
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
        // It stays pending, to be acted upon in `suspend`; so it is not read here.
        let Poll::Ready(Ok(mut ready)) = stops.poll_read_ready(context) else {
            return Poll::Pending;
        };
        ready.clear_ready();
        Poll::Ready(Signal::TSTP)
    }
}

/// Lets stops through to this process, which inherited a mask that holds them back.
pub(super) fn unhold_stops() -> nix::Result<()> {
    stops().thread_unblock()
}

fn stops() -> SigSet {
    SigSet::from(NixSignal::SIGTSTP)
}

fn told_of_stops() -> io::Result<AsyncFd<SignalFd>> {
    let descriptor =
        SignalFd::with_flags(&stops(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    #[expect(deprecated, reason = "its replacement is unsafe; a SignalFd keeps its descriptor")]
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Keeps the limit of file sizes (`ulimit -f`) from killing this process: a write that exceeds it
/// then fails, and that is told. The command, which is executed anew, is killed by it as ever.
pub(crate) fn outlive_file_limit() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Whoever had it ignored wants that for the command too, and a handler would undo it.
    if ignored_mask(&status) & mask_of(Signal::XFSZ) == 0 {
        // A handler, unlike ignoring it, ends with the next `exec`. If it cannot be set, the limit
        // kills, as it does everybody else.
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
    fn stops_cannot_be_held_back_in_one_thread_of_many() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || ended.recv());
        let refused = HeldStops::here().expect_err("a second thread");
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
