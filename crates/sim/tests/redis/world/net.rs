//! The network between clients and servers: requests travel one by one with delays. Links stall and
//! break, and their messages are late or lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdline_core::{Clock, Moment};
use holdline_redis::{Environment, Stream, Task, TaskSpawner};
use holdline_sim::{ConnectionId, RedisHost};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::bugs::Mutation;
use super::frame::Frame;
use super::rng::SeededRng;
use super::tasks::{Process, Spawner};
use crate::quorum::stress::{DelayedRequests, Reachability};

enum UpPacket {
    Frame(Frame),
    Close,
}

enum DownPacket {
    Bytes(Vec<u8>),
    Close,
}

/// One connection.
struct SimLink {
    process: Process,
    /// The index of its server, and which server that was when it was opened.
    node: usize,
    host: RedisHost,
    id: ConnectionId,
    /// Bytes that are no complete request yet.
    partial: Vec<u8>,
    up: VecDeque<(Moment, UpPacket)>,
    down: VecDeque<(Moment, DownPacket)>,
    arrived: VecDeque<u8>,
    /// No packet travels before these moments.
    up_from: Moment,
    down_from: Moment,
    /// When the next packets arrive, up and down, as registered in the network.
    due: [Option<Moment>; 2],
    ended: bool,
    server_gone: bool,
    reader: Option<Waker>,
}

impl SimLink {
    /// Returns when the next packets arrive, up and down.
    fn next(&self) -> [Option<Moment>; 2] {
        let up = self.up.front().map(|(at, _)| (*at).max(self.up_from));
        [up, self.down.front().map(|(at, _)| (*at).max(self.down_from))]
    }
}

/// The ways of a link.
const WAYS: [usize; 2] = [UP, DOWN];
const UP: usize = 0;
const DOWN: usize = 1;

/// A packet that reached a server.
pub(crate) struct DeliveredPacket {
    pub(crate) process: Process,
    pub(crate) node: usize,
    /// `None` for the end of a connection.
    pub(crate) frame: Option<Frame>,
}

/// All links.
pub(crate) struct SimNetwork {
    clock: Arc<dyn Clock>,
    hosts: Vec<RedisHost>,
    links: BTreeMap<u64, SimLink>,
    /// The links to each server.
    leading: Vec<Vec<u64>>,
    /// When the next packet of each link arrives.
    due: BTreeSet<(Moment, u64, usize)>,
    next: u64,
    rng: SeededRng,
    mutation: Option<Mutation>,
    /// The longest delay of a packet.
    pub(crate) slowest_ms: u64,
    /// The number of scripts that have reached a server.
    pub(crate) scripts: u64,
    /// The delayed requests.
    pub(crate) late: Option<DelayedRequests>,
    /// The reachability, with the number of clients.
    pub(crate) reach: Option<(Reachability, u64)>,
}

pub(crate) type SharedNetwork = Arc<Mutex<SimNetwork>>;

