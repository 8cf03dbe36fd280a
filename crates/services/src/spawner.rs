//! Children that die with us.
//!
//! The kernel can kill a child when its parent dies, but it means the parent *thread*: a server
//! that a test's thread started would die with that test, even if others use it. So one thread,
//! which lives as long as the process, starts all children. `setpriv` of util-linux asks for the
//! signal and then becomes the server: the process number stays, and no unsafe code is needed.

use crate::Failure;
use crate::wait::{LIMIT, until};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};

type Order = (Command, SyncSender<io::Result<Child>>);

static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();

/// The command that runs `program` so that it is killed when this process ends.
pub(crate) fn mortal(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts the command from the thread that lives as long as this process.
pub(crate) fn spawn(command: Command) -> Result<Child, Failure> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let (answer, answered) = sync_channel(1);
    let gone = |_| Failure::new("the thread that starts servers has ended");
    SPAWNER.get_or_init(start).send((command, answer)).map_err(gone)?;
    let started = answered
        .recv()
        .map_err(|why| Failure::because("the thread that starts servers has ended", why))?;
    started.map_err(|why| {
        Failure::because(format!("`{shown}` (Debian package util-linux) does not start"), why)
    })
}

fn start() -> Sender<Order> {
    let (orders, ordered) = channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in ordered {
            // If the caller is gone, its child is dropped and dies with this thread.
            let _ = answer.send(command.spawn());
        }
    });
    orders
}

/// Sends a signal. The child is not reaped yet, so the number is still its own.
pub(crate) fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}

/// Waits until the kernel reports that the process is stopped (`true`) or runs again.
pub(crate) fn await_stopped(child: &Child, stopped: bool) -> Result<(), Failure> {
    let path = format!("/proc/{}/stat", child.id());
    let is_stopped = || {
        let stat = std::fs::read_to_string(&path).ok()?;
        // The state follows the name, which stands in parentheses and may hold any character.
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        Some(state == 'T')
    };
    until(LIMIT, || (is_stopped()? == stopped).then_some(()))
        .ok_or_else(|| Failure::new(format!("process {} did not follow the signal", child.id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let asked = std::thread::spawn(|| {
            let mut command = mortal(Path::new("sleep"));
            command.arg("600");
            spawn(command).unwrap()
        });
        let mut child = asked.join().unwrap();
        signal(&child, Signal::STOP).unwrap();
        await_stopped(&child, true).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
