//! The client: requests over one connection to one member, and failover to another member.
//!
//! - C1: a request is sent once. It is sent again in two cases only: after a refusal of its token,
//!   which did nothing; or, if it is a read or a keepalive, when its member stops answering.
//! - C2: every request has a deadline. If a member does not answer in time, or has no leader, the
//!   next request goes to the next member.
//! - C3: without a connection no request is sent: a failure to connect is certain not to be
//!   applied.
//! - C4: one dial at a time makes the connection, and all requests that need one wait for it. It
//!   tries several members in parallel, within the connect timeout. So members that do not answer
//!   cost no more than that timeout. No mutex is held meanwhile.
//! - C5: if a request waits for a part of its time, the client checks whether the member is alive,
//!   by a request that a member answers alone. If it is not, later requests use another member.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::{FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_net::socket;
use holdline_net::tls::{TlsContext, TlsFiles};
use holdline_net::url::Server;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::{RequestError, deepest, not_applied, protocol, request_error, unavailable};
use crate::options::EtcdOptions;
use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, Empty, LeaseGrantRequest, LeaseRequest,
    LeaseResponse, MembersResponse, RangeRequest, RangeResponse, Request as Part, StatusResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::transport;

/// The interval of pings on a connection with open streams. Servers close a connection if pings
/// come more often than every 5 s, or while no stream is open.
const PING_EVERY: Duration = Duration::from_secs(6);
/// The timeout of a ping.
const PROBE: Duration = Duration::from_secs(3);
/// How long a dial waits for one member before it also tries the next.
const STAGGER: Duration = Duration::from_millis(150);
/// The part of a request's time after which the client checks whether the member is alive. The
/// check may take as long again.
const SUSPECT: u32 = 6;
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// The longest answer: the most contenders that are ever read at once.
const LONGEST_ANSWER: usize = 32 * 1024 * 1024;

type Token = MetadataValue<Ascii>;
/// The names in the messages of a failed TLS handshake.
const TLS: TlsContext = TlsContext { engine: crate::error::ENGINE, without: "etcd://" };

/// A request that was sent.
type Sending<A> = Pin<Box<dyn Future<Output = Result<A, Status>> + Send>>;
/// A dial in progress; its task reports the outcome to all waiting requests.
type Dialing = Shared<oneshot::Receiver<Result<Connection, LockError>>>;

/// The members of a cluster. Clones share their connection.
#[derive(Clone)]
pub(crate) struct Client(Arc<ClientParts>);

struct ClientParts {
    members: Vec<(Server, Endpoint)>,
    options: EtcdOptions,
    connect_timeout: Duration,
    deadline: Duration,
    /// The files of TLS; `None` without TLS.
    tls: Option<TlsFiles>,
    /// The runtime of the connection has ended.
    stale: AtomicBool,
    slot: Mutex<ConnectionSlot>,
}

#[derive(Default)]
struct ConnectionSlot {
    /// The index of the member that is tried first.
    first: usize,
    connections: u64,
    connection: Option<Connection>,
    dialing: Option<Dialing>,
}

/// A connection, as it was when a request was sent.
#[derive(Clone)]
struct Connection {
    number: u64,
    channel: Channel,
    token: Option<Token>,
}