impl SimNetwork {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        hosts: Vec<RedisHost>,
        rng: SeededRng,
        mutation: Option<Mutation>,
    ) -> SimNetwork {
        SimNetwork {
            leading: vec![Vec::new(); hosts.len()],
            clock,
            hosts,
            links: BTreeMap::new(),
            due: BTreeSet::new(),
            next: 0,
            rng,
            mutation,
            slowest_ms: 3,
            scripts: 0,
            late: None,
            reach: None,
        }
    }

    /// Replaces a server; existing connections to the old one stay open.
    pub(crate) fn replace(&mut self, node: usize, host: RedisHost) {
        self.hosts[node] = host;
    }

    fn delay(&mut self) -> Duration {
        let slowest = self.slowest_ms * 1_000;
        Duration::from_micros(100 + self.rng.below(slowest))
    }

    fn connect(&mut self, process: Process, node: usize) -> io::Result<u64> {
        if self.reach.is_some_and(|(reach, clients)| !reach.leads(process, clients, node)) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let host = self.hosts[node].clone();
        let id = host.server().connect();
        let id = id.map_err(|down| io::Error::new(io::ErrorKind::ConnectionRefused, down))?;
        let number = self.next;
        self.next += 1;
        let link = SimLink {
            process,
            node,
            host,
            id,
            partial: Vec::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            arrived: VecDeque::new(),
            up_from: Moment::ORIGIN,
            down_from: Moment::ORIGIN,
            due: [None; 2],
            ended: false,
            server_gone: false,
            reader: None,
        };
        self.links.insert(number, link);
        self.leading[node].push(number);
        Ok(number)
    }

    /// Removes a link for both ends.
    fn forget(&mut self, number: u64) {
        let Some(link) = self.links.remove(&number) else { return };
        self.leading[link.node].retain(|other| *other != number);
        for way in WAYS {
            if let Some(at) = link.due[way] {
                self.due.remove(&(at, number, way));
            }
        }
    }

    /// Registers the next packets of a link.
    fn note(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let next = link.next();
        let due = std::mem::replace(&mut link.due, next);
        for way in WAYS.into_iter().filter(|way| due[*way] != next[*way]) {
            if let Some(at) = due[way] {
                self.due.remove(&(at, number, way));
            }
            if let Some(at) = next[way] {
                self.due.insert((at, number, way));
            }
        }
    }

    fn write(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = self.clock.now().after(self.delay());
        let link = self.links.get_mut(&number).ok_or(io::ErrorKind::BrokenPipe)?;
        if link.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        link.partial.extend_from_slice(bytes);
        if let Some((last, _)) = link.up.back() {
            at = at.max(*last);
        }
        while let Some(frame) = Frame::read(&link.partial) {
            link.partial.drain(..frame.bytes().len());
            // A server refuses a changed script by its digest, which it does not know. The client
            // sends the text next, and that request is the one to delay.
            let is_refused = self.mutation.is_some() && &frame[0] == b"EVALSHA";
            if let Some(late) = self.late.filter(|late| (late.which)(&frame) && !is_refused)
                && self.rng.percent(late.percent)
            {
                let by = self.rng.between(late.ms.0, late.ms.1);
                link.up_from = link.up_from.max(self.clock.now().after(by));
            }
            link.up.push_back((at, UpPacket::Frame(frame)));
        }
        self.note(number);
        Ok(())
    }

    /// The client has closed: what it wrote may be lost, or still arrive.
    fn close(&mut self, number: u64) {
        let at = self.clock.now().after(self.delay());
        let abrupt = self.rng.percent(30);
        let Some(link) = self.links.get_mut(&number) else { return };
        if abrupt {
            link.up.clear();
        }
        let at = link.up.back().map_or(at, |(last, _)| at.max(*last));
        link.up.push_back((at, UpPacket::Close));
        link.ended = true;
        link.reader = None;
        self.note(number);
    }

    /// Returns when the next packet arrives.
    pub(crate) fn next_event(&self) -> Option<Moment> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Delivers one packet that is due; the outer `None` when none is.
    pub(crate) fn deliver(&mut self) -> Option<Option<DeliveredPacket>> {
        let mut due = self.due.range(..=(self.clock.now(), u64::MAX, DOWN));
        let chosen = match due.clone().count() {
            0 => return None,
            count => self.rng.below(count as u64) as usize,
        };
        let (_, number, way) = *due.nth(chosen)?;
        if way == DOWN {
            self.arrive(number);
            return Some(None);
        }
        let link = self.links.get_mut(&number)?;
        let (process, node, id, host) = (link.process, link.node, link.id, link.host.clone());
        let frame = match link.up.pop_front()?.1 {
            UpPacket::Close => {
                self.forget(number);
                host.server().close(id);
                None
            }
            UpPacket::Frame(frame) => {
                self.note(number);
                self.scripts += u64::from(frame.is_script());
                let changed = self.mutation.as_mut().and_then(|change| change.apply(&frame));
                host.server().receive(id, changed.as_ref().unwrap_or(&frame).bytes());
                Some(frame)
            }
        };
        self.collect_from(node);
        Some(Some(DeliveredPacket { process, node, frame }))
    }

    fn arrive(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        match link.down.pop_front() {
            Some((_, DownPacket::Bytes(bytes))) => link.arrived.extend(bytes),
            Some((_, DownPacket::Close)) => link.ended = true,
            None => {}
        }
        link.reader.take().into_iter().for_each(Waker::wake);
        self.note(number);
    }

    /// Takes the servers' output.
    pub(crate) fn collect(&mut self) {
        (0..self.hosts.len()).for_each(|node| self.collect_from(node));
    }

    fn collect_from(&mut self, node: usize) {
        for at in 0..self.leading[node].len() {
            let number = self.leading[node][at];
            let Some(link) = self.links.get_mut(&number) else { continue };
            let mut server = link.host.server();
            let bytes = server.take_output(link.id, usize::MAX);
            let gone = !server.is_open(link.id) && !link.server_gone;
            drop(server);
            if bytes.is_empty() && !gone {
                continue;
            }
            link.server_gone |= gone;
            let mut at = self.clock.now().after(self.delay());
            let Some(link) = self.links.get_mut(&number) else { continue };
            if let Some((last, _)) = link.down.back() {
                at = at.max(*last);
            }
            if !bytes.is_empty() {
                link.down.push_back((at, DownPacket::Bytes(bytes)));
            }
            if gone {
                link.down.push_back((at, DownPacket::Close));
            }
            self.note(number);
        }
    }

    fn of(&self, process: Process, node: Option<usize>) -> Vec<u64> {
        let links = self.links.iter();
        let links = links.filter(|(_, link)| node.is_none_or(|node| link.node == node));
        links.filter(|(_, link)| link.process == process).map(|(number, _)| *number).collect()
    }

    /// Breaks a process's links, or those to one server: their packets are lost.
    pub(crate) fn reset(&mut self, process: Process, node: Option<usize>) {
        for number in self.of(process, node) {
            let Some(link) = self.links.get_mut(&number) else { continue };
            link.up.clear();
            link.down.clear();
            link.server_gone = true;
            let (id, host) = (link.id, link.host.clone());
            if link.ended {
                self.forget(number);
            } else {
                link.ended = true;
                link.reader.take().into_iter().for_each(Waker::wake);
                self.note(number);
            }
            host.server().close(id);
        }
        self.collect();
    }

    /// Delays the packets of a process's links, or of those to one server, until a moment.
    pub(crate) fn stall(
        &mut self,
        process: Process,
        node: Option<usize>,
        (up, down): (bool, bool),
        until: Moment,
    ) {
        for number in self.of(process, node) {
            if self.rng.percent(35) {
                continue;
            }
            let Some(link) = self.links.get_mut(&number) else { continue };
            if up {
                link.up_from = link.up_from.max(until);
            }
            if down {
                link.down_from = link.down_from.max(until);
            }
            self.note(number);
        }
    }

    /// Returns whether the planted bug was injected.
    pub(crate) fn is_planted(&self) -> bool {
        self.mutation.as_ref().is_none_or(Mutation::is_applied)
    }

    /// The server's connections of a process.
    pub(crate) fn connections(&self, process: Process) -> Vec<ConnectionId> {
        self.links.values().filter(|l| l.process == process).map(|l| l.id).collect()
    }
}

