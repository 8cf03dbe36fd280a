//! How a request travels: by one connection to one member, and to another when that one fails.
//!
//! - C1: a request is sent once. It is sent again only after a refusal of its token, which did
//!   nothing; or, if it only reads or keeps a lease, when its member has gone silent.
//! - C2: every request has a deadline. A member that does not answer in time, or has no leader,
//!   is left; the next request goes to the next member.
//! - C3: no connection, no request: what fails before is certain not to be applied.
//! - C4: one dial at a time makes the connection, and all requests that need one wait for it. It
//!   asks several members side by side and ends within the limit for connecting, so members that
//!   say nothing cost no more than that. No lock is held while it works.
//! - C5: a member that is silent for a part of a request's time is asked whether it lives, which it
//!   answers without the others. If it does not, all requests that come next use another member.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::{FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use holdline_core::{Certainty, ErrorKind, LockError};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::{Trouble, deepest, not_applied, protocol, trouble, unavailable};
use crate::options::EtcdOptions;
use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, Empty, LeaseGrantRequest, LeaseRequest,
    LeaseResponse, MembersResponse, RangeRequest, RangeResponse, Request as Part, StatusResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};

/// How long a connection with open streams may be silent before it is pinged. Servers close one on
/// which pings come more often than each 5 s, or while no stream is open.
const PING_EVERY: Duration = Duration::from_secs(6);
/// How long a ping may take, and how long the kernel waits before it probes.
const PROBE: Duration = Duration::from_secs(3);
/// How long a dial waits for one member before it asks the next one too.
const STAGGER: Duration = Duration::from_millis(150);
/// After which part of a request's time a silent member is asked whether it lives; it has as long
/// again to answer.
const SUSPECT: u32 = 6;
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// The longest answer: as many holders and contenders as are ever read at once.
const LONGEST_ANSWER: usize = 32 * 1024 * 1024;

type Token = MetadataValue<Ascii>;
/// A request on its way.
type Sending<A> = Pin<Box<dyn Future<Output = Result<A, Status>> + Send>>;
/// A dial that is under way; its task reports the outcome to all that wait.
type Dialing = Shared<oneshot::Receiver<Result<Connection, LockError>>>;

/// The members of a cluster. Clones share their connection.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    members: Vec<(String, Endpoint)>,
    user: Option<(String, String)>,
    connect_timeout: Duration,
    deadline: Duration,
    /// The runtime of the connection has ended.
    stale: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Which member is asked first.
    first: usize,
    connections: u64,
    connection: Option<Connection>,
    dialing: Option<Dialing>,
}

/// A connection as it was when a request left by it.
#[derive(Clone)]
struct Connection {
    number: u64,
    channel: Channel,
    token: Option<Token>,
}

