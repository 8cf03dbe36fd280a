//! A server, real or fake, as the only node of a set, asked by the functions under test.

pub(super) use holdline_core::quorum::SKEW;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdline::ManualClock;
use holdline_conformance::clock::MachineClock;
use holdline_core::quorum::{Barred, Configuration, NodeId, Told, Written};
use holdline_core::{
    AcquireRequest, Certainty, ClientId, ErrorKind, FencingToken, Hold, HolderView, LeaseId,
    LockError, LockName, Metadata, Mode, OperationReply, Purpose, ReleaseReply, RenewRequest,
    ShortLeaseId,
};
use holdline_services::{Flavour, RedisConfig, RedisServer};
use holdline_sim::RedisHost;

use crate::keys::Layout;
use crate::native::Asker;
use crate::node::{Call, Node, Value, Words};
use crate::options::RedisOptions;
use crate::quorum::replies::{
    self, Admitted, Greeted, Record, Renewed, Voted, inspected, operated, released,
};
use crate::quorum::requests::{self, Asked, Pass};
use crate::surroundings::{Elsewhere, Stream, Surroundings, Task};

/// How long what must happen may take.
const LONG: Duration = Duration::from_secs(60);
pub(super) const HOLD: Hold = Hold::Leased(Duration::from_secs(30));
pub(super) const LOCK: &str = "holdline:{a}";
pub(super) const COUNTER: &str = "holdline:{a}:1l";
pub(super) const NODE: &str = "holdline:node:1";
pub(super) const MARKER: &str = "run-1";

/// What a `LockError` tells, to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: ErrorKind,
    pub(super) certainty: Certainty,
}

impl From<LockError> for Refused {
    fn from(error: LockError) -> Refused {
        Refused { kind: error.kind().clone(), certainty: error.certainty() }
    }
}

/// What answers.
pub(super) enum Store {
    Real(Box<RedisServer>),
    /// Its time stands still until it is moved.
    Fake(ManualClock),
}

pub(super) struct Ground {
    pub(super) store: Store,
    pub(super) asker: Asker,
    node: Node,
}

/// The world of a fake server.
#[derive(Debug)]
struct Beside(RedisHost);

impl Elsewhere for Beside {
    fn spawn(&self, task: Task<()>) {
        tokio::spawn(task);
    }
}

impl Surroundings for Beside {
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>> {
        let stream = self.0.connect();
        Box::pin(async move { Ok(Box::new(stream?) as Box<dyn Stream>) })
    }

    fn random(&self) -> u32 {
        7
    }
}

pub(super) fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

pub(super) fn lease_id(number: u8) -> LeaseId {
    LeaseId::from_bytes([number; 16])
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token")
}

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

/// The name that a lease id of this number is for: `a`, and for large ones `b`.
pub(super) fn name_of(number: u8) -> LockName {
    name(if number < 100 { "a" } else { "b" })
}

/// A request under the lease id of this number.
pub(super) fn request(number: u8) -> AcquireRequest {
    AcquireRequest {
        name: name_of(number),
        lease_id: lease_id(number),
        client: ClientId::from_u64(u64::from(number)),
        mode: Mode::Exclusive,
        hold: HOLD,
        queue: false,
        known: false,
        claim_window: Duration::from_secs(1),
        metadata: Metadata::default(),
    }
}

pub(super) fn keep(number: u8, hold: Hold) -> RenewRequest {
    RenewRequest {
        name: name_of(number),
        lease_id: lease_id(number),
        client: ClientId::from_u64(u64::from(number)),
        purpose: Purpose::Keep(hold),
    }
}

/// The set of node 1 and two others.
pub(super) fn configuration() -> Configuration {
    let nodes = [(node_id(1), "a:1"), (node_id(2), "b:2"), (node_id(3), "c:3")];
    Configuration::founded(&nodes, Duration::from_secs(60))
}

