//! The worker processes: start, messages, kill, end.
//!
//! Invariant R1: a process is signalled only while it is unreaped, so never another's.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::history::ATTEMPTS;
use crate::plan::{Program, SERVER};
use crate::stage::{At, Stage};
use crate::wire::{Assignment, Order, WorkerMessage};

/// All workers.
pub(crate) struct Crew {
    stage: Arc<Stage>,
    program: Program,
    /// The assignment of each slot's worker, without its numbers.
    assignments: Vec<Assignment>,
    listeners: Vec<JoinHandle<()>>,
    ending: watch::Sender<bool>,
    started: u64,
}

impl Crew {
    /// Starts a worker in each slot.
    pub(crate) fn start(
        stage: &Arc<Stage>,
        program: &Program,
        assignments: Vec<Assignment>,
    ) -> std::io::Result<Crew> {
        let (ending, _) = watch::channel(false);
        let stage = stage.clone();
        let program = program.clone();
        let mut crew =
            Crew { stage, program, assignments, listeners: Vec::new(), ending, started: 0 };
        for slot in 0..crew.assignments.len() {
            let listener = crew.launch(slot)?;
            crew.listeners.push(listener);
        }
        Ok(crew)
    }

    fn launch(&mut self, slot: usize) -> std::io::Result<JoinHandle<()>> {
        self.started += 1;
        let serial = self.started;
        let mut child = Command::new(&self.program.path)
            .arg0("holdline")
            .args(&self.program.arguments)
            .arg(std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (Some((orders, messages)), Some(pid)) = (pipes, pid) else {
            return Err(std::io::Error::other("a worker without pipes"));
        };
        self.stage.slot(slot, Some(pid), serial);
        let mut assignment = self.assignments[slot].clone();
        assignment.first = serial * ATTEMPTS;
        assignment.seed = assignment.seed.wrapping_add(serial);
        let listener =
            Listener { stage: self.stage.clone(), slot, ending: self.ending.subscribe() };
        Ok(tokio::spawn(listener.listen(child, orders, messages, assignment)))
    }

    /// Kills the worker of a slot, and starts another.
    pub(crate) async fn kill(&mut self, slot: usize) -> std::io::Result<()> {
        let serial = self.stage.lock().slots[slot].serial;
        let at = self.stage.now();
        self.stage.signal(slot, Signal::KILL);
        let ended = tokio::time::timeout(SERVER, &mut self.listeners[slot]).await;
        if ended.is_err() {
            return Err(std::io::Error::other("a worker does not die"));
        }
        self.stage.killed(serial, at);
        self.listeners[slot] = self.launch(slot)?;
        Ok(())
    }

    /// Lets all workers end, and kills those that do not within the limit; returns how many.
    pub(crate) async fn end(mut self, limit: Duration) -> usize {
        // Without a listener every worker has ended.
        let _ = self.ending.send(true);
        let end = tokio::time::Instant::now() + limit;
        let mut stuck = 0;
        for (slot, listener) in self.listeners.iter_mut().enumerate() {
            if tokio::time::timeout_at(end, &mut *listener).await.is_ok() {
                continue;
            }
            stuck += 1;
            self.stage.signal(slot, Signal::KILL);
            let _ = tokio::time::timeout(SERVER, listener).await;
        }
        stuck
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Each listener owns its worker, which dies with it.
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}

/// Reads the messages of one worker.
struct Listener {
    stage: Arc<Stage>,
    slot: usize,
    ending: watch::Receiver<bool>,
}

impl Listener {
    async fn listen(
        mut self,
        mut child: Child,
        mut orders: ChildStdin,
        messages: ChildStdout,
        assignment: Assignment,
    ) {
        let mut lines = BufReader::new(messages).lines();
        let mut end_sent = false;
        give(&mut orders, &Order::Begin(assignment)).await;
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line,
                () = is_over(&mut self.ending), if !end_sent => {
                    end_sent = true;
                    give(&mut orders, &Order::End).await;
                    continue;
                }
            };
            // The rest of a line that was cut by a kill is nothing that it said.
            let Ok(Some(line)) = line else { break };
            match serde_json::from_str::<WorkerMessage>(&line) {
                Ok(message) => {
                    if let Some(answer) = self.stage.receive(self.slot, message) {
                        give(&mut orders, &Order::Answer(answer)).await;
                    }
                }
                Err(error) if error.is_eof() => {}
                Err(error) => self.stage.failed(format!("{error} in what a worker said: {line}")),
            }
        }
        self.reap(&mut child).await;
    }

    async fn reap(&self, child: &mut Child) {
        let (serial, at) = {
            let mut state = self.stage.lock();
            let slot = &mut state.slots[self.slot];
            slot.pid = None;
            (slot.serial, slot.at)
        };
        use std::os::unix::process::ExitStatusExt as _;
        match child.wait().await {
            // The caller that killed it knows.
            Ok(status) if at == At::Ended || status.signal() == Some(9) => {}
            Ok(status) => self.stage.failed(format!("worker {serial} ended by itself: {status}")),
            Err(error) => self.stage.failed(format!("worker {serial}: {error}")),
        }
    }
}

/// Waits until workers are to end.
async fn is_over(ending: &mut watch::Receiver<bool>) {
    // Without a sender it is over all the more.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// Gives an order. A worker that is gone is seen by what it does not say any more.
async fn give(orders: &mut ChildStdin, order: &Order) {
    if let Ok(mut line) = serde_json::to_vec(order) {
        line.push(b'\n');
        let _ = orders.write_all(&line).await;
    }
}
