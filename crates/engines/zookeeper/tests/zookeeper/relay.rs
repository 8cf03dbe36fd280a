//! A proxy between a client and its server that drops or delays answers of the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};

#[derive(Default)]
struct State {
    /// From the request that holds this on, answers are lost.
    wanted: Mutex<Option<String>>,
    loses: AtomicBool,
    refuses: AtomicBool,
    /// From the request that holds this on, answers on its connection are held back.
    held_from: Mutex<Option<String>>,
    /// The request that holds this is held back, with all that follow it on its connection.
    stopped_at: Mutex<Option<String>>,
    holds: watch::Sender<bool>,
}

impl State {
    /// Waits until what is held back may go.
    async fn released(&self) {
        // The sender lives as long as the relay.
        let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
    }
}

/// A relay to one server.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    end: broadcast::Sender<()>,
}

impl Relay {
    pub(crate) async fn start(upstream: SocketAddr) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (state, end) = (Arc::new(State::default()), broadcast::channel(1).0);
        let (shared, ends) = (state.clone(), end.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(upstream).await else { continue };
                let (state, mut ended) = (shared.clone(), ends.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = ended.recv() => {}
                        _ = carry(client, server, &state) => {}
                    }
                });
            }
        });
        Relay { address, state, end }
    }

    /// Loses all answers from the request on that holds this text.
    pub(crate) fn lose_answers_from(&self, text: &str) {
        *self.state.wanted.lock() = Some(text.to_owned());
    }

    /// Returns whether that request has come.
    pub(crate) fn loses(&self) -> bool {
        self.state.loses.load(Ordering::SeqCst)
    }

    /// Holds back all answers on the connection on which a request with this text comes.
    pub(crate) fn hold_answers_from(&self, text: &str) {
        *self.state.held_from.lock() = Some(text.to_owned());
    }

    /// Holds back the request with this text, and those after it on its connection.
    pub(crate) fn hold_request(&self, text: &str) {
        *self.state.stopped_at.lock() = Some(text.to_owned());
    }

    /// Returns whether that request has come.
    pub(crate) fn holds(&self) -> bool {
        *self.state.holds.borrow()
    }

    /// Lets what was held back go.
    pub(crate) fn let_go(&self) {
        self.state.holds.send_replace(false);
    }

    /// Closes all connections; new ones lose nothing.
    pub(crate) fn break_off(&self) {
        self.state.loses.store(false, Ordering::SeqCst);
        // Nobody may be connected.
        let _ = self.end.send(());
    }

    /// Closes all connections and takes no new ones, or takes them again.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::SeqCst);
        self.break_off();
    }
}

async fn carry(client: TcpStream, server: TcpStream, state: &State) -> std::io::Result<()> {
    let (mut asked, mut answer) = client.into_split();
    let (mut answered, mut ask) = server.into_split();
    let held = AtomicBool::new(false);
    let requests = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = asked.read(&mut buffer).await?;
            if count == 0 {
                return Ok::<(), std::io::Error>(());
            }
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if state.wanted.lock().take_if(|wanted| text.contains(wanted.as_str())).is_some() {
                state.loses.store(true, Ordering::SeqCst);
            }
            if state.held_from.lock().take_if(|held| text.contains(held.as_str())).is_some() {
                held.store(true, Ordering::SeqCst);
                state.holds.send_replace(true);
            }
            if state.stopped_at.lock().take_if(|at| text.contains(at.as_str())).is_some() {
                state.holds.send_replace(true);
                state.released().await;
            }
            ask.write_all(&buffer[..count]).await?;
        }
    };
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = answered.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            if held.load(Ordering::SeqCst) {
                state.released().await;
                held.store(false, Ordering::SeqCst);
            }
            if !state.loses.load(Ordering::SeqCst) {
                answer.write_all(&buffer[..count]).await?;
            }
        }
    };
    tokio::select! { done = requests => done, done = answers => done }
}