impl Client {
    /// Makes a client that has no connection yet.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Client, LockError> {
        // An error in a file is reported at once.
        let scheme = if options.tls_config()?.is_some() { "https" } else { "http" };
        let mut members = Vec::new();
        for member in &options.cluster.members {
            let bad = |error: tonic::transport::Error| {
                LockError::invalid(crate::error::ENGINE, "url", format!("{member}: {error}"))
            };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
                .map_err(bad)?
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PROBE);
            members.push((member.clone(), endpoint));
        }
        Ok(Client(Arc::new(ClientParts {
            members,
            options: options.clone(),
            connect_timeout: options.connect_timeout(),
            deadline: options.command_timeout(),
            tls: options.tls().cloned(),
            stale: AtomicBool::new(false),
            slot: Mutex::default(),
        })))
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, RequestError> {
        self.call("/etcdserverpb.KV/Range", request, true).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, RequestError> {
        let mut parts = request.success.iter().chain(&request.failure);
        let only_reads = parts.all(|part| matches!(part.request, Some(Part::Range(_)) | None));
        self.call("/etcdserverpb.KV/Txn", request, only_reads).await
    }

    /// Creates a lease. With id 0 the server chooses the id.
    pub(crate) async fn grant(&self, id: i64, ttl: i64) -> Result<LeaseResponse, RequestError> {
        let request = LeaseGrantRequest { ttl, id };
        self.call("/etcdserverpb.Lease/LeaseGrant", request, false).await
    }

    /// Returns how many seconds a lease has left; zero or less if it is gone.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<i64, RequestError> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let reply: LeaseResponse = self.call(path, LeaseRequest { id }, true).await?;
        Ok(reply.ttl)
    }

    /// Sends a keepalive; returns how many seconds the lease lasts from then; zero or less if it is
    /// gone.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<i64, RequestError> {
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let send = move |connection: &Connection| -> Sending<_> {
            let requests = futures_util::stream::iter([LeaseRequest { id }]);
            let request = dress(requests, connection.token.clone());
            let path = path.clone();
            let mut grpc = connection.grpc();
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
    ) -> Result<(u64, Streaming<WatchResponse>), RequestError> {
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let requests = Mutex::new(Some(requests));
        let send = move |connection: &Connection| -> Sending<_> {
            let taken = requests.lock().take();
            let path = path.clone();
            let connection = connection.clone();
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

    /// Returns the status of the connected member.
    pub(crate) async fn status(&self) -> Result<StatusResponse, RequestError> {
        self.call(STATUS, Empty {}, true).await
    }

    /// Lists the members.
    pub(crate) async fn member_list(&self) -> Result<MembersResponse, RequestError> {
        self.call("/etcdserverpb.Cluster/MemberList", Empty {}, true).await
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        repeatable: bool,
    ) -> Result<A, RequestError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let send = |connection: &Connection| unary(connection, path, request.clone());
        self.with_connection(repeatable, send).await
    }

    /// Sends a request. Sends it again over another connection if the token was refused, or if the
    /// member stopped answering and the request is `repeatable` (C1).
    async fn with_connection<A, F>(&self, repeatable: bool, send: F) -> Result<A, RequestError>
    where
        F: Fn(&Connection) -> Sending<A>,
    {
        let mut refused_token = false;
        let mut repeatable = repeatable;
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
                RequestError::Unauthenticated(_)
                    if self.0.options.cluster.user.is_some() && !refused_token =>
                {
                    refused_token = true;
                    self.forget(connection.number, 0);
                }
                RequestError::Elsewhere(error) => {
                    self.forget(connection.number, 1);
                    return Err(RequestError::Elsewhere(error));
                }
                other => return Err(other),
            }
        }
    }

    /// Waits for an answer until `end`. After a part of that time it checks whether the member is
    /// alive, and drops the connection if it is not (C5). `None`: the request is to be sent again.
    async fn answer<A>(
        &self,
        connection: &Connection,
        mut sent: Sending<A>,
        end: Instant,
        repeatable: bool,
    ) -> Option<Result<A, RequestError>> {
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
            Some(answer) => answer.map_err(|status| request_error(&status)),
            None => {
                let message = format!("no answer within {:?}", self.0.deadline);
                Err(RequestError::Elsewhere(unavailable(message, Certainty::Unknown)))
            }
        })
    }

    /// Records that the connection cannot be used any more, because its runtime is gone.
    pub(crate) fn leave_connection(&self) {
        self.0.stale.store(true, Ordering::SeqCst);
    }

    /// Drops this connection, so that the next request authenticates again. A newer connection
    /// stays.
    pub(crate) fn renew_token(&self, number: u64) {
        self.forget(number, 0);
    }

    /// Drops this connection, unless it was replaced, and skips `on` members.
    fn forget(&self, number: u64, on: usize) {
        let mut slot = self.0.slot.lock();
        if slot.connection.as_ref().is_some_and(|known| known.number == number) {
            slot.connection = None;
            slot.first += on;
        }
    }

    /// Returns the connection; if there is none, waits for the dial that makes one (C4).
    async fn connection(&self) -> Result<Connection, LockError> {
        let dialing = {
            let mut slot = self.0.slot.lock();
            if self.0.stale.swap(false, Ordering::SeqCst) {
                slot.connection = None;
                slot.dialing = None;
            }
            if let Some(connection) = &slot.connection {
                return Ok(connection.clone());
            }
            match &slot.dialing {
                Some(dialing) => dialing.clone(),
                None => {
                    let (report, outcome) = oneshot::channel();
                    let dialing = outcome.shared();
                    slot.dialing = Some(dialing.clone());
                    tokio::spawn(self.clone().dial(slot.first, dialing.clone(), report));
                    dialing
                }
            }
        };
        dialing.clone().await.unwrap_or_else(|_| {
            self.take_dial(&mut self.0.slot.lock(), &dialing);
            let message = "the runtime ended while a connection was made";
            Err(unavailable(message, Certainty::NotApplied))
        })
    }

    /// Makes a connection and reports it to all requests that wait for this dial.
    async fn dial(
        self,
        first: usize,
        dialing: Dialing,
        report: oneshot::Sender<Result<Connection, LockError>>,
    ) {
        let made = self.connect_to_any(first).await;
        let outcome = {
            let mut slot = self.0.slot.lock();
            let current = self.take_dial(&mut slot, &dialing);
            made.map(|(place, mut connection)| {
                slot.connections += 1;
                connection.number = slot.connections;
                if current {
                    slot.first = place;
                    slot.connection = Some(connection.clone());
                }
                connection
            })
        };
        // No request may be waiting any more.
        let _ = report.send(outcome);
    }

    /// Takes a dial out of the slot; returns whether it was there.
    fn take_dial(&self, slot: &mut ConnectionSlot, dialing: &Dialing) -> bool {
        slot.dialing.take_if(|known| known.ptr_eq(dialing)).is_some()
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
                    Some((_, Ok(Err(RequestError::Error(error))))) => return Err(error),
                    Some((place, Ok(Err(failure)))) => {
                        failures[place] = Some(failure.into_error());
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

    /// Returns why no member serves: no quorum, if any member reports that.
    fn nobody_serves(&self, failures: &[Option<LockError>]) -> LockError {
        let named = failures.iter().zip(&self.0.members);
        let reasons: Vec<String> = named
            .filter_map(|(failure, (member, _))| {
                Some(format!("{member}: {}", without_head(failure.as_ref()?)))
            })
            .collect();
        let no_quorum = |error: &LockError| matches!(error.kind(), ErrorKind::NoQuorum { .. });
        let refused = |error: &LockError| matches!(error.kind(), ErrorKind::Refused { .. });
        let known: Vec<&LockError> = failures.iter().flatten().collect();
        if known.iter().any(|error| no_quorum(error)) {
            return not_applied(ErrorKind::NoQuorum { nodes: reasons });
        }
        let message = reasons.join("; ");
        // What all of them refuse does not pass by itself.
        if !known.is_empty() && known.iter().all(|error| refused(error)) {
            not_applied(ErrorKind::Refused { message })
        } else {
            unavailable(message, Certainty::NotApplied)
        }
    }

    /// Connects to a member and has it answer once: what listens may say nothing, or have no
    /// leader. If that fails for TLS, the error says what is wrong, in the words of all engines.
    async fn connect(&self, place: usize) -> Result<Connection, RequestError> {
        let error = match self.connect_once(place).await {
            Err(RequestError::Elsewhere(error)) if error.is_unavailable() => error,
            outcome => return outcome,
        };
        let (member, _) = &self.0.members[place];
        let why = tls_failure(member, self.0.tls.as_ref()).await;
        Err(RequestError::Elsewhere(why.unwrap_or(error)))
    }

    async fn connect_once(&self, place: usize) -> Result<Connection, RequestError> {
        let cannot = |why: String| RequestError::Elsewhere(unavailable(why, Certainty::NotApplied));
        let (member, endpoint) = &self.0.members[place];
        // Files are read for each connection, so that a renewed certificate is used.
        let tls = self.0.options.tls_config().map_err(|error| cannot(error.to_string()))?;
        let endpoint = match tls {
            Some(tls) => endpoint.clone().tls_config(tls),
            None => Ok(endpoint.clone()),
        };
        let endpoint = endpoint.map_err(|error| cannot(deepest(&error)))?;
        let connected = transport::connect(&endpoint, member).await;
        let channel = connected.map_err(|error| cannot(deepest(&error)))?;
        let mut connection = Connection { number: 0, channel, token: None };
        let Some((name, password)) = self.0.options.cluster.credentials().await else {
            return ask_status(&connection).await.map(|()| connection);
        };
        let path = "/etcdserverpb.Auth/Authenticate";
        let request = AuthenticateRequest { name, password };
        let answer: AuthenticateResponse =
            unary(&connection, path, request).await.map_err(|status| request_error(&status))?;
        let bad = |_| RequestError::Error(protocol("the server's token cannot be sent back"));
        connection.token = Some(MetadataValue::try_from(answer.token).map_err(bad)?);
        Ok(connection)
    }
}

/// Returns why a member cannot be reached, if that is a matter of TLS: its certificate or ours, or
/// that only one side has TLS. It makes a connection of its own.
async fn tls_failure(member: &Server, tls: Option<&TlsFiles>) -> Option<LockError> {
    let stream = socket::connect(&member.host, member.port).await.ok()?;
    match tls {
        Some(files) => {
            let error = TLS.wrap(stream, &member.host, files).await.err()?;
            if error.is_unavailable() && answers_in_clear_text(member).await {
                return Some(TLS.no_tls());
            }
            Some(error).filter(|error| !error.is_unavailable())
        }
        None if TlsContext::speaks_tls(stream, &member.host).await => {
            let message = "the server speaks TLS on this port: write `etcds://`".to_owned();
            Some(not_applied(ErrorKind::Refused { message }))
        }
        None => None,
    }
}

/// Returns whether a member answers a request for its version without TLS. With TLS it answers 400.
async fn answers_in_clear_text(member: &Server) -> bool {
    let answer = async {
        let mut stream = socket::connect(&member.host, member.port).await?;
        stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        Ok::<bool, std::io::Error>(status.starts_with(b"HTTP/1.") && status.ends_with(b" 200"))
    };
    answer.await.unwrap_or(false)
}

impl Connection {
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(LONGEST_ANSWER)
    }
}

/// Returns whether the member answers and has a leader.
async fn lives(connection: &Connection) -> bool {
    ask_status(connection).await.is_ok()
}

async fn ask_status(connection: &Connection) -> Result<(), RequestError> {
    let answer: Result<StatusResponse, Status> = unary(connection, STATUS, Empty {}).await;
    match answer.map_err(|status| request_error(&status)) {
        Err(RequestError::Elsewhere(error)) => Err(RequestError::Elsewhere(error)),
        // A refusal is an answer too: the request itself gets the reason.
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

/// Adds the token, and the demand that a member without a leader must not answer.
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

/// Returns the message of an error, without engine and kind, for a list of members.
fn without_head(error: &LockError) -> String {
    match error.kind() {
        ErrorKind::Unavailable { message } => message.clone(),
        ErrorKind::NoQuorum { nodes } => nodes.join("; "),
        _ => error.to_string(),
    }
}