/// The environment of one client's engine.
pub(crate) struct SimEnvironment {
    pub(crate) process: Process,
    pub(crate) node: usize,
    pub(crate) net: SharedNetwork,
    pub(crate) spawner: Spawner,
    pub(crate) rng: Mutex<SeededRng>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for SimEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inside({})", self.process)
    }
}

impl TaskSpawner for SimEnvironment {
    fn spawn(&self, task: Task<()>) {
        self.spawner.spawn(self.process, task);
    }
}

impl Environment for SimEnvironment {
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>> {
        let (net, process, node) = (self.net.clone(), self.process, self.node);
        let arrived = self.clock.now().after(net.lock().delay());
        let sleep = self.clock.sleep_until(arrived);
        Box::pin(async move {
            sleep.await;
            let number = net.lock().connect(process, node)?;
            Ok(Box::new(SimStream { net, number }) as Box<dyn Stream>)
        })
    }

    fn random(&self) -> u32 {
        self.rng.lock().roll() as u32
    }
}

/// The client's end of a link.
struct SimStream {
    net: SharedNetwork,
    number: u64,
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut net = self.net.lock();
        let Some(link) = net.links.get_mut(&self.number) else { return Poll::Ready(Ok(())) };
        if !link.arrived.is_empty() {
            let count = link.arrived.len().min(buffer.remaining());
            let (first, second) = link.arrived.as_slices();
            let more = count.saturating_sub(first.len());
            buffer.put_slice(&first[..count - more]);
            buffer.put_slice(&second[..more]);
            link.arrived.drain(..count);
            return Poll::Ready(Ok(()));
        }
        if link.ended {
            return Poll::Ready(Ok(()));
        }
        link.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.net.lock().write(self.number, bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.net.lock().close(self.number);
    }
}