impl Ground {
    pub(super) fn new(flavour: Flavour) -> Ground {
        let server = RedisServer::start(RedisConfig::default().with_flavour(flavour));
        let options = RedisOptions::from_url(&server.url()).expect("a good URL");
        Ground::over(Store::Real(Box::new(server)), options)
    }

    pub(super) fn fake() -> Ground {
        let clock = ManualClock::new();
        let host = RedisHost::new(Arc::new(clock.clone()), holdline_sim::RedisOptions::default());
        let options = RedisOptions::default().with_surroundings(Arc::new(Beside(host)));
        Ground::over(Store::Fake(clock), options)
    }

    fn over(store: Store, options: RedisOptions) -> Ground {
        let options = options.with_command_timeout(LONG).with_connect_timeout(LONG);
        let node = Node::new(&options, Arc::new(MachineClock)).expect("a node");
        let layout = Layout::new(options.key_template(), options.prefix());
        let (scripts, inbox) = (&crate::native::SERVER, "00000000000000ab".to_owned());
        let asker = Asker { layout, scripts, inbox, deadline: LONG };
        Ground { store, asker, node }
    }

    /// A node that votes, and the pass to it.
    pub(super) async fn open(flavour: Flavour) -> (Ground, Pass) {
        let ground = Ground::new(flavour);
        let pass = ground.found().await;
        (ground, pass)
    }

    /// Founds the set on this node.
    pub(super) async fn found(&self) -> Pass {
        self.greet(MARKER, 1).await.expect("a node of ours");
        let configuration = configuration();
        let stamp = configuration.stamp();
        let propose = Told::Propose { from: None, configuration };
        assert!(self.tell(MARKER, &propose).await.expect("told"));
        let activate = Told::Activate { stamp, quarantine: None };
        assert!(self.tell(MARKER, &activate).await.expect("told"));
        Pass::new(MARKER, stamp)
    }

    async fn call(&self, call: Call) -> Result<Value, LockError> {
        self.node.call(|| call.clone()).await
    }

    pub(super) async fn greet(&self, marker: &str, fresh: u8) -> Result<Greeted, Refused> {
        let call = requests::greet(&self.asker, marker, node_id(fresh));
        Ok(replies::greeted(&self.call(call).await?)?)
    }

    /// Greets it and changes nothing.
    pub(super) async fn look(&self, marker: &str) -> Result<Greeted, Refused> {
        let call = requests::look(&self.asker, marker, node_id(99));
        Ok(replies::greeted(&self.call(call).await?)?)
    }

    pub(super) async fn tell(&self, marker: &str, told: &Told) -> Result<bool, Refused> {
        Ok(replies::told(&self.call(requests::tell(&self.asker, marker, told)).await?)?)
    }

    pub(super) async fn acquire(
        &self,
        pass: &Pass,
        request: &AcquireRequest,
        proposed: u64,
        asked: Asked,
    ) -> Result<Voted, Refused> {
        let call = requests::acquire(&self.asker, pass, request, proposed, SKEW, asked);
        Ok(replies::voted(&self.call(call).await?, pass)?)
    }

    /// Asks for `a` under the lease id of this number, which must be granted.
    pub(super) async fn take(&self, pass: &Pass, number: u8, proposed: u64) -> u64 {
        match self.acquire(pass, &request(number), proposed, Asked::Anew).await {
            Ok(Voted::Granted { last }) => last.get(),
            other => panic!("expected a vote, got {other:?}"),
        }
    }

    pub(super) async fn write_back(
        &self,
        pass: &Pass,
        number: u8,
        written: u64,
    ) -> Result<Admitted<Written>, Refused> {
        let (name, id) = (name_of(number), lease_id(number));
        let call = requests::write_back(&self.asker, pass, &name, id, token(written));
        Ok(replies::written(&self.call(call).await?, pass)?)
    }