impl Client {
    /// Makes a client that has no connection yet.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Client, LockError> {
        let tls = options.tls_config()?;
        let mut members = Vec::new();
        for member in &options.cluster.members {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let bad = |error: tonic::transport::Error| {
                LockError::invalid(crate::error::ENGINE, "url", format!("{member}: {error}"))
            };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
                .map_err(bad)?
                .tcp_nodelay(true)
                .tcp_keepalive(Some(PROBE))
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PROBE);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(bad)?;
            }
            members.push((member.to_string(), endpoint));
        }
        Ok(Client(Arc::new(Inner {
            members,
            user: options
                .cluster
                .credentials()
                .map(|(user, password)| (user.to_owned(), password.to_owned())),
            connect_timeout: options.cluster.connect_timeout,
            deadline: options.cluster.command_timeout,
            stale: AtomicBool::new(false),
            state: Mutex::default(),
        })))
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Trouble> {
        self.call("/etcdserverpb.KV/Range", request, true).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Trouble> {
        let mut parts = request.success.iter().chain(&request.failure);
        let only_reads = parts.all(|part| matches!(part.request, Some(Part::Range(_)) | None));
        self.call("/etcdserverpb.KV/Txn", request, only_reads).await
    }

    /// Makes a lease; of number 0 the server chooses one.
    pub(crate) async fn grant(&self, id: i64, ttl: i64) -> Result<LeaseResponse, Trouble> {
        let request = LeaseGrantRequest { ttl, id };
        self.call("/etcdserverpb.Lease/LeaseGrant", request, false).await
    }

    /// Tells how many seconds a lease lasts yet, not above zero when it is gone.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<i64, Trouble> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let reply: LeaseResponse = self.call(path, LeaseRequest { id }, true).await?;
        Ok(reply.ttl)
    }

    /// Keeps a lease; returns for how many seconds from when the server did it, not above zero
    /// when it is gone.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<i64, Trouble> {
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let send = move |connection: &Connection| -> Sending<_> {
            let requests = futures_util::stream::iter([LeaseRequest { id }]);
            let request = dress(requests, connection.token.clone());
            let (path, mut grpc) = (path.clone(), connection.grpc());
            Box::pin(async move {
                ready(&mut grpc).await?;
                let codec = ProstCodec::<LeaseRequest, LeaseResponse>::new();
                let mut replies = grpc.streaming(request, path, codec).await?.into_inner();
                replies.message().await
            })
        };
        match self.with_connection(true, send).await? {
            Some(reply) => Ok(reply.ttl),
            None => Err(protocol("a keepalive was not answered").into()),
        }
    }

    /// Opens a stream of watches, which has no deadline. Returns it with the number of its
    /// connection.
    pub(crate) async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Result<(u64, Streaming<WatchResponse>), Trouble> {
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let requests = Mutex::new(Some(requests));
        let send = move |connection: &Connection| -> Sending<_> {
            let taken = requests.lock().take();
            let (path, connection) = (path.clone(), connection.clone());
            Box::pin(async move {
                let Some(requests) = taken else {
                    return Err(Status::unauthenticated("refused twice"));
                };
                let mut grpc = connection.grpc();
                ready(&mut grpc).await?;
                let codec = ProstCodec::<WatchRequest, WatchResponse>::new();
                let request = dress(requests, connection.token);
                let stream = grpc.streaming(request, path, codec).await?.into_inner();
                Ok((connection.number, stream))
            })
        };
        self.with_connection(false, send).await
    }

    /// Asks the member that we are connected to how it stands.
    pub(crate) async fn status(&self) -> Result<StatusResponse, Trouble> {
        self.call(STATUS, Empty {}, true).await
    }

    /// Lists the members.
    pub(crate) async fn member_list(&self) -> Result<MembersResponse, Trouble> {
        self.call("/etcdserverpb.Cluster/MemberList", Empty {}, true).await
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        repeatable: bool,
    ) -> Result<A, Trouble>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let send = |connection: &Connection| unary(connection, path, request.clone());
        self.with_connection(repeatable, send).await
    }

    /// Sends by the connection, and again by another when our token was refused, or when the member
    /// has gone silent and the request is `repeatable` (C1).
    async fn with_connection<A, F>(&self, repeatable: bool, send: F) -> Result<A, Trouble>
    where
        F: Fn(&Connection) -> Sending<A>,
    {
        let (mut refused_token, mut repeatable) = (false, repeatable);
        let mut end = None;
        loop {
            let connection = self.connection().await?;
            let end = *end.get_or_insert_with(|| Instant::now() + self.0.deadline);
            let why = match self.answer(&connection, send(&connection), end, repeatable).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(why)) => why,
                None => {
                    repeatable = false;
                    continue;
                }
            };
            match why {
                Trouble::Unauthenticated(_) if self.0.user.is_some() && !refused_token => {
                    refused_token = true;
                    self.forget(connection.number, 0);
                }
                Trouble::Elsewhere(error) => {
                    self.forget(connection.number, 1);
                    return Err(Trouble::Elsewhere(error));
                }
                other => return Err(other),
            }
        }
    }

    /// Waits for an answer until `end`. After a part of that time a silent member is asked whether
    /// it lives, and left if it does not say so (C5). `None`: the request is to be sent again.
    async fn answer<A>(
        &self,
        connection: &Connection,
        mut sent: Sending<A>,
        end: Instant,
        repeatable: bool,
    ) -> Option<Result<A, Trouble>> {
        let part = self.0.deadline / SUSPECT;
        let mut answer = timeout_at(end.min(Instant::now() + part), &mut sent).await.ok();
        if answer.is_none() && self.0.members.len() > 1 {
            tokio::select! {
                biased;
                late = &mut sent => answer = Some(late),
                lives = timeout(part, lives(connection)) => if !lives.unwrap_or(false) {
                    self.forget(connection.number, 1);
                    if repeatable {
                        return None;
                    }
                }
            }
        }
        if answer.is_none() {
            answer = timeout_at(end, sent).await.ok();
        }
        Some(match answer {
            Some(answer) => answer.map_err(|status| trouble(&status)),
            None => {
                let message = format!("no answer within {:?}", self.0.deadline);
                Err(Trouble::Elsewhere(unavailable(message, Certainty::Unknown)))
            }
        })
    }

    /// Says that the connection cannot be used any more: what drives it is gone.
    pub(crate) fn leave_connection(&self) {
        self.0.stale.store(true, Ordering::SeqCst);
    }

    /// Drops a connection, so that the next request authenticates anew; no other that has taken
    /// its place meanwhile.
    pub(crate) fn renew_token(&self, number: u64) {
        self.forget(number, 0);
    }

    /// Drops a connection, unless another has taken its place, and moves on by some members.
    fn forget(&self, number: u64, on: usize) {
        let mut state = self.0.state.lock();
        if state.connection.as_ref().is_some_and(|known| known.number == number) {
            state.connection = None;
            state.first += on;
        }
    }

    /// Returns the connection; if there is none, waits for the dial that makes one (C4).
    async fn connection(&self) -> Result<Connection, LockError> {
        let dialing = {
            let mut state = self.0.state.lock();
            if self.0.stale.swap(false, Ordering::SeqCst) {
                (state.connection, state.dialing) = (None, None);
            }
            if let Some(connection) = &state.connection {
                return Ok(connection.clone());
            }
            match &state.dialing {
                Some(dialing) => dialing.clone(),
                None => {
                    let (report, outcome) = oneshot::channel();
                    let dialing = outcome.shared();
                    state.dialing = Some(dialing.clone());
                    tokio::spawn(self.clone().dial(state.first, dialing.clone(), report));
                    dialing
                }
            }
        };
        dialing.clone().await.unwrap_or_else(|_| {
            self.take_dial(&mut self.0.state.lock(), &dialing);
            let message = "the runtime ended while a connection was made";
            Err(unavailable(message, Certainty::NotApplied))
        })
    }

    /// Makes a connection and reports it to all that wait for this dial.
    async fn dial(
        self,
        first: usize,
        dialing: Dialing,
        report: oneshot::Sender<Result<Connection, LockError>>,
    ) {
        let made = self.connect_to_any(first).await;
        let outcome = {
            let mut state = self.0.state.lock();
            let current = self.take_dial(&mut state, &dialing);
            made.map(|(place, mut connection)| {
                state.connections += 1;
                connection.number = state.connections;
                if current {
                    (state.first, state.connection) = (place, Some(connection.clone()));
                }
                connection
            })
        };
        // Nobody may wait any more.
        let _ = report.send(outcome);
    }

    /// Takes a dial out of the state; returns whether it was there.
    fn take_dial(&self, state: &mut State, dialing: &Dialing) -> bool {
        state.dialing.take_if(|known| known.ptr_eq(dialing)).is_some()
    }

    /// Connects to the first member that serves: asks one after the other, without waiting longer
    /// than [`STAGGER`] for any before it asks the next one too.
    async fn connect_to_any(&self, first: usize) -> Result<(usize, Connection), LockError> {
        let count = self.0.members.len();
        let limit = self.0.connect_timeout;
        let end = Instant::now() + limit;
        let stagger = STAGGER.min(limit / u32::try_from(count + 1).unwrap_or(u32::MAX));
        let mut failures: Vec<Option<LockError>> = vec![None; count];
        let mut asked = FuturesUnordered::new();
        let mut places = (0..count).map(|step| (first + step) % count);
        let mut next_at = Instant::now();
        loop {
            if (asked.is_empty() || next_at <= Instant::now())
                && let Some(place) = places.next()
            {
                asked.push(async move { (place, timeout_at(end, self.connect(place)).await) });
                next_at = Instant::now() + stagger;
            }
            let more = places.len() > 0;
            tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    Some((place, Ok(Ok(connection)))) => return Ok((place, connection)),
                    // A wrong password is wrong everywhere.
                    Some((_, Ok(Err(Trouble::Error(error))))) => return Err(error),
                    Some((place, Ok(Err(trouble)))) => {
                        failures[place] = Some(trouble.into_error());
                        next_at = Instant::now();
                    }
                    Some((place, Err(_))) => {
                        let why = format!("no connection within {limit:?}");
                        failures[place] = Some(unavailable(why, Certainty::NotApplied));
                    }
                    None => break,
                },
                () = sleep_until(next_at), if more => {}
            }
        }
        Err(self.nobody_serves(&failures))
    }

    /// Says why no member serves: too few agree, where one of them says so.
    fn nobody_serves(&self, failures: &[Option<LockError>]) -> LockError {
        let named = failures.iter().zip(&self.0.members);
        let reasons: Vec<String> = named
            .filter_map(|(failure, (member, _))| {
                Some(format!("{member}: {}", without_head(failure.as_ref()?)))
            })
            .collect();
        let no_quorum = |error: &LockError| matches!(error.kind(), ErrorKind::NoQuorum { .. });
        match failures.iter().flatten().any(no_quorum) {
            true => not_applied(ErrorKind::NoQuorum { nodes: reasons }),
            false => unavailable(reasons.join("; "), Certainty::NotApplied),
        }
    }

    /// Connects to a member and has it answer once: what listens may say nothing, or have no
    /// leader.
    async fn connect(&self, place: usize) -> Result<Connection, Trouble> {
        let cannot = |why: String| Trouble::Elsewhere(unavailable(why, Certainty::NotApplied));
        let channel =
            self.0.members[place].1.connect().await.map_err(|error| cannot(deepest(&error)))?;
        let mut connection = Connection { number: 0, channel, token: None };
        let Some((name, password)) = self.0.user.clone() else {
            return ask_status(&connection).await.map(|()| connection);
        };
        let path = "/etcdserverpb.Auth/Authenticate";
        let request = AuthenticateRequest { name, password };
        let answer: AuthenticateResponse =
            unary(&connection, path, request).await.map_err(|status| trouble(&status))?;
        let bad = |_| Trouble::Error(protocol("the server's token cannot be sent back"));
        connection.token = Some(MetadataValue::try_from(answer.token).map_err(bad)?);
        Ok(connection)
    }
}

