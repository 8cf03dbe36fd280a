//! What to do when the command stops (rules J1 to J3).

use rustix::process::{Pid, Signal, getppid};

use crate::groups;

/// The most ancestors within one process group; a shell script has one or two.
const MAX_ANCESTORS: usize = 64;

/// Which group has the foreground of our terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreground {
    /// Ours: we may give it to the command.
    Ours,
    /// The command's.
    Commands,
    /// A group to which the command passed it, as a shell does for its jobs.
    HandedOn,
    /// Another group: this process is a background job.
    Elsewhere,
    /// There is no terminal.
    None,
}

/// What to do about a stopped command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Give it the terminal and continue it.
    HandOver,
    /// Continue it.
    Continue,
    /// Send SIGHUP, then continue it.
    HangUp,
    /// Stop too.
    Suspend,
    /// Leave it stopped; the user or process that stopped it will continue it.
    Leave,
}

/// What else decides besides the signal that stopped the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Situation {
    pub(super) foreground: Foreground,
    /// A shell would continue this process.
    pub(super) may_stop: bool,
    /// Our group received SIGTSTP, and we passed it on.
    pub(super) group_stopped: bool,
    /// [`Plan::HangUp`] was tried before.
    pub(super) sent_hangup: bool,
}

/// Decides what to do about a stopped command.
pub(super) fn plan(signal: Signal, now: Situation) -> Plan {
    if now.group_stopped && now.may_stop {
        // The others of our group have stopped, so the command must stay stopped too.
        return Plan::Suspend;
    }
    match signal {
        Signal::TTIN | Signal::TTOU => match now.foreground {
            Foreground::Ours => Plan::HandOver,
            // It used the terminal just before it got it.
            Foreground::Commands => Plan::Continue,
            Foreground::None => Plan::Leave,
            Foreground::HandedOn | Foreground::Elsewhere if now.may_stop => Plan::Suspend,
            // It ignores SIGHUP: if continued, it would use the terminal again, for ever.
            Foreground::HandedOn | Foreground::Elsewhere if now.sent_hangup => Plan::Leave,
            Foreground::HandedOn | Foreground::Elsewhere => Plan::HangUp,
        },
        Signal::TSTP if now.may_stop => Plan::Suspend,
        Signal::TSTP => Plan::Continue,
        _ if !now.may_stop => Plan::Leave,
        _ => match now.foreground {
            Foreground::Ours | Foreground::Commands | Foreground::HandedOn => Plan::Suspend,
            Foreground::Elsewhere | Foreground::None => Plan::Leave,
        },
    }
}

/// Returns whether our group is orphaned: no member has a parent in another group of our session.
///
/// Checks our own ancestors only. Members with another parent in the session are the rest of a
/// pipeline, and that parent is ours too.
pub(super) fn group_is_orphaned() -> bool {
    let group = groups::own();
    let mut ancestor = getppid();
    for _ in 0..MAX_ANCESTORS {
        let Some(pid) = ancestor else { return true };
        match groups::of(pid) {
            Ok(its_group) if its_group == group => ancestor = parent_of(pid),
            Ok(_) => return !groups::shares_our_session(pid).unwrap_or(false),
            Err(_) => return true,
        }
    }
    true
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parent_in(&stat).and_then(Pid::from_raw)
}

/// The fourth field; the second, the program's name, may contain anything.
fn parent_in(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_for_every_kind_of_stop() {
        use Foreground::{Commands, Elsewhere, HandedOn, None, Ours};
        use Plan::{Continue, HandOver, HangUp, Leave, Suspend};
        let by = |signal, foreground, may_stop, sent_hangup| {
            plan(signal, Situation { foreground, may_stop, group_stopped: false, sent_hangup })
        };
        for signal in [Signal::TTIN, Signal::TTOU] {
            for (foreground, may_stop, sent_hangup, expected) in [
                (Ours, true, false, HandOver),
                (Ours, false, true, HandOver),
                (Commands, true, false, Continue),
                (Commands, false, false, Continue),
                (HandedOn, true, false, Suspend),
                (Elsewhere, true, false, Suspend),
                (Elsewhere, true, true, Suspend),
                (Elsewhere, false, false, HangUp),
                (Elsewhere, false, true, Leave),
                (None, true, false, Leave),
            ] {
                let got = by(signal, foreground, may_stop, sent_hangup);
                assert_eq!(got, expected, "{signal:?} {foreground:?} {may_stop} {sent_hangup}");
            }
        }
        for (foreground, stopped) in [
            (Ours, Suspend),
            (Commands, Suspend),
            (HandedOn, Suspend),
            (Elsewhere, Leave),
            (None, Leave),
        ] {
            assert_eq!(by(Signal::TSTP, foreground, true, false), Suspend);
            assert_eq!(by(Signal::TSTP, foreground, false, false), Continue);
            assert_eq!(by(Signal::STOP, foreground, true, false), stopped, "{foreground:?}");
            assert_eq!(by(Signal::STOP, foreground, false, false), Leave);
        }
    }

    #[test]
    fn a_group_that_received_a_stop_stops_for_any_signal_of_the_command() {
        use Foreground::{Commands, Elsewhere, HandedOn, None, Ours};
        for foreground in [Ours, Commands, HandedOn, Elsewhere, None] {
            for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::STOP] {
                let stopped = Situation {
                    foreground,
                    may_stop: true,
                    group_stopped: true,
                    sent_hangup: false,
                };
                assert_eq!(plan(signal, stopped), Plan::Suspend);
                let not_stoppable = Situation { may_stop: false, ..stopped };
                assert_eq!(
                    plan(signal, not_stoppable),
                    plan(signal, Situation { group_stopped: false, ..not_stoppable })
                );
            }
        }
    }

    #[test]
    fn reads_the_parent_past_any_program_name() {
        for (stat, parent) in [
            ("12 (sh) S 7 12 12 0 -1", Some(7)),
            ("12 (a) b) S 99) S 7 12 12", Some(7)),
            ("12 (sh) S", Option::None),
            ("", Option::None),
        ] {
            assert_eq!(parent_in(stat), parent, "{stat}");
        }
    }
}
