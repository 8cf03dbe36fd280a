//! Wake-ups between processes: a unix datagram to the client that got a hand-off.
//!
//! Each process has one socket in `wake/`, under the names of all its clients. A datagram is a list
//! of hints; a lost one delays a waiter by one heartbeat interval.
//!
//! A socket's address has at most 108 bytes, and a home directory alone may be longer. So both
//! sides keep `wake/` open and use `/proc/self/fd/N/NAME`.

use std::fs::{File, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdline_core::hints::Watches;
use holdline_core::table::WakeUp;
use holdline_core::{ClientId, FencingToken, Hint, LeaseId};
use parking_lot::Mutex;

use crate::keys::{Files, client_name};

const RECORD: usize = 25;
/// The most hints in one datagram.
const MAX_RECORDS: usize = 128;
const LOOK_AGAIN: u8 = 1;
const CHECK_LEASE: u8 = 2;
const GRANTED: u8 = 3;
/// Where the lease id ends and the token begins.
const ID_END: usize = 17;

/// The process's socket, and the directory of the other sockets.
#[derive(Debug)]
pub(crate) struct WakeSocket {
    wake: File,
    sender: UnixDatagram,
    socket_mode: u32,
    watches: Arc<Watches>,
    own: Mutex<OwnSocket>,
}

#[derive(Debug, Default)]
struct OwnSocket {
    /// The socket, and the client by whose name it was bound.
    socket: Option<(ClientId, Arc<UnixDatagram>)>,
    /// There are watches, so the socket must be read.
    wanted: bool,
    reader: Option<Reader>,
}

/// The thread that reads the socket. It wakes watches with or without a runtime.
#[derive(Debug)]
struct Reader {
    socket: Arc<UnixDatagram>,
    closed: Arc<AtomicBool>,
}

/// The result of sending a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is in the receiver's socket, or the socket is full of earlier ones.
    Sent,
    /// No process has the socket open.
    NoReceiver,
}

impl WakeSocket {
    pub(crate) fn open(
        files: &Files,
        file_mode: u32,
        watches: Arc<Watches>,
    ) -> io::Result<WakeSocket> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        let own = Mutex::new(OwnSocket::default());
        let wake = File::open(&files.wake)?;
        Ok(WakeSocket { wake, sender, socket_mode: file_mode, watches, own })
    }

    fn address(&self, client: ClientId) -> PathBuf {
        let descriptor = self.wake.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{descriptor}/{}", client_name(client)))
    }

    /// Receives wake-ups for a client from now on. After a failure its waiters learn of hand-offs
    /// by the heartbeat only.
    pub(crate) fn receive_for(&self, client: ClientId) {
        if let Err(error) = self.try_receive_for(client) {
            tracing::warn!(%error, "no socket for wake-ups: waiting by heartbeat only");
        }
    }

    fn try_receive_for(&self, client: ClientId) -> io::Result<()> {
        let address = self.address(client);
        match std::fs::remove_file(&address) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut own = self.own.lock();
        if let Some((first, _)) = &own.socket {
            return std::fs::hard_link(self.address(*first), &address);
        }
        let socket = UnixDatagram::bind(&address)?;
        std::fs::set_permissions(&address, Permissions::from_mode(self.socket_mode))?;
        own.socket = Some((client, Arc::new(socket)));
        if own.wanted {
            self.read(&mut own);
        }
        Ok(())
    }

    /// Stops receiving for a client. Returns `false` for the first one: the addresses of the others
    /// are hard links to its address.
    pub(crate) fn forget(&self, client: ClientId) -> bool {
        if self.own.lock().socket.as_ref().is_some_and(|(first, _)| *first == client) {
            return false;
        }
        if let Err(error) = std::fs::remove_file(self.address(client)) {
            tracing::debug!(%error, "a name for wake-ups was not removed");
        }
        true
    }

    /// Reads the socket from now on, if there is one yet.
    pub(crate) fn listen(&self) {
        let mut own = self.own.lock();
        own.wanted = true;
        self.read(&mut own);
    }

    fn read(&self, own: &mut OwnSocket) {
        let Some((_, socket)) = own.socket.as_ref().filter(|_| own.reader.is_none()) else {
            return;
        };
        let socket = socket.clone();
        let closed = Arc::new(AtomicBool::new(false));
        let reader = Reader { socket: socket.clone(), closed: closed.clone() };
        let watches = self.watches.clone();
        let thread = std::thread::Builder::new().name("holdline-wake".into());
        match thread.spawn(move || read_until_closed(&socket, &closed, &watches)) {
            Ok(_) => own.reader = Some(reader),
            Err(error) => {
                tracing::warn!(%error, "no thread for wake-ups: waiting by heartbeat only");
            }
        }
    }

    /// Sends hints to a client of any process.
    pub(crate) fn send(&self, client: ClientId, wake_ups: &[WakeUp]) -> Sent {
        let address = self.address(client);
        for part in wake_ups.chunks(MAX_RECORDS) {
            let datagram: Vec<u8> = part.iter().flat_map(record).collect();
            match self.sender.send_to(&datagram, &address) {
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        return Sent::NoReceiver;
                    }
                    // Full of unread hints: the heartbeat finds the rest.
                    _ => tracing::debug!(%error, "a wake-up was not sent"),
                },
            }
        }
        Sent::Sent
    }

    /// Ends the reading thread, because the engine is closed.
    pub(crate) fn close(&self) {
        if let Some(reader) = self.own.lock().reader.take() {
            reader.closed.store(true, Ordering::SeqCst);
            if let Err(error) = reader.socket.shutdown(Shutdown::Both) {
                tracing::debug!(%error, "the socket for wake-ups could not be shut down");
            }
        }
    }
}

