//! The worker processes: started, heard, killed, ended.
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

use crate::plan::{Program, SERVER};
use crate::stage::{ATTEMPTS, At, Stage};
use crate::wire::{Errand, Order, Said};

/// All workers.
pub(crate) struct Crew {
    stage: Arc<Stage>,
    program: Program,
    /// What each place's worker is to do, but for its numbers.
    errands: Vec<Errand>,
    listeners: Vec<JoinHandle<()>>,
    ending: watch::Sender<bool>,
    started: u64,
}

impl Crew {
    /// Starts a worker in each place.
    pub(crate) fn start(
        stage: &Arc<Stage>,
        program: &Program,
        errands: Vec<Errand>,
    ) -> std::io::Result<Crew> {
        let (ending, _) = watch::channel(false);
        let (stage, program) = (stage.clone(), program.clone());
        let mut crew = Crew { stage, program, errands, listeners: Vec::new(), ending, started: 0 };
        for place in 0..crew.errands.len() {
            let listener = crew.launch(place)?;
            crew.listeners.push(listener);
        }
        Ok(crew)
    }

    fn launch(&mut self, place: usize) -> std::io::Result<JoinHandle<()>> {
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
        let (Some(pipes), Some(pid)) = (pipes, pid) else {
            return Err(std::io::Error::other("a worker without pipes"));
        };
        self.stage.place(place, Some(pid), serial);
        let mut errand = self.errands[place].clone();
        errand.first = serial * ATTEMPTS;
        errand.seed = errand.seed.wrapping_add(serial);
        let listener =
            Listener { stage: self.stage.clone(), place, ending: self.ending.subscribe() };
        Ok(tokio::spawn(listener.listen(child, pipes, errand)))
    }

    /// Kills the worker of a place, and starts another.
    pub(crate) async fn kill(&mut self, place: usize) -> std::io::Result<()> {
        let serial = self.stage.lock().places[place].serial;
        let at = self.stage.now();
        self.stage.signal(place, Signal::KILL);
        let heard = tokio::time::timeout(SERVER, &mut self.listeners[place]).await;
        if heard.is_err() {
            return Err(std::io::Error::other("a worker does not die"));
        }
        self.stage.killed(serial, at);
        self.listeners[place] = self.launch(place)?;
        Ok(())
    }

    /// Lets all workers end, and kills those that do not within the limit; returns how many.
    pub(crate) async fn end(mut self, limit: Duration) -> usize {
        // Without a listener every worker has ended.
        let _ = self.ending.send(true);
        let end = tokio::time::Instant::now() + limit;
        let mut stuck = 0;
        for (place, listener) in self.listeners.iter_mut().enumerate() {
            if tokio::time::timeout_at(end, &mut *listener).await.is_ok() {
                continue;
            }
            stuck += 1;
            self.stage.signal(place, Signal::KILL);
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

/// Hears one worker.
struct Listener {
    stage: Arc<Stage>,
    place: usize,
    ending: watch::Receiver<bool>,
}

impl Listener {
    async fn listen(mut self, mut child: Child, pipes: (ChildStdin, ChildStdout), errand: Errand) {
        let (mut orders, said) = pipes;
        let mut lines = BufReader::new(said).lines();
        let mut told_to_end = false;
        give(&mut orders, &Order::Begin(errand)).await;
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line,
                () = is_over(&mut self.ending), if !told_to_end => {
                    told_to_end = true;
                    give(&mut orders, &Order::End).await;
                    continue;
                }
            };
            // The rest of a line that was cut by a kill is nothing that it said.
            let Ok(Some(line)) = line else { break };
            match serde_json::from_str::<Said>(&line) {
                Ok(said) => {
                    if let Some(answer) = self.stage.hear(self.place, said) {
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
            let place = &mut state.places[self.place];
            place.pid = None;
            (place.serial, place.at)
        };
        use std::os::unix::process::ExitStatusExt as _;
        match child.wait().await {
            // Whoever killed it knows.
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
