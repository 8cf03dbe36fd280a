//! A server, real or fake, as a node of a set. The functions under test send its requests.

pub(super) use holdline_core::quorum::SKEW;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline_conformance::clock::MachineClock;
use holdline_core::quorum::node::Run;
use holdline_core::quorum::{Configuration, NodeCommand, NodeId, VoteRefusal, WriteBackReply};
use holdline_core::{
    AcquireRequest, Certainty, ClientId, ErrorKind, FencingToken, Hold, HolderView, LeaseId,
    LockError, LockKind, LockName, Metadata, Mode, OperationReply, Purpose, ReleaseReply,
    RenewRequest, ShortLeaseId,
};
use holdline_services::{Flavour, RedisConfig, RedisServer};
use holdline_sim::RedisHost;

use crate::args::Args;
use crate::environment::{Environment, Stream, Task, TaskSpawner};
use crate::keys::Layout;
use crate::link::{Call, Link, Value};
use crate::native::RequestContext;
use crate::options::RedisOptions;
use crate::quorum::replies::EpochProof;
use crate::quorum::replies::{
    self, Admitted, HandshakeReply, HolderRecord, NodeRenewal, VoteReply, inspected, operated,
    released,
};
use crate::quorum::requests::{self, AcquireKind};

/// The time limit of every request.
const LONG: Duration = Duration::from_secs(60);
pub(super) const HOLD: Hold = Hold::Leased(Duration::from_secs(30));
pub(super) const LOCK: &str = "holdline:{a}";
pub(super) const COUNTER: &str = "holdline:{a}:1l";
pub(super) const NODE: &str = "holdline:node:1";
pub(super) const MARKER: &str = "run-1";

/// The parts of a `LockError` that tests compare.
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

/// The server.
pub(super) enum Store {
    Real(Box<RedisServer>),
    /// Its clock moves only when the test moves it.
    Fake(ManualClock),
}

pub(super) struct TestNode {
    pub(super) store: Store,
    pub(super) context: RequestContext,
    node: Link,
}

/// The environment of a fake server.
#[derive(Debug)]
struct FakeEnvironment(RedisHost);

impl TaskSpawner for FakeEnvironment {
    fn spawn(&self, task: Task<()>) {
        tokio::spawn(task);
    }
}