fn read_until_closed(socket: &UnixDatagram, closed: &AtomicBool, watches: &Watches) {
    let mut buffer = [0; RECORD * MAX_RECORDS];
    while !closed.load(Ordering::SeqCst) {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                for (lease_id, hint) in buffer[..length].chunks(RECORD).filter_map(parse) {
                    watches.notify(lease_id, hint);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "wake-ups can no longer be read");
                return;
            }
        }
    }
}

fn record(wake_up: &WakeUp) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[0] = match wake_up.hint {
        Hint::LookAgain => LOOK_AGAIN,
        Hint::CheckLease => CHECK_LEASE,
        Hint::Granted { token } => {
            record[ID_END..].copy_from_slice(&token.get().to_be_bytes());
            GRANTED
        }
    };
    record[1..ID_END].copy_from_slice(wake_up.lease_id.as_bytes());
    record
}

/// Parses one hint; invalid data is ignored, since any user with access could send it.
fn parse(record: &[u8]) -> Option<(LeaseId, Hint)> {
    let record: &[u8; RECORD] = record.try_into().ok()?;
    let (kind_and_id, token) = record.split_at(ID_END);
    let (kind, lease_id) = kind_and_id.split_first()?;
    let hint = match *kind {
        LOOK_AGAIN => Hint::LookAgain,
        CHECK_LEASE => Hint::CheckLease,
        GRANTED => {
            let token = u64::from_be_bytes(token.try_into().ok()?);
            Hint::Granted { token: FencingToken::new(token).ok()? }
        }
        _ => return None,
    };
    Some((LeaseId::from_bytes(lease_id.try_into().ok()?), hint))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Duration;

    use futures_core::Stream;

    use super::*;
    use crate::scratch::Scratch;

    struct TestWaker(mpsc::Sender<()>);

    impl Wake for TestWaker {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    fn wake_socket(scratch: &Scratch, depth: usize) -> WakeSocket {
        let root = (0..depth).fold(scratch.path().to_owned(), |path, _| path.join("d".repeat(100)));
        let files = Files::below(&root);
        std::fs::create_dir_all(&files.wake).expect("made");
        WakeSocket::open(&files, 0o600, Arc::default()).expect("open")
    }

    fn wake_up(client: u64, id: u8) -> WakeUp {
        WakeUp {
            client: ClientId::from_u64(client),
            lease_id: LeaseId::from_bytes([id; 16]),
            hint: Hint::LookAgain,
        }
    }

    #[test]
    fn a_hint_reaches_its_watch_with_a_long_path() {
        for depth in [0, 3] {
            let scratch = Scratch::new();
            let here = wake_socket(&scratch, depth);
            let there = wake_socket(&scratch, depth);
            // The second client's socket is another name of the first one's.
            for client in [1, 2] {
                here.receive_for(ClientId::from_u64(client));
            }
            here.listen();
            let (sender, receiver) = mpsc::channel();
            let waker = Waker::from(Arc::new(TestWaker(sender)));
            let mut watch = Watches::open(&here.watches, LeaseId::from_bytes([9; 16]));
            let mut context = Context::from_waker(&waker);
            assert_eq!(Pin::new(&mut watch).poll_next(&mut context), Poll::Pending);
            let wake_ups = [wake_up(2, 8), wake_up(2, 9)];
            assert_eq!(there.send(ClientId::from_u64(2), &wake_ups), Sent::Sent);
            receiver.recv_timeout(Duration::from_secs(30)).expect("woken");
            let hint = Pin::new(&mut watch).poll_next(&mut context);
            assert_eq!(hint, Poll::Ready(Some(Hint::LookAgain)));
            here.close();
        }
    }

    #[test]
    fn a_missing_receiver_is_detected() {
        let scratch = Scratch::new();
        let here = wake_socket(&scratch, 0);
        let gone = wake_socket(&scratch, 0);
        let client = ClientId::from_u64(1);
        assert_eq!(here.send(client, &[wake_up(1, 1)]), Sent::NoReceiver);
        gone.receive_for(client);
        assert_eq!(here.send(client, &[wake_up(1, 1)]), Sent::Sent);
        drop(gone);
        assert_eq!(here.send(client, &[wake_up(1, 1)]), Sent::NoReceiver);
        // A socket that a dead process left does not block the next process.
        here.receive_for(client);
        assert_eq!(here.send(client, &[wake_up(1, 1)]), Sent::Sent);
    }

    #[test]
    fn invalid_hints_are_ignored() {
        for bad in [&b""[..], &[1; 24], &[1; 26], &[0; 25], &[3; 25], &[4; 25]] {
            assert_eq!(parse(bad), None);
        }
        for hint in [Hint::LookAgain, Hint::CheckLease, Hint::Granted { token: FencingToken::MAX }]
        {
            let record = record(&WakeUp { hint, ..wake_up(1, 4) });
            assert_eq!(parse(&record), Some((LeaseId::from_bytes([4; 16]), hint)));
        }
    }
}