    pub(super) async fn renew(
        &self,
        pass: &Pass,
        lines: &[RenewRequest],
    ) -> Result<Admitted<Vec<Result<Renewed, Refused>>>, Refused> {
        let call = requests::renew(&self.asker, pass, lines);
        let answer = replies::renewed(&self.call(call).await?, pass, lines.len())?;
        let of_line = |line: Result<Renewed, LockError>| line.map_err(Refused::from);
        Ok(answer.map(|lines| lines.into_iter().map(of_line).collect()))
    }

    /// Renews one lease of `a`.
    pub(super) async fn renew_one(&self, pass: &Pass, number: u8, hold: Hold) -> Renewed {
        let replies = self.renew(pass, &[keep(number, hold)]).await.expect("an answer");
        let mut replies = replies.expect("the node votes");
        replies.pop().expect("one line").expect("of ours")
    }

    pub(super) async fn record(&self, number: u8) -> Result<Option<Record>, Refused> {
        let call = requests::record(&self.asker, &name_of(number), lease_id(number));
        Ok(replies::recorded(&self.call(call).await?)?)
    }

    pub(super) async fn heal(
        &self,
        pass: &Pass,
        number: u8,
        record: &Record,
    ) -> Result<Admitted<bool>, Refused> {
        let (name, id, lease) = (name_of(number), lease_id(number), Duration::from_secs(30));
        let call = requests::heal(&self.asker, pass, &name, id, record, lease);
        Ok(replies::healed(&self.call(call).await?, pass)?)
    }

    pub(super) async fn release(
        &self,
        number: u8,
        tombstone: Option<Duration>,
    ) -> Result<ReleaseReply, Refused> {
        let call = requests::release(&self.asker, &name_of(number), lease_id(number), tombstone);
        Ok(released(&self.call(call).await?)?)
    }

    /// Shows who has `a`.
    pub(super) async fn inspect(&self) -> Result<Option<HolderView>, Refused> {
        let names = [name("a")];
        let reply = self.call(requests::inspect(&self.asker, &names)).await?;
        let mut shown = inspected(&reply, &names)?;
        Ok(shown.pop().expect("one name")?.holders.pop())
    }

    pub(super) async fn revoke(
        &self,
        whose: ShortLeaseId,
        reason: &str,
        now: bool,
    ) -> Result<OperationReply, Refused> {
        let call = requests::revoke(&self.asker, &name("a"), whose, reason, now);
        Ok(operated(&self.call(call).await?)?)
    }

    pub(super) async fn raise(&self, to: u64) -> Result<OperationReply, Refused> {
        Ok(operated(&self.call(requests::raise(&self.asker, token(to))).await?)?)
    }

    /// The server, where it is a real one.
    pub(super) fn server(&self) -> &RedisServer {
        match &self.store {
            Store::Real(server) => server,
            Store::Fake(_) => panic!("it is a fake one"),
        }
    }

    /// Asks the server without our scripts.
    pub(super) async fn raw(&self, words: &[&str]) -> Value {
        let words: Words = words.iter().collect();
        self.node.command(words, None, LONG).await.expect("the server answers")
    }

    pub(super) async fn text(&self, words: &[&str]) -> Option<String> {
        self.raw(words).await.as_text().map(str::to_owned)
    }

    pub(super) async fn number(&self, words: &[&str]) -> Option<i64> {
        self.raw(words).await.as_integer()
    }

    /// Returns all keys, in order.
    pub(super) async fn keys(&self) -> Vec<String> {
        let reply = self.raw(&["KEYS", "*"]).await;
        let keys = reply.as_array().expect("a list").iter();
        let mut keys: Vec<String> =
            keys.map(|key| key.as_text().expect("a key").to_owned()).collect();
        keys.sort_unstable();
        keys
    }
}

/// Says why a node does not vote.
pub(super) fn why<T: std::fmt::Debug>(answer: Result<Admitted<T>, Refused>) -> Barred {
    match answer {
        Ok(Err(barred)) => barred,
        other => panic!("expected none, got {other:?}"),
    }
}
