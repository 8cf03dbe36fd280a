//! Contenders of both sides report here when they are inside the critical section: this detects an
//! overlap.
//!
//! A contender enters after its grant and leaves before its release, and continues only after an
//! answer. So it is counted as inside only while it holds the lock.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The observations so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observations {
    pub(crate) inside: usize,
    pub(crate) entered: usize,
    pub(crate) overlaps: usize,
}

/// Accepts contenders until the process ends.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    seen: Mutex<Observations>,
    entered: Condvar,
    /// The number of contenders that must enter before the first gets an answer.
    together: usize,
}

impl Observer {
    /// Answers every contender at once.
    pub(crate) fn start() -> Observer {
        Observer::holding(1)
    }

    /// Answers no contender before this many have entered. That never happens if they exclude each
    /// other, so it detects that they do not.
    pub(crate) fn holding(together: usize) -> Observer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let (seen, entered) = Default::default();
        let state = Arc::new(State { seen, entered, together });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Observer { port, state }
    }

    pub(crate) fn seen(&self) -> Observations {
        *self.state.lock()
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(mut writer) = stream.try_clone() else { return };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match line.as_str() {
                "enter" => self.enter(),
                "leave" => self.lock().inside -= 1,
                // Without an answer the contender fails with the test.
                _ => return,
            }
            if writer.write_all(b"ok\n").is_err() {
                return;
            }
        }
    }

    fn enter(&self) {
        let mut seen = self.lock();
        seen.inside += 1;
        seen.entered += 1;
        seen.overlaps += usize::from(seen.inside > 1);
        self.entered.notify_all();
        let waited = self.entered.wait_while(seen, |seen| seen.entered < self.together);
        drop(waited);
    }
}