impl Environment for FakeEnvironment {
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

/// The name of a lease id: `a` for small numbers, `b` for large ones.
pub(super) fn name_of(number: u8) -> LockName {
    name(if number < 100 { "a" } else { "b" })
}

/// An acquire under the lease id of this number.
pub(super) fn request(number: u8) -> AcquireRequest {
    AcquireRequest {
        name: name_of(number),
        lease_id: lease_id(number),
        client: ClientId::from_u64(u64::from(number)),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: HOLD,
        queue: false,
        known: false,
        hand_off_lease: Duration::from_secs(1),
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
    Configuration::initial(&nodes, Duration::from_secs(60))
}

impl TestNode {
    pub(super) fn new(flavour: Flavour) -> TestNode {
        let server = RedisServer::start(RedisConfig::default().with_flavour(flavour));
        let options = RedisOptions::from_url(&server.url()).expect("a good URL");
        TestNode::over(Store::Real(Box::new(server)), options)
    }

    /// A fake server whose clock shows this Unix time, in seconds.
    pub(super) fn fake(unix_s: i64) -> TestNode {
        let clock = ManualClock::new();
        let host = RedisHost::new(Arc::new(clock.clone()), holdline_sim::RedisOptions::default());
        host.server().clock().set(unix_s * 1_000_000);
        let options = RedisOptions::default().with_environment(Arc::new(FakeEnvironment(host)));
        TestNode::over(Store::Fake(clock), options)
    }

    fn over(store: Store, options: RedisOptions) -> TestNode {
        let options = options.with_command_timeout(LONG).with_connect_timeout(LONG);
        let node = Link::new(&options, Arc::new(MachineClock)).expect("a node");
        let layout = Layout::new(options.key_template(), options.prefix());
        let (scripts, inbox) = (&crate::native::SERVER, "00000000000000ab".to_owned());
        let context = RequestContext { layout, scripts, inbox, deadline: LONG };
        TestNode { store, context, node }
    }

    /// A node that votes, and the proof for it.
    pub(super) async fn voting(flavour: Flavour) -> (TestNode, EpochProof) {
        let node = TestNode::new(flavour);
        let proof = node.initialise().await;
        (node, proof)
    }

    /// Initialises the set on this node.
    pub(super) async fn initialise(&self) -> EpochProof {
        self.handshake(MARKER, 1).await.expect("a node of ours");
        let configuration = configuration();
        let stamp = configuration.stamp();
        let quarantine = configuration.quarantine();
        let propose = NodeCommand::Propose { from: None, configuration };
        assert!(self.send_command(MARKER, &propose).await.expect("a reply"));
        let activate = NodeCommand::Activate { stamp, quarantine };
        assert!(self.send_command(MARKER, &activate).await.expect("a reply"));
        let vouch = NodeCommand::Vouch { episode: node_id(1) };
        assert!(self.send_command(MARKER, &vouch).await.expect("a reply"));
        EpochProof::new(MARKER, stamp)
    }

    async fn call(&self, call: Call) -> Result<Value, LockError> {
        self.node.call(|| call.clone()).await
    }

    pub(super) async fn handshake(
        &self,
        marker: &str,
        fresh: u8,
    ) -> Result<HandshakeReply, Refused> {
        let run = Run { marker: marker.to_owned(), replica_until: None };
        self.handshake_of(&run, fresh).await
    }

    /// The same for a server that may have been a replica in this run.
    pub(super) async fn handshake_of(
        &self,
        run: &Run,
        fresh: u8,
    ) -> Result<HandshakeReply, Refused> {
        let call = requests::handshake(&self.context, run, node_id(fresh), false);
        Ok(replies::handshake(&self.call(call).await?)?)
    }

    /// Asks for its report and changes nothing.
    pub(super) async fn look(&self, marker: &str) -> Result<HandshakeReply, Refused> {
        let run = Run { marker: marker.to_owned(), replica_until: None };
        let call = requests::handshake(&self.context, &run, node_id(99), true);
        Ok(replies::handshake(&self.call(call).await?)?)
    }

    pub(super) async fn send_command(
        &self,
        marker: &str,
        command: &NodeCommand,
    ) -> Result<bool, Refused> {
        Ok(replies::accepted(&self.call(requests::command(&self.context, marker, command)).await?)?)
    }

    pub(super) async fn acquire(
        &self,
        proof: &EpochProof,
        request: &AcquireRequest,
        proposed: u64,
        asked: AcquireKind,
    ) -> Result<VoteReply, Refused> {
        let call = requests::acquire(&self.context, proof, request, proposed, asked);
        Ok(replies::voted(&self.call(call).await?, proof)?)
    }

    /// Acquires `a` under the lease id of this number, which must be granted.
    pub(super) async fn take(&self, proof: &EpochProof, number: u8, proposed: u64) -> u64 {
        match self.acquire(proof, &request(number), proposed, AcquireKind::First).await {
            Ok(VoteReply::Granted { last }) => last.get(),
            other => panic!("expected a vote, got {other:?}"),
        }
    }

    pub(super) async fn write_back(
        &self,
        proof: &EpochProof,
        number: u8,
        written: u64,
    ) -> Result<Admitted<WriteBackReply>, Refused> {
        let (name, id) = (name_of(number), lease_id(number));
        let call = requests::write_back(&self.context, proof, &name, id, token(written));
        Ok(replies::written(&self.call(call).await?, proof)?)
    }

    pub(super) async fn renew(
        &self,
        proof: &EpochProof,
        renewals: &[RenewRequest],
    ) -> Result<Admitted<Vec<Result<NodeRenewal, Refused>>>, Refused> {
        let call = requests::renew(&self.context, proof, renewals);
        let answer = replies::renewed(&self.call(call).await?, proof, renewals.len())?;
        let of_renewal = |line: Result<NodeRenewal, LockError>| line.map_err(Refused::from);
        Ok(answer.map(|renewals| renewals.into_iter().map(of_renewal).collect()))
    }

    /// Renews one lease of `a`.
    pub(super) async fn renew_one(
        &self,
        proof: &EpochProof,
        number: u8,
        hold: Hold,
    ) -> NodeRenewal {
        let replies = self.renew(proof, &[keep(number, hold)]).await.expect("an answer");
        let mut replies = replies.expect("the node votes");
        replies.pop().expect("one line").expect("of ours")
    }

    pub(super) async fn record(&self, number: u8) -> Result<Option<HolderRecord>, Refused> {
        let call = requests::record(&self.context, &name_of(number), lease_id(number));
        Ok(replies::recorded(&self.call(call).await?)?)
    }

    pub(super) async fn heal(
        &self,
        proof: &EpochProof,
        number: u8,
        record: &HolderRecord,
    ) -> Result<Admitted<bool>, Refused> {
        let (name, id, lease) = (name_of(number), lease_id(number), Duration::from_secs(30));
        let call = requests::heal(&self.context, proof, &name, id, record, lease);
        Ok(replies::healed(&self.call(call).await?, proof)?)
    }

    pub(super) async fn release(
        &self,
        number: u8,
        tombstone: Option<Duration>,
    ) -> Result<ReleaseReply, Refused> {
        let call = requests::release(&self.context, &name_of(number), lease_id(number), tombstone);
        Ok(released(&self.call(call).await?)?)
    }

    /// Releases with the script of an undo.
    pub(super) async fn undo(
        &self,
        number: u8,
        tombstone: Option<Duration>,
    ) -> Result<ReleaseReply, Refused> {
        let call = requests::undo(&self.context, &name_of(number), lease_id(number), tombstone);
        Ok(released(&self.call(call).await?)?)
    }

    /// Returns the holder of `a`.
    pub(super) async fn inspect(&self) -> Result<Option<HolderView>, Refused> {
        let names = [name("a")];
        let reply = self.call(requests::inspect(&self.context, &names)).await?;
        let mut shown = inspected(&reply, &names)?;
        Ok(shown.pop().expect("one name")?.holders.pop())
    }

    pub(super) async fn revoke(
        &self,
        id: ShortLeaseId,
        reason: &str,
        now: bool,
    ) -> Result<OperationReply, Refused> {
        let call = requests::revoke(&self.context, &name("a"), id, reason, now);
        Ok(operated(&self.call(call).await?)?)
    }

    pub(super) async fn raise(&self, to: u64) -> Result<OperationReply, Refused> {
        Ok(operated(&self.call(requests::raise(&self.context, token(to))).await?)?)
    }

    /// The real server.
    pub(super) fn server(&self) -> &RedisServer {
        match &self.store {
            Store::Real(server) => server,
            Store::Fake(_) => panic!("the server is fake"),
        }
    }

    /// Sends a command without our scripts.
    pub(super) async fn raw(&self, args: &[&str]) -> Value {
        let args: Args = args.iter().collect();
        self.node.command(args, None, LONG).await.expect("the server answers")
    }

    pub(super) async fn text(&self, args: &[&str]) -> Option<String> {
        self.raw(args).await.as_text().map(str::to_owned)
    }

    pub(super) async fn number(&self, args: &[&str]) -> Option<i64> {
        self.raw(args).await.as_integer()
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

/// Returns why a node does not vote.
pub(super) fn why<T: std::fmt::Debug>(answer: Result<Admitted<T>, Refused>) -> VoteRefusal {
    match answer {
        Ok(Err(barred)) => barred,
        other => panic!("expected none, got {other:?}"),
    }
}