impl Connection {
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(LONGEST_ANSWER)
    }
}

/// Tells whether the member answers, and has a leader.
async fn lives(connection: &Connection) -> bool {
    ask_status(connection).await.is_ok()
}

async fn ask_status(connection: &Connection) -> Result<(), Trouble> {
    let answer: Result<StatusResponse, Status> = unary(connection, STATUS, Empty {}).await;
    match answer.map_err(|status| trouble(&status)) {
        Err(Trouble::Elsewhere(error)) => Err(Trouble::Elsewhere(error)),
        // A member that refuses answers as well: the request itself is told why.
        _ => Ok(()),
    }
}

/// Sends one request for one answer.
fn unary<Q, A>(connection: &Connection, path: &'static str, request: Q) -> Sending<A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let request = dress(request, connection.token.clone());
    let mut grpc = connection.grpc();
    Box::pin(async move {
        ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::new();
        let path = PathAndQuery::from_static(path);
        Ok(grpc.unary(request, path, codec).await?.into_inner())
    })
}

/// Says who we are, and that a member without a leader must not answer.
fn dress<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token);
    }
    request
}

/// Waits until the connection takes a request.
async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(deepest(&error)))
}

/// What an error says, without engine and kind, for a list of members.
fn without_head(error: &LockError) -> String {
    match error.kind() {
        ErrorKind::Unavailable { message } => message.clone(),
        ErrorKind::NoQuorum { nodes } => nodes.join("; "),
        _ => error.to_string(),
    }
}
