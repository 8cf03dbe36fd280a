//! A contender in a process of its own: it takes orders on stdin and reports what it sees on
//! stdout.
//!
//! `holdline-conformance-worker URL`. It ends when its stdin does.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdline::fence::{FenceError, Fenced, FencedFile, Proof};
use holdline::{Client, ClientOptions, Guard, Keep, LockError, LockOptions};
use holdline_conformance::orders::{Order, WorkerMessage};
use holdline_conformance::pipes::{self, send};
use holdline_conformance::recorder::Recorder;
use holdline_core::{FencingToken, LockName, Mode};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct Worker {
    client: Client,
    recorder: Arc<Recorder>,
    /// The grant, and the task that reports its loss.
    guards: Arc<Mutex<HashMap<u64, (Guard, AbortHandle)>>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: holdline-conformance-worker URL < orders");
        return ExitCode::from(64);
    };
    match Worker::connect(&url).await {
        Ok(worker) => {
            send(&WorkerMessage::Ready);
            worker.obey(orders()).await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            send(&WorkerMessage::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// Reads orders on a thread of its own until stdin ends.
fn orders() -> mpsc::Receiver<Order> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for order in pipes::orders() {
            match order {
                Ok(order) => {
                    if sender.blocking_send(order).is_err() {
                        return;
                    }
                }
                Err(error) => return send(&WorkerMessage::Failed(error.to_string())),
            }
        }
    });
    receiver
}

impl Worker {
    async fn connect(url: &str) -> Result<Worker, Failure> {
        let recorder = Arc::new(Recorder::new(|event| send(&WorkerMessage::Saw(event)))?);
        let options = ClientOptions::default().with_observer(recorder.clone());
        let client = Client::connect_with(url, options).await?;
        Ok(Worker { client, recorder, guards: Arc::default() })
    }

    async fn obey(&self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            let worker = self.clone();
            tokio::spawn(async move {
                if let Err(error) = Box::pin(worker.carry_out(order)).await {
                    send(&WorkerMessage::Failed(error.to_string()));
                }
            });
        }
    }

    async fn carry_out(&self, order: Order) -> Result<(), Failure> {
        match order {
            Order::Lock { attempt, name, lease_ms } => {
                let guard = self.lock(attempt, &name, lease_ms).await?;
                let teller = self.report_loss(attempt, &guard);
                self.guards.lock().await.insert(attempt, (guard, teller));
            }
            Order::Write { attempt, path } => {
                let guards = self.guards.lock().await;
                let token = guards.get(&attempt).map(|(guard, _)| guard.fencing_token());
                drop(guards);
                self.write(attempt, token.ok_or("nothing was granted")?, &path).await?;
            }
            Order::Release { attempt } => {
                let kept = self.guards.lock().await.remove(&attempt);
                let (guard, teller) = kept.ok_or("nothing was granted")?;
                teller.abort();
                self.release(attempt, guard).await?;
            }
            Order::Cycle { first, count, name, lease_ms, path } => {
                for attempt in first..first + count {
                    let guard = self.lock(attempt, &name, Some(lease_ms)).await?;
                    self.write(attempt, guard.fencing_token(), &path).await?;
                    self.release(attempt, guard).await?;
                }
                send(&WorkerMessage::Done);
            }
        }
        Ok(())
    }

    async fn lock(
        &self,
        attempt: u64,
        name: &LockName,
        lease_ms: Option<u64>,
    ) -> Result<Guard, LockError> {
        let options = match lease_ms.map(Duration::from_millis) {
            Some(lease) => LockOptions::default().with_lease_duration(lease),
            None => LockOptions::default().with_keep(Keep::Live),
        };
        let mutex = self.client.mutex_with(name, &options)?;
        self.recorder.called(attempt, name, Mode::Exclusive);
        self.recorder.alone(attempt, name);
        let guard = mutex.lock().await?;
        self.recorder.granted(attempt, &guard);
        Ok(guard)
    }

    /// Reports when the lease is lost, and if it is still valid after that.
    fn report_loss(&self, attempt: u64, guard: &Guard) -> AbortHandle {
        let held = guard.held();
        let recorder = self.recorder.clone();
        let teller = tokio::spawn(async move {
            held.lost().await;
            recorder.lost(attempt);
            if held.is_valid() {
                send(&WorkerMessage::Failed(format!("attempt {attempt} is lost and still valid")));
            }
        });
        teller.abort_handle()
    }

    /// Appends a line, blocking: no other order of this process matters meanwhile.
    async fn write(&self, attempt: u64, token: FencingToken, path: &Path) -> Result<(), Failure> {
        let file = FencedFile::at(path)?;
        let sent = self.recorder.now();
        let answer = tokio::task::spawn_blocking(move || {
            file.check_and_write(&Proof::exclusive(token), |content| {
                content.extend(format!("attempt {attempt}\n").bytes());
                Ok(())
            })
        });
        match answer.await? {
            Ok(()) => self.recorder.wrote(attempt, sent, token, true),
            Err(FenceError::Stale(_)) => self.recorder.wrote(attempt, sent, token, false),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn release(&self, attempt: u64, guard: Guard) -> Result<(), Failure> {
        self.recorder.renewed(attempt, &guard);
        self.recorder.released(attempt);
        let outcome = guard.release().await;
        if !outcome.is_lost() { Ok(()) } else { Err(format!("{outcome:?}").into()) }
    }
}
